package runner_test

import (
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/keepwell-go/keepwell/backend/runner"
	"github.com/keepwell-go/keepwell/backend/runner/spawn"
	"github.com/keepwell-go/keepwell/backend/runner/wire"
)

// BenchmarkExec runs /bin/true through the runner and bare, in turns, and reports how much the runner adds: as a ratio, which holds on
// a quiet machine only, since an exec takes more turns of the scheduler; and as the time of a processor that the runner itself spends.
func BenchmarkExec(b *testing.B) {
	d := startDaemon(b)
	c := d.add("a")
	req := toJSON(wire.StartRequest{Cmd: argv("/bin/true")})
	through := func() {
		resp := c.request("POST", "/exec", strings.NewReader(req))
		if n, err := io.Copy(io.Discard, resp.Body); err != nil || n == 0 {
			b.Fatal(n, err)
		}
		resp.Body.Close()
	}
	bare := func() {
		cmd := exec.Command("/bin/true")
		cmd.Env = []string{"PATH=/bin"}
		cmd.Stdout, cmd.Stderr = io.Discard, io.Discard // pipes and their readers, as the runner has them
		if err := cmd.Run(); err != nil {
			b.Fatal(err)
		}
	}
	through()
	before := spent(d.cmd.Process.Pid)
	var took [2]time.Duration
	for b.Loop() {
		for i, run := range []func(){through, bare} {
			start := time.Now()
			run()
			took[i] += time.Since(start)
		}
	}
	b.ReportMetric(float64(took[0].Microseconds())/float64(b.N), "µs/exec")
	b.ReportMetric(float64(took[1].Microseconds())/float64(b.N), "µs/bare")
	b.ReportMetric(float64(took[0])/float64(took[1]), "ratio")
	b.ReportMetric(float64((spent(d.cmd.Process.Pid)-before).Microseconds())/float64(b.N), "cpu-µs/exec")
}

// streamed is how much BenchmarkStream moves.
const streamed = 1 << 30

// BenchmarkStream moves output of a command to a client, and reports the memory the runner took at most and what it spent, which does
// not depend much on what else the machine does: the time of a processor, and calls that read and write.
func BenchmarkStream(b *testing.B) {
	for _, source := range []struct{ name, cmd string }{
		{"text", "yes 'a line of some 32 bytes, or so.' | head -c %d"},
		{"zeros", "head -c %d /dev/zero"},
	} {
		b.Run(source.name, func(b *testing.B) {
			d := startDaemon(b)
			c := d.add("a")
			b.SetBytes(streamed)
			reads, writes := calls(d.cmd.Process.Pid)
			for b.Loop() {
				resp := c.request("POST", "/exec", strings.NewReader(toJSON(wire.StartRequest{Cmd: line(fmt.Sprintf(source.cmd, streamed))})))
				n, err := io.Copy(io.Discard, resp.Body)
				if err != nil || n < streamed {
					b.Fatal(n, err)
				}
				resp.Body.Close()
			}
			b.ReportMetric(float64(peak(d.cmd.Process.Pid)), "peak-KiB")
			b.ReportMetric(spent(d.cmd.Process.Pid).Seconds()/float64(b.N)/(float64(streamed)/(1<<30)), "cpu-s/GiB")
			readsNow, writesNow := calls(d.cmd.Process.Pid)
			mib := float64(b.N) * streamed / (1 << 20)
			b.ReportMetric(float64(readsNow-reads)/mib, "reads/MiB")
			b.ReportMetric(float64(writesNow-writes)/mib, "writes/MiB")
		})
	}
}

// calls returns how often a process has read and written.
func calls(pid int) (reads, writes int) {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	for line := range strings.Lines(string(b)) {
		_, _ = fmt.Sscanf(line, "syscr: %d", &reads)
		_, _ = fmt.Sscanf(line, "syscw: %d", &writes)
	}
	return reads, writes
}

// peak returns the largest resident size of a process so far, in KiB.
func peak(pid int) (kib int) {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, after, _ := strings.Cut(string(b), "VmHWM:")
	_, _ = fmt.Sscan(after, &kib)
	return kib
}

// spent returns the time of a processor that a process has used, its children not counted.
func spent(pid int) time.Duration {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, after, _ := strings.Cut(string(b), ") ")
	fields := strings.Fields(after)
	var user, system int64
	_, _ = fmt.Sscan(fields[11], &user)
	_, _ = fmt.Sscan(fields[12], &system)
	return time.Duration(user+system) * 10 * time.Millisecond // a tick is 10 ms on all of Linux
}

// BenchmarkIdleSandbox reports the memory of a sandbox in which nothing runs: one that was never used, and one that has run a command.
func BenchmarkIdleSandbox(b *testing.B) {
	for name, used := range map[string]bool{"fresh": false, "used": true} {
		b.Run(name, func(b *testing.B) {
			spawner, err := spawn.New(spawn.Config{})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(spawner.Close)
			home := newHome(b)
			for b.Loop() {
				const n = 200
				server := runner.New(runner.Config{Spawner: spawner})
				before := heap()
				for i := range n {
					id := fmt.Sprint("s", i)
					if err := server.Add(runner.Sandbox{ID: id, Home: home}); err != nil {
						b.Fatal(err)
					}
					if used {
						runHello(b, server, id)
					}
				}
				b.ReportMetric(float64(heap()-before)/n, "B/sandbox")
				server.Close()
			}
		})
	}
}

func runHello(b *testing.B, server *runner.Server, id string) {
	w := httptest.NewRecorder()
	server.Handler().ServeHTTP(w, httptest.NewRequest("POST", "/v1/sandboxes/"+id+"/exec", strings.NewReader(`{"cmd":"echo hello"}`)))
	if out := w.Body.String(); !strings.Contains(out, `"hello\n"`) {
		b.Fatal(out)
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
