package docker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/docker"
	"github.com/keepwell-go/keepwell/backend/docker/enginetest"
)

// createVariable makes this test binary a program that creates a sandbox; its value is an order.
const createVariable = "KEEPWELL_TEST_CREATE"

type order struct {
	Config docker.Config
	Spec   backend.Spec
}

// createAndDie does what createVariable says, unless it is killed on its way.
func createAndDie() int {
	var o order
	err := json.Unmarshal([]byte(os.Getenv(createVariable)), &o)
	if err == nil {
		var b *docker.Backend
		if b, err = docker.Open(o.Config); err == nil {
			_, err = b.Create(context.Background(), o.Spec)
		}
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// R101: whenever the server is killed, what it had made until then is found by the next one, and can be removed.
func TestACreateThatIsKilledAtAnyStepIsFoundAndResolved(t *testing.T) {
	t.Parallel()
	w := newWorld(t, engine(t))
	b, err := w.openWith(w.config("crash"))
	if err != nil {
		t.Fatal(err)
	}
	mustCreate(t, b, spec("first", "")) // the base is made only once
	mustDestroy(t, b, spec("first", "").Ref)
	steps := 0
	for _, after := range []bool{false, true} {
		for step := int64(1); ; step++ {
			s := spec(fmt.Sprintf("step-%d-%v", step, after), backend.ProfileAgent)
			if !w.killDuring(t, s, step, after) {
				if w.isListed(t, b, s.Ref) != "running" {
					t.Errorf("%s was not killed, and is %s", s.ID, w.isListed(t, b, s.Ref))
				}
				mustDestroy(t, b, s.Ref)
				break
			}
			steps++
			w.resolved(t, b, s.Ref)
		}
	}
	if steps < 8 { // container, helper, archive, helper's removal, start; each before and after
		t.Errorf("the create was killed at %d steps only", steps)
	}
}

// killDuring lets a process create s and kills it at its step-th change of the engine; false if it came to its end.
func (w *world) killDuring(t *testing.T, s backend.Spec, step int64, after bool) bool {
	t.Helper()
	text, err := json.Marshal(order{w.config("crash"), s})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), createVariable+"="+string(text))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	started := make(chan struct{}) // closed when there is a process to kill
	kill := func() { <-started; _ = cmd.Process.Kill() }
	var changes atomic.Int64
	mend := w.proxy.Fault("", func(r *http.Request) enginetest.Verdict {
		if r.Method == http.MethodGet || r.Method == http.MethodHead || changes.Add(1) != step {
			return enginetest.Pass
		}
		if after {
			return w.proxy.Afterwards(kill)
		}
		kill()
		return enginetest.CutBefore
	})
	defer func() { _ = mend() }()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	close(started)
	err = cmd.Wait()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.Exited()) {
		t.Fatalf("%s: %v: %s", s.ID, err, &out)
	}
	return err != nil
}

func (w *world) isListed(t *testing.T, b backend.Backend, r backend.Ref) string {
	t.Helper()
	snap, err := b.List(t.Context(), r.ID)
	if err != nil {
		t.Fatal(err)
	}
	for _, sb := range snap.Sandboxes {
		switch {
		case sb.Ref != r:
			return "another instance: " + sb.Instance
		case sb.Running:
			return "running"
		default:
			return "stopped"
		}
	}
	return "absent"
}

// resolved wants everything of r to be listed or gone, and all of it gone when r is destroyed.
func (w *world) resolved(t *testing.T, b backend.Backend, r backend.Ref) {
	t.Helper()
	left, err := w.engine.Leftovers(t.Context(), "crash")
	if err != nil {
		t.Fatal(err)
	}
	if state := w.isListed(t, b, r); len(left) > 0 && state == "absent" {
		t.Errorf("%s is not listed, and there is left %q", r.ID, left)
	}
	out, err := b.Destroy(t.Context(), r)
	if want := outcomeOf(left); out != want || err != nil {
		t.Errorf("destroy of %s is %v, %v; want %v", r.ID, out, err, want)
	}
	if left, err = w.engine.Leftovers(t.Context(), "crash"); len(left) > 0 || err != nil {
		t.Errorf("after the destroy of %s there is left %q, %v", r.ID, left, err)
	}
}

func outcomeOf(left []string) backend.Outcome {
	if len(left) == 0 {
		return backend.Gone
	}
	return backend.Stopped
}

func spec(id, profile string) backend.Spec {
	return backend.Spec{Ref: backend.Ref{ID: strings.ReplaceAll(id, "_", "-"), Instance: "i1"}, Tenant: "acme", Profile: profile}
}

func mustCreate(t testing.TB, b backend.Backend, s backend.Spec) backend.Sandbox {
	t.Helper()
	sb, err := b.Create(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return sb
}

func mustDestroy(t testing.TB, b backend.Backend, r backend.Ref) {
	t.Helper()
	if out, err := b.Destroy(t.Context(), r); out != backend.Stopped || err != nil {
		t.Fatalf("destroy of %v is %v, %v; want stopped", r, out, err)
	}
}
