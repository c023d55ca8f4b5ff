//go:build linux

package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

var (
	crashSeed   = flag.Uint64("crash.seed", 1, "seed of the crash points")
	crashPoints = flag.Int("crash.points", 0, "number of crash points; 0: 280, or 56 with -short")
)

// crashWorkers is how many state directories have crashes at the same time.
const crashWorkers = 4

// TestWhateverDiesWhatIsSaidAfterwardsIsTrueAndNothingIsLeft kills the server, the runner, both, or all of the machine, at
// chosen steps of each operation, starts again, and compares what is said with what may be true.
func TestWhateverDiesWhatIsSaidAfterwardsIsTrueAndNothingIsLeft(t *testing.T) {
	if os.Geteuid() != 0 {
		skipUnlessRequired(t, "linux") // uids, and the right to trace what the tests start
	}
	r := &crashRun{began: time.Now()}
	points := make(chan point)
	n := *crashPoints
	if n == 0 {
		n = 280
		if testing.Short() {
			n = 56
		}
	}
	t.Logf("seed %d, %d points", *crashSeed, n)
	counting := newCrashWorld(newLab(t))
	steps := counting.count()
	todo := plan(*crashSeed, n, steps)
	t.Cleanup(func() { r.report(t, todo, steps) })
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
	for i := range crashWorkers {
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

// count carries each operation out without a crash and returns the steps of the server and of the runner.
func (w *crashWorld) count() map[kind][]string {
	ctx := w.t.Context()
	steps := map[kind][]string{}
	w.up()
	for i, k := range kinds() {
		k.victim = ""
		if _, known := steps[k]; known {
			continue
		}
		keep, subject := fmt.Sprintf("k-%d", i), fmt.Sprintf("s-%d", i)
		if err := w.prepare(ctx, k.op, keep, subject); err != nil {
			w.t.Fatal(err)
		}
		tr := startTrace(w.t, w.pid(k.traced), 0, "before")
		done, err := act(ctx, w.api, k.op, subject)
		steps[k] = tr.end()
		if err != nil || !done || len(steps[k]) == 0 {
			w.t.Fatalf("%s without a crash: %v, %v, steps of the %s: %v", k.op, done, err, k.traced, steps[k])
		}
		if err := w.clear(ctx); err != nil {
			w.t.Fatal(err)
		}
	}
	w.finish(nil)
	return steps
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

// answer is what became of an operation.
type answer struct {
	done bool
	err  error
}

// crash carries out one point in a world where all is well and empty, and leaves it so.
func (r *crashRun) crash(w *crashWorld, p point) error {
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	keep, subject := fmt.Sprintf("k-%d", p.n), fmt.Sprintf("s-%d", p.n)
	if err := w.prepare(ctx, p.op, keep, subject); err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	runner := w.runner()
	tr := startTrace(w.t, w.pid(p.traced), p.step, p.when)
	answers := make(chan answer, 1)
	api := w.api
	go func() {
		done, err := act(ctx, api, p.op, subject)
		answers <- answer{done, err}
	}()
	var a answer
	answered := false
	select {
	case line := <-tr.lines:
		r.note(line)
	case a = <-answers:
		answered = true
		r.note("")
	}
	if !answered && p.victim != theRunner {
		select {
		case a = <-answers:
			answered = true
		default:
		}
	}
	var copied *crashWorld
	if p.victim == power {
		copied = w.copy(w.t)
		for block := range w.blocks {
			copied.blocks[block] = true
		}
	}
	w.kill(p.victim)
	tr.end()
	w.ended(p.victim, runner)
	if !answered && p.victim == theRunner {
		a = <-answers // of a server that lives
	}
	if copied != nil {
		if err := r.aftermath(ctx, copied, p, a); err != nil {
			return fmt.Errorf("in the copy: %w", err)
		}
		r.survived(nil)
		copied.finish(r)
		_ = os.RemoveAll(copied.home)
	}
	return r.aftermath(ctx, w, p, a)
}

// aftermath starts again what has died and looks for the truth.
func (r *crashRun) aftermath(ctx context.Context, w *crashWorld, p point, a answer) error {
	rng := rand.New(rand.NewPCG(p.seed, 1))
	runnerDied := p.victim != theServer
	inDoubt := p.victim == theRunner && !a.done && (p.op == opCreate || p.op == opResume)
	keep, subject := fmt.Sprintf("k-%d", p.n), fmt.Sprintf("s-%d", p.n)
	if p.victim != theRunner {
		w.up()
	}
	if p.victim == theRunner { // the server lives, and learns of it when it looks
		if _, err := w.api.List(ctx, url.Values{"fresh": {"1"}}); err != nil {
			return err
		}
	}
	full := rng.IntN(2) == 0
	if full { // as the very first thing that a new server is asked for
		if err := w.checkQuota(ctx, inDoubt); err != nil {
			return err
		}
	}
	bystander := expect(opExec, keep, true, p.victim)
	if _, err := w.check(ctx, rng, bystander, false); err != nil {
		return fmt.Errorf("what nothing was done to: %w", err)
	}
	e := expect(p.op, subject, a.done, p.victim)
	got, err := w.check(ctx, rng, e, p.victim == theServer && !a.done)
	if err == nil && got != isAbsent {
		err = w.checkOnce(ctx, p, subject, a.done, runnerDied)
	}
	if err == nil && !full {
		err = w.checkQuota(ctx, inDoubt)
	}
	if err == nil && inDoubt { // which ends with the server
		w.server.end(9)
		w.up()
		err = w.checkQuota(ctx, false)
	}
	if err != nil {
		return fmt.Errorf("the answer was %v, %v: %w", a.done, a.err, err)
	}
	return r.emptied(ctx, w, p, subject)
}

// emptied destroys everything and looks for what survives it.
func (r *crashRun) emptied(ctx context.Context, w *crashWorld, p point, subject string) error {
	if err := w.clear(ctx); err != nil {
		return err
	}
	if got, err := w.view(ctx, rand.New(rand.NewPCG(p.seed, 2)), subject); err != nil || got != isAbsent {
		return fmt.Errorf("after it was destroyed %s is %s: %w", subject, got, err)
	}
	found := w.survivors()
	if r.survived(found); len(found) > 0 {
		return fmt.Errorf("survivors:\n%s", strings.Join(found, "\n"))
	}
	return nil
}

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
func (r *crashRun) report(t *testing.T, points []point, steps map[kind][]string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k, list := range steps {
		t.Logf("%s has %d steps of the %s: %s", k.op, len(list), k.traced, strings.Join(list, " "))
	}
	t.Logf("seed %d: %d points in %s: %s", *crashSeed, len(points), time.Since(r.began).Round(time.Second), strings.Join(byKind(points), ", "))
	t.Logf("hit at %v, and %d at the end of the operation", r.hit, r.missed)
	t.Logf("survivors: %d %v; points that found a fault: %d", len(r.survivors), r.survivors, r.faults)
}
