package registry_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"
)

// world is a backend, those who use it, and what is known about them, in one order.
type world struct {
	r      *reg
	faulty bool // lists and adoptions fail

	mu       sync.Mutex // guards the fields below
	rng      *rand.Rand
	instance int                  // of the latest object; one in seven is stopped
	backend  map[string]int       // instance by key
	since    map[string]time.Time // when the instance was put there
	touched  map[string]time.Time // when something about the key changed, seen from here
	held     map[string]int       // local holds
	created  map[string]time.Time // when a create was last going on
	counted  map[string]entry     // what the observer was told is there
	told     map[string]time.Time // and when
	dead     map[int]bool         // instances that were destroyed and must never be seen again
	spurned  map[uint64]bool      // versions that were invalidated
	faults   []string
}

func (w *world) fault(format string, args ...any) {
	w.faults = append(w.faults, fmt.Sprintf(format, args...))
}

// locked calls f as one step.
func (w *world) locked(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// chance is true once in n times.
func (w *world) chance(n int) (yes bool) {
	w.locked(func() { yes = w.rng.IntN(n) == 0 })
	return yes
}

// pause takes up to so many milliseconds, or none.
func (w *world) pause(ms int) {
	var d time.Duration
	w.locked(func() { d = time.Duration(max(0, w.rng.IntN(ms*1300)-ms*300)) * time.Microsecond })
	elapse(d)
}

// fail is the end of a callback that goes wrong once in a while.
func (w *world) fail() error {
	if !w.faulty || !w.chance(4) {
		return nil
	}
	switch {
	case w.chance(3):
		panic("boom")
	case w.chance(3):
		runtime.Goexit()
	case w.chance(3):
		elapse(100 * time.Millisecond) // ignores its budget
	}
	return errors.New("boom")
}

func (w *world) list(context.Context, []string) (snap snapshot, err error) {
	w.pause(3)
	w.locked(func() { snap.Items = maps.Clone(w.backend) })
	snap.Complete = !w.faulty || !w.chance(4)
	w.pause(6)
	return snap, w.fail()
}

func (w *world) adopt(_ context.Context, _ string, v int) (int, error) {
	w.pause(40)
	if v%7 == 0 {
		return 0, stopped{v}
	}
	return v, w.fail()
}

func (w *world) observe(e event) {
	free := false
	for range 100 {
		if free = free || w.r.Unlocked(); !free {
			runtime.Gosched()
		}
	}
	w.pause(2)
	w.locked(func() {
		was, is := w.counted[e.Key]
		switch {
		case !free:
			w.fault("told %+v under the lock", e)
		case e.Present == is, is && was != e.Entry:
			w.fault("told %+v although %+v was counted: %v", e, was, is)
		case e.Present && w.dead[e.Value]:
			w.fault("told %+v, which was destroyed", e)
		case !e.Present && !e.Local && !w.spurned[e.Version] && w.backend[e.Key] > 0 && !w.since[e.Key].After(w.told[e.Key]):
			w.fault("%+v was dropped, although it was there all the time", e)
		}
		w.touched[e.Key], w.told[e.Key] = time.Now(), time.Now()
		if delete(w.counted, e.Key); e.Present {
			w.counted[e.Key] = e.Entry
		}
	})
	if _, visible := w.r.Lookup(e.Key); visible {
		w.locked(func() { w.fault("told %+v while it was visible", e) })
	}
}

// object puts a new instance of k into the backend, unless there is one.
func (w *world) object(k string) (v int) {
	w.locked(func() {
		if _, exists := w.backend[k]; !exists {
			w.instance++
			w.backend[k], w.since[k], w.touched[k] = w.instance, time.Now(), time.Now()
		}
		v = w.backend[k]
	})
	return v
}

func (w *world) appear(k string) { w.object(k) }

func (w *world) vanish(k string) {
	w.locked(func() { delete(w.backend, k); w.touched[k] = time.Now() })
}

// holding marks k as held while f goes on.
func (w *world) holding(k string, f func()) {
	w.locked(func() { w.held[k]++ })
	defer w.locked(func() { w.held[k]--; w.touched[k] = time.Now() })
	f()
}

func (w *world) create(k string) {
	w.holding(k, func() {
		h, err := w.r.Hold(k)
		if err != nil {
			return
		}
		defer w.locked(func() { w.created[k] = time.Now() })
		defer h.Cancel()
		w.locked(func() { w.created[k] = time.Now().Add(time.Hour) })
		w.pause(10)
		if v := w.object(k); !w.chance(4) {
			h.Fill(v)
		}
	})
}

func (w *world) destroy(k string) {
	w.holding(k, func() {
		h, err := w.r.Take(k)
		if err != nil {
			return
		}
		defer h.Cancel()
		w.pause(5)
		if w.chance(4) {
			return // spared
		}
		h.Commit()
		w.pause(10)
		if w.chance(4) {
			return // failed
		}
		w.locked(func() {
			if w.backend[k] == h.Entry().Value {
				delete(w.backend, k)
			}
			w.dead[h.Entry().Value] = true
		})
		h.Release()
	})
}

func (w *world) invalidate(k string) {
	if e, ok := w.r.Lookup(k); ok {
		w.locked(func() { w.spurned[e.Version] = true })
		w.r.Invalidate(e)
	}
}
