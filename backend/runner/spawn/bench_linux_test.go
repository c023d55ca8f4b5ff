package spawn_test

import (
	"context"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/keepwell-go/keepwell/backend/runner/spawn"
)

// BenchmarkStartAndWait runs /bin/true bare and confined by turns, and reports how many times longer the latter takes.
func BenchmarkStartAndWait(b *testing.B) {
	cases := []struct {
		name   string
		limits spawn.Limits
	}{
		{"confined", spawn.Limits{}},
		{"confined and limited", spawn.Limits{MemoryMB: 4096, PIDs: 512, OpenFiles: 1024}},
	}
	for _, c := range cases {
		b.Run(c.name, func(b *testing.B) {
			cell := confine(b, newSpawner(b, spawn.Config{}), c.limits)
			null := devNull(b)
			var bare, confined time.Duration
			for b.Loop() {
				began := time.Now()
				forkExecWait(b, null)
				middle := time.Now()
				p, err := cell.Start(spawn.Command{ID: "true", Argv: []string{"/bin/true"}, Stdin: null, Stdout: null, Stderr: null})
				if err != nil {
					b.Fatal(err)
				}
				<-p.Done()
				bare += middle.Sub(began)
				confined += time.Since(middle)
			}
			b.ReportMetric(float64(bare.Microseconds())/float64(b.N), "bare-µs/op")
			b.ReportMetric(float64(confined.Microseconds())/float64(b.N), "confined-µs/op")
			b.ReportMetric(float64(confined)/float64(bare), "x-bare")
		})
	}
}

func forkExecWait(b *testing.B, null *os.File) {
	pid, err := syscall.ForkExec("/bin/true", []string{"/bin/true"}, &syscall.ProcAttr{Files: []uintptr{null.Fd(), null.Fd(), null.Fd()}})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := syscall.Wait4(pid, nil, 0, nil); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkKillAmongOthers kills one process while 1,000 others sleep outside of its sandbox.
func BenchmarkKillAmongOthers(b *testing.B) {
	for range 1000 {
		cmd := exec.Command("/bin/sleep", "1000")
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	}
	cell := confine(b, newSpawner(b, spawn.Config{}), spawn.Limits{})
	null := devNull(b)
	for b.Loop() {
		b.StopTimer()
		p, err := cell.Start(spawn.Command{ID: "sleep", Argv: []string{"/bin/sleep", "1000"}, Stdin: null, Stdout: null, Stderr: null})
		if err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		if _, err := p.Kill(context.Background(), 0); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkIdleConfinement reports what an idle sandbox costs in this process.
func BenchmarkIdleConfinement(b *testing.B) {
	s := newSpawner(b, spawn.Config{})
	limits := sandbox(b, spawn.Limits{})
	b.ReportAllocs()
	for b.Loop() {
		c, err := s.Confine(limits)
		if err != nil {
			b.Fatal(err)
		}
		c.Close()
	}
}
