package sweep

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"go.uber.org/zap"
)

// pausedError is TryRun's error during a pause.
type pausedError struct{ until time.Time }

func (e *pausedError) Error() string {
	return "sweep: passes are paused until " + e.until.UTC().Format(time.RFC3339)
}

func (e *pausedError) Is(target error) bool { return target == ErrRunning }

// enter makes the caller the one that ticks; false after Close.
func (l *Loop) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	if l.ticking != nil {
		panic("sweep: Run is running already")
	}
	l.ticking = make(chan struct{})
	return true
}

func (l *Loop) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.ticking)
	l.ticking = nil
}

// busy reports whether a pass has the guard, without asking for the time: it is what a refusal costs.
func (l *Loop) busy() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.running != nil && !l.closed
}

// begin takes the guard and starts a pass, or says why not.
func (l *Loop) begin(parent context.Context) (*run, error) {
	if err := parent.Err(); err != nil { // a tick and the end of Run came at once
		return nil, err
	}
	r := &run{start: l.cfg.Clock.Now(), done: make(chan struct{})}
	r.ctx, r.cancel = l.cfg.Clock.WithTimeout(parent, l.cfg.Budget)
	if err := l.take(r); err != nil {
		r.cancel()
		return nil, err
	}
	go l.execute(r) // ends with the pass; Close, Run and TryRun wait on r.done
	return r, nil
}

// take gives the guard to r, if it may have it.
func (l *Loop) take(r *run) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return ErrClosed
	case r.start.Before(l.paused):
		return &pausedError{until: l.paused}
	case l.running != nil:
		return ErrRunning
	}
	l.running, l.nudged, l.skips = r, false, 0
	l.stats.Passes++
	l.stats.LastStart = r.start
	return nil
}

// execute runs the pass and frees the guard, however the pass ends.
func (l *Loop) execute(r *run) {
	returned := false
	defer func() {
		if !returned {
			r.err = l.abnormal(recover())
		} else if r.err != nil && !errors.Is(r.ctx.Err(), context.Canceled) { // not at shutdown
			l.cfg.Logger.Warn("sweep: pass failed", zap.Error(r.err))
		}
		l.end(r, returned)
	}()
	r.err = l.pass(r.ctx)
	returned = true
}

// abnormal returns the error of a pass that did not return: of its panic, or of Goexit if that is nil.
func (l *Loop) abnormal(panicked any) error {
	err := errors.New("sweep: pass called runtime.Goexit")
	if panicked != nil {
		err = panicError("pass", panicked)
	}
	l.cfg.Logger.Error("sweep: pass did not return", zap.Error(err), zap.ByteString("stack", debug.Stack()))
	return err
}

// panicError makes a panic an error; a panic with an error can be told by errors.Is.
func panicError(what string, panicked any) error {
	if err, ok := panicked.(error); ok {
		return fmt.Errorf("sweep: %s panicked: %w", what, err)
	}
	return fmt.Errorf("sweep: %s panicked: %v", what, panicked)
}

// end frees the guard.
func (l *Loop) end(r *run, returned bool) {
	now := l.cfg.Clock.Now()
	l.mu.Lock()
	l.running = nil
	l.stats.LastEnd, l.stats.LastErr = now, r.err
	switch {
	case !returned:
		l.stats.Panicked++
	case r.err != nil:
		l.stats.Failed++
	}
	l.mu.Unlock()
	r.cancel()
	close(r.done)
	l.signal()
}

// tick starts a pass, or counts that one runs.
func (l *Loop) tick(ctx context.Context) {
	if _, err := l.begin(ctx); err != ErrRunning { // not errors.Is, to which a pause is ErrRunning too
		return
	}
	now := l.cfg.Clock.Now()
	n, since := l.skip()
	if n&(n-1) == 0 {
		l.cfg.Logger.Warn("sweep: tick skipped, the last pass is still running",
			zap.Uint64("skipped", n), zap.Duration("running_for", now.Sub(since)))
	}
}

// skip counts a skipped tick, and returns how many there were in a row and when the pass that they met began.
func (l *Loop) skip() (inRow uint64, since time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stats.Skipped++
	l.skips++
	return l.skips, l.stats.LastStart
}

// startNudged starts the pass that Nudge asked for; if a pause holds it, it returns a channel that fires when the pause ends.
func (l *Loop) startNudged(ctx context.Context) <-chan time.Time {
	now := l.cfg.Clock.Now()
	l.mu.Lock()
	nudged, wait := l.nudged, l.paused.Sub(now)
	l.mu.Unlock()
	switch {
	case !nudged:
	case wait > 0:
		return l.cfg.Clock.After(wait)
	default:
		_, _ = l.begin(ctx) // refused while a pass runs: its end wakes Run again
	}
	return nil
}

// signal wakes Run.
func (l *Loop) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// wait returns when the pass that runs has ended.
func (l *Loop) wait() {
	l.mu.Lock()
	r := l.running
	l.mu.Unlock()
	if r != nil {
		<-r.done
	}
}
