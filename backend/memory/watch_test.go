package memory_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/memory"
)

var _ backend.Watcher = (*memory.Backend)(nil)

// A watch is told of every end, of every begin, and of what other handles do; between them it is told nothing.
func TestAWatchIsToldOfWhatBeginsAndEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := memory.NewEngine(memory.Config{})
		b, other := e.Open("a"), e.Open("a")
		ctx, cancel := context.WithCancel(t.Context())
		told := 0
		done := make(chan struct{})
		go func() { // ends with ctx
			defer close(done)
			b.Watch(ctx, func() { told++ })
		}()
		synctest.Wait()
		for _, step := range []struct {
			name string
			do   func()
			want bool
		}{
			{"create", func() { mustCreate(t, other, spec("x", "1")) }, true},
			{"list", func() { listed(t, b) }, false},
			{"kill", func() { other.Kill("x") }, true},
			{"kill of a stopped one", func() { other.Kill("x") }, false},
			{"resume", func() { mustCreate(t, b, spec("x", "2")) }, true},
			{"removal", func() { b.Remove("x") }, true},
		} {
			told = 0
			step.do()
			synctest.Wait()
			if (told > 0) != step.want {
				t.Errorf("%s: told %d times", step.name, told)
			}
		}
		cancel()
		<-done
		mustCreate(t, b, spec("x", "3"))
		synctest.Wait()
		if told != 1 { // of the removal
			t.Errorf("told %d times, though nobody watches", told)
		}
	})
}
