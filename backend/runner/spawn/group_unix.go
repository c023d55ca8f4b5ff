//go:build unix && !linux

package spawn

import "syscall"

func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

func signalGroup(pgid int, sig syscall.Signal) { _ = syscall.Kill(-pgid, sig) }
