package sweep_test

import (
	"context"
	"fmt"
	"math"
	"testing"
	"testing/synctest"

	"github.com/keepwell-go/keepwell/sweep"
)

func TestNewRefusesWhatCannotBeMeant(t *testing.T) {
	pass, _ := counting()
	for want, f := range map[string]func(){
		"sweep: nil pass":                                          func() { sweep.New(nil, sweep.Config{}) },
		"sweep: negative Every -1ns or Budget 0s":                  func() { sweep.New(pass, sweep.Config{Every: -1}) },
		"sweep: negative Every 0s or Budget -1ns":                  func() { sweep.New(pass, sweep.Config{Budget: -1}) },
		"sweep: Jitter 1 is not within [0, 1)":                     func() { sweep.New(pass, sweep.Config{Jitter: 1}) },
		"sweep: Jitter -0.1 is not within [0, 1)":                  func() { sweep.New(pass, sweep.Config{Jitter: -0.1}) },
		"sweep: Jitter NaN is not within [0, 1)":                   func() { sweep.New(pass, sweep.Config{Jitter: math.NaN()}) },
		"sweep: Plan without Subjects or Judge":                    func() { _, _ = sweep.Plan[int]{}.Run(t.Context()) },
		"sweep: Plan without Act that is no DryRun":                func() { p := of(1, 0, 0, 0).plan(); p.Act = nil; _, _ = p.Run(t.Context()) },
		"sweep: negative Pace -1, Cap 0 or Judges 0":               func() { p := of(1, 0, 0, 0).plan(); p.Pace = -1; _, _ = p.Run(t.Context()) },
		"sweep: negative Pace 0, Cap -1 or Judges 0":               func() { p := of(1, 0, 0, 0).plan(); p.Cap = -1; _, _ = p.Run(t.Context()) },
		"sweep: negative Pace 0, Cap 0 or Judges -1":               func() { p := of(1, 0, 0, 0).plan(); p.Judges = -1; _, _ = p.Run(t.Context()) },
		"sweep: PaceShare 1.1 or CapShare 0 is not within [0, 1]":  func() { p := of(1, 0, 0, 0).plan(); p.PaceShare = 1.1; _, _ = p.Run(t.Context()) },
		"sweep: PaceShare 0 or CapShare -0.1 is not within [0, 1]": func() { p := of(1, 0, 0, 0).plan(); p.CapShare = -0.1; _, _ = p.Run(t.Context()) },
	} {
		panicsWith(t, want, f)
	}
	for _, spoil := range []func(*sweep.Plan[int]){
		func(p *sweep.Plan[int]) { p.Subjects = nil },
		func(p *sweep.Plan[int]) { p.Judge = nil },
	} {
		p := of(1, 0, 0, 0).plan()
		spoil(&p)
		panicsWith(t, "sweep: Plan without Subjects or Judge", func() { _, _ = p.Run(t.Context()) })
	}
}

func TestASecondRunIsMisuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pass, _ := counting()
		l := sweep.New(pass, sweep.Config{})
		running(t, l)
		panicsWith(t, "sweep: Run is running already", func() { _ = l.Run(t.Context()) })
	})
}

func panicsWith(t *testing.T, want string, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if got := fmt.Sprint(recover()); got != want {
			t.Errorf("panicked with %q, want %q", got, want)
		}
	}()
	f()
}

func TestARefusalDoesNotAllocate(t *testing.T) {
	b := newBlocked()
	l := sweep.New(b.pass, sweep.Config{})
	go func() { _ = l.TryRun(context.Background()) }()
	<-b.begun
	if got := testing.AllocsPerRun(100, func() {
		if l.TryRun(context.Background()) != sweep.ErrRunning {
			t.Fatal("not refused")
		}
	}); got != 0 {
		t.Errorf("%v allocations", got)
	}
	b.end <- fine
	l.Close()
}
