package local_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/zap"

	"github.com/keepwell-go/keepwell/backend/local"
)

// noRaceSleep, in the environment of a program with the race detector, has it end at once: it would sleep for a second before.
const noRaceSleep = "GORACE=atexit_sleep_ms=0"

// opens, in the environment of a host runner, has it call Open instead of Host.
const opens = "TEST_OPENS=1"

// TestMain makes the test program a host runner where a Backend starts it as one, as it starts refserver.
func TestMain(m *testing.M) {
	args := flag.NewFlagSet("runner", flag.ExitOnError)
	dir, protocol := args.String("host", "", ""), args.Int("protocol", 0, "")
	if len(os.Args) > 1 && os.Args[1] == "runner" {
		_ = args.Parse(os.Args[2:])
		os.Exit(host(*dir, *protocol))
	}
	name, value, _ := strings.Cut(noRaceSleep, "=")
	if err := os.Setenv(name, value); err != nil { // of the hosts, which each Backend starts
		panic(err)
	}
	os.Exit(m.Run())
}

func host(dir string, protocol int) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	log, err := zap.NewDevelopment()
	name, value, _ := strings.Cut(opens, "=")
	switch {
	case err != nil:
	case os.Getenv(name) == value:
		_, err = local.Open(local.Config{StateDir: dir})
	default:
		err = local.Host(ctx, local.HostConfig{StateDir: dir, Version: "test", Protocol: protocol, Logger: log})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
