package refserver

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"

	"go.uber.org/zap"

	"github.com/keepwell-go/keepwell/registry/fresh"
)

// tasks counts work that outlives the request which began it.
type tasks struct {
	mu     sync.Mutex // guards the fields up to the next line, and keeps begin from overtaking close
	closed bool
	end    chan struct{} // closed by close; nil until somebody waits for that

	wg sync.WaitGroup
}

// begin counts one task, which ends with wg.Done; false after close.
func (t *tasks) begin() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.wg.Add(1)
	return true
}

// close refuses further tasks and waits for those that have begun.
func (t *tasks) close() {
	t.mu.Lock()
	if !t.closed && t.end != nil {
		close(t.end)
	}
	t.closed = true
	t.mu.Unlock()
	t.wg.Wait()
}

// closing returns what is closed by close. It is for tasks.
func (t *tasks) closing() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.end == nil {
		t.end = make(chan struct{})
		if t.closed {
			close(t.end)
		}
	}
	return t.end
}

// ended is what a task came to, where that is a teardown.
type ended struct {
	outcome string
	ifIdle  bool // it was asked for idle sandboxes only
}

// join returns the result of work, which is done once for all who ask for key while it goes on. The end of ctx ends the wait,
// not the work.
func (s *Server) join(ctx context.Context, key string, work func(context.Context) (ended, error)) (ended, error) {
	detached := context.WithoutCancel(ctx)
	ch := s.joins.DoChan(key, func() (any, error) {
		if !s.tasks.begin() {
			return ended{}, unavailable(fresh.ErrClosed)
		}
		defer s.tasks.wg.Done()
		return s.guarded(key, func() (ended, error) { return work(detached) })
	})
	select {
	case <-ctx.Done():
		return ended{}, context.Cause(ctx)
	case got := <-ch:
		return got.Val.(ended), got.Err
	}
}

// guarded turns a panic or runtime.Goexit of work into an error. Without it DoChan would end the process on the former and
// strand its callers on the latter.
func (s *Server) guarded(key string, work func() (ended, error)) (e ended, err error) {
	err = fmt.Errorf("%s: left by runtime.Goexit", key)
	done := make(chan struct{}) // closed when the goroutine has ended
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				s.log.Error("task panicked", zap.String("task", key), zap.Any("panic", p), zap.ByteString("stack", debug.Stack()))
				err = fmt.Errorf("%s: panic: %v", key, p)
			}
		}()
		e, err = work()
	}()
	<-done
	return e, err
}
