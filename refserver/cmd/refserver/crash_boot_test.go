//go:build linux

package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// opBoot is the start of a server or a runner.
const opBoot = "boot"

// bootAndDie starts the server, or the runner alone, and kills it at a step of its start, and with the server the runner that it
// may have started by then. Step 0 lets it come to the end of its start first. It returns the steps that were done, and what the
// tracer said of the one.
func (w *crashWorld) bootAndDie(who string, step int, when string) (steps []string, said string) {
	w.t.Helper()
	args := []string{"--listen=127.0.0.1:0", "--log=json"}
	attr := &syscall.SysProcAttr{}
	if who == theRunner {
		args = []string{"runner", "--host", w.state()}
		attr.Unshareflags = syscall.CLONE_NEWNS // as a server starts it
	}
	program := w.command(w.t.Context(), args...)
	cmd := exec.Command("/bin/sh", append([]string{"-c", `kill -STOP $$; exec "$@"`, "sh", program.Path}, args...)...)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = program.Dir, program.Env, attr
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	pid := cmd.Process.Pid
	w.within("the start waits for its tracer", func() bool { return procState(fmt.Sprintf("/proc/%d/stat", pid)) == 'T' })
	tr := startTrace(w.t, pid, step, when)
	_ = syscall.Kill(pid, syscall.SIGCONT)
	w.within("a start comes to its step or its end", func() bool {
		select {
		case said = <-tr.lines:
			return true
		default:
			return w.answers(who)
		}
	})
	_ = syscall.Kill(pid, syscall.SIGKILL)
	steps = tr.end()
	_ = cmd.Wait() // killed
	w.within("what was started dies", func() bool {
		left := w.runners()
		for _, p := range left {
			_ = syscall.Kill(p.pid, syscall.SIGKILL)
		}
		return len(left) == 0
	})
	return steps, said
}

// answers says whether a start has come to its end: the runner accepts, or the server is listed.
func (w *crashWorld) answers(who string) bool {
	if who == theRunner {
		c, err := net.Dial("unix", filepath.Join(w.state(), "host.sock"))
		if err == nil {
			c.Close()
		}
		return err == nil
	}
	entries, _ := os.ReadDir(filepath.Join(w.state(), "servers"))
	for _, e := range entries {
		if c, err := net.Dial("tcp", e.Name()); err == nil {
			c.Close()
			return true
		}
	}
	return false
}
