//go:build linux

package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

var (
	crashSeed   = flag.Uint64("crash.seed", 1, "seed of the crash points")
	crashPoints = flag.Int("crash.points", 0, "number of crash points; 0: 234, or 78 with -short, 3 with the race detector")
	crashOnly   = flag.String("crash.only", "", "only the points whose description has this in it")
)

// crashWorkers is how many state directories have crashes at the same time.
const crashWorkers = 4

// TestWhateverDiesWhatIsSaidAfterwardsIsTrueAndNothingIsLeft kills the server, the runner, both, or all of the machine, at
// chosen steps of each operation, starts again, and compares what is said with what may be true.
func TestWhateverDiesWhatIsSaidAfterwardsIsTrueAndNothingIsLeft(t *testing.T) {
	if os.Geteuid() != 0 {
		if slices.Contains(strings.Split(os.Getenv("KEEPWELL_REQUIRE"), ","), "linux") {
			t.Fatal("only root can crash what has uids of its own")
		}
		t.Skip("only root can crash what has uids of its own")
	}
	r := &crashRun{began: time.Now()}
	points := make(chan point)
	n := *crashPoints
	switch {
	case n > 0:
	case raceDetector: // which makes each a matter of many seconds
		n = 3
	case testing.Short():
		n = 78
	default:
		n = 234
	}
	t.Logf("seed %d, %d points", *crashSeed, n)
	all := newCrashWorld(newLab(t)).count()
	todo := slices.DeleteFunc(plan(*crashSeed, n, all), func(p point) bool { return !strings.Contains(p.String(), *crashOnly) })
	t.Cleanup(func() { r.report(t, todo, all) })
	go func() {
		defer close(points)
		for _, p := range todo {
			select {
			case points <- p:
			case <-t.Context().Done():
				return
			}
		}
	}()
	for i := range min(crashWorkers, len(todo)) { // more would only start and end
		t.Run(fmt.Sprintf("worker %d", i), func(t *testing.T) { r.work(newLab(t), points) })
	}
}

// crashRun is what the workers find.
type crashRun struct {
	began time.Time

	mu        sync.Mutex // guards the fields below
	hit       map[string]int
	missed    int
	survivors []string
	faults    int
}

// finish ends a world that nothing was wrong with.
func (w *crashWorld) finish(r *crashRun) {
	w.t.Helper()
	found, err := w.close()
	if err != nil || len(found) > 0 {
		w.t.Errorf("after the end of %s: %v, left behind:\n%s", w.state(), err, strings.Join(found, "\n"))
	}
	r.survived(found)
}

func (r *crashRun) work(l *lab, points <-chan point) {
	w := newCrashWorld(l)
	w.up()
	for p := range points {
		if err := r.crash(w, p); err != nil {
			l.t.Errorf("point %s: %v\nserver: %s", p, err, tail(w.server.stderr.String()))
			r.mu.Lock()
			r.faults++
			r.mu.Unlock()
			return // what is wrong with this world would be wrong with each point that follows
		}
	}
	w.finish(r)
}

func tail(s string) string { return s[max(0, len(s)-3000):] }

func (r *crashRun) survived(found []string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.survivors = append(r.survivors, found...)
}

// note counts a point at the step that the tracer names, or at the end of its operation.
func (r *crashRun) note(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	name, isHit := strings.CutPrefix(line, "hit ")
	if !isHit {
		r.missed++
		return
	}
	if r.hit == nil {
		r.hit = map[string]int{}
	}
	r.hit[name]++
}

// report prints what a run has done and found.
func (r *crashRun) report(t *testing.T, points []point, all steps) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k, list := range all {
		t.Logf("%s has %d steps of the %s: %s", k.op, len(list), k.traced, strings.Join(list, " "))
	}
	t.Logf("seed %d: %d points in %s: %s", *crashSeed, len(points), time.Since(r.began).Round(time.Second), strings.Join(byKind(points), ", "))
	t.Logf("hit at %v, and %d at the end of the operation", r.hit, r.missed)
	t.Logf("survivors: %d %v; points that found a fault: %d", len(r.survivors), r.survivors, r.faults)
}
