// Command refserver serves confined sandboxes on this machine, and is the client of such a server.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // who asks a second time does not want to wait for what the first began
	code := run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}
