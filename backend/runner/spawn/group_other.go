//go:build !unix

package spawn

import "syscall"

func ownGroup() *syscall.SysProcAttr { return nil }

func signalGroup(int, syscall.Signal) {}
