package fresh_test

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keepwell-go/keepwell/registry/fresh"
)

func TestWhoComesFirstIsAnsweredFirst(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // with more, who is woken first need not be the first to run
	s := &source{}
	run(t, s, fresh.Config{}, func(t *testing.T, c *fresh.Coalescer[string, int]) {
		const half = 100
		ask(t.Context(), c)
		var order atomic.Int64
		var wg sync.WaitGroup
		var ranks [2]atomic.Int64 // of the callers of either half, summed up
		for i := range 2 * half {
			wg.Go(func() {
				if n, err := c.Do(t.Context(), "a"); n != 2 || err != nil {
					t.Errorf("Do = %d, %v", n, err)
				}
				ranks[i/half].Add(order.Add(1))
			})
			synctest.Wait()
		}
		wg.Wait()
		if first, second := ranks[0].Load()/half, ranks[1].Load()/half; first >= second {
			t.Errorf("the first half was answered as number %d on average, the second as number %d", first, second)
		}
	})
}

func TestEveryoneInAGreatCrowdIsAnswered(t *testing.T) { // R5, R81
	for name, tt := range map[string]struct {
		end  func(c *fresh.Coalescer[string, int])
		want error
	}{
		"by_a_run":      {func(*fresh.Coalescer[string, int]) {}, nil},
		"by_Close":      {(*fresh.Coalescer[string, int]).Close, fresh.ErrClosed},
		"at_its_budget": {func(*fresh.Coalescer[string, int]) {}, fresh.ErrBudget},
	} {
		t.Run(name, func(t *testing.T) {
			s := &source{}
			if tt.want == fresh.ErrBudget {
				s = deaf(time.Hour)
			}
			run(t, s, fresh.Config{}, func(t *testing.T, c *fresh.Coalescer[string, int]) {
				ask(t.Context(), c)
				var wg sync.WaitGroup
				for range 1000 {
					wg.Go(func() {
						if _, err := c.Do(t.Context(), "a"); !errors.Is(err, tt.want) {
							t.Errorf("answered %v", err)
						}
					})
				}
				synctest.Wait()
				if st := c.Stats(); st.Waiters != 1001 {
					t.Errorf("Stats = %+v", st)
				}
				tt.end(c)
				wg.Wait()
			})
		})
	}
}
