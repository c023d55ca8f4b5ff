package main

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keepwell-go/keepwell/backend/docker/enginetest"
	"github.com/keepwell-go/keepwell/refserver"
)

// waiting returns how many goroutines wait for something in a function of that name.
func waiting(name string) (n int) {
	buf := make([]byte, 4<<20)
	buf = buf[:runtime.Stack(buf, true)]
	for stack := range strings.SplitSeq(string(buf), "\n\n") {
		head, _, _ := strings.Cut(stack, "\n")
		if strings.Contains(head, "[select") && strings.Contains(stack, name) {
			n++
		}
	}
	return n
}

// until returns when ok does, and fails the test if it never does.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for deadline := time.Now().Add(2 * time.Minute); !ok(); <-again.C {
		if time.Now().After(deadline) {
			t.Fatalf("it never came to this: %s", what)
		}
	}
}

// R5, R6: among two hundred containers, fifty look-ups of ids that nobody knows cost the engine two lists: the one of the first, and
// one for all who have come while it was made. Each of them is told the truth.
func TestFiftyMissesCostTheEngineTwoLists(t *testing.T) {
	const misses = 50
	s := newSite(t, "misses")
	s.create("many").want(t, http.StatusCreated, "")
	defer s.engine.Wipe(s.owner)
	if err := s.engine.Multiply(t.Context(), s.owner, "many", 199); err != nil {
		t.Fatal(err)
	}
	first, all := make(chan struct{}), make(chan struct{})
	var lists, volumes, named atomic.Int64
	mend := s.proxy.Fault("", func(r *http.Request) enginetest.Verdict {
		switch {
		case strings.HasSuffix(r.URL.Path, "/volumes"):
			if volumes.Add(1) == 1 {
				close(first)
				<-all
			}
		case isList(r):
			lists.Add(1)
		case strings.HasSuffix(r.URL.Path, "/containers/json"):
			named.Add(1)
		}
		return enginetest.Pass
	})
	defer func() { _ = mend() }()
	answers := []<-chan reply{s.later("GET", "/nobody-0", "")}
	<-first
	for i := 1; i < misses; i++ {
		answers = append(answers, s.later("GET", fmt.Sprintf("/nobody-%d", i), ""))
	}
	until(t, "all have asked", func() bool { return waiting("fresh.(*Coalescer[...]).Do(") == misses })
	close(all)
	for _, ch := range answers {
		(<-ch).want(t, http.StatusNotFound, "not_found")
	}
	if total := lists.Load() + named.Load(); total != 2 || volumes.Load() != 2 {
		t.Errorf("the engine was asked for containers %d times and for volumes %d times, want 2 and 2", total, volumes.Load())
	}
	s.get("many").want(t, http.StatusOK, "")
	s.get("many-7").want(t, http.StatusNotFound, "stopped") // that they are there was known, too
}

// R18, R86, R104: of a hundred sandboxes that eight clients create, use and destroy at once the engine has nothing in the end, and
// what others have on it was not touched.
func TestAHundredSandboxesOfEightClientsLeaveNothing(t *testing.T) {
	const clients, sandboxes = 8, 100
	s := newSite(t, "hundred", func(cfg *refserver.Config) { cfg.MaxSandboxes = clients })
	s.create("first").want(t, http.StatusCreated, "") // what all share is made only once
	s.destroy("first").want(t, http.StatusOK, "")
	before, err := s.engine.Count(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var next atomic.Int64
	var busy sync.WaitGroup
	for range clients {
		busy.Go(func() {
			for i := next.Add(1); i <= sandboxes && !t.Failed(); i = next.Add(1) {
				id := fmt.Sprintf("box-%d", i)
				s.create(id).want(t, http.StatusCreated, "")
				if got := s.sh(id, "echo i am $HOSTNAME$(hostname)").want(t, http.StatusOK, ""); !strings.Contains(got.raw, id) {
					t.Errorf("%s says %s", id, got.raw)
				}
				if got := s.destroy(id).want(t, http.StatusOK, ""); got.str("outcome") != "stopped" {
					t.Errorf("destroy of %s answered %s", id, got.raw)
				}
			}
		})
	}
	busy.Wait()
	s.isClean()
	after, err := s.engine.Count(context.Background())
	if after != before || err != nil {
		t.Errorf("the engine has %+v, %v; before it had %+v", after, err, before)
	}
	if n := s.srv.Len(); n != 0 {
		t.Errorf("the server knows of %d sandboxes still", n)
	}
}
