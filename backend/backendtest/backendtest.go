// Package backendtest is the contract of a backend.Backend in executable form.
//
// It prevents the fault of a contract that is only prose: a backend that lists nothing when it could not ask, that removes the
// winner of a race it lost, or that reports a destroy and leaves the workspace, passes every test that its author thought of. Each
// Case here is one promise, and each can fail: the tests of this package have a wrong backend for every one of them.
//
// A backend proves itself with
//
//	func TestContract(t *testing.T) {
//		backendtest.Run(t, func(t *testing.T) backendtest.Harness {
//			return backendtest.Harness{New: ...}
//		})
//	}
package backendtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/keepwell-go/keepwell/backend"
)

// Harness is what the suite may do with one engine. New is required, and called from many goroutines at once. Each other
// function that is nil needs its reason in Cannot, under its field name; then the cases that need it are skipped with that
// reason. Cases use owners and ids that no other case uses, and destroy what they made, so that all may share one engine.
type Harness struct {
	// New opens a handle for an owner, a short name of lower-case letters and digits. Two handles of one owner are two
	// replicas; what they share is only the engine. With "Owners" in Cannot, a Harness is never asked for a second owner.
	New func(owner string) (backend.Backend, error)

	// WriteFile puts a file into the workspace of a running sandbox; b is a handle from New of its owner.
	WriteFile func(ctx context.Context, b backend.Backend, s backend.Sandbox, name string, data []byte) error
	// ReadFile returns it; the error is fs.ErrNotExist if there is no such file.
	ReadFile func(ctx context.Context, b backend.Backend, s backend.Sandbox, name string) ([]byte, error)

	// Break makes the engine unreachable, for all owners, until mend is called; the sandboxes survive.
	Break func(ctx context.Context) (mend func() error, err error)
	// Hang makes the engine accept calls and answer none until mend is called; the sandboxes survive.
	Hang func(ctx context.Context) (mend func() error, err error)
	// FailDestroy lets the deletion of workspaces fail until mend is called.
	FailDestroy func(ctx context.Context) (mend func() error, err error)
	// FailCreate lets creates of an owner fail for good in their middle, when the engine has made something of them, until
	// mend is called.
	FailCreate func(ctx context.Context) (mend func() error, err error)
	// Fill lets the engine refuse creates for want of room until mend is called.
	Fill func(ctx context.Context) (mend func() error, err error)
	// Kill ends a running sandbox behind the backend's back; its workspace stays.
	Kill func(ctx context.Context, b backend.Backend, s backend.Sandbox) error
	// Restart restarts the engine, or whatever part of the backend outlives its handles. It returns when it answers again.
	Restart func(ctx context.Context) error
	// Leftovers names everything on the engine that belongs to an owner: processes, containers, volumes, files, secrets.
	Leftovers func(ctx context.Context, owner string) ([]string, error)

	// Cannot says why the engine cannot do something. Its keys are the names of the functions above, "Owners" for an engine
	// that has one owner only, "Marker" for a backend without Mark, and "Resume" for one that cannot keep a workspace.
	Cannot map[string]string

	Image    string        // for every Spec; "" for backends without images
	Settle   time.Duration // how long a call that was cut off may go on behind the scenes; 0: not at all
	Patience time.Duration // how long one case may take; 0: 60 s
}

// Case is one promise of the contract.
type Case struct {
	Name  string   // a sentence, without spaces
	Rule  string   // the numbers of the rules it proves
	Why   string   // what goes wrong in the world when it is broken
	Needs []string // what the harness must be able to do

	check func(e *env)
}

// Cases returns all cases, in a fixed order.
func Cases() []Case {
	return slices.Concat(lifecycle(), specs(), races(), fences(), lists(), outages(), owners(), marks(), cuts())
}

// Run runs every case as a subtest against a harness of its own. A case that the harness cannot run is skipped with the
// reason that the harness gives; a missing function without a reason fails.
func Run(t *testing.T, harness func(t *testing.T) Harness) {
	for _, c := range Cases() {
		t.Run(c.Name, func(t *testing.T) {
			h := harness(t)
			if err := h.check(); err != nil {
				t.Fatal(err)
			}
			if why := c.Cannot(h); why != "" {
				t.Skip(why)
			}
			if err := c.Check(t.Context(), h); err != nil {
				t.Errorf("%v\n%s: %s", err, c.Rule, c.Why)
			}
		})
	}
}

// Cannot returns why h cannot run the case, or "".
func (c Case) Cannot(h Harness) string {
	for _, need := range c.Needs {
		if why, ok := h.Cannot[need]; ok {
			return fmt.Sprintf("needs %s: %s", need, why)
		}
	}
	return ""
}

// Check runs the case and returns how the promise was broken, or nil. It takes at most Patience and destroys what it made.
// A backend that never returns is left behind.
func (c Case) Check(ctx context.Context, h Harness) error {
	patience := h.Patience
	if patience == 0 {
		patience = 60 * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	e := newEnv(ctx, h)
	verdict := make(chan error, 1)
	go func() { // ends when the backend has returned
		verdict <- caught(func() { c.check(e) })
	}()
	select {
	case err := <-verdict:
		if cleanup := e.cleanUp(patience); err == nil && cleanup != nil {
			return fmt.Errorf("after the case: %w", cleanup)
		}
		return err
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("still running after %s: %w", patience, context.Cause(ctx)), e.mendAll())
	}
}

// abilities returns what Cannot may name, and whether h can do it.
func (h Harness) abilities() map[string]bool {
	return map[string]bool{
		"WriteFile": h.WriteFile != nil, "ReadFile": h.ReadFile != nil, "Break": h.Break != nil, "Hang": h.Hang != nil,
		"FailDestroy": h.FailDestroy != nil, "FailCreate": h.FailCreate != nil, "Fill": h.Fill != nil, "Kill": h.Kill != nil,
		"Restart": h.Restart != nil, "Leftovers": h.Leftovers != nil, "Owners": true, "Marker": true, "Resume": true,
	}
}

// check returns an error unless every ability is there or excused.
func (h Harness) check() error {
	if h.New == nil {
		return fmt.Errorf("backendtest: Harness.New is nil")
	}
	if h.Settle < 0 || h.Patience < 0 {
		return fmt.Errorf("backendtest: negative Settle %v or Patience %v", h.Settle, h.Patience)
	}
	can := h.abilities()
	for _, name := range slices.Sorted(maps.Keys(can)) {
		if why, excused := h.Cannot[name]; !can[name] && why == "" || excused && why == "" {
			return fmt.Errorf("backendtest: Harness.%s is missing and Cannot has no reason for it", name)
		}
	}
	for name := range h.Cannot {
		if _, known := can[name]; !known {
			return fmt.Errorf("backendtest: Cannot names %q, which is no ability", name)
		}
	}
	return nil
}
