package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// variable is the environment variable that turns mutants on, by their numbers, with commas between.
const variable = "KUBEHOLD_MUTANT"

// An overlay is all mutants of all packages in one build: every function that has any becomes one that looks which of them is on, and calls
// the copy of the function that this one has changed, or the copy that is as it was. So all of them are compiled once, and a run
// with a mutant costs no more than a run without. Of different functions, several may be on at once.
type overlay struct {
	root, dir string
	// file is what the go command reads.
	file string
	// lines tells, for each file that was written, which mutant has which lines.
	lines map[string][]span
}

// A span is the lines of one mutant, from first to last.
type span struct {
	first, last int
	m           *mutant
}

// newOverlay writes an overlay of the module at root into dir. Mutants that off has are left out.
func newOverlay(root, dir string, files []*source, off map[*mutant]bool) (*overlay, error) {
	o := &overlay{root: root, dir: dir, file: filepath.Join(dir, "overlay.json"), lines: map[string][]span{}}
	replace := map[string]string{}
	put := func(name string, src []byte, lines []span) error {
		written := filepath.Join(dir, strings.ReplaceAll(name, "/", "_"))
		replace[filepath.Join(root, name)] = written
		o.lines[written] = lines
		return os.WriteFile(written, src, 0o600)
	}
	for _, f := range files {
		src, lines := f.withMutants(off)
		if err := put(f.name, src, lines); err != nil {
			return nil, err
		}
	}
	for _, pkg := range packages() {
		if err := put(pkg+"/kubehold_mutant.go", []byte(fmt.Sprintf(switchboard, pkg, variable)), nil); err != nil {
			return nil, err
		}
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return nil, err
	}
	return o, os.WriteFile(o.file, list, 0o600)
}

// switchboard is a file of every package under test: its name, and the variable.
const switchboard = `package %s

import (
	"os"
	"strconv"
	"strings"
)

var mutantOn = func() (on [1 << 16]bool) {
	for _, s := range strings.Split(os.Getenv(%q), ",") {
		if n, err := strconv.ParseUint(s, 10, 16); err == nil {
			on[n] = true
		}
	}
	return on
}()
`

// withMutants is the file with every mutant of its functions in it, and the lines that each has there.
func (f *source) withMutants(off map[*mutant]bool) ([]byte, []span) {
	var b bytes.Buffer
	var spans []span
	done := 0
	for _, fn := range f.functions {
		mutants := slices.DeleteFunc(slices.Clone(fn.mutants), func(m *mutant) bool { return off[m] })
		if len(mutants) == 0 {
			continue
		}
		start, end := f.offset(fn.decl.Pos()), f.offset(fn.decl.End())
		b.Write(f.src[done:start])
		done = end
		f.dispatch(&b, fn, mutants)
		f.writeCopy(&b, fn, 0, end, end, "")
		for _, m := range mutants {
			first := 1 + bytes.Count(b.Bytes(), []byte("\n"))
			f.writeCopy(&b, fn, m.id, m.start, m.end, m.text)
			spans = append(spans, span{first, bytes.Count(b.Bytes(), []byte("\n")), m})
		}
	}
	b.Write(f.src[done:])
	return b.Bytes(), spans
}

// copyName is the name of a copy of a function: of the one as it was, for 0, or of a mutant's.
func copyName(fn *function, id int) string { return fmt.Sprintf("mutant%d_%s", id, fn.decl.Name.Name) }

// writeCopy writes the function under another name, with other text between two offsets, on lines of its own.
func (f *source) writeCopy(b *bytes.Buffer, fn *function, id, from, to int, text string) {
	d := fn.decl
	b.Write(f.src[f.offset(d.Pos()):f.offset(d.Name.Pos())])
	b.WriteString(copyName(fn, id))
	b.Write(f.src[f.offset(d.Name.End()):from])
	b.WriteString(text)
	b.Write(f.src[to:f.offset(d.End())])
	b.WriteString("\n\n")
}

// dispatch writes the function that calls the copy which is on.
func (f *source) dispatch(b *bytes.Buffer, fn *function, mutants []*mutant) {
	d := fn.decl
	b.WriteString("func ")
	receiver := ""
	if d.Recv != nil {
		receiver = "recv."
		fmt.Fprintf(b, "(recv %s) ", f.text(d.Recv.List[0].Type))
	}
	b.WriteString(d.Name.Name)
	instance := ""
	if d.Type.TypeParams != nil {
		b.WriteString(f.text(d.Type.TypeParams))
		instance = "[" + strings.Join(namesOf(d.Type.TypeParams), ", ") + "]"
	}
	params, args := f.parameters(d.Type.Params)
	fmt.Fprintf(b, "(%s)", params)
	call := "return "
	if d.Type.Results == nil {
		call = ""
	} else {
		b.WriteString(" " + f.text(d.Type.Results))
	}
	b.WriteString(" {\n\tswitch {\n")
	for _, m := range mutants {
		fmt.Fprintf(b, "\tcase mutantOn[%d]:\n\t\t%s%s%s%s(%s)\n", m.id, call, receiver, copyName(fn, m.id), instance, args)
		if call == "" {
			b.WriteString("\t\treturn\n")
		}
	}
	fmt.Fprintf(b, "\t}\n\t%s%s%s%s(%s)\n}\n\n", call, receiver, copyName(fn, 0), instance, args)
}

func namesOf(list *ast.FieldList) []string {
	var names []string
	for _, field := range list.List {
		for _, id := range field.Names {
			names = append(names, id.Name)
		}
	}
	return names
}

// parameters gives every parameter a name, and returns the list of them and how they are passed on.
func (f *source) parameters(list *ast.FieldList) (params, args string) {
	var ps, as []string
	for _, field := range list.List {
		for range max(1, len(field.Names)) {
			name := fmt.Sprintf("p%d", len(ps))
			ps = append(ps, name+" "+f.text(field.Type))
			if _, variadic := field.Type.(*ast.Ellipsis); variadic {
				name += "..."
			}
			as = append(as, name)
		}
	}
	return strings.Join(ps, ", "), strings.Join(as, ", ")
}
