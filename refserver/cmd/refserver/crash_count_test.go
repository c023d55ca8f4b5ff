//go:build linux

package main

import "fmt"

// count carries each operation out without a crash and returns the steps of the server and of the runner.
func (w *crashWorld) count() steps {
	all := steps{}
	w.up()
	old := w.sibling()
	old.legacy()
	old.up()
	for i, k := range kinds() {
		k = k.counted()
		if all[k] != nil || k.op == opBoot {
			continue
		}
		in := w
		if k.victim == legacy {
			in = old
		}
		all[k] = in.countOne(k, point{n: i})
	}
	old.finish(nil)
	for _, who := range []string{theRunner, theServer} {
		runner := w.runner()
		w.kill(both)
		w.ended(both, runner)
		all[kind{opBoot, who, ""}], _ = w.bootAndDie(who, 0, "before")
		w.up()
	}
	w.finish(nil)
	return all
}

func (w *crashWorld) countOne(k kind, p point) []string {
	ctx := w.t.Context()
	if err := w.prepare(ctx, k.op, p.keep(), p.subject()); err != nil {
		w.t.Fatal(err)
	}
	tr := startTrace(w.t, w.pid(k.traced), 0, "before")
	a := w.act(ctx, w.api, k.op, p.subject())
	seen := tr.end()
	if !a.done || len(seen) == 0 {
		w.t.Fatalf("%s without a crash: %+v, steps of the %s: %v", k.op, a, k.traced, seen)
	}
	if err := w.clear(ctx); err != nil {
		w.t.Fatal(fmt.Errorf("after %s: %w", k.op, err))
	}
	return seen
}
