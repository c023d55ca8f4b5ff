package local_test

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"go.uber.org/zap"

	"github.com/keepwell-go/keepwell/backend/local"
)

// TestMain makes the test program a host runner where a Backend starts it as one, as it starts refserver.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == "runner" && os.Args[2] == "--host" {
		os.Exit(host(os.Args[3]))
	}
	os.Exit(m.Run())
}

func host(dir string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	log, err := zap.NewDevelopment()
	if err == nil {
		err = local.Host(ctx, local.HostConfig{StateDir: dir, Version: "test", Logger: log})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
