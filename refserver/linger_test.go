package refserver_test

import (
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/keepwell-go/keepwell/backend/memory"
	"github.com/keepwell-go/keepwell/backend/runner/wire"
	"github.com/keepwell-go/keepwell/refserver"
)

func lingering(d time.Duration) func(*refserver.Config) {
	return func(c *refserver.Config) { c.MaxLinger = d }
}

func TestALingerEndsOnlyWhatThisReplicaCreatedItself(t *testing.T) { // R48, R111
	inBubble(t, func(t *testing.T, w *world) {
		w.create("a-pinned")
		w.do("POST", "/v1/sandboxes", `{"id":"a-own","pinned":true}`).want(t, 201, "")
		w.runner.set("a-own", wire.Activity{Running: 1})
		other, otherURL := w.replica("b")
		got, err := w.send(w.ctx, otherURL, "Authorization", "Bearer "+adminToken, "POST", "/v1/sandboxes", `{"id":"theirs"}`)
		if err != nil {
			t.Fatal(err)
		}
		got.want(t, 201, "")
		w.outside("found")
		w.sweep() // adopts both
		w.drain()
		time.Sleep(time.Hour)
		w.sweep()
		if n := w.engine.Calls("stop"); n != 0 || w.srv.Len() != 4 {
			t.Fatalf("at the limit %d were stopped and %d are left", n, w.srv.Len())
		}
		time.Sleep(time.Millisecond)
		w.sweep()
		if got := w.drainStatus().SandboxIDs; !reflect.DeepEqual(got, []string{"found", "theirs"}) {
			t.Errorf("left are %v", got)
		}
		if stops, destroys := w.engine.Calls("stop"), w.engine.Calls("destroy"); stops != 2 || destroys != 0 {
			t.Errorf("%d stops, %d destroys", stops, destroys)
		}
		for _, id := range []string{"a-pinned", "a-own"} {
			w.get(id).want(t, 404, "not_found")
		}
		if used := w.srv.Used("host", ""); used != 2 {
			t.Errorf("%d counted", used)
		}
		if err := other.Sweep(w.ctx); err != nil || other.Len() != 2 {
			t.Errorf("the other replica has %d, %v", other.Len(), err)
		}
	}, lingering(time.Hour))
}

func TestALingerIsNotTakenTwice(t *testing.T) { // R48
	inBubble(t, func(t *testing.T, w *world) {
		w.create("a")
		w.drain()
		time.Sleep(time.Minute + 1)
		w.engine.Inject(memory.Fault{Call: "stop", Times: 1, Err: errors.New("stuck")})
		w.sweep()
		if w.srv.Len() != 1 || w.srv.Used("host", "") != 1 {
			t.Error("what could not be stopped was let go of")
		}
		time.Sleep(time.Hour)
		w.sweep()
		if n := w.engine.Calls("stop"); n != 1 {
			t.Errorf("%d stops", n)
		}
		w.get("a").want(t, 200, "")
	}, lingering(time.Minute))
}

func TestWithoutALingerADrainStopsNothing(t *testing.T) { // R48
	inBubble(t, func(t *testing.T, w *world) {
		w.create("a")
		w.drain()
		time.Sleep(20 * time.Minute)
		w.sweep()
		if w.engine.Calls("stop") != 0 || w.srv.Len() != 1 {
			t.Error("stopped")
		}
	})
}

func TestACreateThatEndsAfterTheLingerIsUndone(t *testing.T) { // R48
	for _, resumed := range []bool{false, true} {
		t.Run(fmt.Sprint(resumed), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				if resumed {
					w.create("a")
					w.stop("a").want(t, 200, "")
				}
				create := w.hold("create")
				late := w.later("POST", "/v1/sandboxes", `{"id":"a"}`)
				<-create.came
				w.drain()
				time.Sleep(2 * time.Second)
				w.sweep()
				create.release()
				(<-late).want(t, 503, "draining")
				if w.srv.Len() != 0 || w.srv.Used("host", "") != 0 {
					t.Errorf("%d registered, %d counted", w.srv.Len(), w.srv.Used("host", ""))
				}
				snap, err := w.be.List(w.ctx)
				if err != nil || len(snap.Sandboxes) != 0 && !resumed || resumed && (len(snap.Sandboxes) != 1 || snap.Sandboxes[0].Running) {
					t.Errorf("the engine has %+v, %v", snap.Sandboxes, err)
				}
			}, lingering(time.Second))
		})
	}
}
