package docker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/docker/enginetest"
)

// R2, R13, R83: what somebody does to a container behind our back is told as it is, and undone by the usual calls.
func TestWhatHappensBehindOurBackIsTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t, engine(t))
	b, _ := w.new("behind")
	api := w.engine.API
	for name, c := range map[string]struct {
		do    func(ctx context.Context, id string) error
		state string
		stop  backend.Outcome // of a stop
		again error           // of a create of the id
	}{
		"rm": {w.removeContainer, "stopped", backend.Gone, nil},
		"stop": {func(ctx context.Context, id string) error {
			_, err := api.ContainerStop(ctx, id, client.ContainerStopOptions{})
			return err
		}, "stopped", backend.Gone, nil},
		"pause": {func(ctx context.Context, id string) error {
			_, err := api.ContainerPause(ctx, id, client.ContainerPauseOptions{})
			return err
		}, "running", backend.Stopped, backend.ErrConflict},
		"volume-rm": {w.removeBoth, "absent", backend.Gone, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := spec(name, "")
			id, err := w.container(t.Context(), mustCreate(t, b, s).Ref)
			if err == nil {
				err = c.do(t.Context(), id)
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := w.isListed(t, b, s.Ref); got != c.state {
				t.Errorf("it is listed as %s, want %s", got, c.state)
			}
			next := s
			next.Instance = "i2"
			made, err := b.Create(t.Context(), next)
			if !errors.Is(err, c.again) {
				t.Errorf("create of the id: error %v, want %v", err, c.again)
			}
			if err == nil && made.Resumed != (c.state == "stopped") {
				t.Errorf("create of the id: resumed %v", made.Resumed)
			}
			if out, err := b.Stop(t.Context(), s.Ref); out != c.stop || err != nil {
				t.Errorf("stop is %v, %v; want %v", out, err, c.stop)
			}
			last := s.Ref
			if err == nil {
				last = next.Ref
			}
			mustDestroy(t, b, last)
		})
	}
}

func (w *world) removeContainer(ctx context.Context, id string) error {
	_, err := w.engine.API.ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true})
	return err
}

// removeBoth removes a container and its workspace.
func (w *world) removeBoth(ctx context.Context, id string) error {
	got, err := w.engine.API.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
	if err == nil {
		err = w.removeContainer(ctx, id)
	}
	if err == nil {
		_, err = w.engine.API.VolumeRemove(ctx, got.Container.Config.Labels["keepwell.volume"], client.VolumeRemoveOptions{})
	}
	return err
}

// R85: even when the container is gone a late destroy of the instance before is not one of the instance that ran last.
func TestAWorkspaceKnowsWhoRanInItLast(t *testing.T) {
	t.Parallel()
	w := newWorld(t, engine(t))
	b, _ := w.new("last")
	first, second := spec("last", ""), spec("last", "")
	second.Instance = "i2"
	mustCreate(t, b, first)
	if out, err := b.Stop(t.Context(), first.Ref); out != backend.Stopped || err != nil {
		t.Fatal(out, err)
	}
	id, err := w.container(t.Context(), mustCreate(t, b, second).Ref)
	if err == nil {
		_, err = w.engine.API.ContainerRemove(t.Context(), id, client.ContainerRemoveOptions{Force: true})
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := w.isListed(t, b, second.Ref); got != "stopped" {
		t.Errorf("it is listed as %s", got)
	}
	if out, err := b.Destroy(t.Context(), first.Ref); out != backend.Gone || err != nil {
		t.Errorf("destroy of the first instance: %v, %v; want gone", out, err)
	}
	mustDestroy(t, b, second.Ref)
}

// R23, R26: a name that another tool holds is a conflict, and what holds it is not touched.
func TestAContainerOfAnotherToolIsNeitherRemovedNorListed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, engine(t))
	b, _ := w.new("clash")
	mustCreate(t, b, spec("other", "")) // for an image
	mustDestroy(t, b, spec("other", "").Ref)
	for name, labels := range map[string]map[string]string{
		"none":   nil,
		"theirs": {"keepwell.owner": "somebody", "keepwell.kind": "sandbox", "keepwell.id": "theirs", "keepwell.instance": "i1"},
	} {
		made, err := w.engine.API.ContainerCreate(t.Context(), client.ContainerCreateOptions{
			Name: "kw-clash-" + name, Config: &container.Config{Image: w.image(t), Cmd: []string{"true"}, Labels: labels},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if _, err := w.engine.API.ContainerRemove(context.Background(), made.ID, client.ContainerRemoveOptions{}); err != nil {
				t.Errorf("the other tool's container: %v", err)
			}
		})
		s := spec(name, "")
		if _, err := b.Create(t.Context(), s); !errors.Is(err, backend.ErrConflict) || !strings.Contains(err.Error(), "not ours") {
			t.Errorf("create: %v, want a conflict with what is not ours", err)
		}
		if out, err := b.Destroy(t.Context(), s.Ref); out != backend.Gone || err != nil {
			t.Errorf("destroy: %v, %v; want gone", out, err)
		}
		if got := w.isListed(t, b, s.Ref); got != "absent" {
			t.Errorf("it is listed as %s", got)
		}
	}
}

// image returns the name of the image that is made here.
func (w *world) image(t testing.TB) string {
	t.Helper()
	got, err := w.engine.API.ImageList(t.Context(), client.ImageListOptions{Filters: client.Filters{}.Add("reference", "keepwell/sandbox")})
	if err != nil || len(got.Items) == 0 {
		t.Fatalf("no image is there: %v", err)
	}
	return got.Items[0].RepoTags[0]
}

// A claim that got no clear answer, or a second one, is sorted out by the call itself. Nothing is left of what failed.
func TestAnUnclearAnswerDuringACreateLeavesNothingUnknown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, engine(t))
	b, _ := w.new("unclear")
	mustCreate(t, b, spec("first", "")) // the base is made only once
	mustDestroy(t, b, spec("first", "").Ref)
	for _, end := range []string{"/containers/create", "/start"} {
		for v, ok := range map[enginetest.Verdict]bool{enginetest.Twice: true, enginetest.CutAfter: false, enginetest.FailAfter: false, enginetest.CutBefore: false, enginetest.Refuse: false} {
			s := spec(fmt.Sprintf("v%d%s", v, strings.ReplaceAll(end, "/", "-")), "")
			mend := w.proxy.Fault("broken", enginetest.Once(end, v))
			_, err := b.Create(t.Context(), s)
			_ = mend()
			if (err == nil) != ok {
				t.Errorf("%s: %v", s.ID, err)
			}
			for _, says := range []error{backend.ErrConflict, backend.ErrUnavailable, backend.ErrInvalid, backend.ErrQuota} {
				if errors.Is(err, says) {
					t.Errorf("%s: %v claims to know the effect", s.ID, err)
				}
			}
			if ok {
				mustDestroy(t, b, s.Ref)
			}
			if left, err := w.engine.Leftovers(t.Context(), "unclear"); len(left) > 0 || err != nil {
				t.Errorf("%s: there is left %q, %v", s.ID, left, err)
			}
		}
	}
}

// R104: owners whose names and ids would spell the same container have different ones, each with a network of its own.
func TestOwnersShareNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, engine(t))
	networks := map[string]bool{}
	for _, owner := range []string{"ownera", "owneraa"} {
		cfg := w.config(owner)
		cfg.Network = ""
		b, err := w.openWith(cfg)
		if err != nil {
			t.Fatal(err)
		}
		id, err := w.container(t.Context(), mustCreate(t, b, spec("same-"+owner, "")).Ref)
		if err != nil {
			t.Fatal(err)
		}
		got, err := w.engine.API.ContainerInspect(t.Context(), id, client.ContainerInspectOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range got.Container.NetworkSettings.Networks {
			networks[n.NetworkID] = true
		}
		snap, err := b.List(t.Context())
		if err != nil || len(snap.Sandboxes) != 1 {
			t.Errorf("owner %s lists %d sandboxes, %v; want its own", owner, len(snap.Sandboxes), err)
		}
		defer mustDestroy(t, b, spec("same-"+owner, "").Ref)
	}
	if len(networks) != 2 {
		t.Errorf("two owners share the networks %v", networks)
	}
}

// A list is two questions, whatever the number of sandboxes.
func TestAListAsksTheEngineTwice(t *testing.T) {
	t.Parallel()
	w := newWorld(t, engine(t))
	b, _ := w.new("lists")
	mustCreate(t, b, spec("a", ""))
	mustCreate(t, b, spec("b", ""))
	asked := w.proxy.Calls(func() {
		if snap, err := b.List(t.Context()); err != nil || len(snap.Sandboxes) != 2 {
			t.Errorf("%d sandboxes, %v", len(snap.Sandboxes), err)
		}
	})
	if len(asked) != 2 || !strings.HasSuffix(asked[0], "/volumes") || !strings.HasSuffix(asked[1], "/containers/json") {
		t.Errorf("the engine was asked %q, want the volumes and then the containers", asked)
	}
	for _, id := range []string{"a", "b"} {
		mustDestroy(t, b, spec(id, "").Ref)
	}
}
