package refserver_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/keepwell-go/keepwell/refserver"
)

// bare runs /bin/true with pipes, as the least that an exec can cost.
func bare(b *testing.B) {
	cmd := exec.Command("/bin/true")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkExecOfTrue compares an exec through the server with a bare fork, exec and wait, and with an exec asked of the runner
// itself, in the same run.
func BenchmarkExecOfTrue(b *testing.B) {
	g := newGuests(b)
	g.create("a")
	const body = `{"cmd":["/bin/true"]}`
	direct := &http.Client{Transport: &http.Transport{DialContext: g.dialRunner}}
	var plain, runner, through time.Duration
	for b.Loop() {
		start := time.Now()
		bare(b)
		plain += time.Since(start)
		start = time.Now()
		drain(b, direct, "http://runner", "runner-token", body)
		runner += time.Since(start)
		start = time.Now()
		drain(b, http.DefaultClient, g.url, adminToken, body)
		through += time.Since(start)
	}
	b.ReportMetric(float64(through)/float64(plain), "x-bare")
	b.ReportMetric(float64(through)/float64(runner), "x-runner")
}

// BenchmarkStream compares the rate of a stream through the server with the same stream taken from the runner.
func BenchmarkStream(b *testing.B) {
	const size = 64 << 20
	g := newGuests(b)
	g.create("a")
	body := fmt.Sprintf(`{"cmd":"yes %s | head -c %d"}`, strings.Repeat("0123456789", 6), size)
	direct := &http.Client{Transport: &http.Transport{DialContext: g.dialRunner}}
	var straight, through time.Duration
	for b.Loop() {
		start := time.Now()
		drain(b, direct, "http://runner", "runner-token", body)
		mid := time.Now()
		drain(b, http.DefaultClient, g.url, adminToken, body)
		straight, through = straight+mid.Sub(start), through+time.Since(mid)
	}
	b.SetBytes(2 * size)
	b.ReportMetric(float64(straight)/float64(through), "x-direct-rate")
}

func (g *guests) dialRunner(ctx context.Context, _, _ string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(g.dir, "socket"))
}

func drain(b *testing.B, c *http.Client, url, token, body string) {
	r, err := http.NewRequest("POST", url+"/v1/sandboxes/a/exec", strings.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	resp, err := c.Do(r)
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	if n, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != 200 {
		b.Fatalf("%d with %d bytes, %v", resp.StatusCode, n, err)
	}
}

// BenchmarkForwardOfAQuestion is what the server adds to a request that needs no process.
func BenchmarkForwardOfAQuestion(b *testing.B) {
	g := newGuests(b)
	g.create("a")
	b.ReportAllocs()
	for b.Loop() {
		if got := g.do("GET", "/v1/sandboxes/a/processes", ""); got.status != 200 {
			b.Fatal(got.raw)
		}
	}
}

// BenchmarkIdleSandbox tells what a sandbox that nobody uses keeps in memory, in the server and its runner together.
func BenchmarkIdleSandbox(b *testing.B) {
	const many = 200
	for b.Loop() {
		g := newGuests(b, func(cfg *refserver.Config) { cfg.MaxSandboxes = many + 1 })
		g.create("warm")
		before := inUse()
		for i := range many {
			g.create(fmt.Sprintf("s%d", i))
		}
		b.ReportMetric(float64(inUse()-before)/many/1024, "KiB/sandbox")
		runtime.KeepAlive(g)
	}
}

func inUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}
