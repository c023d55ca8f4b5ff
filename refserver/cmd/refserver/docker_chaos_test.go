package main

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/docker/enginetest"
	"github.com/keepwell-go/keepwell/refserver"
)

const (
	chaosSteps   = 500
	chaosLimit   = 4 // sandboxes at once
	chaosIDs     = 6
	chaosClients = 4
	chaosSweep   = 2 * time.Second
)

// shortBudgets end what an engine does not answer before a test has lost its patience.
func shortBudgets(cfg *refserver.Config) {
	cfg.MaxSandboxes, cfg.SweepEvery = chaosLimit, chaosSweep
	cfg.Budgets = backend.Budgets{Ping: 5 * time.Second, List: 10 * time.Second, Create: 30 * time.Second, Stop: 15 * time.Second, Destroy: 15 * time.Second}
}

// chaosAnswers are the statuses that each request may have, whatever the engine does.
var chaosAnswers = map[string][]int{
	"create":  {201, 409, 429, 502, 503},
	"exec":    {200, 404, 503},
	"stop":    {200, 404, 502, 503},
	"destroy": {200, 404, 502, 503},
	"get":     {200, 404, 503},
	"list":    {200, 503},
}

// R28, R30, R32, R83, R86, R102: five hundred random requests over an engine that fails one in ten of its own. However that goes,
// when the engine is well again the quota counts exactly what lives, everything can be destroyed, and nothing is left.
func TestNothingLeaksThroughTheServerAmongRandomFaults(t *testing.T) {
	t.Parallel()
	s := newSite(t, "chaos", shortBudgets)
	s.create("box-0").want(t, http.StatusCreated, "") // what all share is made only once
	s.destroy("box-0").want(t, http.StatusOK, "")
	s.run()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	mend := s.proxy.Fault("out of luck", faulty(rand.New(rand.NewPCG(seed, 0))))
	last := int64(chaosSteps)
	if testing.Short() {
		last = 60
	}
	var steps atomic.Int64
	var busy sync.WaitGroup
	for client := range uint64(chaosClients) {
		rnd := rand.New(rand.NewPCG(seed, client+1))
		busy.Go(func() {
			for steps.Add(1) <= last && !t.Failed() {
				s.step(rnd)
			}
		})
	}
	busy.Wait()
	_ = mend()
	s.settle()
	s.isFilledTo(chaosLimit)
	s.destroyAll()
}

// faulty makes one in ten requests fail, in all the ways there are; the first that hangs does so until its caller leaves.
func faulty(rnd *rand.Rand) func(*http.Request) enginetest.Verdict {
	faults := []enginetest.Verdict{
		enginetest.Refuse, enginetest.CutBefore, enginetest.CutAfter, enginetest.FailAfter, enginetest.Twice, enginetest.Delay, enginetest.Hang,
	}
	var mu sync.Mutex // guards rnd
	return func(*http.Request) enginetest.Verdict {
		mu.Lock()
		defer mu.Unlock()
		if rnd.IntN(10) > 0 {
			return enginetest.Pass
		}
		if f := faults[rnd.IntN(len(faults))]; f != enginetest.Hang || rnd.IntN(8) == 0 { // which takes long
			return f
		}
		return enginetest.Delay
	}
}

// step sends one request, whose answer must fit it.
func (s *site) step(rnd *rand.Rand) {
	id := fmt.Sprintf("box-%d", rnd.IntN(chaosIDs))
	var what string
	var got reply
	switch n := rnd.IntN(20); {
	case n < 5:
		what, got = "create", s.create(id)
	case n < 10:
		what, got = "exec", s.sh(id, "echo hello")
	case n < 13:
		what, got = "stop", s.stop(id)
	case n < 17:
		what, got = "destroy", s.destroy(id)
	case n < 19:
		what, got = "get", s.get(id)
	default:
		what, got = "list", s.do("GET", "?fresh=1", "")
	}
	if !slices.Contains(chaosAnswers[what], got.status) {
		s.t.Errorf("%s of %s answered %d %s", what, id, got.status, got.raw)
	}
	if what == "exec" && got.status == http.StatusOK && !strings.Contains(got.raw, `"event":"exit"`) && !strings.Contains(got.raw, `"event":"error"`) {
		s.t.Errorf("exec in %s ended with no last event: %s", id, got.raw)
	}
	if what == "destroy" && got.status == http.StatusBadGateway && (got.body["deleted"] != false || got.str("outcome") != "unknown") {
		s.t.Errorf("destroy of %s answered %s", id, got.raw)
	}
}

// settle lets time pass until no create is in doubt any more, and waits for two sweeps that began after that.
func (s *site) settle() {
	s.t.Helper()
	s.clock.by.Add(int64(5 * time.Minute))
	for i := range chaosIDs {
		s.get(fmt.Sprintf("box-%d", i)) // what has vanished is dropped one by one: a sweep alone would refuse to drop most of all
	}
	var lists atomic.Int64
	mend := s.proxy.Fault("", func(r *http.Request) enginetest.Verdict {
		if isList(r) {
			lists.Add(1)
		}
		return enginetest.Pass
	})
	defer func() { _ = mend() }()
	until(s.t, "three sweeps", func() bool { return lists.Load() >= 3 })
}

// isFilledTo wants exactly as much room as the limit leaves beside what lives: what fits in is made, and the next one is refused.
func (s *site) isFilledTo(limit int) {
	s.t.Helper()
	var alive []any
	until(s.t, "a list", func() bool {
		var ok bool
		alive, ok = s.do("GET", "?fresh=1", "").body["sandboxes"].([]any)
		return ok
	})
	for i := len(alive); i < limit; i++ {
		s.create(fmt.Sprintf("fill-%d", i)).want(s.t, http.StatusCreated, "")
	}
	got := s.create("too-many").want(s.t, http.StatusTooManyRequests, "quota_exceeded")
	if got.body["used"] != float64(limit) {
		s.t.Errorf("%d live and %d were made, and it counts %s", len(alive), limit-len(alive), got.raw)
	}
}

// destroyAll destroys all that there is, running or stopped, after which nothing may be left or counted.
func (s *site) destroyAll() {
	s.t.Helper()
	for _, query := range []string{"?fresh=1", "?state=stopped"} {
		all, _ := s.do("GET", query, "").want(s.t, http.StatusOK, "").body["sandboxes"].([]any)
		for _, sb := range all {
			s.destroy(sb.(map[string]any)["id"].(string)).want(s.t, http.StatusOK, "")
		}
	}
	s.isClean()
	if n := s.srv.Len(); n != 0 {
		s.t.Errorf("the server knows of %d sandboxes still", n)
	}
}
