//go:build unix && !linux

package local

import (
	"context"
	"os"
	"syscall"

	"go.uber.org/zap"
)

func claimUIDs(string, map[string]record) (*uidPool, error) { return nil, nil }

// killStrays does nothing: without a list of processes, what outlived a former host is not found here.
func killStrays(context.Context, *zap.Logger, string, map[uint32]bool) error { return nil }

func reach(dir, _ string) (string, func(), error) { return dir, nil, nil }

// hideProcesses does nothing: sandboxes have no uids of their own here.
func hideProcesses() bool { return false }

func detached(bool) *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// ownProgram returns the path of the running program.
func ownProgram() (string, error) { return os.Executable() }
