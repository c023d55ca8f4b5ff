package sweep_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/keepwell-go/keepwell/sweep"
)

var errPass = errors.New("the list failed")

// blocked is a pass that begins, and ends when the test says how.
type blocked struct {
	begun chan context.Context
	end   chan func() error
}

func newBlocked() blocked {
	return blocked{make(chan context.Context, 100), make(chan func() error)}
}

func (b blocked) pass(ctx context.Context) error {
	b.begun <- ctx
	return (<-b.end)()
}

func fine() error   { return nil }
func fails() error  { return errPass }
func panics() error { panic(errPass) }
func exits() error  { runtime.Goexit(); return nil }

// observed returns a logger and what it was told, as "level message".
func observed() (*zap.Logger, func() []string) {
	core, logs := observer.New(zapcore.DebugLevel)
	return zap.New(core), func() (lines []string) {
		for _, e := range logs.TakeAll() {
			lines = append(lines, e.Level.String()+" "+e.Message)
		}
		return lines
	}
}

// running runs l.Run in the bubble until the test ends.
func running(t *testing.T, l *sweep.Loop) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- l.Run(context.Background()) }()
	t.Cleanup(func() {
		l.Close()
		if err := <-done; !errors.Is(err, sweep.ErrClosed) {
			t.Errorf("Run = %v, want ErrClosed", err)
		}
	})
	synctest.Wait()
}

// after lets d pass, and whatever it sets off.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// count fails the test unless the loop began, skipped, failed and panicked as often as want says.
func count(t *testing.T, l *sweep.Loop, want string) {
	t.Helper()
	s := l.Stats()
	if got := fmt.Sprintf("passes %d skipped %d failed %d panicked %d", s.Passes, s.Skipped, s.Failed, s.Panicked); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestATickThatMeetsARunningPassIsSkippedAndCounted(t *testing.T) { // R41
	synctest.Test(t, func(t *testing.T) {
		b := newBlocked()
		log, lines := observed()
		l := sweep.New(b.pass, sweep.Config{Every: time.Second, Budget: time.Hour, Logger: log})
		running(t, l)
		after(4 * time.Second) // one tick that begins, three that meet it
		count(t, l, "passes 1 skipped 3 failed 0 panicked 0")
		if got := lines(); len(got) != 2 || !strings.HasPrefix(got[0], "warn sweep: tick skipped") {
			t.Errorf("logged %q, want a warning for the 1st and for the 2nd skip", got)
		}
		b.end <- fails
		after(time.Second)
		count(t, l, "passes 2 skipped 3 failed 1 panicked 0")
		b.end <- fine
	})
}

func TestWarningsOfSkippedTicksThinOut(t *testing.T) { // R41
	synctest.Test(t, func(t *testing.T) {
		b := newBlocked()
		core, logs := observer.New(zapcore.WarnLevel)
		l := sweep.New(b.pass, sweep.Config{Every: time.Second, Budget: time.Hour, Logger: zap.New(core)})
		running(t, l)
		after(101 * time.Second)
		var told []string
		for _, e := range logs.TakeAll() {
			told = append(told, fmt.Sprint(e.ContextMap()["skipped"], " after ", e.ContextMap()["running_for"]))
		}
		want := "[1 after 1s 2 after 2s 4 after 4s 8 after 8s 16 after 16s 32 after 32s 64 after 1m4s]"
		if got := fmt.Sprint(told); got != want {
			t.Errorf("warned\n%s, want\n%s", got, want)
		}
		b.end <- fine
		after(2 * time.Second) // the next pass, and the first skip over it
		if got := logs.FilterField(zap.Uint64("skipped", 1)).Len(); got != 1 {
			t.Errorf("%d warnings of a first skip by the next pass, want 1", got)
		}
		b.end <- fine
	})
}

func TestTheGuardIsFreedHoweverAPassEnds(t *testing.T) { // R41
	for name, c := range map[string]struct {
		end         func() error
		count, text string
		is          error
	}{
		"success": {fine, "passes 2 skipped 1 failed 0 panicked 0", "", nil},
		"error":   {fails, "passes 2 skipped 1 failed 1 panicked 0", "the list failed", errPass},
		"panic":   {panics, "passes 2 skipped 1 failed 0 panicked 1", "sweep: pass panicked: the list failed", errPass},
		"goexit":  {exits, "passes 2 skipped 1 failed 0 panicked 1", "sweep: pass called runtime.Goexit", nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBlocked()
				l := sweep.New(b.pass, sweep.Config{Every: time.Second, Budget: time.Hour})
				running(t, l)
				after(2 * time.Second)
				b.end <- c.end
				synctest.Wait()
				err := l.Stats().LastErr
				if text := fmt.Sprint(err); c.text != "" && text != c.text || c.text == "" && err != nil {
					t.Errorf("LastErr = %v, want %q", err, c.text)
				}
				if c.is != nil && !errors.Is(err, c.is) {
					t.Errorf("LastErr does not wrap the cause")
				}
				after(time.Second)
				count(t, l, c.count)
				b.end <- fine
			})
		})
	}
}

func TestAPassThatIgnoresItsContextIsNeverDoubled(t *testing.T) { // R92
	synctest.Test(t, func(t *testing.T) {
		b := newBlocked()
		l := sweep.New(b.pass, sweep.Config{Every: time.Second, Budget: 3 * time.Second})
		running(t, l)
		after(time.Second)
		ctx := <-b.begun
		after(3*time.Second - 1)
		if s := l.Stats(); s.Wedged || ctx.Err() != nil {
			t.Errorf("within its budget: wedged %v, context %v", s.Wedged, ctx.Err())
		}
		after(1)
		if s := l.Stats(); !s.Wedged || !s.Running || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			t.Errorf("at its budget: wedged %v, running %v, context %v", s.Wedged, s.Running, ctx.Err())
		}
		after(97 * time.Second)
		if err := l.TryRun(t.Context()); err != sweep.ErrRunning {
			t.Errorf("TryRun = %v, want ErrRunning", err)
		}
		l.Nudge()
		synctest.Wait()
		count(t, l, "passes 1 skipped 100 failed 0 panicked 0")
		b.end <- fine
		synctest.Wait()
		if s := l.Stats(); s.Wedged || !s.Running {
			t.Errorf("the nudged pass: wedged %v, running %v", s.Wedged, s.Running)
		}
		b.end <- fine
	})
}
