package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/keepwell-go/keepwell/backend/runner/wire"
	"github.com/keepwell-go/keepwell/refserver/client"
)

// Exit codes, which scripts rely on.
const (
	exitDone    = 0
	exitFailed  = 1 // refused or failed
	exitUsage   = 2
	exitUnknown = 3 // it could not be told what happened

	exitTimeout     = 124 // the command ran into its timeout
	exitExec        = 125 // exec was refused or failed
	exitCannotRun   = 126 // the command cannot be run
	exitNotFound    = 127 // the command is not there
	exitInterrupted = 130 // as of a program that SIGINT ended
)

// envPrefix starts the name of each environment variable that stands for a flag.
const envPrefix = "KEEPWELL"

// cli is the command line: one field for each command, and the flags that all of them share.
type cli struct {
	State string `placeholder:"DIR" help:"State directory: sandboxes, token, sockets. Default: $$XDG_STATE_HOME/keepwell, or ~/.local/state/keepwell."`

	Serve  serveCmd  `cmd:"" default:"withargs" help:"Serve sandboxes (the default command)."`
	Create createCmd `cmd:"" help:"Create a sandbox, or resume a stopped one."`
	Ls     lsCmd     `cmd:"" help:"List sandboxes."`
	Rm     rmCmd     `cmd:"" help:"Destroy sandboxes and their workspaces."`
	Stop   stopCmd   `cmd:"" help:"Stop sandboxes and keep their workspaces."`
	Exec   execCmd   `cmd:"" help:"Run a command in a sandbox and print its output as it comes."`
	Ps     psCmd     `cmd:"" help:"List the processes of a sandbox."`
	Logs   logsCmd   `cmd:"" help:"Print what a process wrote."`
	Kill   killCmd   `cmd:"" help:"Kill a process and all its descendants."`
	Cp     cpCmd     `cmd:"" help:"Copy a file into or out of a sandbox (ID:PATH)."`
	Image  imageCmd  `cmd:"" help:"Make the image of Docker sandboxes, so that none has to wait for it."`
	Drain  drainCmd  `cmd:"" help:"Make the server create and adopt no sandbox any more; what it serves it goes on serving."`
	Down   downCmd   `cmd:"" help:"Stop all sandboxes of the state directory and its host runner."`
	Runner runnerCmd `cmd:"" help:"Run the daemon that hosts sandboxes; refserver starts it by itself."`
}

// run parses args, carries the command out and returns the exit code.
func run(ctx context.Context, args []string) int {
	var c cli
	parser, err := kong.New(&c,
		kong.Name("refserver"), kong.Description("Confined sandboxes over HTTP."),
		kong.DefaultEnvars(envPrefix), kong.BindTo(ctx, (*context.Context)(nil)),
		flagDefaults())
	if err != nil {
		fmt.Fprintln(os.Stderr, "refserver:", err)
		return exitUsage
	}
	for _, name := range unknownVariables(parser.Model.Node, os.Environ()) {
		fmt.Fprintf(os.Stderr, "refserver: warning: the environment variable %s stands for no flag\n", name)
	}
	command, err := parser.Parse(args)
	if err == nil {
		err = checkIDs(command.Path)
	}
	if err == nil {
		err = checkRead(command, os.Stderr)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "refserver: %s\n", misused(parser.Model.Children, args, err))
		return exitUsage
	}
	err = command.Run(&c)
	if cause := context.Cause(ctx); cause != nil && (errors.Is(err, cause) || errors.Is(err, context.Canceled)) {
		err = statusError(exitInterrupted) // by someone who knows it
	}
	return exitCode(err, os.Stderr)
}

// misused says what is wrong with a command line, and which help has it right. The parser takes what is no command for an argument of the
// default one, and calls what is missing by a name of its own.
func misused(commands []*kong.Node, args []string, err error) string {
	text, help := err.Error(), "refserver --help"
	if before, ok := strings.CutSuffix(text, ` but got "EOL" (<EOL>)`); ok {
		text = before + ", and there is none"
	}
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		if slices.ContainsFunc(commands, func(n *kong.Node) bool { return n.Name == args[0] }) {
			help = "refserver " + args[0] + " --help"
		} else {
			text = fmt.Sprintf("there is no command %q", args[0])
		}
	}
	return text + "\nrefserver: see " + help
}

// checkIDs refuses an empty id before anything is done. It is what a variable that is not set leaves of a command line, and would
// else stand for "any", "none" or another route.
func checkIDs(path []*kong.Path) error {
	for _, p := range path {
		if p.Positional == nil || p.Positional.Name != "id" && p.Positional.Name != "process" {
			continue
		}
		ids, several := p.Positional.Target.Interface().([]string)
		if !several {
			ids = []string{p.Positional.Target.String()}
		}
		if slices.Contains(ids, "") {
			return fmt.Errorf("%s: it is empty", p.Positional.ShortSummary())
		}
	}
	return nil
}

// flagDefaults are the values that the tags of flags name.
func flagDefaults() kong.Vars {
	return kong.Vars{
		"max_body": fmt.Sprint(wire.MaxBody), "max_file": fmt.Sprint(wire.MaxFile),
		"protocol": fmt.Sprint(wire.Protocol), "oldest_protocol": fmt.Sprint(wire.OldestProtocol),
	}
}

// unknownVariables returns the names in environ that look like ours and that no flag reads. They are no error, so that a
// variable of another version stops nobody.
func unknownVariables(root *kong.Node, environ []string) (names []string) {
	known := map[string]bool{tokenVariable: true}
	flagVariables(root, known)
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		if strings.HasPrefix(name, envPrefix+"_") && !known[name] && name != "KEEPWELL_REQUIRE" {
			names = append(names, name)
		}
	}
	return names
}

func flagVariables(n *kong.Node, into map[string]bool) {
	for _, f := range n.Flags {
		for _, env := range f.Envs {
			into[env] = true
		}
	}
	for _, child := range n.Children {
		flagVariables(child, into)
	}
}

// statusError ends the program with the code of the command that ran in a sandbox.
type statusError int

func (e statusError) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// usageError is a bad value that parsing alone cannot find.
type usageError struct{ error }

// exitCode says what went wrong, if anything did, and returns the code that stands for it.
func exitCode(err error, stderr io.Writer) int {
	if err == nil {
		return exitDone
	}
	if s, ok := errors.AsType[statusError](err); ok {
		return int(s)
	}
	for line := range strings.Lines(err.Error()) {
		fmt.Fprintf(stderr, "refserver: %s\n", strings.Replace(strings.TrimSuffix(line, "\n"), "client: ", "", 1))
	}
	if _, asked := errors.AsType[*url.Error](err); asked && errors.Is(err, syscall.ECONNREFUSED) { // not a database's or an engine's refusal
		fmt.Fprintln(stderr, "refserver: no server answers there; start one with `refserver`")
	}
	return codeOf(err)
}

// codeOf returns of several failures the one that leaves most open: what is not known of one is not known of all.
func codeOf(err error) int {
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		code := exitFailed
		for _, err := range several.Unwrap() {
			code = max(code, codeOf(err))
		}
		return code
	}
	if _, ok := errors.AsType[usageError](err); ok {
		return exitUsage
	}
	switch client.Code(err) {
	case wire.CodeUnknown, wire.CodeDestroyFailed, wire.CodeStopFailed, wire.CodeRunnerLost:
		return exitUnknown
	}
	if errors.Is(err, client.ErrTruncated) || errors.Is(err, client.ErrBroken) || unanswered(err) {
		return exitUnknown
	}
	if e, ok := errors.AsType[execError](err); ok {
		return e.code()
	}
	return exitFailed
}

// unanswered says whether a request that changes something may have reached the server, which then did not answer.
func unanswered(err error) bool {
	sent, ok := errors.AsType[*url.Error](err)
	if !ok || sent.Op != "Post" && sent.Op != "Put" && sent.Op != "Delete" {
		return false
	}
	op, ok := errors.AsType[*net.OpError](err)
	return !ok || op.Op != "dial"
}
