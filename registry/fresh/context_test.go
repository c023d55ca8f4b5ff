package fresh_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keepwell-go/keepwell/registry/fresh"
)

// causes are the ways a run can end before its work has returned, and what its context says then.
var causes = map[string]struct {
	end  func(leave context.CancelFunc, c *fresh.Coalescer[string, int])
	want error
}{
	"at_its_budget":       {func(context.CancelFunc, *fresh.Coalescer[string, int]) { elapse(time.Minute) }, fresh.ErrBudget},
	"by_Close":            {func(_ context.CancelFunc, c *fresh.Coalescer[string, int]) { c.Close() }, fresh.ErrClosed},
	"for_want_of_callers": {func(leave context.CancelFunc, _ *fresh.Coalescer[string, int]) { leave(); synctest.Wait() }, context.Canceled},
}

func TestWhatIsDerivedFromTheContextOfARunEndsWithIt(t *testing.T) { // R81
	type key struct{}
	for name, tt := range causes {
		t.Run(name, func(t *testing.T) {
			var after error
			s := &source{play: func(ctx context.Context, _ int) error {
				idle := runtime.NumGoroutine()
				child, cancel := context.WithTimeout(context.WithValue(ctx, key{}, 1), time.Hour)
				defer cancel()
				context.AfterFunc(ctx, func() { after = context.Cause(ctx) })
				if n := runtime.NumGoroutine(); n != idle {
					t.Errorf("what was derived costs %d goroutines", n-idle)
				}
				<-child.Done()
				if child.Err() != context.Canceled || context.Cause(child) != tt.want || context.Cause(ctx) != tt.want {
					t.Errorf("the child ended with %v because of %v", child.Err(), context.Cause(child))
				}
				return nil
			}}
			run(t, s, fresh.Config{}, func(t *testing.T, c *fresh.Coalescer[string, int]) {
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				ask(ctx, c)
				tt.end(leave, c)
				synctest.Wait()
				if after != tt.want {
					t.Errorf("AfterFunc ran at the end because of %v", after)
				}
			})
		})
	}
}

func TestWorkThatLooksAtItsContextLateSeesWhyItEnded(t *testing.T) {
	for name, tt := range causes {
		t.Run(name, func(t *testing.T) {
			s := &source{play: func(ctx context.Context, _ int) error {
				elapse(2 * time.Minute)
				child, cancel := context.WithTimeout(ctx, time.Hour)
				defer cancel()
				if child.Err() != context.Canceled || ctx.Err() != context.Canceled || context.Cause(child) != tt.want {
					t.Errorf("ended with %v because of %v", ctx.Err(), context.Cause(child))
				}
				return nil
			}}
			run(t, s, fresh.Config{}, func(t *testing.T, c *fresh.Coalescer[string, int]) {
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				ask(ctx, c)
				tt.end(leave, c)
			})
			if s.runs != 1 {
				t.Errorf("%d runs", s.runs)
			}
		})
	}
}

func TestTheFirstEndOfARunIsTheCause(t *testing.T) {
	for _, looks := range []bool{false, true} {
		var ctx context.Context
		s := &source{play: func(c context.Context, _ int) error {
			ctx = c
			if looks {
				<-ctx.Done()
			}
			elapse(time.Minute)
			return nil
		}}
		run(t, s, fresh.Config{}, func(t *testing.T, c *fresh.Coalescer[string, int]) {
			<-ask(t.Context(), c) // over its budget
			c.Close()
			if err := context.Cause(ctx); err != fresh.ErrBudget {
				t.Errorf("a run that was over its budget, then closed, then returned: %v", err)
			}
		})
	}
}

func TestTheContextOfARunCanBePrinted(t *testing.T) {
	type key struct{}
	s := &source{play: func(ctx context.Context, _ int) error {
		if got := fmt.Sprint(ctx); !strings.Contains(got, "fresh_test.key") || !strings.HasSuffix(got, ".WithCancel") {
			t.Errorf("printed as %s", got)
		}
		return nil
	}}
	run(t, s, fresh.Config{Base: context.WithValue(context.Background(), key{}, 1)}, func(t *testing.T, c *fresh.Coalescer[string, int]) {
		<-ask(t.Context(), c)
	})
}

// TestManyMayLookAtTheContextOfARunAtOnce lets many goroutines of the work look for the first time while the run is ended.
func TestManyMayLookAtTheContextOfARunAtOnce(t *testing.T) {
	for range 100 {
		started, ended := make(chan bool), make(chan error)
		c := fresh.New(func(ctx context.Context, _ []string) (int, error) {
			close(started)
			for range 8 {
				go func() { <-ctx.Done(); ended <- context.Cause(ctx) }()
			}
			<-ctx.Done()
			return 0, ctx.Err()
		}, fresh.Config{})
		go func() { <-started; c.Close() }()
		if _, err := c.Do(t.Context()); !errors.Is(err, fresh.ErrClosed) {
			t.Errorf("Do = %v", err)
		}
		for range 8 {
			if err := <-ended; err != fresh.ErrClosed {
				t.Errorf("ended because of %v", err)
			}
		}
	}
}
