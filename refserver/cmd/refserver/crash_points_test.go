//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"

	"github.com/keepwell-go/keepwell/backend/runner/wire"
	"github.com/keepwell-go/keepwell/refserver/client"
)

// What is under way when something crashes. All but the last are one request about one sandbox, the subject.
const (
	opCreate  = "create"
	opResume  = "resume"
	opStart   = "start"
	opExec    = "exec"
	opKill    = "kill"
	opStop    = "stop"
	opDestroy = "destroy"
	opBirth   = "birth" // the start on a state directory that is not there yet, of a server or of a runner alone
)

// Whose steps are counted, and what crashes.
const (
	theServer = "server"
	theRunner = "runner"
	both      = "both"
	power     = "power"   // all of it at once, sandboxes too, and what was on the disk at that moment is all there is
	legacy    = "legacy"  // the server of a runner that gives processes ids of its own, and lives on
	relapse   = "relapse" // both, at some step of the runner, and then what is started next, whose steps are counted
)

// kind is an operation, whose steps say when, and what crashes then.
type kind struct{ op, traced, victim string }

func kinds() (all []kind) {
	for _, op := range []string{opCreate, opResume, opStart, opExec, opKill, opStop, opDestroy} {
		for _, traced := range []string{theServer, theRunner} {
			for _, victim := range []string{theServer, theRunner, both, power, relapse} {
				all = append(all, kind{op, traced, victim})
			}
		}
	}
	for _, traced := range []string{theServer, theRunner} {
		all = append(all, kind{opBirth, traced, both}, kind{opStart, traced, legacy}, kind{opExec, traced, legacy}, kind{opKill, traced, legacy})
	}
	return all
}

// point is a crash at one step of one operation.
type point struct {
	kind
	n     int    // the number of the point in its run
	step  int    // of the traced process, from 1 on
	when  string // "before" the step or "after" it
	first int    // of a relapse, the step of the runner at which both die
	seed  uint64 // of the order in which the truth is asked for
}

func (p point) String() string {
	if p.victim == relapse {
		return fmt.Sprintf("%d: both die %s step %d of the runner in %s, and then the %s %s step %d of its start", p.n, p.when, p.first, p.op, p.traced, p.when, p.step)
	}
	if p.op == opBirth {
		return fmt.Sprintf("%d: the %s dies %s step %d of its birth", p.n, p.traced, p.when, p.step)
	}
	return fmt.Sprintf("%d: %s dies %s step %d of the %s in %s", p.n, p.victim, p.when, p.step, p.traced, p.op)
}

// keep and subject are the ids of the sandboxes: the operation is about the subject.
func (p point) keep() string    { return fmt.Sprintf("k-%d", p.n) }
func (p point) subject() string { return fmt.Sprintf("s-%d", p.n) }

// counted returns the kind that has the same steps, and nothing dies: only an old runner makes a difference.
func (k kind) counted() kind {
	switch {
	case k.victim == legacy:
		return k
	case k.victim == relapse, k.op == opBirth:
		return kind{opBoot, k.traced, ""}
	}
	return kind{k.op, k.traced, ""}
}

// steps are those that operations have without a crash, by the kind that is counted.
type steps map[kind][]string

// of returns the numbers of the steps that are worth a crash, for points of a kind.
func (s steps) of(k kind) []int {
	return distinct(s[k.counted()])
}

// plan chooses n points of all kinds alike. Of each kind it takes every step once before it takes one again.
func plan(seed uint64, n int, all steps) (points []point) {
	rng := rand.New(rand.NewPCG(seed, 0))
	shuffled := func(numbers []int) []int {
		rng.Shuffle(len(numbers), func(i, j int) { numbers[i], numbers[j] = numbers[j], numbers[i] })
		return numbers
	}
	left := map[kind][]int{}
	for len(points) < n {
		round := kinds()
		rng.Shuffle(len(round), func(i, j int) { round[i], round[j] = round[j], round[i] })
		for _, k := range round[:min(len(round), n-len(points))] {
			if len(left[k]) == 0 {
				left[k] = shuffled(all.of(k))
			}
			points = append(points, point{
				kind: k, n: len(points), step: left[k][0], when: []string{"before", "after"}[rng.IntN(2)],
				first: shuffled(all.of(kind{k.op, theRunner, both}))[0], seed: rng.Uint64(),
			})
			left[k] = left[k][1:]
		}
	}
	return points
}

// distinct returns the numbers, from 1 on, of the steps that are worth a crash: of many alike in a row the first two and the last.
func distinct(steps []string) (numbers []int) {
	for i, name := range steps {
		alike := i >= 2 && steps[i-1] == name && steps[i-2] == name
		if !alike || i == len(steps)-1 || steps[i+1] != name {
			numbers = append(numbers, i+1)
		}
	}
	return numbers
}

// tickerID and ownID are the ids of processes, chosen by the caller.
const (
	tickerID = "ticker"
	ownID    = "own"
)

// ticker is a process that writes down that it was begun, and stays.
func ticker(id, file string) wire.StartRequest {
	return wire.StartRequest{ID: id, Cmd: wire.Command{Line: "echo run >>" + file + "; echo begun; exec sleep 1000000"}}
}

// answer is what became of an operation.
type answer struct {
	done    bool   // it was answered, and as hoped for
	process string // the id of what was started
	err     error
}

// act does the operation.
func (w *crashWorld) act(ctx context.Context, api *client.Client, op, id string) (a answer) {
	switch op {
	case opCreate, opResume:
		_, a.err = api.Create(ctx, client.CreateRequest{ID: id})
	case opStart:
		var p client.Process
		p, _, a.err = api.Start(ctx, id, ticker(ownID, "owns"))
		a.process = p.ID
	case opExec:
		a.done, a.err = execOnce(ctx, api, id)
		return a
	case opKill:
		a.done, a.err = client.Process{Client: api, Sandbox: id, ID: w.tickers[id]}.Kill(ctx, 0)
		return a
	case opStop:
		_, a.err = api.Stop(ctx, id)
	case opDestroy:
		_, a.err = api.Delete(ctx, id, false)
	}
	a.done = a.err == nil
	return a
}

func execOnce(ctx context.Context, api *client.Client, id string) (done bool, err error) {
	stream, err := api.Exec(ctx, id, wire.StartRequest{Cmd: wire.Command{Line: "echo run >>execs"}})
	if err != nil {
		return false, err
	}
	for ev, err := range stream.All() {
		if err != nil {
			return false, err
		}
		done = done || ev.Event == wire.EventExit && ev.ExitCode != nil && *ev.ExitCode == 0
	}
	return done, nil
}

// tickerOutput waits until a ticker has printed its line, and says what its output has been from its first byte on.
func tickerOutput(ctx context.Context, p client.Process) (string, error) {
	stream, err := p.Output(ctx, 0, 0, true)
	if err != nil {
		return "", err
	}
	defer stream.Close()
	var out []byte
	for len(out) < len("begun\n") {
		ev, err := stream.Next()
		if err != nil && !errors.Is(err, io.EOF) {
			return string(out), err
		}
		if err != nil || ev.Event == wire.EventExit || ev.Event == wire.EventError || ev.Event == wire.EventGap {
			return string(out), fmt.Errorf("after %q the output has %q %s", out, ev.Event, ev.Error)
		}
		out = append(out, client.Bytes(ev)...)
	}
	return string(out), nil
}

// expected is what may be true of a sandbox after a crash.
type expected struct {
	id             string
	may            states
	ticks, noTicks bool // its process may run, may not: where it is running itself
	canary         bool // it has a workspace that must be kept
}

// expect says what may be true of the subject, after an operation that was answered, or not, and a crash.
func expect(op, id string, done bool, victim string) expected {
	e := expected{id: id, may: isRunning, ticks: true, canary: op != opCreate}
	switch op {
	case opCreate, opResume:
		e.ticks, e.noTicks = false, true
		if !done {
			e.may |= isStopped
		}
		if !done && op == opCreate {
			e.may |= isAbsent
		}
	case opKill:
		e.ticks, e.noTicks = !done, true
	case opStop:
		e.may = isStopped
		if !done {
			e.may |= isRunning
		}
	case opDestroy:
		e.may = isAbsent
		if !done {
			e.may = anyState
		}
	}
	if victim != theServer && victim != legacy && e.may&isRunning != 0 {
		e.may |= isStopped
		if victim != theRunner || op != opCreate && op != opResume { // which a server that lives may ask the next runner for
			e.may &^= isRunning
		}
	}
	return e
}

// byKind counts points for the report.
func byKind(points []point) (lines []string) {
	count := map[string]int{}
	for _, p := range points {
		count["what died: "+p.victim]++
		count["under way: "+p.op]++
		count["steps of: "+p.traced]++
	}
	for name, n := range count {
		lines = append(lines, fmt.Sprintf("%s %d", name, n))
	}
	slices.Sort(lines)
	return lines
}
