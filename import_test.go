package keepwell_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	maxBuiltModules  = 6  // of which what an importer builds is made
	maxListedModules = 20 // that its module graph names
)

// importer is a program outside the workspace that imports one package of this module.
type importer struct {
	t   *testing.T
	dir string
}

func newImporter(t *testing.T, name string) importer {
	t.Helper()
	root, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile("go.sum")
	if err != nil {
		t.Fatal(err)
	}
	i := importer{t, t.TempDir()}
	i.write("go.sum", string(sums))
	i.write("go.mod", "module example.com/importer\n\ngo 1.26.0\n\nrequire "+module+" v0.1.0\n\nreplace "+module+" => "+root+"\n")
	i.write("main.go", "package main\n\nimport _ \""+module+"/"+name+"\"\n\nfunc main() {}\n")
	return i
}

func (i importer) write(name, text string) {
	i.t.Helper()
	if err := os.WriteFile(filepath.Join(i.dir, name), []byte(text), 0o600); err != nil {
		i.t.Fatal(err)
	}
}

func (i importer) run(args ...string) string {
	i.t.Helper()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(i.t.Context(), "go", args...)
	cmd.Dir, cmd.Stderr = i.dir, &stderr
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
	out, err := cmd.Output()
	if err != nil {
		i.t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, &stderr)
	}
	return string(out)
}

func (i importer) lines(args ...string) []string {
	i.t.Helper()
	lines := strings.Fields(i.run(args...))
	slices.Sort(lines)
	return slices.Compact(lines)
}

func TestEachPrimitiveIsImportedWithAHandfulOfModules(t *testing.T) {
	heavy := regexp.MustCompile(`docker|moby|k8s\.io|prometheus|sqlite|pgx|/sql`)
	for _, name := range []string{"registry", "registry/fresh", "quota", "sweep", "probe", "bodylimit", "backend", "backend/memory", "backend/backendtest"} {
		t.Run(strings.ReplaceAll(name, "/", "_"), func(t *testing.T) {
			i := newImporter(t, name)
			i.run("build", "-o", os.DevNull, ".")
			built := i.lines("list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", ".")
			if len(built) > maxBuiltModules {
				t.Errorf("it is built from %d modules, at most %d: %v", len(built), maxBuiltModules, built)
			}
			all := i.lines("list", "-m", "-f", "{{.Path}}", "all")
			if len(all) >= maxListedModules {
				t.Errorf("its module graph names %d modules, fewer than %d: %v", len(all), maxListedModules, all)
			}
			for _, m := range all {
				if heavy.MatchString(m) {
					t.Errorf("its module graph names %s", m)
				}
			}
		})
	}
}

// A service that is held at an older client of Kubernetes must be able to add a quota without being moved off it.
func TestAnImporterThatPinsAnOlderClientKeepsIt(t *testing.T) {
	const client, older = "k8s.io/client-go", "v0.30.0"
	i := newImporter(t, "quota")
	i.run("mod", "edit", "-require", client+"@"+older)
	i.write("main.go", "package main\n\nimport (\n\t_ \""+module+"/quota\"\n\t_ \""+client+"/util/flowcontrol\"\n)\n\nfunc main() {}\n")
	if got := strings.TrimSpace(i.run("list", "-m", "-f", "{{.Version}}", client)); got != older {
		t.Errorf("%s is at %s, want %s", client, got, older)
	}
}

func TestTheProgramOfTheREADMERunsForAnImporter(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	program := regexp.MustCompile("(?s)```go\n(package main\n.*?)```").FindStringSubmatch(string(readme))
	if program == nil {
		t.Fatal("the README has no program")
	}
	if n := strings.Count(program[1], "\n"); n > 22 {
		t.Errorf("the program has %d lines, and should be read at a glance", n)
	}
	i := newImporter(t, "quota")
	i.write("main.go", program[1])
	i.run("run", ".")
}
