package database_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/refserver/binding"
	"github.com/keepwell-go/keepwell/refserver/binding/database"
)

// What a process that is started by a test is to do, with which database, and what it is called.
const (
	taskVariable = "BINDING_TEST_TASK"
	urlVariable  = "BINDING_TEST_URL"
	nameVariable = "BINDING_TEST_NAME"
)

const (
	taskOpen  = "open"  // bind one id
	taskRace  = "race"  // bind the ids of the race to ids of one's own, and print those that were won
	taskWrite = "write" // bind one id after another until killed, and print each when it is done
)

const raced = 100

var (
	box   = backend.Ref{ID: "sbx-a", Instance: "one"}
	epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
)

func carryOut(task string) error {
	ctx := context.Background()
	s, err := database.Open(ctx, os.Getenv(urlVariable), database.Config{})
	if err != nil {
		return err
	}
	defer s.Close()
	fmt.Println("ready")
	switch task {
	case taskOpen:
		return s.Bind(ctx, box, os.Getenv(nameVariable), "minted")
	case taskWrite:
		return write(ctx, s, func(id string) { fmt.Println(id) })
	}
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil { // all begin at once
		return err
	}
	for i := range raced {
		id, own := fmt.Sprint("p", i), fmt.Sprint(os.Getenv(nameVariable), "-", i)
		if err := s.Bind(ctx, box, id, own); err == nil {
			fmt.Println(own)
		} else if !errors.Is(err, binding.ErrConflict) {
			return err
		}
	}
	return nil
}

// write starts, binds and ends one process after another and prunes now and then, until something fails.
func write(ctx context.Context, s binding.Store, done func(id string)) error {
	for i := 0; ; i++ {
		id := fmt.Sprint("p", i)
		if err := s.Begin(ctx, binding.Start{Ref: box, ID: id, At: epoch, Expires: epoch.Add(time.Hour)}); err != nil {
			return err
		}
		if err := s.Bind(ctx, box, id, "minted-"+id); err != nil {
			return err
		}
		done(id)
		if err := s.End(ctx, box, id, epoch); err != nil {
			return err
		}
		if i%20 == 0 {
			if _, err := s.Prune(ctx, epoch); err != nil {
				return err
			}
		}
	}
}

// child is a process with a task.
type child struct {
	t     testing.TB
	cmd   *exec.Cmd
	lines *bufio.Scanner
	begin func() // lets it begin
}

func newChild(t testing.TB, task, url, name string) *child {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), taskVariable+"="+task, urlVariable+"="+url, nameVariable+"="+name)
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	return &child{t, cmd, bufio.NewScanner(out), func() { fmt.Fprintln(in) }}
}

// line returns the next line, or "" if there is none.
func (c *child) line() string {
	c.lines.Scan()
	return c.lines.Text()
}

func (c *child) ready() {
	c.t.Helper()
	if got := c.line(); got != "ready" {
		c.t.Fatalf("the process says %q", got)
	}
}

// R74
func TestOfWritersInTwoProcessesOneWinsEachID(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		children := []*child{newChild(t, taskRace, url, "one"), newChild(t, taskRace, url, "two")}
		for _, c := range children { // both have made or found the schema by then
			c.ready()
		}
		for _, c := range children {
			c.begin()
		}
		won := map[string]string{} // by id
		for _, c := range children {
			for own := c.line(); own != ""; own = c.line() {
				_, i, _ := strings.Cut(own, "-")
				if first, ok := won["p"+i]; ok {
					t.Errorf("p%s was won by %s and by %s", i, first, own)
				}
				won["p"+i] = own
			}
			if err := c.cmd.Wait(); err != nil {
				t.Error(err)
			}
		}
		if len(won) != raced {
			t.Errorf("%d of %d ids were won by anybody", len(won), raced)
		}
		s := open(t, url)
		for id, own := range won {
			if got, err := s.Bound(t.Context(), box, id); err != nil || got != own {
				t.Errorf("%s is bound to %q, %v, and %s was told that it won", id, got, err, own)
			}
		}
	})
}

func TestProcessesThatOpenANewDatabaseAtOnceAllSucceed(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		var children []*child
		for i := range 6 {
			children = append(children, newChild(t, taskOpen, url, fmt.Sprint("p", i)))
		}
		for _, c := range children {
			c.ready()
			if err := c.cmd.Wait(); err != nil {
				t.Error(err)
			}
		}
		s := open(t, url)
		for i := range children {
			if got, err := s.Bound(t.Context(), box, fmt.Sprint("p", i)); err != nil || got != "minted" {
				t.Errorf("what process %d has bound is bound to %q, %v", i, got, err)
			}
		}
	})
}

func TestWhatWasBoundBeforeAKillIsBoundAfterIt(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		for range 3 {
			c := newChild(t, taskWrite, url, "writer")
			c.ready()
			var last string
			for range 70 {
				last = c.line()
			}
			must(t, c.cmd.Process.Kill())
			for next := c.line(); next != ""; next = c.line() { // what it said before it was hit
				last = next
			}
			_ = c.cmd.Wait() // it was killed
			var n int
			_, err := fmt.Sscanf(last, "p%d", &n)
			must(t, err)
			s := open(t, url)
			for i := range n + 1 {
				id := fmt.Sprint("p", i)
				if got, err := s.Bound(t.Context(), box, id); err != nil || got != "minted-"+id {
					t.Fatalf("%s is bound to %q, %v, after %s was reported", id, got, err, last)
				}
			}
		}
	})
}

func TestRetentionAndTheEndOfASandboxMayMeet(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		one, two := open(t, url), open(t, url)
		for range 5 {
			for i := range 20 {
				id := fmt.Sprint("p", i)
				must(t, one.Begin(t.Context(), binding.Start{Ref: box, ID: id, At: epoch, Expires: epoch}))
				must(t, two.Bind(t.Context(), box, id, id))
			}
			errs := make(chan error, 3)
			go func() { errs <- one.Forget(t.Context(), box) }()
			go func() { _, err := two.Prune(t.Context(), epoch); errs <- err }()
			go func() { _, err := one.Prune(t.Context(), epoch); errs <- err }()
			for range cap(errs) {
				must(t, <-errs)
			}
			if refs, err := two.Refs(t.Context()); err != nil || len(refs) != 0 {
				t.Fatalf("what is left is %v, %v", refs, err)
			}
		}
	})
}
