package refserver_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/runner/wire"
)

func (w *world) drain() answer { w.t.Helper(); return w.do("POST", "/v1/drain", "").want(w.t, 200, "") }

// drained is what GET /v1/drain says.
type drained struct {
	Draining   bool     `json:"draining"`
	SinceMS    int64    `json:"since_ms"`
	Sandboxes  int      `json:"sandboxes"`
	SandboxIDs []string `json:"sandbox_ids"`
	Busy       []struct{ ID, Reason string }
}

func (w *world) drainStatus() (d drained) {
	w.t.Helper()
	got := w.do("GET", "/v1/drain", "").want(w.t, 200, "")
	if err := json.Unmarshal([]byte(got.raw), &d); err != nil {
		w.t.Fatal(err)
	}
	return d
}

func TestADrainRefusesCreatesAndNothingElse(t *testing.T) { // R49
	inBubble(t, func(t *testing.T, w *world) {
		w.create("a")
		w.create("b")
		w.do("DELETE", "/v1/drain", "").want(t, 405, "method_not_allowed")
		began := time.Now().UnixMilli()
		first := w.drain()
		if got, _ := first.body["since_ms"].(float64); int64(got) != began || first.body["draining"] != true {
			t.Errorf("answered %s at %d", first.raw, began)
		}
		time.Sleep(time.Minute)
		if again := w.drain(); again.raw != first.raw {
			t.Errorf("a second drain answered %s after %s", again.raw, first.raw)
		}

		refused := w.do("POST", "/v1/sandboxes", `{"id":"c"}`).want(t, 503, "draining")
		if refused.header.Get("Retry-After") == "" || w.engine.Calls("create") != 2 {
			t.Errorf("answered %v with %d creates made", refused.header, w.engine.Calls("create"))
		}
		w.do("POST", "/v1/sandboxes", `{"no`).want(t, 503, "draining") // nothing is parsed that is refused anyway
		w.do("POST", "/v1/sandboxes", strings.Repeat(" ", wire.MaxBody+1)).want(t, 413, "payload_too_large")
		w.as("", "", "POST", "/v1/sandboxes", `{"id":"c"}`).want(t, 401, "unauthorized")

		w.exec("a").want(t, 200, "")
		w.get("a").want(t, 200, "")
		w.do("POST", "/v1/sandboxes/a/processes/p:kill", "").want(t, 200, "")
		if got := w.stop("a").want(t, 200, ""); got.str("outcome") != "stopped" {
			t.Errorf("stop answered %s", got.raw)
		}
		if got := w.destroy("b").want(t, 200, ""); got.str("outcome") != "stopped" {
			t.Errorf("destroy answered %s", got.raw)
		}
	})
}

func TestAServerThatDrainsAdoptsNothing(t *testing.T) { // R3, R4
	for _, draining := range []bool{false, true} {
		t.Run(fmt.Sprint(draining), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.outside("x")
				if !draining {
					w.get("x").want(t, 200, "")
					return
				}
				w.drain()
				if got := w.get("x").want(t, 404, "not_found"); !strings.Contains(got.str("error"), "drained") {
					t.Errorf("answered %s", got.raw)
				}
				w.exec("x").want(t, 404, "not_found")
				w.destroy("x").want(t, 404, "not_found")
				w.sweep()
				if n := w.engine.Calls("list"); n != 0 || w.srv.Len() != 0 || w.srv.Used("host", "") != 0 {
					t.Errorf("%d lists, %d registered, %d counted", n, w.srv.Len(), w.srv.Used("host", ""))
				}
			})
		})
	}
}

func TestWhatADrainingServerListsIsTrue(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.create("a")
		w.create("b")
		w.stop("b").want(t, 200, "")
		w.drain()
		w.outside("x")
		for query, want := range map[string]string{"": "a", "?fresh=1": "a", "?state=stopped": "b", "?state=running": "a"} {
			if got := idsOf(t, w.do("GET", "/v1/sandboxes"+query, "").want(t, 200, "")); got != want {
				t.Errorf("%s lists %q, want %q", query, got, want)
			}
		}
		mend := w.engine.Break()
		w.do("GET", "/v1/sandboxes?state=stopped", "").want(t, 503, "backend_unavailable")
		mend()
		if _, err := w.be.Stop(w.ctx, backend.Ref{ID: "a", Instance: w.get("a").str("instance")}); err != nil {
			t.Fatal(err)
		}
		if got := idsOf(t, w.do("GET", "/v1/sandboxes?fresh=1", "").want(t, 200, "")); got != "" {
			t.Errorf("what was stopped elsewhere is listed as running: %q", got)
		}
	})
}

func TestTheStatusOfADrainAsksNoBackend(t *testing.T) { // R50
	inBubble(t, func(t *testing.T, w *world) {
		got := w.do("GET", "/v1/drain", "").want(t, 200, "")
		if want := `{"draining":false,"sandboxes":0,"sandbox_ids":[],"busy":[]}` + "\n"; got.raw != want {
			t.Errorf("answered %swant %s", got.raw, want)
		}
		for _, call := range []string{"list", "ping", "create", "stop", "destroy"} {
			if n := w.engine.Calls(call); n != 0 {
				t.Errorf("%d times %s", n, call)
			}
		}
		w.as("", "", "GET", "/v1/drain", "").want(t, 401, "unauthorized")
		w.as("", "", "POST", "/v1/drain", "").want(t, 401, "unauthorized")
		if w.drainStatus().Draining {
			t.Error("a stranger began it")
		}
	})
}

func TestTheStatusOfADrainSaysWhoIsBusyAndWhy(t *testing.T) { // R50
	inBubble(t, func(t *testing.T, w *world) {
		for _, id := range []string{"silent", "running", "idle", "used", "going", "halting"} {
			w.create(id)
		}
		w.runner.deafen("silent", true)
		w.runner.set("running", wire.Activity{Running: 2})
		done := make(chan struct{})
		w.runner.handle(hangUntil(done))
		using := w.later("POST", "/v1/sandboxes/used/exec", `{}`)
		create, destroy, stop := w.hold("create"), w.hold("destroy"), w.hold("stop")
		coming, going := w.later("POST", "/v1/sandboxes", `{"id":"coming"}`), w.later("DELETE", "/v1/sandboxes/going", "")
		halting := w.later("POST", "/v1/sandboxes/halting:stop", "")
		<-create.came
		<-destroy.came
		<-stop.came
		synctest.Wait()
		w.drain()
		lists := w.engine.Calls("list")
		got := w.drainStatus()
		if want := []string{"coming", "going", "halting", "idle", "running", "silent", "used"}; got.Sandboxes != 7 || !reflect.DeepEqual(got.SandboxIDs, want) || !got.Draining || got.SinceMS == 0 {
			t.Errorf("it says %+v", got)
		}
		busy := map[string]string{}
		for _, b := range got.Busy {
			busy[b.ID] = b.Reason
		}
		want := map[string]string{
			"coming": "it is on its way in or out: creating", "going": "it is on its way in or out: destroying",
			"halting": "it is on its way in or out: stopping",
			"running": "2 processes run in it and 0 requests are using it", "used": "1 requests are using it",
			"silent": "its runner could not be asked",
		}
		if !reflect.DeepEqual(busy, want) {
			t.Errorf("busy are %v\nwant %v", busy, want)
		}
		if n := w.engine.Calls("list") - lists; n != 0 {
			t.Errorf("%d lists", n)
		}
		close(done)
		create.release()
		destroy.release()
		stop.release()
		(<-halting).want(t, 200, "")
		(<-coming).want(t, 201, "") // it came before the drain
		(<-going).want(t, 200, "")
		(<-using).want(t, 200, "")
	})
}

func TestTheStatusOfADrainDoesNotWaitForEachRunnerThatHangs(t *testing.T) { // R50
	inBubble(t, func(t *testing.T, w *world) {
		for i := range 50 {
			w.create(fmt.Sprint("box-", i))
		}
		w.t.Cleanup(w.runner.holdActivity().release)
		began := time.Now()
		if got := w.drainStatus(); len(got.Busy) != 50 || got.Sandboxes != 50 {
			t.Errorf("it says %+v", got)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}

func TestACreateThatADrainOvertakesIsNotAdmittedUncounted(t *testing.T) { // R18, R49
	inBubble(t, func(t *testing.T, w *world) {
		w.outside("x")
		list := w.hold("list")
		late := w.later("POST", "/v1/sandboxes", `{"id":"a"}`) // waits until what there was is counted
		<-list.came
		w.drain()
		list.release()
		(<-late).want(t, 503, "draining")
		if n := w.engine.Calls("create"); n != 1 {
			t.Errorf("%d creates, with the one of x", n)
		}
	}, oneSandbox)
}

func TestReadinessIsForCreates(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		ready := func(status int, word string) {
			t.Helper()
			if got := w.as("", "", "GET", "/ready", ""); got.status != status || got.raw != `{"status":"`+word+"\"}\n" {
				t.Errorf("answered %d %s, want %d %s", got.status, got.raw, status, word)
			}
			time.Sleep(time.Minute)
		}
		mend := w.engine.Break()
		ready(503, "starting")
		mend()
		ready(200, "ok")
		mend = w.engine.Break()
		ready(200, "ok") // one failure is no outage
		ready(200, "ok")
		ready(503, "backend_down")
		mend()
		ready(200, "ok")
		w.drain()
		ready(503, "draining")
		w.as("", "", "GET", "/health", "").want(t, 200, "")
	})
}
