package refserver_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/memory"
)

func TestASandboxThatOnlyTheBackendKnowsIsAdoptedByTheRequestThatMissesIt(t *testing.T) { // R1
	inBubble(t, func(t *testing.T, w *world) {
		w.outside("a")
		w.outside("b")
		w.get("a").want(t, 200, "")
		w.exec("b").want(t, 200, "")
		if got := w.srv.Len(); got != 2 {
			t.Errorf("%d sandboxes registered, want 2", got)
		}
		if used := w.srv.Used("host", ""); used != 2 {
			t.Errorf("%d counted, want 2", used)
		}
	})
}

func TestAStoppedSandboxIsNotFoundAsStoppedAndACreateResumesIt(t *testing.T) { // R2
	inBubble(t, func(t *testing.T, w *world) {
		w.outside("a")
		w.be.Kill("a")
		if got := w.get("a").want(t, 404, "stopped"); got.str("state") != "stopped" {
			t.Errorf("answered %s", got.raw)
		}
		if n, used := w.srv.Len(), w.srv.Used("host", ""); n != 0 || used != 0 {
			t.Errorf("%d registered and %d counted, want none", n, used)
		}
		if got := w.create("a"); got.body["resumed"] != true {
			t.Errorf("create answered %s", got.raw)
		}
	})
}

func TestMissesDuringAListShareOneFollowUpList(t *testing.T) { // R5
	inBubble(t, func(t *testing.T, w *world) {
		for _, id := range []string{"a", "b", "c"} {
			w.outside(id)
		}
		lists := w.hold("list")
		first := w.later("GET", "/v1/sandboxes/a", "")
		<-lists.came
		var rest []<-chan answer
		for _, id := range []string{"b", "c", "b"} {
			rest = append(rest, w.later("GET", "/v1/sandboxes/"+id, ""))
		}
		synctest.Wait()
		lists.release()
		for _, ch := range append(rest, first) {
			(<-ch).want(t, 200, "")
		}
		if got := w.engine.Calls("list"); got != 2 {
			t.Errorf("%d lists, want 2", got)
		}
	})
}

func TestAMissIsNotAnsweredByAListThatBeganBeforeIt(t *testing.T) { // R6
	inBubble(t, func(t *testing.T, w *world) {
		g := newGate()
		lift := w.engine.Inject(memory.Fault{Call: "list", Times: 1, After: true, Do: g.pass})
		defer lift()
		early := w.later("GET", "/v1/sandboxes/a", "")
		<-g.came // the list has been made, without a
		w.outside("a")
		next := newGate() // what the next list finds would do for the early one as well
		w.engine.Inject(memory.Fault{Call: "list", Times: 1, Do: next.pass})
		late := w.later("GET", "/v1/sandboxes/a", "")
		synctest.Wait()
		g.release()
		<-next.came
		(<-early).want(t, 404, "not_found")
		next.release()
		(<-late).want(t, 200, "")
	})
}

func TestAFailedListFailsItsOwnCallersOnly(t *testing.T) { // R7
	inBubble(t, func(t *testing.T, w *world) {
		w.outside("a")
		g := newGate()
		w.engine.Inject(memory.Fault{Call: "list", Times: 1, Do: g.pass, Err: errors.New("boom")})
		first := w.later("GET", "/v1/sandboxes/a", "")
		<-g.came
		second := w.later("GET", "/v1/sandboxes/a", "")
		synctest.Wait()
		g.release()
		if got := (<-first).want(t, 503, "backend_unavailable"); got.header.Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
		(<-second).want(t, 200, "")
	})
}

func TestWhileAnIDIsBeingCreatedEveryOtherRouteOnItSaysSoAndAsksNoBackend(t *testing.T) { // R10
	inBubble(t, func(t *testing.T, w *world) {
		creates := w.hold("create")
		made := w.later("POST", "/v1/sandboxes", `{"id":"a"}`)
		<-creates.came
		before := w.engine.Calls("list")
		for _, rq := range [][2]string{
			{"GET", ""},
			{"DELETE", ""},
			{"DELETE", "?if_idle=1"},
			{"POST", ":stop"},
			{"POST", "/exec"},
			{"GET", "/processes"},
			{"GET", "/files/list?path=."},
		} {
			got := w.do(rq[0], "/v1/sandboxes/a"+rq[1], "").want(t, 503, "creating")
			if got.header.Get("Retry-After") != "1" {
				t.Errorf("%s %s: Retry-After %q", rq[0], rq[1], got.header.Get("Retry-After"))
			}
		}
		if n := w.engine.Calls("list") - before + w.engine.Calls("destroy") + w.engine.Calls("stop"); n != 0 {
			t.Errorf("the backend was asked %d times", n)
		}
		creates.release()
		(<-made).want(t, 201, "")
		w.get("a").want(t, 200, "")
	})
}

func TestARunnerThatDoesNotAnswerIsUnknownUntilTheBackendSaysGone(t *testing.T) { // R16
	inBubble(t, func(t *testing.T, w *world) {
		w.create("a")
		if err := w.be.WriteFile("a", "work", []byte("kept")); err != nil {
			t.Fatal(err)
		}
		w.runner.deafen("a", true)
		w.exec("a").want(t, 503, "runner_lost")
		mend := w.engine.Break()
		w.exec("a").want(t, 503, "backend_unavailable")
		mend()
		if got := w.srv.Len(); got != 1 {
			t.Fatalf("%d registered, want the entry kept", got)
		}
		w.be.Kill("a")
		w.exec("a").want(t, 404, "stopped")
		if n, used := w.srv.Len(), w.srv.Used("host", ""); n != 0 || used != 0 {
			t.Errorf("%d registered, %d counted, want none", n, used)
		}
		if data, err := w.be.ReadFile("a", "work"); err != nil || string(data) != "kept" {
			t.Errorf("workspace: %q, %v", data, err)
		}
	})
}

func TestARunnerThatHasForgottenTheSandboxIsNoProofEither(t *testing.T) { // R16
	inBubble(t, func(t *testing.T, w *world) {
		w.create("a")
		w.runner.end(backend.Ref{ID: "a"})
		w.exec("a").want(t, 503, "runner_lost")
		if got := w.srv.Len(); got != 1 {
			t.Errorf("%d registered, want 1", got)
		}
	})
}

func TestARunnersOwn404IsPassedOn(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.create("a")
		w.runner.handle(noSuchProcess)
		before := w.engine.Calls("list")
		if got := w.do("GET", "/v1/sandboxes/a/processes/p", "").want(t, 404, "not_found"); got.str("error") != "no such process" {
			t.Errorf("answered %s", got.raw)
		}
		if n := w.engine.Calls("list") - before; n != 0 {
			t.Errorf("%d lists for a process that does not exist", n)
		}
	})
}

func TestAGetAsksTheBackendAlsoForWhatIsRegistered(t *testing.T) { // R17
	for _, c := range []struct {
		name   string
		happen func(w *world)
		status int
		code   string
		left   int
	}{
		{"alive", func(*world) {}, 200, "", 1},
		{"removed", func(w *world) { w.be.Remove("a") }, 404, "not_found", 0},
		{"killed", func(w *world) { w.be.Kill("a") }, 404, "stopped", 0},
		{"replaced", func(w *world) { w.be.Kill("a"); w.outside("a") }, 200, "", 1},
		{"engine_down", func(w *world) { w.engine.Break() }, 503, "backend_unavailable", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				made := w.create("a")
				c.happen(w)
				got := w.get("a").want(t, c.status, c.code)
				if n, used := w.srv.Len(), w.srv.Used("host", ""); n != c.left || used != int64(c.left) {
					t.Errorf("%d registered, %d counted, want %d", n, used, c.left)
				}
				if same := got.str("instance") == made.str("instance"); c.status == 200 && same != (c.name == "alive") {
					t.Errorf("instance %q after %q", got.str("instance"), made.str("instance"))
				}
			})
		})
	}
}

func TestTheListComesFromTheRegistryUnlessFreshOrStoppedAreAskedFor(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.do("POST", "/v1/sandboxes", `{"id":"b","tenant":"blue"}`).want(t, 201, "")
		w.create("a")
		w.create("c")
		w.outside("d")
		w.be.Kill("c")
		lists := func() int { return w.engine.Calls("list") }
		for _, c := range []struct {
			query, want string
			lists       int
		}{
			{"", "a b c", 0},
			{"?tenant=blue", "b", 0},
			{"?state=running&tenant=default", "a c", 0},
			{"?state=creating", "", 0},
			{"?fresh=1", "a b d", 1},
			{"?state=stopped", "c", 1},
			{"?state=stopped&tenant=blue", "", 1},
		} {
			before := lists()
			got := w.do("GET", "/v1/sandboxes"+c.query, "").want(t, 200, "")
			if ids := idsOf(t, got); ids != c.want {
				t.Errorf("%q: %q, want %q", c.query, ids, c.want)
			}
			if n := lists() - before; n != c.lists {
				t.Errorf("%q: %d lists, want %d", c.query, n, c.lists)
			}
		}
		w.do("GET", "/v1/sandboxes?state=sleeping", "").want(t, 400, "bad_request")
		w.do("GET", "/v1/sandboxes?fresh=maybe", "").want(t, 400, "bad_request")
		w.engine.Break()
		w.do("GET", "/v1/sandboxes?fresh=1", "").want(t, 503, "backend_unavailable")
	})
}
