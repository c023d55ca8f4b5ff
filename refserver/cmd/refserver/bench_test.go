package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/keepwell-go/keepwell/backend/runner/wire"
	"github.com/keepwell-go/keepwell/refserver/client"
)

// The benchmarks below measure the program as it is run: server and host runner are processes of their own. Each takes turns
// with its bare counterpart, and reports the ratio.

func benchServer(b *testing.B) (*lab, *server) {
	b.Helper()
	l := &lab{t: b}
	home, err := os.MkdirTemp("", "kw")
	if err != nil {
		b.Fatal(err)
	}
	l.home = home
	b.Cleanup(func() { l.ok("down"); os.RemoveAll(home) })
	return l, l.serve("--max-sandboxes=2000")
}

// turns runs ours and bare alternately and reports the time of each and the ratio. The fastest halves count, so that what else
// the machine does weighs on both alike.
func turns(b *testing.B, ours, bare func() error) {
	var a, z []time.Duration
	for b.Loop() {
		for _, side := range []struct {
			run  func() error
			took *[]time.Duration
		}{{ours, &a}, {bare, &z}} {
			start := time.Now()
			if err := side.run(); err != nil {
				b.Fatal(err)
			}
			*side.took = append(*side.took, time.Since(start))
		}
	}
	mine, theirs := median(a), median(z)
	b.ReportMetric(float64(mine.Microseconds()), "ours-µs")
	b.ReportMetric(float64(theirs.Microseconds()), "bare-µs")
	b.ReportMetric(float64(mine)/float64(theirs), "ratio")
}

func median(d []time.Duration) time.Duration {
	sorted := append([]time.Duration(nil), d...)
	slices.Sort(sorted)
	return sorted[len(sorted)/2]
}

func BenchmarkExecOfTrue(b *testing.B) {
	_, s := benchServer(b)
	api := s.client()
	if _, err := api.Create(b.Context(), client.CreateRequest{ID: "box"}); err != nil {
		b.Fatal(err)
	}
	turns(b, func() error {
		return execToEnd(b.Context(), api, "box", []string{"/bin/true"}, nil)
	}, bareExec)
}

// execToEnd runs argv and hands what it prints to sink, if there is one.
func execToEnd(ctx context.Context, api *client.Client, id string, argv []string, sink func([]byte)) error {
	stream, err := api.Exec(ctx, id, wire.StartRequest{Cmd: wire.Command{Argv: argv}})
	if err != nil {
		return err
	}
	for ev, err := range stream.All() {
		if err != nil {
			return err
		}
		if ev.Event == wire.EventExit && (ev.ExitCode == nil || *ev.ExitCode != 0) {
			return fmt.Errorf("%v ended with %+v", argv, ev)
		}
		if sink != nil && ev.Event == wire.EventStdout {
			sink(client.Bytes(ev))
		}
	}
	return nil
}

// bareExec is fork, exec and wait with two pipes that are read to their ends.
func bareExec() error {
	cmd := exec.Command("/bin/true")
	out, err1 := cmd.StdoutPipe()
	errs, err2 := cmd.StderrPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		return err
	}
	_, err1 = io.Copy(io.Discard, out)
	_, err2 = io.Copy(io.Discard, errs)
	return errors.Join(err1, err2, cmd.Wait())
}

func BenchmarkCreate(b *testing.B) {
	_, s := benchServer(b)
	api, bare := s.client(), newBareCreate(b)
	n := 0
	turns(b, func() error {
		n++
		_, err := api.Create(b.Context(), client.CreateRequest{ID: "c" + strconv.Itoa(n)})
		if n%500 == 0 { // room for the next ones
			b.StopTimer()
			defer b.StartTimer()
			for i := n - 499; i <= n; i++ {
				if _, err := api.Delete(b.Context(), "c"+strconv.Itoa(i), false); err != nil {
					return err
				}
			}
		}
		return err
	}, bare.create)
}

func BenchmarkDestroyOfAnIdleSandboxBesideItsCreate(b *testing.B) {
	_, s := benchServer(b)
	api, n := s.client(), 0
	var created []string
	turns(b, func() error {
		if len(created) == 0 { // the very first turn
			if _, err := api.Create(b.Context(), client.CreateRequest{ID: "first"}); err != nil {
				return err
			}
			created = append(created, "first")
		}
		_, err := api.Delete(b.Context(), created[0], false)
		created = created[1:]
		return err
	}, func() error {
		n++
		id := "c" + strconv.Itoa(n)
		created = append(created, id)
		_, err := api.Create(b.Context(), client.CreateRequest{ID: id})
		return err
	})
}

// bareCreate does on the disk what the creation of a sandbox does, and makes a round trip over each of the same sockets.
type bareCreate struct {
	dir        string
	n          int
	tcp, unix  *http.Client
	tcpAddress string
}

func newBareCreate(b *testing.B) *bareCreate {
	dir, err := os.MkdirTemp("", "kw")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { os.RemoveAll(dir) })
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, `{"ok":true}`)
	})
	tcp, err1 := net.Listen("tcp", "127.0.0.1:0")
	socket := filepath.Join(dir, "s")
	unix, err2 := net.Listen("unix", socket)
	if err := errors.Join(err1, err2); err != nil {
		b.Fatal(err)
	}
	for _, ln := range []net.Listener{tcp, unix} {
		srv := &http.Server{Handler: answer}
		go func() { _ = srv.Serve(ln) }() // ends with the Close below
		b.Cleanup(func() { srv.Close() })
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}
	return &bareCreate{
		dir: dir, tcp: &http.Client{}, unix: &http.Client{Transport: &http.Transport{DialContext: dial}},
		tcpAddress: "http://" + tcp.Addr().String(),
	}
}

func (c *bareCreate) create() error {
	c.n++
	box := filepath.Join(c.dir, strconv.Itoa(c.n))
	home := filepath.Join(box, "home")
	err := errors.Join(os.Mkdir(box, 0o710), os.Mkdir(home, 0o700), os.Mkdir(filepath.Join(home, "tmp"), 0o700),
		os.Lchown(box, 0, os.Getgid()), os.Lchown(home, os.Getuid(), os.Getgid()), os.Lchown(filepath.Join(home, "tmp"), os.Getuid(), os.Getgid()))
	if err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(box, "meta.new"))
	if err != nil {
		return err
	}
	_, err = f.WriteString(strings.Repeat("m", 300))
	err = errors.Join(err, f.Sync(), f.Close(), os.Rename(f.Name(), filepath.Join(box, "meta")), syncPath(box), syncPath(c.dir))
	return errors.Join(err, trip(c.tcp, c.tcpAddress), trip(c.unix, "http://unix"))
}

func syncPath(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func trip(c *http.Client, url string) error {
	resp, err := c.Post(url, "application/json", strings.NewReader(`{"id":"x"}`))
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return errors.Join(err, resp.Body.Close())
}
