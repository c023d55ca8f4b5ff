package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keepwell-go/keepwell/refserver/client"
)

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
	key, err := os.ReadFile(filepath.Join(l.state(), "host.key"))
	if err != nil {
		b.Fatal(err)
	}
	straight := &client.Client{Base: "http://runner", Token: strings.TrimSpace(string(key)), HTTP: runnerHTTP(b, l)}
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
