//go:build linux

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/keepwell-go/keepwell/refserver/client"
)

// crash carries out one point in a world where all is well and empty, and leaves it so.
func (r *crashRun) crash(w *crashWorld, p point) error {
	ctx, cancel := context.WithTimeout(w.t.Context(), 3*time.Minute)
	defer cancel()
	switch {
	case p.op == opBirth:
		return r.birth(ctx, w, p)
	case p.victim == legacy:
		return r.legacy(ctx, w, p)
	}
	return r.point(ctx, w, p)
}

func (r *crashRun) point(ctx context.Context, w *crashWorld, p point) error {
	if err := w.prepare(ctx, p.op, p.keep(), p.subject()); err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	a, copied := r.strike(ctx, w, p)
	if copied != nil {
		if err := r.aftermath(ctx, copied, p, a); err != nil {
			return fmt.Errorf("in the copy: %w", err)
		}
		copied.finish(r)
		_ = os.RemoveAll(copied.home)
	}
	if p.victim == relapse {
		_, said := w.bootAndDie(p.traced, p.step, p.when)
		r.note(said)
	}
	return r.aftermath(ctx, w, p, a)
}

// birth crashes the first start of all on a state directory.
func (r *crashRun) birth(ctx context.Context, w *crashWorld, p point) error {
	born := w.sibling()
	_, said := born.bootAndDie(p.traced, p.step, p.when)
	r.note(said)
	born.up()
	err := born.checkQuota(ctx, false)
	if err == nil {
		err = r.emptied(ctx, born, p)
	}
	born.finish(r)
	_ = os.RemoveAll(born.home)
	return err
}

// strike begins the operation and lets the victim die at the step, or at the end when the step does not come. What died with the
// power cut is returned as a copy of its state.
func (r *crashRun) strike(ctx context.Context, w *crashWorld, p point) (a answer, copied *crashWorld) {
	traced, victim, step := p.traced, p.victim, p.step
	if victim == relapse {
		traced, victim, step = theRunner, both, p.first
	}
	if victim == legacy {
		victim = theServer
	}
	runner := w.runner()
	tr := startTrace(w.t, w.pid(traced), step, p.when)
	answers := make(chan answer, 1)
	go func(api *client.Client) {
		answers <- w.act(ctx, api, p.op, p.subject())
	}(w.api)
	said, answered := "", false
	select {
	case said = <-tr.lines:
	case a = <-answers:
		answered = true
	}
	if p.victim != relapse {
		r.note(said)
	}
	if !answered { // it may have been, at this very moment
		select {
		case a = <-answers:
			answered = true
		default:
		}
	}
	if victim == power {
		copied = w.copy()
	}
	w.kill(victim)
	tr.end()
	w.ended(victim, runner)
	if !answered && victim == theRunner {
		a = <-answers // of a server that lives
	}
	return a, copied
}

// aftermath starts again what has died and looks for the truth.
func (r *crashRun) aftermath(ctx context.Context, w *crashWorld, p point, a answer) error {
	rng := rand.New(rand.NewPCG(p.seed, 1))
	if p.victim != theRunner {
		w.up()
	} else if _, err := w.api.List(ctx, url.Values{"fresh": {"1"}}); err != nil { // the server lives, and learns of it when it looks
		return err
	}
	inDoubt := p.victim == theRunner && !a.done && (p.op == opCreate || p.op == opResume)
	full := rng.IntN(2) == 0
	if full { // as the very first thing that a new server is asked for
		if err := w.checkQuota(ctx, inDoubt); err != nil {
			return err
		}
	}
	err := w.checkBoth(ctx, rng, p, a)
	if err == nil && !full {
		err = w.checkQuota(ctx, inDoubt)
	}
	if err == nil && inDoubt { // which ends with the server
		w.server.end(syscall.SIGKILL)
		w.up()
		err = w.checkQuota(ctx, false)
	}
	if err != nil {
		return fmt.Errorf("the answer was %v, %v: %w", a.done, a.err, err)
	}
	return r.emptied(ctx, w, p)
}

// checkBoth looks at the sandbox that nothing was done to, and at the subject.
func (w *crashWorld) checkBoth(ctx context.Context, rng *rand.Rand, p point, a answer) error {
	if _, err := w.check(ctx, rng, expect(opExec, p.keep(), true, p.victim), false); err != nil {
		return fmt.Errorf("what nothing was done to: %w", err)
	}
	got, err := w.check(ctx, rng, expect(p.op, p.subject(), a.done, p.victim), (p.victim == theServer || p.victim == legacy) && !a.done)
	if err != nil || got == isAbsent {
		return err
	}
	return w.checkOnce(ctx, p, a)
}

// emptied destroys everything and looks for what survives it.
func (r *crashRun) emptied(ctx context.Context, w *crashWorld, p point) error {
	if err := w.clear(ctx); err != nil {
		return err
	}
	if got, err := w.view(ctx, rand.New(rand.NewPCG(p.seed, 2)), p.subject()); err != nil || got != isAbsent {
		return fmt.Errorf("after it was destroyed %s is %s: %w", p.subject(), got, err)
	}
	found := w.survivors()
	if r.survived(found); len(found) > 0 {
		return fmt.Errorf("survivors:\n%s", strings.Join(found, "\n"))
	}
	return nil
}
