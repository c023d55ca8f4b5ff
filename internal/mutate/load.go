package main

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"strings"
)

// mutant is one small change of the code.
type mutant struct {
	id   int
	name string // stable while other lines move: file, function, kind, source, ordinal where all else is equal
}

// loaded is a package whose source holds all of its mutants, each guarded by its id.
type loaded struct {
	dir     string
	sources map[string]string // rewritten files, by absolute path
	mutants []mutant
}

// switchSource declares what the guards read. Id 0 is the code as it was.
const switchSource = `package %s

import (
	"os"
	"strconv"
)

var mutantID, _ = strconv.Atoi(os.Getenv("KEEPWELL_MUTANT"))

func mutantPlusOne[T ~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~float64](id int, v T) T {
	if mutantID == id {
		return v + 1
	}
	return v
}
`

func load(dir string) (*loaded, error) {
	set := token.NewFileSet()
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	files, err := parseDir(set, abs)
	if err != nil {
		return nil, err
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}}
	conf := types.Config{Importer: importer.ForCompiler(set, "source", nil)}
	if _, err := conf.Check(dir, set, files, info); err != nil {
		return nil, fmt.Errorf("type-check: %w", err)
	}
	out := &loaded{dir: abs, sources: map[string]string{}}
	names := map[string]int{}
	for _, f := range files {
		path := set.Position(f.FileStart).Filename
		src, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		r := &rewriter{set: set, file: f, src: src, info: info, pkg: out, names: names}
		out.sources[path] = r.rewrite()
	}
	out.sources[filepath.Join(abs, "mutant_switch.go")] = fmt.Sprintf(switchSource, files[0].Name.Name)
	return out, nil
}

func parseDir(set *token.FileSet, dir string) (files []*ast.File, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		f, err := parser.ParseFile(set, filepath.Join(dir, e.Name()), nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no Go files in %s", dir)
	}
	return files, nil
}
