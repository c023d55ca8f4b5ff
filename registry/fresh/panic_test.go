package fresh_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/keepwell-go/keepwell/registry/fresh"
)

func TestAPanicReachesEveryCallerAndWedgesNothing(t *testing.T) { // R82
	boom := errors.New("boom")
	s := &source{play: func(_ context.Context, run int) error {
		elapse(time.Second)
		if run == 2 {
			panic(boom)
		}
		return nil
	}}
	run(t, s, fresh.Config{}, func(t *testing.T, c *fresh.Coalescer[string, int]) {
		first, second, third := ask(t.Context(), c), ask(t.Context(), c), ask(t.Context(), c)
		if a := <-first; a.err != nil || a.panicked != nil {
			t.Errorf("caller of a good run: %+v", a)
		}
		for _, ch := range []<-chan answer{second, third} {
			a := <-ch
			p, ok := a.panicked.(*fresh.PanicError)
			if !ok || p.Value != boom || !errors.Is(p, boom) || !strings.Contains(p.Error(), "fresh: work panicked: boom\n\n") || !strings.Contains(string(p.Stack), "fresh_test.go") {
				t.Errorf("panicked with %v", a.panicked)
			}
		}
		if a := <-ask(t.Context(), c); a.run != 3 || a.panicked != nil {
			t.Errorf("next caller: %+v", a)
		}
		if st := c.Stats(); st != (fresh.Stats{Runs: 3, Failed: 1}) {
			t.Errorf("Stats = %+v", st)
		}
	})
}

func TestAnEndedGoroutineReachesEveryCallerAsAPanic(t *testing.T) { // R82
	s := &source{play: func(_ context.Context, run int) error {
		elapse(time.Second)
		if run == 1 {
			runtime.Goexit()
		}
		return nil
	}}
	run(t, s, fresh.Config{}, func(t *testing.T, c *fresh.Coalescer[string, int]) {
		first, second := ask(t.Context(), c), ask(t.Context(), c)
		if p, ok := (<-first).panicked.(*fresh.PanicError); !ok || !errors.Is(p, fresh.ErrGoexit) {
			t.Errorf("panicked with %v", p)
		}
		if a := <-second; a.run != 2 || a.panicked != nil {
			t.Errorf("follower: %+v", a)
		}
	})
}

func TestAPanicThatNobodyHearsIsLogged(t *testing.T) { // R82
	logs, seen := observer.New(zap.ErrorLevel)
	s := &source{play: func(ctx context.Context, _ int) error {
		<-ctx.Done()
		panic("boom")
	}}
	run(t, s, fresh.Config{Logger: zap.New(logs)}, func(t *testing.T, c *fresh.Coalescer[string, int]) {
		ctx, leave := context.WithCancel(t.Context())
		leaver := ask(ctx, c)
		leave()
		<-leaver
		synctest.Wait()
		if st := c.Stats(); st != (fresh.Stats{Runs: 1, Cancelled: 1}) {
			t.Errorf("Stats = %+v", st)
		}
	})
	if all := seen.All(); len(all) != 1 || all[0].Message != "fresh: work panicked with no caller left to tell" || all[0].ContextMap()["panic"] != "boom" {
		t.Errorf("logged %v", all)
	}
}

func TestAPanicValueThatIsNoErrorUnwrapsToNothing(t *testing.T) {
	if err := (&fresh.PanicError{Value: "boom"}).Unwrap(); err != nil {
		t.Errorf("Unwrap = %v", err)
	}
}

func TestCloseWaitsUntilAPanicThatNobodyHearsIsLogged(t *testing.T) { // R82
	logs, seen := observer.New(zap.ErrorLevel)
	slow := zap.Hooks(func(zapcore.Entry) error { elapse(time.Minute); return nil })
	s := &source{play: func(ctx context.Context, _ int) error {
		<-ctx.Done()
		panic("boom")
	}}
	run(t, s, fresh.Config{Logger: zap.New(logs).WithOptions(slow)}, func(t *testing.T, c *fresh.Coalescer[string, int]) {
		waiter := ask(t.Context(), c)
		begun := time.Now()
		c.Close()
		if took := time.Since(begun); took != time.Minute || seen.Len() != 1 {
			t.Errorf("Close returned after %v, with %d lines logged", took, seen.Len())
		}
		if a := <-waiter; a.err != fresh.ErrClosed {
			t.Errorf("waiter: %+v", a)
		}
	})
}

func TestAPanicThatNobodyHearsLetsTheNextRunFollow(t *testing.T) { // R82
	s := &source{play: func(ctx context.Context, run int) error {
		if run == 1 {
			<-ctx.Done()
			elapse(time.Minute)
			panic("boom")
		}
		return nil
	}}
	run(t, s, fresh.Config{Budget: time.Hour}, func(t *testing.T, c *fresh.Coalescer[string, int]) {
		ctx, leave := context.WithCancel(t.Context())
		ask(ctx, c)
		leave()
		if a := <-ask(t.Context(), c); a != (answer{run: 2, took: time.Minute}) {
			t.Errorf("follower: %+v", a)
		}
	})
}
