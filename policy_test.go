package keepwell_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/keepwell-go/keepwell"

// allowed names what the packages of the root module may import beside the standard library, by package of this module. A
// package that is not named here may import none of its siblings.
var allowed = map[string][]string{
	"registry":                  {"registry/fresh"},
	"backend/backendtest":       {"backend"},
	"backend/memory":            {"backend"},
	"backend/runner":            {"backend", "backend/runner/...", "bodylimit"},
	"backend/runner/dedicated":  {"backend", "backend/runner", "backend/runner/...", "bodylimit"},
	"backend/runner/cmd/runner": {"backend", "backend/runner", "backend/runner/...", "bodylimit"},
	"backend/local":             {"backend", "backend/runner", "backend/runner/...", "bodylimit"},
}

// libraries are the only modules that production code of the root module is built from.
var libraries = []string{"github.com/benbjohnson/clock", "go.uber.org/zap", "go.uber.org/multierr", "golang.org/x/sync", "golang.org/x/sys"}

type listed struct {
	ImportPath string
	Deps       []string
	Imports    []string
	Standard   bool
}

func goList(t *testing.T, args ...string) []listed {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-json=ImportPath,Deps,Imports,Standard"}, args...)...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &stderr)
	}
	var all []listed
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

func TestPackagesImportOnlyTheSiblingsTheyMay(t *testing.T) {
	for _, p := range goList(t, "./...") {
		name := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		for _, dep := range p.Deps {
			sibling, ours := strings.CutPrefix(dep, module+"/")
			if ours && !mayImport(name, sibling) {
				t.Errorf("%s depends on %s, which no rule allows", name, sibling)
			}
		}
	}
}

func mayImport(name, sibling string) bool {
	return slices.ContainsFunc(allowed[name], func(rule string) bool {
		dir, tree := strings.CutSuffix(rule, "/...")
		return rule == sibling || tree && strings.HasPrefix(sibling, dir+"/")
	})
}

func TestRootModuleIsBuiltFromLightLibrariesAlone(t *testing.T) {
	standard := regexp.MustCompile(`^[^./]+(/|$)`) // a first element without a dot
	for _, p := range goList(t, "./...") {
		for _, dep := range p.Deps {
			ours := dep == module || strings.HasPrefix(dep, module+"/")
			light := slices.ContainsFunc(libraries, func(l string) bool { return dep == l || strings.HasPrefix(dep, l+"/") })
			if !ours && !light && !standard.MatchString(dep) {
				t.Errorf("%s is built from %s: add it only with a reason", p.ImportPath, dep)
			}
		}
	}
}

func TestNoProductionPackageLinksTesting(t *testing.T) {
	for _, p := range goList(t, "./...", "./refserver/...") {
		helper := slices.Contains([]string{"backendtest", "bindingtest", "postgrestest"}, path.Base(p.ImportPath))
		if !helper && slices.Contains(p.Deps, "testing") {
			t.Errorf("%s links the testing package into its users' programs", p.ImportPath)
		}
	}
}

type goMod struct {
	Module  struct{ Path string }
	Require []struct{ Path, Version string }
	Replace []struct {
		Old, New struct{ Path, Version string }
	}
	Tool []struct{ Path string }
}

func readGoMod(t *testing.T, path string) (m goMod) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json", path).Output()
	if err != nil {
		t.Fatalf("read %s: %v", path, err)
	}
	if err := json.Unmarshal(out, &m); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestRootModuleReplacesNothingAndNeedsNoTool(t *testing.T) {
	m := readGoMod(t, "go.mod")
	if len(m.Replace) > 0 || len(m.Tool) > 0 {
		t.Errorf("the root go.mod has replace or tool lines, which importers would not get: %+v %+v", m.Replace, m.Tool)
	}
	heavy := regexp.MustCompile(`docker|moby|k8s\.io|prometheus|sql|pgx|opentelemetry`)
	for _, r := range m.Require {
		if heavy.MatchString(r.Path) {
			t.Errorf("the root module requires %s, which every importer of a primitive would carry", r.Path)
		}
	}
}

func TestNestedModulesAgreeOnOneVersionOfTheirSiblings(t *testing.T) {
	versions := map[string]string{} // by version, where it was seen
	for _, path := range sourceFiles(t, "go.mod") {
		m := readGoMod(t, path)
		for _, r := range m.Require {
			if strings.HasPrefix(r.Path, module) {
				versions[r.Version] = path
			}
		}
		for _, r := range m.Replace {
			if !strings.HasPrefix(r.Old.Path, module) || !strings.HasPrefix(r.New.Path, ".") {
				t.Errorf("%s replaces %s by %s: only siblings are replaced, by their directories", path, r.Old.Path, r.New.Path)
			}
		}
	}
	if len(versions) > 1 {
		t.Errorf("nested modules require different versions of their siblings: %v", versions)
	}
}

// sourceFiles returns the paths of the files of the tree whose names end in suffix.
func sourceFiles(t *testing.T, suffix string) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && (d.Name() == "testdata" || path != "." && strings.HasPrefix(d.Name(), ".")) {
			return fs.SkipDir
		}
		if err == nil && !d.IsDir() && strings.HasSuffix(path, suffix) {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

func TestEveryPackageHasOnePackageComment(t *testing.T) {
	comments := map[string]int{} // by directory
	for _, path := range sourceFiles(t, ".go") {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		comments[filepath.Dir(path)] += 0
		if f.Doc != nil {
			comments[filepath.Dir(path)]++
		}
	}
	for dir, n := range comments {
		if n != 1 {
			t.Errorf("%s has %d package comments, want 1", dir, n)
		}
	}
}

const (
	maxFileLines     = 300
	maxFunctionLines = 60
)

func TestFilesAndFunctionsStaySmall(t *testing.T) {
	for _, path := range sourceFiles(t, ".go") {
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		if n := set.Position(f.FileEnd).Line; n > maxFileLines+1 {
			t.Errorf("%s has %d lines, at most %d", path, n-1, maxFileLines)
		}
		for _, d := range f.Decls {
			if !strings.HasSuffix(path, "_test.go") { // a table may be as long as its cases
				checkFunction(t, set, d)
			}
		}
	}
}

func checkFunction(t *testing.T, set *token.FileSet, d ast.Decl) {
	t.Helper()
	fn, ok := d.(*ast.FuncDecl)
	if !ok {
		return
	}
	from, to := set.Position(fn.Pos()), set.Position(fn.End())
	if n := to.Line - from.Line + 1; n > maxFunctionLines {
		t.Errorf("%s: %s has %d lines, at most %d", from, fn.Name.Name, n, maxFunctionLines)
	}
	if fn.Name.Name == "init" && fn.Recv == nil {
		t.Errorf("%s: an init function runs whether or not its importer wants it", from)
	}
}

// A test that sleeps is slow when it passes and flaky when it does not. Within a synctest bubble time is virtual. A helper may open
// the bubble for its whole package, so the file that sleeps need not.
func TestNoTestSleepsOutsideASynctestBubble(t *testing.T) {
	sleeps, bubbles := make(map[string]int), make(map[string]bool)
	for _, path := range sourceFiles(t, "_test.go") {
		src, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Dir(path)
		sleeps[dir] += bytes.Count(src, []byte("time."+"Sleep("))
		if bytes.Contains(src, []byte("synctest."+"Test(")) || bytes.Contains(src, []byte("rapid."+"SyncTest(")) {
			bubbles[dir] = true
		}
	}
	for dir, n := range sleeps {
		if n > 0 && !bubbles[dir] {
			t.Errorf("the tests of %s sleep %d times and have no synctest bubble", dir, n)
		}
	}
}

func TestWorkspaceHoldsEveryModule(t *testing.T) {
	work, err := os.ReadFile("go.work")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range sourceFiles(t, "go.mod") {
		use := "./" + filepath.ToSlash(filepath.Dir(path))
		if use == "./." {
			use = "."
		}
		if !regexp.MustCompile(`(?m)^\t` + regexp.QuoteMeta(use) + `$`).Match(work) {
			t.Errorf("go.work does not use %s", use)
		}
	}
}
