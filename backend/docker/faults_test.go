package docker_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/docker"
	"github.com/keepwell-go/keepwell/backend/docker/enginetest"
)

// faultSteps is how many random calls meet a faulty engine.
const faultSteps = 500

// chaos makes random calls of a few ids, whose requests meet a fault in one of ten cases.
type chaos struct {
	t    *testing.T
	b    *docker.Backend
	rnd  *rand.Rand
	last map[string]backend.Sandbox // by id, the instance that was created last, with or without an answer
	next int
}

// R83, R101: whatever goes wrong, nothing is lost sight of: in the end everything that was ever made is listed, and can be destroyed.
func TestNothingLeaksAmongRandomFaults(t *testing.T) {
	t.Parallel()
	steps := faultSteps
	if testing.Short() {
		steps = 50
	}
	w := newWorld(t, engine(t))
	b, err := w.openWith(w.config("chaos"))
	if err != nil {
		t.Fatal(err)
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	c := &chaos{t: t, b: b, rnd: rand.New(rand.NewPCG(seed, 0)), last: map[string]backend.Sandbox{}}
	faults := []enginetest.Verdict{enginetest.Refuse, enginetest.CutBefore, enginetest.CutAfter, enginetest.FailAfter, enginetest.Twice}
	mend := w.proxy.Fault("out of luck", func(*http.Request) enginetest.Verdict {
		if rand.N(10) > 0 {
			return enginetest.Pass
		}
		return faults[rand.N(len(faults))]
	})
	for range steps {
		c.step()
	}
	_ = mend()
	c.destroyAll()
	if left, err := w.engine.Leftovers(t.Context(), "chaos"); len(left) > 0 || err != nil {
		t.Errorf("there is left %q, %v", left, err)
	}
}

func (c *chaos) step() {
	id := fmt.Sprintf("box-%d", c.rnd.IntN(3))
	last := c.last[id]
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	switch n := c.rnd.IntN(10); {
	case n < 2:
		c.create(ctx, id)
	case last.ID == "":
	case n < 3:
		c.end(ctx, "stop", c.b.Stop, last.Ref)
	case n < 4:
		c.end(ctx, "destroy", c.b.Destroy, last.Ref)
	case n < 6:
		_, err := c.b.Mark(ctx, last.Ref, c.rnd.IntN(2) == 0)
		c.said("mark", err)
	case n < 8 && last.Running:
		ctx, cancel := context.WithTimeout(ctx, time.Second) // the address of a stopped one answers nothing
		defer cancel()
		_, err := inside(ctx, last, http.MethodGet, "activity", nil)
		c.said("activity", err)
	default:
		_, err := c.b.List(ctx)
		c.said("list", err)
	}
}

func (c *chaos) create(ctx context.Context, id string) {
	c.next++
	s := backend.Spec{Ref: backend.Ref{ID: id, Instance: fmt.Sprintf("i%d", c.next)}, Tenant: "acme"}
	sb, err := c.b.Create(ctx, s)
	c.said("create", err)
	if err == nil {
		c.last[id] = sb
	}
}

// end makes a stop or destroy. An outcome that is known must be true.
func (c *chaos) end(ctx context.Context, verb string, f func(context.Context, backend.Ref) (backend.Outcome, error), r backend.Ref) {
	out, err := f(ctx, r)
	c.said(verb, err)
	if (err != nil) != (out == backend.Unknown) {
		c.t.Errorf("%s of %v: %v with error %v", verb, r, out, err)
	}
	if out == backend.Unknown {
		return
	}
	snap, err := c.b.List(ctx)
	for _, sb := range snap.Sandboxes {
		if sb.Ref == r && (sb.Running || verb == "destroy") {
			c.t.Errorf("%s of %v is %v, and it is listed, running %v", verb, r, out, sb.Running)
		}
	}
	c.said("list", err)
}

func (c *chaos) said(call string, err error) {
	if err != nil && testing.Verbose() {
		c.t.Logf("%s: %v", call, err)
	}
}

// destroyAll destroys what is listed until nothing is: what was cut off may have come after the first list.
func (c *chaos) destroyAll() {
	for range 10 {
		snap, err := c.b.List(c.t.Context())
		if err != nil {
			c.t.Fatal(err)
		}
		if len(snap.Sandboxes) == 0 {
			return
		}
		for _, sb := range snap.Sandboxes {
			if out, err := c.b.Destroy(c.t.Context(), sb.Ref); err != nil {
				c.t.Errorf("destroy of %v: %v, %v", sb.Ref, out, err)
			}
		}
	}
	c.t.Error("there is no end to what is listed")
}
