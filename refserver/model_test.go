package refserver_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/memory"
	"github.com/keepwell-go/keepwell/refserver"
)

// model drives a world by random requests, faults and accidents, several at a time, and knows what must hold whenever it is quiet.
type model struct {
	*world
	rt       *rapid.T
	outsides int // sandboxes made behind the server's back, which may pass its limit
	lifts    []func()
	doubted  map[string]bool // counted since a create without a certain end
	silent   map[string]bool // whose runner did not answer, and whether that is still so
}

const modelLimit = 3

// TestQuotaRegistryAndEngineAgreeWhateverHappens is the whole composition against these promises:
//
//   - What runs in the engine by the server's doing is counted.
//   - What is registered is counted; what is counted is registered, silent or in doubt.
//   - The limit is passed only by what was made behind the server's back.
//   - Every request is answered, with a status that fits it.
//   - When the faults are over, a sweep makes all three agree, everything can be destroyed, and nothing is left.
func TestQuotaRegistryAndEngineAgreeWhateverHappens(t *testing.T) { // R21, R22, R83, R86, R102
	rapid.Check(t, func(rt *rapid.T) {
		rapid.SyncTest(rt, func(rt *rapid.T) {
			here := &inRun{T: rt}
			defer here.cleanup()
			m := &model{rt: rt, doubted: map[string]bool{}, silent: map[string]bool{}, world: newWorldOn(here, nil, func(cfg *refserver.Config) { cfg.MaxSandboxes = modelLimit })}
			rt.Repeat(map[string]func(*rapid.T){
				"requests": m.requests,
				"sweep":    func(*rapid.T) { _ = m.srv.Sweep(m.ctx) },
				"time":     func(rt *rapid.T) { time.Sleep(time.Duration(rapid.IntRange(1, 300).Draw(rt, "seconds")) * time.Second) },
				"fault":    m.fault,
				"lift":     func(*rapid.T) { m.lift() },
				"accident": m.accident,
				"":         m.check,
			})
			m.settle()
		})
	})
}

// inRun is one run of a property, whose cleanups happen inside its bubble also when it fails.
type inRun struct {
	*rapid.T
	undo []func()
}

func (r *inRun) Cleanup(f func()) { r.undo = append(r.undo, f) }

func (r *inRun) cleanup() {
	for _, f := range slices.Backward(r.undo) {
		f()
	}
	time.Sleep(5 * time.Minute) // net/http's own linger after a refusal, and calls of the engine that heed no end
}

// requests sends up to four at once and waits for all answers.
func (m *model) requests(rt *rapid.T) {
	type sent struct {
		what, id string
		ch       <-chan answer
	}
	var all []sent
	for range rapid.IntRange(1, 4).Draw(rt, "requests") {
		id := m.anyID(rt)
		path := "/v1/sandboxes/" + id
		switch what := rapid.SampledFrom([]string{"create", "create", "get", "exec", "destroy", "gentle", "stop", "list"}).Draw(rt, "request"); what {
		case "create":
			all = append(all, sent{what, id, m.later("POST", "/v1/sandboxes", fmt.Sprintf(`{"id":%q}`, id))})
		case "get":
			all = append(all, sent{what, id, m.later("GET", path, "")})
		case "exec":
			all = append(all, sent{what, id, m.later("POST", path+"/exec", `{}`)})
		case "destroy":
			all = append(all, sent{what, id, m.later("DELETE", path, "")})
		case "gentle":
			all = append(all, sent{what, id, m.later("DELETE", path+"?if_idle=1", "")})
		case "stop":
			all = append(all, sent{what, id, m.later("POST", path+":stop", "")})
		case "list":
			all = append(all, sent{what, id, m.later("GET", "/v1/sandboxes?fresh=1", "")})
		}
	}
	for _, s := range all {
		a := <-s.ch
		if !slices.Contains(statuses[s.what], a.status) {
			m.rt.Fatalf("%s answered %d %s", s.what, a.status, a.raw)
		}
		if s.what == "create" && a.status == 502 {
			m.doubted[s.id] = true
		}
	}
}

// statuses are the answers that each request may have.
var statuses = map[string][]int{
	"create":  {201, 409, 429, 502, 503},
	"get":     {200, 404, 503},
	"exec":    {200, 404, 503},
	"destroy": {200, 404, 502, 503},
	"gentle":  {200, 404, 409, 502, 503},
	"stop":    {200, 404, 502, 503},
	"list":    {200, 503},
}

func (m *model) anyID(rt *rapid.T) string {
	return rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}).Draw(rt, "id")
}

// fault makes some call of the engine go wrong, once or until it is lifted.
func (m *model) fault(rt *rapid.T) {
	f := memory.Fault{
		Call:  rapid.SampledFrom([]string{"create", "list", "stop", "destroy"}).Draw(rt, "call"),
		Times: rapid.IntRange(0, 2).Draw(rt, "times"),
		After: rapid.Bool().Draw(rt, "after"),
	}
	switch rapid.SampledFrom([]string{"unknown", "down", "hang", "slow", "partial"}).Draw(rt, "kind") {
	case "unknown":
		f.Err = errors.New("something broke")
	case "down":
		f.Err, f.After = backend.ErrUnavailable, false // which means that nothing was changed
	case "hang":
		f.Hang = true
	case "slow":
		f.Delay, f.Deaf = time.Duration(rapid.IntRange(1, 240).Draw(rt, "delay"))*time.Second, true
	case "partial":
		if f.Call != "list" && f.Call != "destroy" {
			f.Call = "list"
		}
		f.Partial, f.After = true, false
	}
	m.lifts = append(m.lifts, m.engine.Inject(f))
}

func (m *model) lift() {
	for _, lift := range m.lifts {
		lift()
	}
	m.lifts = nil
}

// accident changes the engine behind the server's back.
func (m *model) accident(rt *rapid.T) {
	id := m.anyID(rt)
	switch rapid.SampledFrom([]string{"kill", "remove", "deaf", "hears", "outside"}).Draw(rt, "accident") {
	case "kill":
		m.be.Kill(id)
	case "remove":
		m.be.Remove(id)
	case "deaf":
		m.runner.deafen(id, true)
		m.silent[id] = true
	case "hears":
		m.runner.deafen(id, false)
		if m.silent[id] {
			m.silent[id] = false
		}
	case "outside":
		m.outsides++
		spec := backend.Spec{Ref: backend.Ref{ID: id, Instance: fmt.Sprintf("outside-%d", m.outsides)}, Tenant: "default"}
		ctx, cancel := context.WithTimeout(m.ctx, time.Minute)
		defer cancel()
		_, _ = m.other().Create(ctx, spec) // it may be refused, or meet a fault
	}
}

// other is another replica's handle on the engine.
func (m *model) other() *memory.Backend { return m.engine.Open("memory") }

// running returns what runs in the engine, by id, past all faults.
func (m *model) running() map[string]string {
	lift := m.engine.Inject(memory.Fault{Call: "list"})
	defer lift()
	got, err := m.other().List(m.ctx)
	if err != nil {
		m.rt.Fatalf("list: %v", err)
	}
	all := map[string]string{}
	for _, sb := range got.Sandboxes {
		if sb.Running {
			all[sb.ID] = sb.Instance
		}
	}
	return all
}

func (m *model) check(*rapid.T) {
	synctest.Wait()
	registered, counted := m.srv.Registered(), m.srv.Counted()
	for id, instance := range m.running() {
		if !strings.HasPrefix(instance, "outside-") && !counted[id] {
			m.rt.Errorf("%s runs as %s and is not counted", id, instance)
		}
	}
	for id := range registered {
		if !counted[id] {
			m.rt.Errorf("%s is registered and not counted", id)
		}
	}
	for id := range counted {
		if _, silent := m.silent[id]; registered[id] == "" && !m.doubted[id] && !silent {
			m.rt.Errorf("%s is counted, and neither registered, silent nor in doubt since a create", id)
		}
	}
	maps.DeleteFunc(m.doubted, func(id string, _ bool) bool { return !counted[id] })
	maps.DeleteFunc(m.silent, func(id string, still bool) bool { return !still && !counted[id] })
	if m.outsides == 0 && len(counted) > modelLimit {
		m.rt.Errorf("%d are counted, the limit is %d", len(counted), modelLimit)
	}
	if held := m.srv.Registry().Held; held != 0 {
		m.rt.Errorf("%d ids are held by nobody", held)
	}
}

// settle ends the faults, lets the doubts run out, and then everything must agree and can be destroyed.
func (m *model) settle() {
	m.lift()
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		m.runner.deafen(id, false)
	}
	time.Sleep(10 * time.Minute)
	for id := range m.srv.Registered() {
		m.get(id) // so that what has vanished is dropped one by one, as a sweep alone would refuse to drop most of all
	}
	m.sweep()
	running, registered, counted := m.running(), m.srv.Registered(), m.srv.Counted()
	if !maps.Equal(running, registered) || len(counted) != len(running) {
		m.rt.Fatalf("in the end %v run, %v are registered and %v are counted", running, registered, counted)
	}
	if n := m.srv.Silent(); n != 0 {
		m.rt.Errorf("%d are remembered as silent", n)
	}
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		if got := m.destroy(id); got.status != 200 && got.status != 404 {
			m.rt.Errorf("destroy of %s answered %d %s", id, got.status, got.raw)
		}
	}
	left, err := m.be.List(m.ctx)
	if err != nil || len(left.Sandboxes) != 0 || len(m.srv.Counted()) != 0 {
		m.rt.Errorf("left: %v, counted %v, %v", left.Sandboxes, m.srv.Counted(), err)
	}
	if s := m.srv.Registry(); s.Entries+s.Held+s.Tombstones != 0 {
		m.rt.Errorf("the registry is left with %+v", s)
	}
}
