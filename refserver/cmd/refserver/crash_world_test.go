//go:build linux

package main

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/keepwell-go/keepwell/refserver/client"
)

// crashRoom is how many sandboxes the servers of the crash tests admit.
const crashRoom = 4

// crashWorld is a state directory with a server and a runner of its own, both of which may die.
type crashWorld struct {
	*lab
	server  *server
	api     *client.Client
	blocks  map[uint32]bool   // the first uids of the blocks that its sandboxes have had
	tickers map[string]string // the ids of the tickers, by sandbox
}

func newCrashWorld(l *lab) *crashWorld {
	return &crashWorld{lab: l, blocks: map[uint32]bool{}, tickers: map[string]string{}}
}

// up starts a server, which starts a runner where there is none.
func (w *crashWorld) up() {
	w.server = w.serve("--log=json", "--max-sandboxes="+strconv.Itoa(crashRoom))
	w.api = w.server.client()
	w.api.HTTP = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // nothing is sent to a server that is dead
}

// runner returns the process that holds the state directory.
func (w *crashWorld) runner() int {
	w.t.Helper()
	raw, err := os.ReadFile(filepath.Join(w.state(), "host.lock"))
	if err != nil {
		w.t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil {
		w.t.Fatal(err)
	}
	return pid
}

func (w *crashWorld) pid(who string) int {
	if who == theServer {
		return w.server.cmd.Process.Pid
	}
	return w.runner()
}

// kill ends processes as a crash does, and returns when they have ended; the trace has been told to let go of them by then.
func (w *crashWorld) kill(victim string) {
	runner := w.runner()
	if victim != theServer {
		_ = syscall.Kill(runner, syscall.SIGKILL) // it may have been hit already
	}
	if victim != theRunner {
		_ = w.server.cmd.Process.Kill()
	}
	if victim == power {
		for _, p := range w.strays() {
			_ = syscall.Kill(p.pid, syscall.SIGKILL)
		}
	}
}

// ended waits until what kill has hit is no more.
func (w *crashWorld) ended(victim string, runner int) {
	w.t.Helper()
	if victim != theRunner {
		w.server.end(syscall.SIGKILL)
	}
	if victim != theServer {
		w.within("the runner dies", func() bool { return !alive(runner) })
	}
	if victim == power {
		w.within("its sandboxes die", func() bool { return len(w.strays()) == 0 })
	}
}

// within waits until cond holds.
func (w *crashWorld) within(what string, cond func() bool) {
	w.t.Helper()
	soon := time.NewTicker(2 * time.Millisecond)
	defer soon.Stop()
	deadline := time.After(time.Minute)
	for !cond() {
		select {
		case <-soon.C:
		case <-deadline:
			w.t.Fatalf("waited in vain until %s", what)
		}
	}
}

// sibling returns a world with a state directory that is not there yet.
func (w *crashWorld) sibling() *crashWorld {
	w.t.Helper()
	home, err := os.MkdirTemp("", "kw")
	if err != nil {
		w.t.Fatal(err)
	}
	born := newCrashWorld(&lab{t: w.t, home: home, env: w.env})
	w.t.Cleanup(func() {
		if exists(born.state()) { // something was wrong with it
			born.run("down")
		}
		_ = os.RemoveAll(home)
	})
	return born
}

// copy returns a world whose state directory has what this one's has at this moment, while nothing of this one moves.
func (w *crashWorld) copy() *crashWorld {
	w.t.Helper()
	for _, who := range []string{theServer, theRunner} {
		_ = syscall.Kill(w.pid(who), syscall.SIGSTOP)
	}
	to := w.sibling()
	maps.Copy(to.blocks, w.blocks)
	maps.Copy(to.tickers, w.tickers)
	if err := errors.Join(os.MkdirAll(filepath.Dir(to.state()), 0o700), copyTree(w.state(), to.state())); err != nil {
		w.t.Fatal(err)
	}
	return to
}

// copyTree is cp -a, without sockets.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		at := to + strings.TrimPrefix(path, from)
		switch {
		case d.IsDir():
			err = os.Mkdir(at, 0o700)
		case d.Type().IsRegular():
			var content []byte
			if content, err = os.ReadFile(path); err == nil {
				err = os.WriteFile(at, content, 0o600)
			}
		default:
			return nil
		}
		st := info.Sys().(*syscall.Stat_t)
		return errors.Join(err, os.Lchown(at, int(st.Uid), int(st.Gid)), os.Chmod(at, info.Mode()))
	})
}

// learn notes which uids a sandbox has.
func (w *crashWorld) learn(id string) {
	w.t.Helper()
	info, err := os.Stat(filepath.Join(w.state(), "sandboxes", id, "home"))
	if err != nil {
		w.t.Fatal(err)
	}
	if block := blockOf(info.Sys().(*syscall.Stat_t).Uid); block != 0 {
		w.blocks[block] = true
	}
}

// file returns what a sandbox's workspace has of a name, "" where it has none.
func (w *crashWorld) file(id, name string) string {
	raw, _ := os.ReadFile(filepath.Join(w.state(), "sandboxes", id, "home", name)) // absent is one of the answers
	return string(raw)
}

// prepare makes the sandboxes that a point needs: one that nothing is done to, and the subject.
func (w *crashWorld) prepare(ctx context.Context, op, keep, subject string) error {
	for _, id := range []string{keep, subject} {
		w.tickers[id] = tickerID
		if id == subject && op == opCreate {
			continue
		}
		if _, err := w.api.Create(ctx, client.CreateRequest{ID: id}); err != nil {
			return err
		}
		if err := w.api.WriteFile(ctx, id, "canary", strings.NewReader(id)); err != nil {
			return err
		}
		p, _, err := w.api.Start(ctx, id, ticker(tickerID, "ticks"))
		if err == nil {
			_, err = tickerOutput(ctx, p)
		}
		if err != nil {
			return err
		}
		w.tickers[id] = p.ID
		w.learn(id)
	}
	if op != opResume {
		return nil
	}
	_, err := w.api.Stop(ctx, subject)
	return err
}
