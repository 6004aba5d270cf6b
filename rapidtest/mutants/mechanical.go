package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"strconv"
	"strings"
)

// operators finds the mistakes that a machine can make in one function: see the package comment for what they are.
type operators struct {
	file *source
	fn   *function
	// consts are the names of the package's integer constants.
	consts map[string]bool
	found  []*mutant
}

// mutate goes through a function.
func (o *operators) mutate() []*mutant {
	ast.Inspect(o.fn.decl.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BinaryExpr:
			o.binary(n)
		case *ast.UnaryExpr:
			if n.Op == token.NOT {
				o.replace(n, o.file.text(n.X))
			}
		case *ast.IfStmt:
			o.condition(n.Cond)
			o.lastReturn(n.Body)
			if els, ok := n.Else.(*ast.BlockStmt); ok {
				o.lastReturn(els)
			}
		case *ast.ForStmt:
			if n.Cond != nil {
				o.replace(n.Cond, "false && "+o.enclosed(n.Cond))
			}
		case *ast.SwitchStmt:
			o.cases(n)
		case *ast.BasicLit:
			if n.Kind == token.INT {
				o.offByOne(n)
			}
		case *ast.Ident:
			o.name(n)
		}
		return true
	})
	return o.found
}

// add makes a mutant of the text from one position to another.
func (o *operators) add(from, to token.Pos, text, change string) {
	start, end := o.file.offset(from), o.file.offset(to)
	o.found = append(o.found, &mutant{file: o.file, fn: o.fn, start: start, end: end, text: text, change: change})
}

func (o *operators) replace(n ast.Node, text string) {
	o.add(n.Pos(), n.End(), text, oneLine(o.file.text(n))+" => "+oneLine(text))
}

// opposites are the operators that are mistaken for each other.
func opposites(op token.Token) []token.Token {
	switch op {
	case token.EQL:
		return []token.Token{token.NEQ}
	case token.NEQ:
		return []token.Token{token.EQL}
	case token.LSS:
		return []token.Token{token.LEQ, token.GEQ}
	case token.LEQ:
		return []token.Token{token.LSS, token.GTR}
	case token.GTR:
		return []token.Token{token.GEQ, token.LEQ}
	case token.GEQ:
		return []token.Token{token.GTR, token.LSS}
	case token.LAND:
		return []token.Token{token.LOR}
	case token.LOR:
		return []token.Token{token.LAND}
	}
	return nil
}

// binary puts another operator in the place of one. The operands are enclosed, so that the rest of the expression is read as before.
func (o *operators) binary(e *ast.BinaryExpr) {
	for _, op := range opposites(e.Op) {
		text := fmt.Sprintf("(%s %s %s)", o.enclosed(e.X), op, o.enclosed(e.Y))
		o.add(e.Pos(), e.End(), text, fmt.Sprintf("%s: %s => %s", oneLine(o.file.text(e)), e.Op, op))
	}
}

// condition makes a condition always and never hold. It stays in the text, for what is declared for it has to be used.
func (o *operators) condition(cond ast.Expr) {
	text := oneLine(o.file.text(cond))
	o.add(cond.Pos(), cond.End(), "true || "+o.enclosed(cond), "if "+text+" => if true")
	o.add(cond.Pos(), cond.End(), "false && "+o.enclosed(cond), "if "+text+" => if false")
}

// lastReturn takes away the return at the end of a block that does something else before.
func (o *operators) lastReturn(block *ast.BlockStmt) {
	if len(block.List) < 2 {
		return // without its only statement the block is a condition that never holds
	}
	if ret, ok := block.List[len(block.List)-1].(*ast.ReturnStmt); ok {
		o.add(ret.Pos(), ret.End(), "", "without "+oneLine(o.file.text(ret)))
	}
}

// cases turns off each case of a switch, and makes each condition among them hold always.
func (o *operators) cases(s *ast.SwitchStmt) {
	for _, stmt := range s.Body.List {
		clause := stmt.(*ast.CaseClause)
		for i, e := range clause.List {
			text := oneLine(o.file.text(e))
			if s.Tag == nil {
				o.add(e.Pos(), e.End(), "true || "+o.enclosed(e), "case "+text+" => case true")
				o.add(e.Pos(), e.End(), "false && "+o.enclosed(e), "case "+text+" => case false")
				continue
			}
			switch {
			case len(clause.List) == 1: // all of the clause
				o.add(clause.Pos(), clause.End(), "", "without case "+text)
			case i == 0:
				o.add(e.Pos(), clause.List[1].Pos(), "", "without case "+text)
			default:
				o.add(clause.List[i-1].End(), e.End(), "", "without case "+text)
			}
		}
		if n := len(clause.Body); n > 1 {
			o.lastReturn(&ast.BlockStmt{List: clause.Body})
		}
	}
}

// offByOne changes a number by one, both ways where it may be less.
func (o *operators) offByOne(lit *ast.BasicLit) {
	n, err := strconv.ParseInt(lit.Value, 0, 64)
	if err != nil {
		return
	}
	o.replace(lit, strconv.FormatInt(n+1, 10))
	if n > 0 {
		o.replace(lit, strconv.FormatInt(n-1, 10))
	}
}

// name turns a truth value round, and changes a constant where it is used.
func (o *operators) name(id *ast.Ident) {
	switch {
	case id.Name == "true":
		o.replace(id, "false")
	case id.Name == "false":
		o.replace(id, "true")
	case o.consts[id.Name]:
		o.replace(id, "("+id.Name+" + 1)")
		o.replace(id, "("+id.Name+" - 1)")
	}
}

func (o *operators) enclosed(e ast.Expr) string { return "(" + o.file.text(e) + ")" }

// oneLine puts source text on one line.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// integerConstants returns the names of the package-level constants that are written as integers.
func integerConstants(files []*source) map[string]bool {
	names := map[string]bool{}
	for _, f := range files {
		for _, d := range f.ast.Decls {
			decl, ok := d.(*ast.GenDecl)
			if !ok || decl.Tok != token.CONST {
				continue
			}
			for _, s := range decl.Specs {
				spec := s.(*ast.ValueSpec)
				for i, v := range spec.Values {
					if isInteger(v) {
						names[spec.Names[i].Name] = true
					}
				}
			}
		}
	}
	return names
}

// isInteger reports whether an expression is made of integer literals.
func isInteger(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BasicLit:
		return e.Kind == token.INT
	case *ast.BinaryExpr:
		return isInteger(e.X) && isInteger(e.Y)
	}
	return false
}
