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
	"sync"
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

// BenchmarkAThousandSandboxes creates 1,000, runs a command in each and destroys them, with 8 clients, and counts what is left.
func BenchmarkAThousandSandboxes(b *testing.B) {
	const sandboxes, clients = 1000, 8
	l, s := benchServer(b)
	api := s.client()
	before := memory(b, s, l)
	var idle int64
	for b.Loop() {
		all(b, sandboxes, clients, func(id string) error {
			_, err := api.Create(b.Context(), client.CreateRequest{ID: id})
			return err
		})
		idle = memory(b, s, l) - before
		all(b, sandboxes, clients, func(id string) error {
			var out string
			err := execToEnd(b.Context(), api, id, []string{"/bin/echo", id}, func(p []byte) { out += string(p) })
			if err == nil && out != id+"\n" {
				err = fmt.Errorf("sandbox %s printed %q", id, out)
			}
			return err
		})
		all(b, sandboxes, clients, func(id string) error {
			_, err := api.Delete(b.Context(), id, false)
			return err
		})
		left, err := os.ReadDir(filepath.Join(l.state(), "sandboxes"))
		if err != nil || len(left) > 0 {
			b.Fatalf("%d directories are left, %v", len(left), err)
		}
	}
	b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s/1000-sandboxes")
	b.ReportMetric(float64(idle)/sandboxes/1024, "KiB/idle-sandbox")
}

func all(b *testing.B, n, workers int, do func(id string) error) {
	b.Helper()
	ids := make(chan string)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for id := range ids {
				if err := do(id); err != nil {
					b.Error(err)
				}
			}
		})
	}
	for i := range n {
		ids <- "s" + strconv.Itoa(i)
	}
	close(ids)
	wg.Wait()
	if b.Failed() {
		b.FailNow()
	}
}

// memory is the resident memory of server and host runner together, in bytes.
func memory(b *testing.B, s *server, l *lab) int64 {
	b.Helper()
	runner := hostRunner(b, l)
	return resident(b, s.cmd.Process.Pid) + resident(b, runner)
}

func resident(b *testing.B, pid int) int64 {
	b.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Skip("memory is read from /proc")
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	return kib << 10
}

// hostRunner finds the host runner of the lab by its command line.
func hostRunner(b *testing.B, l *lab) int {
	b.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		b.Fatal(err)
	}
	for _, path := range paths {
		line, _ := os.ReadFile(path) // gone by now is no match
		if strings.Contains(string(line), "runner\x00--host\x00"+l.state()) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			if err != nil {
				b.Fatal(err)
			}
			return pid
		}
	}
	b.Skip("no host runner is found in /proc")
	return 0
}

// BenchmarkAGibibyteOfOutput streams 1 GiB through the server and straight from the runner, and compares the rates.
func BenchmarkAGibibyteOfOutput(b *testing.B) {
	const size = 1 << 30
	l, s := benchServer(b)
	api := s.client()
	if _, err := api.Create(b.Context(), client.CreateRequest{ID: "box"}); err != nil {
		b.Fatal(err)
	}
	straight := &client.Client{Base: "http://runner", HTTP: runnerHTTP(b, l)}
	argv := []string{"/bin/sh", "-c", "yes 0123456789abcdef | head -c " + strconv.Itoa(size)}
	before := memory(b, s, l)
	rate := func(c *client.Client) time.Duration {
		start := time.Now()
		n := raw(b, c, argv)
		if n < size {
			b.Fatalf("%d bytes came, want at least %d", n, size)
		}
		return time.Since(start)
	}
	var through, direct time.Duration
	for b.Loop() {
		direct += rate(straight)
		through += rate(api)
	}
	b.ReportMetric(size/through.Seconds()*float64(b.N)/1e6, "through-MB/s")
	b.ReportMetric(size/direct.Seconds()*float64(b.N)/1e6, "direct-MB/s")
	b.ReportMetric(direct.Seconds()/through.Seconds(), "ratio")
	b.ReportMetric(float64(memory(b, s, l)-before)/(1<<20), "MiB-more")
}

// raw reads the lines of an exec without a look at them: the reader is not what is measured.
func raw(b *testing.B, c *client.Client, argv []string) (n int64) {
	b.Helper()
	body := fmt.Sprintf(`{"cmd":["%s"]}`, strings.Join(argv, `","`))
	req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, c.Base+"/v1/sandboxes/box/exec", strings.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+c.Token)
	hc := c.HTTP
	if hc == nil {
		hc = http.DefaultClient
	}
	resp, err := hc.Do(req)
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	n, err = io.CopyBuffer(struct{ io.Writer }{io.Discard}, resp.Body, make([]byte, 256<<10))
	if err != nil {
		b.Fatal(err)
	}
	return n
}

// runnerHTTP returns a client that dials the host runner's socket.
func runnerHTTP(b *testing.B, l *lab) *http.Client {
	b.Helper()
	sockets, err := filepath.Glob(filepath.Join(l.state(), "*.sock"))
	if err != nil || len(sockets) != 1 {
		b.Fatalf("sockets of the host runner: %v, %v", sockets, err)
	}
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", sockets[0])
	}}}
}
