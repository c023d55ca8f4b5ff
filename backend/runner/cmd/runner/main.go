// Command runner serves one sandbox: it is the first program of a container or pod, or runs beside the workload of one.
package main

import (
	"context"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/keepwell-go/keepwell/backend/runner/dedicated"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := dedicated.Run(ctx, os.Args[1:], version(), os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// version is what the build says of itself.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "unknown"
	}
	return info.Main.Version
}
