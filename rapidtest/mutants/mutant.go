package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// packages are the packages that mistakes are built into, each after those that it imports.
func packages() []string { return []string{"meta", "retry", "holdable", "kinds"} }

// A source is one file of a package under test.
type source struct {
	// name is relative to the root of the module, pkg is its folder.
	name, pkg string
	src       []byte
	fset      *token.FileSet
	ast       *ast.File
	functions []*function
}

// A function is a function or method with a body.
type function struct {
	decl *ast.FuncDecl
	// title is how it is called in the list: call.send, or PodRemains.
	title   string
	mutants []*mutant
}

// A mutant is one mistake: the text of a file between two offsets, all in one function, and what it becomes.
type mutant struct {
	// id is what turns it on, counted from 1.
	id   int
	file *source
	fn   *function
	// start and end are offsets in the file, text is what comes between them.
	start, end int
	text       string
	// change says what it does; rule is set for those made by hand.
	rule, change string
	// nth tells apart mutants of one function that make the same change in several places.
	nth int
}

// String is the mutant's name in every list. It holds as long as the mutated expression and its function do, wherever in the file they are.
func (m *mutant) String() string {
	if m.rule != "" {
		return m.rule + " " + m.change
	}
	name := fmt.Sprintf("%s %s: %s", m.file.name, m.fn.title, m.change)
	if m.nth > 1 {
		name += fmt.Sprintf(" #%d", m.nth)
	}
	return name
}

func parse(root, name string) (*source, error) {
	src, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		return nil, err
	}
	return parseSource(name, src)
}

func parseSource(name string, src []byte) (*source, error) {
	f := &source{name: filepath.ToSlash(name), pkg: filepath.Dir(name), src: src, fset: token.NewFileSet()}
	var err error
	if f.ast, err = parser.ParseFile(f.fset, name, src, parser.SkipObjectResolution); err != nil {
		return nil, err
	}
	for _, d := range f.ast.Decls {
		if decl, ok := d.(*ast.FuncDecl); ok && decl.Body != nil {
			f.functions = append(f.functions, &function{decl: decl, title: title(decl)})
		}
	}
	return f, nil
}

// title returns Type.Method, or the name of a function.
func title(decl *ast.FuncDecl) string {
	if decl.Recv == nil {
		return decl.Name.Name
	}
	t := decl.Recv.List[0].Type
	for {
		switch e := t.(type) {
		case *ast.StarExpr:
			t = e.X
		case *ast.IndexExpr:
			t = e.X
		case *ast.Ident:
			return e.Name + "." + decl.Name.Name
		default:
			return decl.Name.Name
		}
	}
}

func (f *source) offset(p token.Pos) int { return f.fset.Position(p).Offset }

// text is the source of a node.
func (f *source) text(n ast.Node) string { return string(f.src[f.offset(n.Pos()):f.offset(n.End())]) }

// sources parses the packages under test.
func sources(root string) ([]*source, error) {
	var files []*source
	for _, pkg := range packages() {
		names, err := filepath.Glob(filepath.Join(root, pkg, "*.go"))
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			f, err := parse(root, filepath.Join(pkg, filepath.Base(name)))
			if err != nil {
				return nil, err
			}
			files = append(files, f)
		}
	}
	return files, nil
}

// allMutants returns every mutant of the files: those made by hand, and then those that operators finds, numbered from 1.
func allMutants(files []*source) ([]*mutant, error) {
	var all []*mutant
	var rotten []error
	for _, h := range handMades() {
		m, err := h.find(files)
		if err != nil {
			rotten = append(rotten, err)
			continue
		}
		all = append(all, m)
	}
	if err := errors.Join(rotten...); err != nil {
		return nil, err
	}
	for _, pkg := range packages() {
		inPackage := slices.DeleteFunc(slices.Clone(files), func(f *source) bool { return f.pkg != pkg })
		consts := integerConstants(inPackage)
		for _, f := range inPackage {
			for _, fn := range f.functions {
				o := operators{file: f, fn: fn, consts: consts}
				all = append(all, o.mutate()...)
			}
		}
	}
	count := map[string]int{}
	for i, m := range all {
		name := m.String()
		count[name]++
		m.id, m.nth = i+1, count[name]
		if m.rule != "" && m.nth > 1 {
			return nil, fmt.Errorf("two mutants are called %q", name)
		}
		m.fn.mutants = append(m.fn.mutants, m)
	}
	return all, nil
}

// find looks for the text that a mutant made by hand replaces.
func (h handMade) find(files []*source) (*mutant, error) {
	i := slices.IndexFunc(files, func(f *source) bool { return f.name == h.File })
	if i < 0 {
		return nil, fmt.Errorf("%s %s: there is no %s", h.Rule, h.Name, h.File)
	}
	f := files[i]
	if n := strings.Count(string(f.src), h.Old); n != 1 {
		return nil, fmt.Errorf("%s %s: its old text occurs %d times in %s, and not once", h.Rule, h.Name, n, h.File)
	}
	start := strings.Index(string(f.src), h.Old)
	end := start + len(h.Old)
	for _, fn := range f.functions {
		if f.offset(fn.decl.Pos()) <= start && end <= f.offset(fn.decl.End()) {
			return &mutant{file: f, fn: fn, start: start, end: end, text: h.New, rule: h.Rule, change: h.Name}, nil
		}
	}
	return nil, fmt.Errorf("%s %s: its old text lies in no single function of %s", h.Rule, h.Name, h.File)
}
