package registry_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keepwell-go/keepwell/registry"
)

type (
	snapshot = registry.Snapshot[string, int]
	config   = registry.Config[string, int]
)

func TestAMissAdoptsWhatTheBackendHas(t *testing.T) { // R1
	r := registry.New(func(context.Context, []string) (snapshot, error) {
		return snapshot{Items: map[string]int{"a": 1}, Complete: true}, nil
	}, config{})
	defer r.Close()
	e, err := r.Resolve(t.Context(), "a")
	if err != nil || e.Value != 1 {
		t.Fatalf("Resolve = %v, %v", e, err)
	}
	if got, ok := r.Lookup("a"); !ok || got != e {
		t.Errorf("Lookup = %v, %v; want %v", got, ok, e)
	}
	if _, err := r.Resolve(t.Context(), "b"); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("Resolve of an absent key: %v", err)
	}
	if s := r.Stats(); s.Entries != 1 || s.Tombstones != 0 || s.Adopted != 1 {
		t.Errorf("Stats = %+v", s)
	}
}

func TestADestroyedKeyIsNotResurrectedByAnOlderList(t *testing.T) { // R78
	synctest.Test(t, func(t *testing.T) {
		r := registry.New(func(context.Context, []string) (snapshot, error) {
			s := snapshot{Items: map[string]int{"a": 1}, Complete: true}
			time.Sleep(time.Second)
			return s, nil
		}, config{})
		defer r.Close()
		h, err := r.Hold("a")
		if err != nil {
			t.Fatal(err)
		}
		h.Fill(1)
		done := make(chan error)
		go func() { _, err := r.Sync(t.Context()); done <- err }()
		synctest.Wait()
		h, err = r.Take("a")
		if err != nil {
			t.Fatal(err)
		}
		h.Commit()
		h.Release()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if _, ok := r.Lookup("a"); ok {
			t.Error("a is back")
		}
		if s := r.Stats(); s.Tombstones != 0 || s.Fenced != 1 {
			t.Errorf("Stats = %+v", s)
		}
	})
}
