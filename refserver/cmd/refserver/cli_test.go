package main

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/keepwell-go/keepwell/refserver/client"
)

// R58
func TestAnUnknownCommandOrModeIsRefusedAndNothingIsDone(t *testing.T) {
	l := newLab(t)
	cases := map[string][]string{
		"command":      {"frobnicate"},
		"runner_mode":  {"runner"},
		"runner_other": {"runner", "sideways"},
		"flag":         {"--frobnicate"},
		"cp_inside":    {"cp", "a:b", "c:d"},
		"no_sandbox":   {"rm"},
	}
	for name, args := range cases {
		out, code := l.run(args...)
		if code != exitUsage || !strings.HasPrefix(out, "refserver: ") && !strings.HasPrefix(out, "runner: ") {
			t.Errorf("%s ended with %d, want %d: %s", name, code, exitUsage, out)
		}
	}
	if _, err := os.Stat(l.state()); !os.IsNotExist(err) {
		t.Errorf("a refused command line left a state directory: %v", err)
	}
}

func TestAWrongCommandLineIsToldWhatIsWrongAndWhichHelpHasItRight(t *testing.T) {
	l := newLab(t)
	for line, want := range map[string]string{
		"crate box":           "there is no command \"crate\"\nrefserver: see refserver --help",
		"create a b":          "unexpected argument b\nrefserver: see refserver create --help",
		"create box --ttl":    "--ttl: expected duration value, and there is none\nrefserver: see refserver create --help",
		"create box --tt=1s":  "unknown flag --tt, did you mean \"--ttl\"?\nrefserver: see refserver create --help",
		"--lsten=127.0.0.1:0": "unknown flag --lsten, did you mean \"--listen\"?\nrefserver: see refserver --help",
		"exec box":            "expected \"<command> ...\"\nrefserver: see refserver exec --help",
	} {
		if out, code := l.run(strings.Fields(line)...); code != exitUsage || out != "refserver: "+want+"\n" {
			t.Errorf("%s ended with %d: %s, want %s", line, code, out, want)
		}
	}
}

func TestABadValueIsRefusedByNameAndReason(t *testing.T) {
	l := newLab(t)
	cases := []struct {
		args, env []string
		want      string
	}{
		{args: []string{"--listen=nowhere"}, want: `--listen "nowhere"`},
		{args: []string{"--listen=:8080"}, want: "name the address"},
		{args: []string{"--max-sandboxes=0"}, want: "--max-sandboxes is 0, must be at least 1"},
		{args: []string{"--max-per-tenant=-1"}, want: "--max-per-tenant is -1"},
		{args: []string{"--ttl-max=-1s"}, want: "--ttl-max is -1s"},
		{args: []string{"--sweep-every=1ms"}, want: "--sweep-every is 1ms, must be at least 1s"},
		{args: []string{"--max-body-bytes=100"}, want: "--max-body-bytes is 100, must be at least 4096"}, // R51
		{args: []string{"--max-file-bytes=-1"}, want: "--max-file-bytes is -1"},
		{args: []string{"--backend=mainframe"}, want: "--backend must be one of"},
		{args: []string{"--log=loud"}, want: "--log must be one of"},
		{args: []string{"--sweep-every=soon"}, want: "--sweep-every"},
		{env: []string{"KEEPWELL_SWEEP_EVERY=soon"}, want: "KEEPWELL_SWEEP_EVERY"},
		{env: []string{"KEEPWELL_MAX_SANDBOXES=many"}, want: "KEEPWELL_MAX_SANDBOXES"},
		{args: []string{"--no-auth", "--listen=0.0.0.0:0"}, want: "--no-auth needs a loopback address"},
	}
	for _, c := range cases {
		l.env = c.env
		out, code := l.run(c.args...)
		if code != exitUsage || !strings.Contains(out, c.want) {
			t.Errorf("%v %v ended with %d: %q, want %d and %q", c.args, c.env, code, out, exitUsage, c.want)
		}
	}
	l.env = nil
	if _, err := os.Stat(l.state()); !os.IsNotExist(err) {
		t.Errorf("a server that was refused left a state directory: %v", err)
	}
}

func TestADirectoryThatOthersUseIsNotTakenForTheState(t *testing.T) {
	l := newLab(t)
	dir := filepath.Join(l.home, "shared")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "theirs"), nil, 0o600), os.Chmod(dir, 0o777)); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{{"serve", "--listen=127.0.0.1:0"}, {"down"}} {
		out, code := l.run(append(command, "--state", dir)...)
		if code != exitFailed || !strings.Contains(out, dir+" is open to other users and holds what is not ours, such as theirs") {
			t.Errorf("%v ended with %d: %s", command, code, out)
		}
	}
	if fi, err := os.Stat(dir); err != nil || fi.Mode().Perm() != 0o777 {
		t.Errorf("its mode is %v, %v; want it left alone", fi.Mode().Perm(), err)
	}
}

func TestAnAddressInUseIsAnErrorThatNamesIt(t *testing.T) {
	l := newLab(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	out, code := l.run("--listen", ln.Addr().String())
	if code != exitFailed || !strings.Contains(out, ln.Addr().String()) || !strings.Contains(out, "in use") {
		t.Errorf("ended with %d: %s", code, out)
	}
}

// R59
func TestEveryFlagHasAReader(t *testing.T) {
	fields, reads := map[string]bool{}, map[string]bool{}
	paths, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.TypeSpec:
				noteFields(n, fields)
			case *ast.SelectorExpr:
				reads[n.Sel.Name] = true
			}
			return true
		})
	}
	if len(fields) < 20 {
		t.Fatalf("only %d flags were found", len(fields))
	}
	for name := range fields {
		if !reads[name] {
			t.Errorf("nothing reads the flag %s", name)
		}
	}
}

// noteFields collects the tagged fields of a struct, which are flags or arguments; commands read themselves.
func noteFields(n *ast.TypeSpec, into map[string]bool) {
	s, ok := n.Type.(*ast.StructType)
	if !ok {
		return
	}
	for _, f := range s.Fields.List {
		if f.Tag == nil || strings.Contains(f.Tag.Value, "cmd:") {
			continue
		}
		for _, name := range f.Names {
			into[name.Name] = true
		}
	}
}

// R59
func TestAVariableThatStandsForNoFlagWarnsAndIsNotFatal(t *testing.T) {
	l := newLab(t)
	l.env = []string{"KEEPWELL_FROBNICATE=1", "KEEPWELL_MAX_SANDBOXES=1"}
	s := l.serve()
	said := s.stderr.String()
	if !strings.Contains(said, "warning: the environment variable KEEPWELL_FROBNICATE stands for no flag") {
		t.Errorf("no warning: %s", said)
	}
	if strings.Contains(said, "KEEPWELL_MAX_SANDBOXES") {
		t.Errorf("a variable that is read was warned of: %s", said)
	}
	l.ok("create", "one")
	if out, code := l.run("create", "two"); code != exitFailed || !strings.Contains(out, "quota_exceeded") {
		t.Errorf("KEEPWELL_MAX_SANDBOXES was not read: %d %s", code, out)
	}
	l.env = nil
}

func TestEachServeFlagHasAVariableAndAFlagWinsOverIt(t *testing.T) {
	var c cli
	parser, err := kong.New(&c, kong.DefaultEnvars(envPrefix), kong.BindTo(context.Background(), (*context.Context)(nil)),
		flagDefaults())
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(parser.Model.Children, func(n *kong.Node) bool { return n.Name == "serve" })
	for _, f := range parser.Model.Children[at].Flags {
		want := envPrefix + "_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		if len(f.Envs) != 1 || f.Envs[0] != want {
			t.Errorf("--%s has the variables %v, want %s", f.Name, f.Envs, want)
		}
	}
	t.Setenv("KEEPWELL_MAX_SANDBOXES", "7")
	if _, err := parser.Parse([]string{"serve"}); err != nil || c.Serve.MaxSandboxes != 7 {
		t.Errorf("the variable gave %d, %v", c.Serve.MaxSandboxes, err)
	}
	if _, err := parser.Parse([]string{"serve", "--max-sandboxes=9"}); err != nil || c.Serve.MaxSandboxes != 9 {
		t.Errorf("the flag gave %d, %v", c.Serve.MaxSandboxes, err)
	}
}

func TestAClientWithoutAServerIsTold(t *testing.T) {
	l := newLab(t)
	out, code := l.run("ls")
	if code != exitFailed || !strings.Contains(out, "no server runs with the state directory "+l.state()) {
		t.Errorf("ended with %d: %s", code, out)
	}
}

func TestHelpShowsWhatAFlagTakesAndWhereTheStateIs(t *testing.T) {
	help := newLab(t).ok("serve", "--help")
	for _, want := range []string{
		"--max-sandboxes=N", "--max-body-bytes=BYTES", "--ttl-max=DURATION", "Default: 127.0.0.1:8080",
		"$XDG_STATE_HOME/keepwell", "~/.local/state/keepwell",
	} {
		if !strings.Contains(strings.Join(strings.Fields(help), " "), want) {
			t.Errorf("the help lacks %q: %s", want, help)
		}
	}
}

func TestDownOfADirectoryThatIsNotThereIsAnError(t *testing.T) {
	l := newLab(t)
	typo := filepath.Join(l.home, "typo")
	if out, code := l.run("down", "--state", typo); code != exitFailed || !strings.Contains(out, typo) {
		t.Errorf("ended with %d: %s", code, out)
	}
}

func TestAServerThatKnowsOfNoSandboxDoesNotSayThatNoneRuns(t *testing.T) {
	s := newLab(t).serve()
	s.end(syscall.SIGTERM)
	if said := s.stderr.String(); !strings.Contains(said, "no sandbox is known to be running") || strings.Contains(said, "still running") {
		t.Errorf("it said %s", said)
	}
}

func TestEachFailureIsALineOfItsOwn(t *testing.T) {
	var said strings.Builder
	err := errors.Join(fmt.Errorf("a: %w", &client.Error{Status: 404, Code: "not_found", Message: "none"}), errors.New("b"))
	if code := exitCode(err, &said); code != exitFailed || said.String() != "refserver: a: 404 not_found: none\nrefserver: b\n" {
		t.Errorf("ended with %d: %q", code, said.String())
	}
}
