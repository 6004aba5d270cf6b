package main

import (
	"bytes"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const root = "../.."

// The table of mistakes fits the sources as they are, and so does the list of survivors.
func TestTheListsFitTheSources(t *testing.T) {
	files, err := sources(root)
	if err != nil {
		t.Fatal(err)
	}
	mutants, err := allMutants(files)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, m := range mutants {
		if names[m.String()] {
			t.Errorf("two mutants are called %q", m)
		}
		names[m.String()] = true
	}
	survivors, err := readSurvivors("survivors.txt")
	if err != nil {
		t.Fatal(err)
	}
	for name := range survivors {
		if !names[name] {
			t.Errorf("survivors.txt has %q, and there is no such mutant", name)
		}
	}
	if 20*len(survivors) > len(mutants) {
		t.Errorf("%d of %d mutants are said to change nothing: that is more than one in twenty", len(survivors), len(mutants))
	}
}

// Every rule on calls has a mistake made against it.
func TestEveryRuleIsBroken(t *testing.T) {
	page, err := os.ReadFile(root + "/holdable/RULES.md")
	if err != nil {
		t.Fatal(err)
	}
	broken := map[string]bool{}
	for _, h := range handMades() {
		broken[h.Rule] = true
	}
	rules := regexp.MustCompile(`(?m)^\| \*\*([CHROTEKG]\d+)\*\*`).FindAllSubmatch(page, -1)
	if len(rules) < 40 {
		t.Fatalf("RULES.md has only %d of these rules", len(rules))
	}
	for _, rule := range rules {
		if !broken[string(rule[1])] {
			t.Errorf("no mistake is made against rule %s", rule[1])
		}
	}
}

// sample is a file with a place for every operator.
const sample = `package sample

const most = 4 << 1

type list[T any] struct{ items []T }

func (l *list[T]) add(a, b int, more ...T) (n int, err error) {
	if a == b && !(a < 3) {
		l.items = append(l.items, more...)
		return most, nil
	}
	switch a {
	case 1, 2:
		return 0, nil
	}
	switch {
	case b > 0:
		return b, nil
	}
	for a <= b {
		a++
	}
	return a, nil
}

func each[T any](list []T, do func(T)) {
	for _, item := range list {
		do(item)
	}
	done = true
}

var done bool
`

func sampleMutants(t *testing.T) (*source, []*mutant) {
	t.Helper()
	f, err := parseSource("sample/sample.go", []byte(sample))
	if err != nil {
		t.Fatal(err)
	}
	var all []*mutant
	for _, fn := range f.functions {
		o := operators{file: f, fn: fn, consts: integerConstants([]*source{f})}
		fn.mutants = o.mutate()
		all = append(all, fn.mutants...)
	}
	for i, m := range all {
		m.id = i + 1
	}
	return f, all
}

func TestOperators(t *testing.T) {
	_, mutants := sampleMutants(t)
	var got []string
	for _, m := range mutants {
		got = append(got, m.fn.title+": "+m.change)
	}
	slices.Sort(got)
	want := []string{
		"each: true => false",
		"list.add: !(a < 3) => (a < 3)",
		"list.add: 0 => 1",
		"list.add: 0 => 1",
		"list.add: 1 => 0",
		"list.add: 1 => 2",
		"list.add: 2 => 1",
		"list.add: 2 => 3",
		"list.add: 3 => 2",
		"list.add: 3 => 4",
		"list.add: a < 3: < => <=",
		"list.add: a < 3: < => >=",
		"list.add: a <= b => false && (a <= b)",
		"list.add: a <= b: <= => <",
		"list.add: a <= b: <= => >",
		"list.add: a == b && !(a < 3): && => ||",
		"list.add: a == b: == => !=",
		"list.add: b > 0: > => <=",
		"list.add: b > 0: > => >=",
		"list.add: case b > 0 => case false",
		"list.add: case b > 0 => case true",
		"list.add: if a == b && !(a < 3) => if false",
		"list.add: if a == b && !(a < 3) => if true",
		"list.add: most => (most + 1)",
		"list.add: most => (most - 1)",
		"list.add: without case 1",
		"list.add: without case 2",
		"list.add: without return most, nil",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// The changed file has a copy of the function for each mutant, on the lines that are said to be its own, and parses.
func TestOverlayOfAFile(t *testing.T) {
	f, mutants := sampleMutants(t)
	src, spans := f.withMutants(map[*mutant]bool{mutants[0]: true})
	if _, err := parser.ParseFile(token.NewFileSet(), "", src, parser.AllErrors); err != nil {
		t.Fatalf("%v\n%s", err, src)
	}
	if len(spans) != len(mutants)-1 {
		t.Errorf("%d mutants have lines, want %d", len(spans), len(mutants)-1)
	}
	lines := strings.Split(string(src), "\n")
	for _, s := range spans {
		head, all := lines[s.first-1], strings.Join(lines[s.first-1:s.last], "\n")
		if !strings.HasPrefix(head, "func ") || !strings.Contains(head, copyName(s.m.fn, s.m.id)+"(") && !strings.Contains(head, copyName(s.m.fn, s.m.id)+"[") {
			t.Errorf("%s begins with %q", s.m, head)
		}
		if strings.Count(all, "\nfunc ") != 0 || !strings.Contains(all, s.m.text) {
			t.Errorf("%s has the lines %s", s.m, all)
		}
	}
	for _, want := range []string{
		"func (recv *list[T]) add(p0 int, p1 int, p2 ...T) (n int, err error) {",
		"return recv.mutant0_add(p0, p1, p2...)",
		"func each[T any](p0 []T, p1 func(T)) {",
		"mutant0_each[T](p0, p1)",
		"var done bool",
	} {
		if !bytes.Contains(src, []byte(want)) {
			t.Errorf("%q is missing in\n%s", want, src)
		}
	}
}

// A message of the compiler is the fault of the mutant on whose line it is.
func TestBlame(t *testing.T) {
	_, mutants := sampleMutants(t)
	o := &overlay{root: "/root/module", lines: map[string][]span{"/root/x/a.go": {{10, 20, mutants[0]}, {30, 40, mutants[1]}}}}
	got := o.blame("# module/a\n../x/a.go:12:3: declared and not used: b\n/root/x/a.go:40:1: missing return\n../x/a.go:25:1: odd\nb.go:12:3: odd\n")
	if len(got) != 2 || got[0] != mutants[0] || got[1] != mutants[1] {
		t.Errorf("got %v", got)
	}
}

func TestFindRefusesWhatIsNotUnique(t *testing.T) {
	f, err := parseSource("sample/sample.go", []byte(sample))
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct{ file, old, says string }{
		"Unique":     {"sample/sample.go", "a++", ""},
		"Gone":       {"sample/sample.go", "a--", "0 times"},
		"Twice":      {"sample/sample.go", "nil", "4 times"},
		"NoFile":     {"sample/other.go", "a++", "no sample/other.go"},
		"NoFunction": {"sample/sample.go", "4 << 1", "no single function"},
		"TwoOfThem":  {"sample/sample.go", "return a, nil\n}\n\nfunc each", "no single function"},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := handMade{Rule: "X1", Name: "n", File: tc.file, Old: tc.old, New: "x"}.find([]*source{f})
			switch {
			case tc.says == "" && (err != nil || m.fn.title != "list.add" || m.String() != "X1 n"):
				t.Errorf("got %v, %v", m, err)
			case tc.says != "" && (err == nil || !strings.Contains(err.Error(), tc.says)):
				t.Errorf("got %v, want %q", err, tc.says)
			}
		})
	}
}

func TestParseSurvivors(t *testing.T) {
	got, err := parseSurvivors("# about\n\na/b.go f: x => y\n    one\n    two\n\nT3 name\n\tthree\n")
	if diff := cmp.Diff(map[string]string{"a/b.go f: x => y": "one two", "T3 name": "three"}, got); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
	for _, bad := range []string{"name\n", "  reason\n", "name\n  r\nname\n  r\n", "name\nother\n  r\n"} {
		if got, err := parseSurvivors(bad); err == nil {
			t.Errorf("%q: got %v", bad, got)
		}
	}
}

func TestApart(t *testing.T) {
	f, g := &function{}, &function{}
	a, b, c := &mutant{fn: f}, &mutant{fn: f}, &mutant{fn: g}
	batches := apart([]*mutant{a, b, c})
	if len(batches) != 2 || !slices.Equal(batches[0], []*mutant{a, c}) || !slices.Equal(batches[1], []*mutant{b}) {
		t.Errorf("got %v", batches)
	}
}

// What has been found is an error unless every survivor is listed, and everything that is listed has survived.
func TestReport(t *testing.T) {
	file := &source{name: "f.go"}
	made := func(change string) *mutant { return &mutant{file: file, fn: &function{title: "f"}, change: change} }
	for name, tc := range map[string]struct {
		listed                     []string
		caught, survived, unusable []string
		says                       string
	}{
		"AllCaught":         {caught: []string{"a"}},
		"Listed":            {listed: []string{"f.go f: a"}, survived: []string{"a"}},
		"NotListed":         {survived: []string{"a"}, says: "survived: f.go f: a"},
		"ListedAndCaught":   {listed: []string{"f.go f: a"}, caught: []string{"a"}, says: "caught by t (failed)"},
		"ListedAndUnusable": {listed: []string{"f.go f: a"}, unusable: []string{"a"}, says: "does not compile: f.go f: a"},
		"ListedAndGone":     {listed: []string{"f.go f: b"}, caught: []string{"a"}, says: "no such mutant: f.go f: b"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &report{out: new(bytes.Buffer), listed: map[string]string{}, caught: map[*mutant]*catch{}}
			for _, name := range tc.listed {
				r.listed[name] = "because"
			}
			for _, change := range tc.caught {
				m := made(change)
				r.all, r.caught[m] = append(r.all, m), &catch{"t", "failed"}
			}
			for _, change := range tc.survived {
				m := made(change)
				r.all, r.survived = append(r.all, m), append(r.survived, m)
			}
			for _, change := range tc.unusable {
				m := made(change)
				r.all, r.invalid = append(r.all, m), append(r.invalid, m)
			}
			err := r.sum(time.Second)
			if tc.says == "" && err != nil || tc.says != "" && (err == nil || !strings.Contains(err.Error(), tc.says)) {
				t.Errorf("got %v, want %q", err, tc.says)
			}
		})
	}
	r := &report{out: new(bytes.Buffer), whole: true, survived: []*mutant{made("a")}, listed: map[string]string{"f.go f: a": "because"}}
	if r.all = r.survived; r.sum(0) == nil {
		t.Error("one survivor of one mutant is not too many")
	}
}

func TestOptions(t *testing.T) {
	hand, other := &mutant{rule: "T3", change: "x"}, &mutant{file: &source{name: "f.go"}, fn: &function{title: "settle"}, change: "y"}
	for name, tc := range map[string]struct {
		args        []string
		hand, other bool
	}{
		"All":   {nil, true, true},
		"Hand":  {[]string{"-hand"}, true, false},
		"Match": {[]string{"-run", "settle|T4"}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := parseOptions(tc.args)
			if err != nil || o.picks(hand) != tc.hand || o.picks(other) != tc.other {
				t.Errorf("%v: %t, %t", err, o.picks(hand), o.picks(other))
			}
		})
	}
	for _, args := range [][]string{{"-run", "("}, {"-j", "0"}, {"more"}} {
		if _, err := parseOptions(args); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
}

// What a run of a test binary prints tells which test caught the mutant, and how.
func TestCatch(t *testing.T) {
	const begin = "=== RUN   TestA\n--- PASS: TestA (0.00s)\n=== RUN   TestB\n=== RUN   TestB/case\n"
	for name, tc := range map[string]struct{ out, want string }{
		"Failed":    {begin + "--- FAIL: TestB (0.01s)\n    --- FAIL: TestB/case (0.00s)\nFAIL\n", "p TestB (failed)"},
		"Panicked":  {begin + "--- FAIL: TestB (0.01s)\n\npanic: oh\n", "p TestB (panicked)"},
		"Elsewhere": {begin + "\npanic: oh\n", "p TestB (panicked)"},
		"Hung":      {begin + "\npanic: test timed out after 1s\n", "p TestB (hung)"},
		"AtOnce":    {"\npanic: oh\n", "p (panicked)"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := caughtBy("p", tc.out, false).String(); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
	if got := caughtBy("p", begin, true).how; got != "hung" {
		t.Errorf("killed: got %q", got)
	}
}
