package quota_test

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// A lock for which many have waited long is handed from one to the next. So two steps with the lock given up between them are
// noticed here, and hardly ever where the lock is free when it is wanted. // R18, R19
func TestACrowdThatWaitedForTheLockIsAdmittedOneByOne(t *testing.T) {
	const most, callers = 1000, 2000
	for range 8 {
		l := newLedger(host(most))
		var admitted atomic.Int64
		var wg sync.WaitGroup
		l.WhileLocked(func() {
			for i := range callers {
				wg.Go(func() {
					if _, err := l.Reserve(fmt.Sprint(i), claim{}); err == nil {
						admitted.Add(1)
					}
				})
			}
			for range 50_000 { // long enough for them to wait
				runtime.Gosched()
			}
		})
		wg.Wait()
		if admitted.Load() != most {
			t.Fatalf("admitted %d, want %d", admitted.Load(), most)
		}
	}
}
