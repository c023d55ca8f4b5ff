package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"
	"unicode"

	"github.com/keepwell-go/keepwell/backend/runner/wire"
	"github.com/keepwell-go/keepwell/refserver/client"
)

// feedSize is how many bytes of stdin travel in one request at most.
const feedSize = 256 << 10

type execCmd struct {
	clientFlags
	Detach  bool              `env:"-" short:"d" help:"Start it in the background and print its process id."`
	Stdin   bool              `env:"-" short:"i" help:"Pass stdin on to the command. Without it the command's stdin is empty."`
	Kill    bool              `env:"-" name:"kill-on-disconnect" help:"Kill it when this command ends before it does."`
	Env     map[string]string `env:"-" short:"e" mapsep:"none" placeholder:"NAME=VALUE" help:"Environment; may be repeated."`
	Cwd     string            `env:"-" placeholder:"DIR" help:"Directory, relative to the workspace."`
	Timeout time.Duration     `env:"-" placeholder:"DURATION" help:"Kill it after this time."`
	ID      string            `arg:"" help:"Sandbox."`
	Command []string          `arg:"" passthrough:"" help:"Command and arguments; one argument alone is a line for the shell, or the path of a program."`
}

// Help is what --help adds.
func (*execCmd) Help() string {
	return `Ends with the code of the command, or 128 and the number of the signal that ended it. Besides:
124 it was killed after its --timeout; 125 refserver failed or was refused; 126 the command could not be run; 127 it was not
found; 130 interrupted; 2 usage; 3 it could not be told what became of the command.

A command that is interrupted here goes on in the sandbox, unless --kill-on-disconnect says otherwise.

A command that prints faster than its output is taken waits. Output that is lost all the same is said, and a command that ended well
then gives 125.`
}

// Run starts the command and, unless detached, ends with its code.
func (c *execCmd) Run(ctx context.Context, g *cli) error {
	if c.Stdin && c.Detach {
		return usageError{errors.New("exec: --stdin does not go with --detach")}
	}
	api, err := g.dial(c.clientFlags)
	if err != nil {
		return execError{err}
	}
	r := wire.StartRequest{Cmd: commandOf(c.Command), Env: c.Env, Cwd: c.Cwd, Timeout: c.Timeout.Seconds(), KillOnDisconnect: c.Kill, StdinOpen: c.Stdin}
	if c.Detach {
		err = c.detached(ctx, api, r)
	} else {
		err = c.attached(ctx, api, r)
	}
	if err == nil {
		return nil
	}
	return execError{err}
}

func (c *execCmd) detached(ctx context.Context, api *client.Client, r wire.StartRequest) error {
	_, started, err := api.Start(ctx, c.ID, r)
	if err != nil {
		return c.parted(ctx, "", err)
	}
	if c.JSON {
		return printJSON(started)
	}
	_, err = fmt.Println(started.ID)
	return err
}

// attached prints what the command prints, and passes stdin on meanwhile if that was asked for.
func (c *execCmd) attached(ctx context.Context, api *client.Client, r wire.StartRequest) error {
	stream, err := api.Exec(ctx, c.ID, r)
	if err != nil {
		return c.parted(ctx, "", err)
	}
	s := show{json: c.JSON, whole: true}
	unfed := make(chan error, 1) // what kept stdin from being passed on, if anything did
	if c.Stdin {
		s.started = func(id string) {
			go func() { // ends with the input or the program: a read of a terminal cannot be called off
				if err := feed(ctx, client.Process{Client: api, Sandbox: c.ID, ID: id}, os.Stdin); err != nil {
					unfed <- fmt.Errorf("stdin: %w", err)
					stream.Close() // the command may wait for its input for ever
				}
			}()
		}
	}
	err = s.all(stream)
	if errors.Is(err, client.ErrBroken) && len(unfed) > 0 {
		err = fmt.Errorf("%w: %w", client.ErrBroken, <-unfed)
	}
	return c.parted(ctx, s.id, err)
}

// feed passes in on to the process until either has had enough.
func feed(ctx context.Context, p client.Process, in io.Reader) error {
	buf := make([]byte, feedSize)
	for {
		n, err := in.Read(buf)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if n > 0 || err != nil {
			sent := p.Stdin(ctx, buf[:n], err != nil)
			if client.Code(sent) == wire.CodeStdinClosed {
				return nil // it reads no more, as head does
			}
			if sent != nil || err != nil {
				return sent
			}
		}
	}
}

// parted says what goes on without this program, where err is that it lost sight of a command. id is its process, if known.
func (c *execCmd) parted(ctx context.Context, id string, err error) error {
	_, ended := errors.AsType[statusError](err)
	_, refused := errors.AsType[*client.Error](err)
	switch {
	case err == nil || ended:
		return err
	case ctx.Err() != nil:
		fmt.Fprintf(os.Stderr, "refserver: interrupted; %s\n", c.whereabouts(id))
		return statusError(exitInterrupted)
	case refused && !errors.Is(err, client.ErrBroken) || id == "" && (errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, client.ErrNoID)):
		return err // nothing runs, or the server has said all there is to say
	case id == "":
		return fmt.Errorf("%w: %w; %s", client.ErrBroken, err, c.whereabouts(id))
	case errors.Is(err, client.ErrBroken) || errors.Is(err, client.ErrTruncated):
		return fmt.Errorf("%w; %s", err, c.whereabouts(id))
	}
	return err
}

func (c *execCmd) whereabouts(id string) string {
	switch {
	case id == "":
		return fmt.Sprintf("whether the command was started is not known: `refserver ps %s` shows it", c.ID)
	case c.Kill:
		return fmt.Sprintf("process %s is killed, as --kill-on-disconnect asks", id)
	}
	return fmt.Sprintf("the command goes on as process %s: `refserver logs -f %s %s` follows it", id, c.ID, id)
}

// commandOf drops a leading --, and takes one argument alone for a shell line. A path runs without a shell, which not every image has.
func commandOf(args []string) wire.Command {
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 1 && !isPath(args[0]) {
		return wire.Command{Line: args[0]}
	}
	return wire.Command{Argv: args}
}

// isPath says whether a word holds a slash, and nothing that means more to a shell than to the system.
func isPath(word string) bool {
	special := func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("/._-+:@,", r)
	}
	return strings.Contains(word, "/") && !strings.ContainsFunc(word, special)
}

// execError is a failure of exec itself, which is not to be taken for one of the command.
type execError struct{ error }

func (e execError) Unwrap() error { return e.error }

// code follows the shells and env(1).
func (e execError) code() int {
	refusal, ok := errors.AsType[*client.Error](e.error)
	switch {
	case !ok || refusal.Code != wire.CodeCannotStart || refusal.Status != http.StatusBadRequest:
		return exitExec
	case strings.Contains(refusal.Message, "no such file") || strings.Contains(refusal.Message, "not found"):
		return exitNotFound
	}
	return exitCannotRun
}
