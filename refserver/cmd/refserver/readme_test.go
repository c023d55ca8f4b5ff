package main

import (
	"os"
	"os/exec"
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
	readme, err := os.ReadFile(root + "/README.md")
	if err != nil {
		t.Fatal(err)
	}
	walks := regexp.MustCompile("(?s)<!-- walk -->\n```sh\n(.*?)```").FindAllStringSubmatch(string(readme), -1)
	names := []string{"curl", "commands", "crash"}
	if len(walks) != len(names) {
		t.Fatalf("the README has %d walks, want %d", len(walks), len(names))
	}
	for i, name := range names {
		t.Run(name, func(t *testing.T) { walk(t, walks[i][1]) })
	}
}

func walk(t *testing.T, block string) {
	t.Helper()
	l := newLab(t)
	if !strings.Contains(block, "refserver >") { // it starts none itself
		block = strings.ReplaceAll(block, "http://127.0.0.1:8080", l.serve().base)
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-c", block)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "HOME="+l.home, "KEEPWELL_LISTEN=127.0.0.1:0")
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOPATH"} { // which would lie in the other home
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
