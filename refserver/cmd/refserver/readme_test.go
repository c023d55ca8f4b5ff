package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// root is the directory of the README, seen from here.
const root = "../../.."

// TestTheWalksOfTheREADMEWorkAsTheyStand runs each block that is marked as a walk. Only the port is another, so that tests can
// run beside a server.
func TestTheWalksOfTheREADMEWorkAsTheyStand(t *testing.T) {
	for _, tool := range []string{"bash", "curl"} {
		if _, err := exec.LookPath(tool); err != nil {
			skipUnlessRequired(t, tool)
		}
	}
	for name, block := range walks(t) {
		t.Run(name, func(t *testing.T) { walk(t, block) })
	}
}

// walks returns the walks of the README by name.
func walks(t *testing.T) map[string]string {
	t.Helper()
	readme, err := os.ReadFile(root + "/README.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?s)<!-- walk -->\n```sh\n(.*?)```").FindAllStringSubmatch(string(readme), -1)
	names := []string{"curl", "commands", "crash"}
	if len(found) != len(names) {
		t.Fatalf("the README has %d walks, want %d", len(found), len(names))
	}
	all := map[string]string{}
	for i, name := range names {
		all[name] = found[i][1]
	}
	return all
}

// walk runs a block with further variables, NAME=VALUE.
func walk(t *testing.T, block string, env ...string) {
	t.Helper()
	l := newLab(t)
	l.env = env
	if !strings.Contains(block, "refserver >") { // it starts none itself
		block = strings.ReplaceAll(block, "http://127.0.0.1:8080", l.serve().base)
	}
	if strings.Contains(block, "go build -o ~/bin/refserver") { // finds that nothing has changed since, and need not link it again
		if err := os.CopyFS(filepath.Join(l.home, "bin"), os.DirFS(filepath.Dir(plain.built(t)))); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-c", block)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "HOME="+l.home, "KEEPWELL_LISTEN=127.0.0.1:0")
	cmd.Env = append(cmd.Env, env...)
	for _, name := range []string{"GOENV", "GOCACHE", "GOMODCACHE", "GOPATH"} { // which would lie in the other home
		out, err := exec.CommandContext(t.Context(), "go", "env", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Env = append(cmd.Env, name+"="+strings.TrimSpace(string(out)))
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	rest := string(out)
	for line := range strings.Lines(block) {
		want, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "#> ")
		if !ok {
			continue
		}
		at := strings.Index(rest, want)
		if at < 0 {
			t.Fatalf("the output lacks %q after what came before it:\n%s", want, out)
		}
		rest = rest[at+len(want):]
	}
}

// TestTheREADMEsTestCommandIsWhatCIRuns keeps the two from telling different stories.
func TestTheREADMEsTestCommandIsWhatCIRuns(t *testing.T) {
	const command = "go test -race -shuffle=on work"
	for _, name := range []string{"README.md", ".ci/run", "Makefile"} {
		text, err := os.ReadFile(root + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), command) {
			t.Errorf("%s does not run %q", name, command)
		}
	}
}
