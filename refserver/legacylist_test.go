package refserver_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/runner/wire"
)

func TestAListNamesBoundProcessesByTheirPublicIDsOnce(t *testing.T) { // R70, R72
	g, store := legacyGuests(t)
	one, two := g.start("a", `{"cmd":"sleep 100"}`), g.start("a", `{"cmd":"sleep 100"}`)
	guest := g.guest("behind-the-back")
	want := []string{one.ID, two.ID, guest}
	slices.Sort(want)
	store.asked()
	if got, next := g.listed(""); !slices.Equal(got, want) || next != "" {
		t.Errorf("listed %q and %q, want %q", got, next, want)
	}
	if reads := store.asked(); reads != 1 {
		t.Errorf("a page took %d reads", reads)
	}
}

// lists makes the stub a runner that lists these processes and nothing else.
func (w *world) lists(ids ...string) {
	w.runner.handle(func(rw http.ResponseWriter, r *http.Request) {
		all := make([]wire.Process, 0, len(ids))
		for _, id := range ids {
			all = append(all, wire.Process{ID: id, Running: true, Cmd: wire.Command{Line: "sleep 1"}})
		}
		reply(rw, 200, all)
	})
}

// page returns the ids of one page of the processes of a, and the cursor of the next.
func (w *world) page(query string) (ids []string, next string) {
	w.t.Helper()
	a := w.do("GET", "/v1/sandboxes/a/processes"+query, "").want(w.t, 200, "")
	var list []wire.Process
	if err := json.Unmarshal([]byte(a.raw), &list); err != nil || list == nil {
		w.t.Fatalf("no list: %s", a.raw)
	}
	for _, p := range list {
		ids = append(ids, p.ID)
	}
	return ids, a.header.Get(wire.NextCursor)
}

// legacyWorld is a world whose runner is of protocol 1, with a sandbox called a.
func legacyWorld(t tester) (*world, *counted, backend.Ref) {
	t.Helper()
	store := newCounted()
	w := newWorld(t, store.use)
	w.runner.speak(1)
	w.create("a")
	return w, store, backend.Ref{ID: "a", Instance: w.srv.Registered()["a"]}
}

// bind writes a row as the server would.
func (c *counted) bind(w *world, ref backend.Ref, id, bound string) {
	w.t.Helper()
	if err := w.srv.Bindings().Bind(w.ctx, ref, id, bound); err != nil {
		w.t.Fatal(err)
	}
	c.writes.Add(-1)
}

func TestPagesFollowTheIDsThatAreListed(t *testing.T) { // R71, R72
	w, store, ref := legacyWorld(t)
	w.lists("m1", "m2", "proc_kept", "m3", "zz", "proc_self", "m4")
	for id, bound := range map[string]string{"proc_d": "m1", "proc_a": "m2", "proc_z": "m4", "proc_self": "proc_self"} {
		store.bind(w, ref, id, bound)
	}
	want := []string{"m3", "proc_a", "proc_d", "proc_kept", "proc_self", "proc_z", "zz"}
	if got, next := w.page(""); !slices.Equal(got, want) || next != "" {
		t.Fatalf("the whole list is %q and %q, want %q", got, next, want)
	}
	for _, size := range []int{1, 2, 3, 7, 100} {
		var got []string
		query := fmt.Sprintf("?limit=%d", size)
		for {
			store.asked()
			page, next := w.page(query)
			if reads := store.asked(); reads != 1 {
				t.Errorf("a page took %d reads", reads)
			}
			if len(page) > size || next != "" && len(page) != size {
				t.Errorf("a page of %d has %q and the cursor %q", size, page, next)
			}
			if got = append(got, page...); next == "" {
				break
			}
			query = fmt.Sprintf("?limit=%d&cursor=%s", size, next)
		}
		if !slices.Equal(got, want) {
			t.Errorf("pages of %d: %q, want %q", size, got, want)
		}
	}
}

func TestAListOfAssignedIDsReadsNoBindings(t *testing.T) { // R72
	w, store, _ := legacyWorld(t)
	w.lists("proc_b", "proc_a")
	store.asked()
	if got, _ := w.page(""); !slices.Equal(got, []string{"proc_a", "proc_b"}) {
		t.Errorf("listed %q", got)
	}
	w.lists()
	if got, _ := w.page(""); len(got) != 0 {
		t.Errorf("listed %q", got)
	}
	if reads := store.asked(); reads != 0 {
		t.Errorf("%d reads", reads)
	}
}

func TestNoIDIsListedTwice(t *testing.T) { // R70
	w, store, ref := legacyWorld(t)
	w.lists("m1", "proc_x", "m2")
	store.bind(w, ref, "proc_x", "m1") // which the runner gave to another one as well
	if got, _ := w.page(""); !slices.Equal(got, []string{"m1", "m2", "proc_x"}) {
		t.Errorf("listed %q", got)
	}
}

func TestAListIsRefusedForAPageThatIsNone(t *testing.T) {
	w, _, _ := legacyWorld(t)
	w.lists("m1")
	for _, query := range []string{"?limit=-1", "?limit=x", "?limit=99999999999999999999", "?cursor=..", "?cursor=" + strings.Repeat("a", 65), "?cursor=%zz"} {
		w.do("GET", "/v1/sandboxes/a/processes"+query, "").want(t, 400, "bad_request")
	}
}

func TestCurrentRunnersCostNoReads(t *testing.T) { // R72
	store := newCounted()
	w := newWorld(t, store.use)
	w.create("a")
	w.lists("proc_a", "other")
	w.page("?limit=2")
	w.runner.handle(nil)
	for _, rq := range [][3]string{
		{"GET", "/proc_a", ""},
		{"DELETE", "/proc_a", ""},
		{"POST", "/proc_a:kill", ""},
		{"POST", "/proc_a:signal", `{"signal":"TERM"}`},
		{"POST", "", `{"cmd":"true"}`},
	} {
		w.do(rq[0], "/v1/sandboxes/a/processes"+rq[1], rq[2]).want(t, 200, "")
	}
	w.exec("a").want(t, 200, "")
	w.destroy("a").want(t, 200, "")
	if reads, writes := store.reads.Load(), store.writes.Load(); reads != 0 || writes != 0 {
		t.Errorf("the store was read %d and written %d times", reads, writes)
	}
}

// The time of each page is that of the runner's whole list: the runner knows neither the ids nor the order of what clients see.
func BenchmarkAPageOf100Of2000BoundProcesses(b *testing.B) {
	w, store, ref := legacyWorld(b)
	ids := make([]string, 2000)
	for i := range ids {
		ids[i] = fmt.Sprintf("m%04d", i)
		store.bind(w, ref, fmt.Sprintf("proc_%04d", (i*7919)%2000), ids[i])
	}
	w.lists(ids...)
	pages := 0
	var first, slowest time.Duration // sums over the passes
	for b.Loop() {
		var took []time.Duration
		for query, next := "?limit=100", "more"; next != ""; query = "?limit=100&cursor=" + next {
			start := time.Now()
			_, next = w.page(query)
			took = append(took, time.Since(start))
		}
		pages += len(took)
		first += took[0]
		slowest += slices.Max(took)
	}
	b.ReportMetric(float64(store.asked())/float64(pages), "reads/page")
	b.ReportMetric(float64(slowest)/float64(first), "slowest/first")
}
