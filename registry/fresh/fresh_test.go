package fresh_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keepwell-go/keepwell/registry/fresh"
)

func TestAMissDuringARunGetsTheFollowUpRun(t *testing.T) { // R5, R6
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		c := fresh.New(func(ctx context.Context, keys []string) (int, error) {
			runs++
			n := runs
			time.Sleep(time.Second)
			return n, nil
		}, fresh.Config{})
		defer c.Close()
		got := make(chan int, 3)
		for range 3 {
			go func() {
				n, err := c.Do(t.Context(), "a")
				if err != nil {
					t.Error(err)
				}
				got <- n
			}()
			synctest.Wait()
		}
		if a, b, c := <-got, <-got, <-got; a != 1 || b != 2 || c != 2 {
			t.Errorf("answered by runs %d, %d, %d; want 1, 2, 2", a, b, c)
		}
	})
}

func TestAFailedRunDoesNotStrandItsFollowers(t *testing.T) { // R7
	synctest.Test(t, func(t *testing.T) {
		boom := errors.New("boom")
		runs := 0
		c := fresh.New(func(ctx context.Context, keys []string) (int, error) {
			runs++
			time.Sleep(time.Second)
			if runs == 1 {
				return 0, boom
			}
			return runs, nil
		}, fresh.Config{})
		defer c.Close()
		first := make(chan error)
		go func() { _, err := c.Do(t.Context()); first <- err }()
		synctest.Wait()
		second := make(chan error)
		go func() { _, err := c.Do(t.Context()); second <- err }()
		if err := <-first; !errors.Is(err, boom) {
			t.Errorf("first caller: %v", err)
		}
		if err := <-second; err != nil {
			t.Errorf("follower: %v", err)
		}
	})
}
