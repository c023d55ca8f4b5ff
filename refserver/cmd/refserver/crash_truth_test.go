//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/keepwell-go/keepwell/backend/runner/wire"
	"github.com/keepwell-go/keepwell/refserver/client"
)

// states is a set of what a sandbox may be.
type states uint8

const (
	isRunning states = 1 << iota
	isStopped
	isAbsent
	anyState = isRunning | isStopped | isAbsent
)

func (s states) String() string {
	var names []string
	for i, name := range []string{"running", "stopped", "absent"} {
		if s&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, " or ")
}

// view asks in every way there is what a sandbox is, in some order, and fails where the answers contradict each other.
func (w *crashWorld) view(ctx context.Context, rng *rand.Rand, id string) (states, error) {
	asks := []struct {
		name string
		ask  func() (states, error)
	}{
		{"the list", func() (states, error) { return w.viewByList(ctx, id, isRunning, url.Values{"fresh": {"1"}}) }},
		{"the list of stopped ones", func() (states, error) { return w.viewByList(ctx, id, isStopped, url.Values{"state": {"stopped"}}) }},
		{"get", func() (states, error) { _, err := w.api.Get(ctx, id); return viewOf(err) }},
		{"an exec", func() (states, error) { return viewOf(w.execTrue(ctx, id)) }},
		{"the list of processes", func() (states, error) { _, err := w.api.Processes(ctx, id); return viewOf(err) }},
	}
	rng.Shuffle(len(asks), func(i, j int) { asks[i], asks[j] = asks[j], asks[i] })
	agreed, said := anyState, ""
	for _, a := range asks {
		got, err := a.ask()
		if err != nil {
			return 0, fmt.Errorf("%s of %s: %w", a.name, id, err)
		}
		agreed &= got
		said += fmt.Sprintf("; %s: %s", a.name, got)
	}
	if agreed == 0 {
		return 0, fmt.Errorf("what is said of %s is no truth%s", id, said)
	}
	return agreed, nil
}

func (w *crashWorld) viewByList(ctx context.Context, id string, lists states, query url.Values) (states, error) {
	got, err := w.api.List(ctx, query)
	if err != nil {
		return 0, err
	}
	if slices.ContainsFunc(got, func(sb client.Sandbox) bool { return sb.ID == id }) {
		return lists, nil
	}
	return anyState &^ lists, nil
}

func (w *crashWorld) execTrue(ctx context.Context, id string) error {
	stream, err := w.api.Exec(ctx, id, wire.StartRequest{Cmd: wire.Command{Argv: []string{"true"}}})
	if err != nil {
		return err
	}
	for ev, err := range stream.All() {
		if err != nil {
			return err
		}
		if ev.Event == wire.EventError {
			return &client.Error{Code: ev.Code, Message: ev.Error}
		}
	}
	return nil
}

// viewOf returns what the answer of a request about a sandbox means; an error says nothing about it.
func viewOf(err error) (states, error) {
	switch client.Code(err) {
	case wire.CodeStopped:
		return isStopped, nil
	case wire.CodeNotFound:
		return isAbsent, nil
	}
	return isRunning, err
}

// check compares what is said of a sandbox with what may be true. A stopped one is resumed, so that its workspace and its
// processes can be looked at.
func (w *crashWorld) check(ctx context.Context, rng *rand.Rand, e expected, settles bool) (states, error) {
	got, err := w.view(ctx, rng, e.id)
	for range 200 {
		if err == nil || !settles {
			break
		}
		got, err = w.view(ctx, rng, e.id) // what the runner was told before the server died comes to its end
	}
	if err != nil {
		return 0, err
	}
	if got&e.may == 0 {
		return 0, fmt.Errorf("%s is %s, and only %s would be true", e.id, got, e.may)
	}
	switch got {
	case isRunning:
		err = w.checkTicker(ctx, e)
	case isStopped:
		err = w.checkResumed(ctx, e)
	}
	if content := w.file(e.id, "canary"); err == nil && got != isAbsent && e.canary && content != e.id {
		err = fmt.Errorf("the workspace of %s has the canary %q", e.id, content)
	}
	return got, err
}

func (w *crashWorld) checkResumed(ctx context.Context, e expected) error {
	sb, err := w.api.Create(ctx, client.CreateRequest{ID: e.id})
	if err != nil || !sb.Resumed {
		return fmt.Errorf("resume %s: resumed %v: %w", e.id, sb.Resumed, err)
	}
	running, err := w.runs(ctx, e.id, w.tickers[e.id])
	if err == nil && running {
		err = fmt.Errorf("the process of the stopped %s runs", e.id)
	}
	return err
}

// checkTicker looks for the process of a sandbox that runs: by its id, and by its output from the first byte on.
func (w *crashWorld) checkTicker(ctx context.Context, e expected) error {
	running, err := w.runs(ctx, e.id, w.tickers[e.id])
	switch {
	case err != nil:
		return err
	case running && !e.ticks:
		return fmt.Errorf("the process of %s runs", e.id)
	case !running && !e.noTicks:
		return fmt.Errorf("the process of %s does not run", e.id)
	case !running:
		return nil
	}
	out, err := tickerOutput(ctx, client.Process{Client: w.api, Sandbox: e.id, ID: w.tickers[e.id]})
	if err == nil && out != "begun\n" {
		err = fmt.Errorf("its output is %q", out)
	}
	return err
}

// runs says whether a process of a sandbox runs, and fails where the list and the process itself disagree.
func (w *crashWorld) runs(ctx context.Context, id, process string) (bool, error) {
	list, err := w.api.Processes(ctx, id)
	if err != nil {
		return false, err
	}
	i := slices.IndexFunc(list, func(p wire.Process) bool { return p.ID == process })
	p, err := client.Process{Client: w.api, Sandbox: id, ID: process}.Get(ctx)
	if client.Code(err) == wire.CodeNotFound && i < 0 {
		return false, nil
	}
	if err != nil || i < 0 || list[i].Running != p.Running {
		return false, fmt.Errorf("process %s of %s: the list has %+v, get says %+v: %w", process, id, list, p, err)
	}
	return p.Running, nil
}

// checkOnce looks at what the operation did to the subject, which runs: nothing is begun twice, and what was killed stays so.
func (w *crashWorld) checkOnce(ctx context.Context, p point, a answer) error {
	id, done, runnerDied := p.subject(), a.done, p.victim != theServer && p.victim != legacy
	switch p.op {
	case opStart:
		if p.victim == legacy {
			return w.checkLegacy(ctx, id, a)
		}
		return w.checkOwn(ctx, id, done, runnerDied)
	case opExec:
		if runs := w.file(id, "execs"); done && runs != "run\n" || !done && runs != "" && runs != "run\n" {
			return fmt.Errorf("the command of an exec, answered %v, ran so often: %q", done, runs)
		}
	case opKill:
		if runnerDied {
			return nil // and a new one knows nothing of the process
		}
		_, err := client.Process{Client: w.api, Sandbox: id, ID: w.tickers[id]}.Kill(ctx, 0)
		if running, rerr := w.runs(ctx, id, w.tickers[id]); err != nil || rerr != nil || running {
			return errors.Join(fmt.Errorf("kill again: it runs %v: %w", running, err), rerr)
		}
	}
	return nil
}

// checkOwn starts a process again by its own id: as long as the runner lives there is one of it.
func (w *crashWorld) checkOwn(ctx context.Context, id string, done, runnerDied bool) error {
	before := w.file(id, "owns")
	if runnerDied && before != "" && before != "run\n" {
		return fmt.Errorf("it was begun so often: %q", before)
	}
	p, started, err := w.api.Start(ctx, id, ticker(ownID, "owns"))
	if err != nil {
		return fmt.Errorf("start again: %w", err)
	}
	if done && started.Reattached == runnerDied {
		return fmt.Errorf("start again, while the runner died %v: reattached %v", runnerDied, started.Reattached)
	}
	if _, err := tickerOutput(ctx, p); err != nil {
		return fmt.Errorf("what was started again: %w", err)
	}
	want := "run\n"
	if runnerDied {
		want = before + "run\n"
	}
	if got := w.file(id, "owns"); got != want {
		return fmt.Errorf("it was begun so often: %q, want %q", got, want)
	}
	return nil
}

// checkQuota fills the server up: all that runs then is as much as it admits, less what it cannot tell yet.
func (w *crashWorld) checkQuota(ctx context.Context, inDoubt bool) error {
	var last error
	var fillers []string
	for i := range crashRoom + 1 {
		id := fmt.Sprintf("filler-%d-%d", i, time.Now().UnixNano())
		if _, last = w.api.Create(ctx, client.CreateRequest{ID: id}); last != nil {
			break
		}
		fillers = append(fillers, id)
	}
	if client.Code(last) != wire.CodeQuotaExceeded {
		return fmt.Errorf("fill the quota of %d: after %d creates: %v", crashRoom, len(fillers), last)
	}
	got, err := w.api.List(ctx, url.Values{"fresh": {"1"}})
	if err != nil {
		return err
	}
	if n := len(got); n != crashRoom && (!inDoubt || n != crashRoom-1) {
		return fmt.Errorf("the quota of %d is full with %d running sandboxes, %d of which were created just now", crashRoom, n, len(fillers))
	}
	for _, id := range fillers {
		if _, err := w.api.Delete(ctx, id, false); err != nil {
			return fmt.Errorf("destroy what filled the quota: %w", err)
		}
	}
	return nil
}
