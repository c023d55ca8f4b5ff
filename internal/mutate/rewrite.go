package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"path/filepath"
	"strings"
)

// rewriter turns the source of one file into one that holds its mutants.
type rewriter struct {
	set   *token.FileSet
	file  *ast.File
	src   []byte
	info  *types.Info
	pkg   *loaded
	names map[string]int // how often a name was given in this package

	function string // being rewritten
}

func (r *rewriter) rewrite() string {
	var b strings.Builder
	at := r.file.FileStart
	for _, d := range r.file.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		r.function = functionName(fn)
		b.WriteString(r.source(at, fn.Body.Pos()))
		b.WriteString(r.text(fn.Body))
		at = fn.Body.End()
	}
	b.WriteString(r.source(at, r.file.FileEnd))
	return b.String()
}

func functionName(fn *ast.FuncDecl) string {
	if fn.Recv == nil {
		return fn.Name.Name
	}
	t := fn.Recv.List[0].Type
	if s, ok := t.(*ast.StarExpr); ok {
		t = s.X
	}
	switch x := t.(type) {
	case *ast.IndexExpr:
		t = x.X
	case *ast.IndexListExpr:
		t = x.X
	}
	if id, ok := t.(*ast.Ident); ok {
		return id.Name + "." + fn.Name.Name
	}
	return fn.Name.Name
}

func (r *rewriter) source(from, to token.Pos) string {
	return string(r.src[r.set.Position(from).Offset:r.set.Position(to).Offset])
}

// text returns the source of n with the outermost mutation sites below it rewritten, and those within them in turn.
func (r *rewriter) text(n ast.Node) string {
	var b strings.Builder
	at := n.Pos()
	for _, s := range r.sitesBelow(n) {
		b.WriteString(r.source(at, s.node.Pos()))
		b.WriteString(s.render())
		at = s.node.End()
	}
	b.WriteString(r.source(at, n.End()))
	return b.String()
}

// site is a node that is rewritten.
type site struct {
	node   ast.Node
	render func() string
}

func (r *rewriter) sitesBelow(n ast.Node) (sites []site) {
	conditions := map[ast.Expr]bool{}
	statements := map[ast.Stmt]bool{}
	ast.Inspect(n, func(c ast.Node) bool {
		switch c := c.(type) {
		case *ast.IfStmt:
			conditions[c.Cond] = true
		case *ast.ForStmt:
			if c.Cond != nil {
				conditions[c.Cond] = true
			}
		case *ast.SwitchStmt:
			if c.Tag == nil {
				markCases(c.Body.List, conditions)
			}
		case *ast.BlockStmt:
			markRemovable(c.List, statements)
		case *ast.CaseClause:
			markRemovable(c.Body, statements)
		case *ast.CommClause:
			markRemovable(c.Body, statements)
		case *ast.GenDecl, *ast.ArrayType:
			if c != n {
				return false // constants and lengths must stay constant
			}
		}
		if c == nil || c == n {
			return true
		}
		render := r.renderer(c, conditions, statements)
		if render == nil {
			return true
		}
		sites = append(sites, site{c, render})
		return false
	})
	return sites
}

// markCases notes the conditions of a switch without a tag.
func markCases(clauses []ast.Stmt, into map[ast.Expr]bool) {
	for _, c := range clauses {
		for _, e := range c.(*ast.CaseClause).List {
			into[e] = true
		}
	}
}

// markRemovable notes the statements that the code compiles without.
func markRemovable(list []ast.Stmt, into map[ast.Stmt]bool) {
	for i, s := range list {
		switch s := s.(type) {
		case *ast.ExprStmt, *ast.IncDecStmt, *ast.SendStmt, *ast.DeferStmt, *ast.GoStmt:
			into[s] = !isPanic(s) || i < len(list)-1
		case *ast.AssignStmt:
			into[s] = s.Tok != token.DEFINE
		case *ast.BranchStmt:
			into[s] = s.Tok != token.FALLTHROUGH
		case *ast.ReturnStmt:
			into[s] = len(s.Results) == 0 && i < len(list)-1 // the last may be what ends a function with named results
		}
	}
}

func isPanic(s ast.Stmt) bool {
	e, ok := s.(*ast.ExprStmt)
	if !ok {
		return false
	}
	call, ok := e.X.(*ast.CallExpr)
	if !ok {
		return false
	}
	id, ok := call.Fun.(*ast.Ident)
	return ok && id.Name == "panic"
}

func (r *rewriter) renderer(n ast.Node, conditions map[ast.Expr]bool, statements map[ast.Stmt]bool) func() string {
	if s, ok := n.(ast.Stmt); ok && statements[s] {
		return func() string { return r.removable(s) }
	}
	e, ok := n.(ast.Expr)
	if !ok {
		return nil
	}
	mutate := r.expression(e)
	if !conditions[e] {
		return mutate
	}
	return func() string {
		id := r.add("negate the condition", e)
		return fmt.Sprintf("(mutantID == %d) != (%s)", id, r.operand(e)) // once: a mutant whose text is not used survives everything
	}
}

func (r *rewriter) removable(s ast.Stmt) string {
	id := r.add("remove", s)
	return fmt.Sprintf("if mutantID != %d { %s }", id, r.text(s))
}

// swaps are the operators that are told apart only at a boundary, and the connectives.
var swaps = map[token.Token]token.Token{
	token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
	token.LAND: token.LOR, token.LOR: token.LAND,
}

func (r *rewriter) expression(e ast.Expr) func() string {
	switch e := e.(type) {
	case *ast.BinaryExpr:
		other, ok := swaps[e.Op]
		if !ok || r.info.Types[e].Value != nil {
			return nil
		}
		return func() string {
			id := r.add("use "+other.String(), e)
			x, y := r.operand(e.X), r.operand(e.Y)
			return fmt.Sprintf("(mutantID == %d && ((%s) %s (%s)) || mutantID != %d && ((%s) %s (%s)))", id, x, other, y, id, x, e.Op, y)
		}
	case *ast.BasicLit:
		name := r.numericType(e)
		if e.Kind != token.INT || name == "" {
			return nil
		}
		return func() string { return fmt.Sprintf("mutantPlusOne[%s](%d, %s)", name, r.add("add one to", e), e.Value) }
	}
	return nil
}

// operand is text for an expression that may itself be a site.
func (r *rewriter) operand(e ast.Expr) string {
	if mutate := r.expression(e); mutate != nil {
		return mutate()
	}
	return r.text(e)
}

func (r *rewriter) numeric(e ast.Expr) bool {
	b, ok := r.info.Types[e].Type.Underlying().(*types.Basic)
	return ok && b.Info()&types.IsNumeric != 0
}

// numericType returns the type of a literal as the file can write it, or "" where it cannot be written or is no number.
func (r *rewriter) numericType(e ast.Expr) string {
	t := r.info.Types[e].Type
	if t == nil {
		return ""
	}
	if _, isParam := t.(*types.TypeParam); isParam || !r.numeric(e) {
		return ""
	}
	if b, ok := t.(*types.Basic); ok && b.Info()&types.IsUntyped == 0 {
		return b.Name()
	}
	if types.TypeString(t, nil) == "time.Duration" && r.imports("time") {
		return "time.Duration"
	}
	return ""
}

func (r *rewriter) imports(path string) bool {
	for _, s := range r.file.Imports {
		if s.Path.Value == `"`+path+`"` && s.Name == nil {
			return true
		}
	}
	return false
}

// add registers a mutant and returns its id, which starts at 1.
func (r *rewriter) add(kind string, n ast.Node) int {
	text := strings.Join(strings.Fields(r.source(n.Pos(), n.End())), " ")
	if len(text) > 70 {
		text = text[:67] + "..."
	}
	name := fmt.Sprintf("%s %s: %s `%s`", filepath.Base(r.set.Position(n.Pos()).Filename), r.function, kind, text)
	r.names[name]++
	if k := r.names[name]; k > 1 {
		name += fmt.Sprintf(" #%d", k)
	}
	id := len(r.pkg.mutants) + 1
	r.pkg.mutants = append(r.pkg.mutants, mutant{id, name})
	return id
}
