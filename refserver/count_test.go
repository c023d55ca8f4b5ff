package refserver_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keepwell-go/keepwell/backend/memory"
)

// startCreates sends n creates and returns where their answers will be.
func (w *world) startCreates(n int) (answers []<-chan answer) {
	for i := range n {
		answers = append(answers, w.later("POST", "/v1/sandboxes", fmt.Sprintf(`{"id":"s%d"}`, i)))
	}
	return answers
}

// R9, R101: however many creates wait for the first list, a backend that fails is asked once a pause.
func TestCreatesThatComeBeforeTheFirstListShareOne(t *testing.T) {
	for name, fault := range map[string]memory.Fault{
		"fails_at_once": {Call: "list", Err: errors.New("boom")},
		"fails_slowly":  {Call: "list", Err: errors.New("boom"), Delay: 100 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.outside("old")
				mend := w.engine.Inject(fault)
				for _, ch := range w.startCreates(50) {
					(<-ch).want(t, 503, "backend_unavailable")
				}
				if lists := w.engine.Calls("list"); lists > 2 {
					t.Errorf("%d lists for 50 creates at once, want 1, and 1 more for those that came after it", lists)
				}
				before, began := w.engine.Calls("list"), time.Now()
				for range 50 {
					w.do("POST", "/v1/sandboxes", "{}").want(t, 503, "backend_unavailable")
				}
				if lists, took := w.engine.Calls("list")-before, time.Since(began); lists > 50 || took < 49*time.Second {
					t.Errorf("%d lists in %s for 50 creates one after the other, want a pause between two", lists, took)
				}
				if n := w.engine.Calls("create"); n != 1 {
					t.Errorf("%d creates reached the backend, want the one of the other replica", n)
				}
				mend()
				w.do("POST", "/v1/sandboxes", "{}").want(t, 429, "quota_exceeded")
			}, oneSandbox)
		})
	}
}

// A list that has begun before a create came counts all the same what was there before the server.
func TestACreateIsAnsweredByTheFirstListThatIsUnderWay(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		lists := w.hold("list")
		first := w.later("POST", "/v1/sandboxes", `{"id":"first"}`)
		<-lists.came
		rest := w.startCreates(49)
		synctest.Wait()
		lists.release()
		began := time.Now()
		for _, ch := range append(rest, first) {
			(<-ch).want(t, 201, "")
		}
		if n, took := w.engine.Calls("list"), time.Since(began); n != 1 || took != 0 {
			t.Errorf("%d lists and %s of waiting, want 1 list and no pause after its success", n, took)
		}
	})
}

func TestCloseDoesNotWaitForThePauseBetweenTwoLists(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		defer w.engine.Break()()
		w.do("POST", "/v1/sandboxes", "{}").want(t, 503, "backend_unavailable")
		waits := w.startCreates(3)
		synctest.Wait()
		began := time.Now()
		w.srv.Close()
		for _, ch := range waits {
			(<-ch).want(t, 503, "backend_unavailable")
		}
		if took, lists := time.Since(began), w.engine.Calls("list"); took != 0 || lists != 1 {
			t.Errorf("Close took %s, and there were %d lists, want 1", took, lists)
		}
	})
}
