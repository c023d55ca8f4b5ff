//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"syscall"

	"github.com/keepwell-go/keepwell/refserver/client"
)

// legacy starts a runner that gives processes ids of its own, which the next server then uses.
func (w *crashWorld) legacy() {
	w.t.Helper()
	if err := makeStateDir(w.state()); err != nil {
		w.t.Fatal(err)
	}
	cmd := w.command(context.Background(), "runner", "--host", w.state(), "--protocol", "1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Unshareflags: syscall.CLONE_NEWNS} // as a server starts it
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		_ = cmd.Process.Kill() // if down has not ended it
		_ = cmd.Wait()
	})
	w.within("the old runner answers", func() bool { return w.answers(theRunner) })
}

// legacy carries out a point in a world of its own.
func (r *crashRun) legacy(ctx context.Context, w *crashWorld, p point) error {
	old := w.sibling()
	old.legacy()
	old.up()
	if err := r.point(ctx, old, p); err != nil {
		return fmt.Errorf("%w\nserver: %s", err, tail(old.server.stderr.String()))
	}
	old.finish(r)
	return os.RemoveAll(old.home)
}

// checkLegacy looks for a process that was started with an old runner. It was answered for only when the store had its id, and by
// that id it is found and killed. One that was not answered for can be killed by the id that the list has for it.
func (w *crashWorld) checkLegacy(ctx context.Context, id string, a answer) error {
	list, err := w.api.Processes(ctx, id)
	if err != nil {
		return err
	}
	found := false
	for _, p := range list {
		if !p.Running || p.ID == w.tickers[id] {
			continue
		}
		found = found || p.ID == a.process
		killed, err := client.Process{Client: w.api, Sandbox: id, ID: p.ID}.Kill(ctx, 0)
		if err != nil || !killed {
			return fmt.Errorf("kill of %s, which the list says runs: %v, %w", p.ID, killed, err)
		}
		if running, err := w.runs(ctx, id, p.ID); err != nil || running {
			return fmt.Errorf("after the kill of %s it runs %v: %w", p.ID, running, err)
		}
	}
	if a.done && !found {
		return fmt.Errorf("process %s, whose start was answered, is not found in %+v", a.process, list)
	}
	return nil
}
