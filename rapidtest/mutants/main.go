// Command mutants builds mistakes into the packages meta, retry, holdable and kinds, one at a time, and runs the tests to see which of them
// catches it. A mistake that no test sees is a property that nobody has written down.
//
//	go run ./rapidtest/mutants                 all of them
//	go run ./rapidtest/mutants -hand           those made by hand, one or more for each rule
//	go run ./rapidtest/mutants -run 'T3|settle'  those whose name matches
//	go run ./rapidtest/mutants -quick          without rapidtest's own tests, nor any that take two seconds or more
//	go run ./rapidtest/mutants -list           only their names
//
// # The mistakes
//
// Some are made by hand, each against a rule of holdable/RULES.md: see handMades. The others are made in every function of the four packages,
// wherever these can be made:
//
//	a == b     a != b                    and the other way round
//	a < b      a <= b, a >= b            and so for <=, > and >=
//	a && b     a || b                    and the other way round
//	!a         a
//	if a       if true, if false         and so for a case of a switch without a tag
//	for a      for false
//	case x     without it                in a switch with a tag
//	return     without it                at the end of a block that does something else before
//	3          4, 2                      literals, and constants where they are used
//	true       false                     and the other way round
//
// A mutant that does not compile is none, and is not counted.
//
// # How it works
//
// Nothing is written into the tree: the go command reads the changed files through its -overlay flag. All mutants are built at once. A function
// that has some becomes one that calls the copy of itself which an environment variable names, so that every test binary is compiled once
// and a mutant costs one run of it. The tests of the mutated package are run first, then those of the other three, each up to its first failure;
// then those that take two seconds or more, and all those of rapidtest. Property tests draw the same in every run.
//
// # What it reports
//
// Every mutant, with the test that caught it. The file survivors.txt lists the mutants that no test can catch because they change nothing that
// anybody could see, each with the reason. It is an error if a mutant survives that is not listed, if one is listed that does not survive or
// does not exist, and if more than one in twenty is listed. For the slow tests those that are listed are turned on together, as many at
// once as are in different functions: together they have to change nothing as well.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "mutants:", err)
		}
		stop()
		os.Exit(1)
	}
}

// options are the flags of the command.
type options struct {
	hand, quick, list bool
	run               *regexp.Regexp
	jobs              int
}

func parseOptions(args []string) (options, error) {
	var o options
	var pattern string
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	flags.BoolVar(&o.hand, "hand", false, "only the mutants made by hand")
	flags.BoolVar(&o.quick, "quick", false, "leave out rapidtest's own tests, and all that take two seconds or more")
	flags.BoolVar(&o.list, "list", false, "print the names of the mutants and run nothing")
	flags.StringVar(&pattern, "run", "", "only the mutants whose name matches this regular expression")
	flags.IntVar(&o.jobs, "j", runtime.NumCPU(), "how many run at once")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 || o.jobs < 1 {
		return o, fmt.Errorf("arguments %q with -j %d: there are none, and -j is 1 or more", flags.Args(), o.jobs)
	}
	var err error
	o.run, err = regexp.Compile(pattern)
	return o, err
}

func (o options) picks(m *mutant) bool {
	return (m.rule != "" || !o.hand) && o.run.MatchString(m.String())
}

// moduleRoot is the folder of the module that holds the current folder.
func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOMOD: %w", err)
	}
	name := strings.TrimSpace(string(out))
	if filepath.Base(name) != "go.mod" {
		return "", errors.New("not in a module")
	}
	return filepath.Dir(name), nil
}

func run(ctx context.Context, args []string, out io.Writer) error {
	begin := time.Now()
	opts, err := parseOptions(args)
	if err != nil {
		return err
	}
	root, err := moduleRoot(ctx)
	if err != nil {
		return err
	}
	files, err := sources(root)
	if err != nil {
		return err
	}
	mutants, err := allMutants(files)
	if err != nil {
		return err
	}
	listed, err := readSurvivors(filepath.Join(root, "rapidtest", "mutants", "survivors.txt"))
	if err != nil {
		return err
	}
	picked := slices.DeleteFunc(slices.Clone(mutants), func(m *mutant) bool { return !opts.picks(m) })
	if opts.list {
		for _, m := range picked {
			fmt.Fprintln(out, m)
		}
		return nil
	}
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	r := &report{options: opts, out: out, listed: listed, all: mutants, whole: len(picked) == len(mutants)}
	if err := r.judge(ctx, root, dir, files, picked); err != nil {
		return err
	}
	return r.sum(time.Since(begin))
}

// A report is what has been found out.
type report struct {
	options
	out    io.Writer
	listed map[string]string
	all    []*mutant
	// whole says that no mutant was left out.
	whole bool

	mu       sync.Mutex
	invalid  []*mutant
	caught   map[*mutant]*catch
	survived []*mutant
}

// judge runs the tests with each of the mutants.
func (r *report) judge(ctx context.Context, root, dir string, files []*source, picked []*mutant) error {
	r.caught = map[*mutant]*catch{}
	o, off, err := compileAll(ctx, root, dir, files)
	if err != nil {
		return err
	}
	var suites []*suite
	for _, pkg := range packages() {
		suites = append(suites, o.newSuite(pkg, false))
	}
	if !r.quick {
		suites = append(suites, o.newSuite("rapidtest", true))
	}
	var valid, listed []*mutant
	for _, m := range picked {
		switch {
		case off[m]:
			r.invalid = append(r.invalid, m)
			fmt.Fprintf(r.out, "does not compile  %s\n", m)
		default:
			valid = append(valid, m)
		}
	}
	err = r.inParallel(ctx, len(valid), func(ctx context.Context, i int) error {
		c, err := r.try(ctx, suites, valid[i])
		if err == nil {
			r.note(valid[i], c)
		}
		return err
	})
	if err != nil || r.quick {
		return err
	}
	for _, m := range r.survived {
		if r.reason(m) != "" {
			listed = append(listed, m)
		}
	}
	batches := apart(listed)
	return r.inParallel(ctx, len(batches), func(ctx context.Context, i int) error { return r.tryTogether(ctx, suites, batches[i]) })
}

// inParallel does n things, as many at once as there are jobs, and returns the first error.
func (r *report) inParallel(ctx context.Context, n int, do func(context.Context, int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	queue := make(chan int)
	var wg sync.WaitGroup
	for range r.jobs {
		wg.Go(func() {
			for i := range queue {
				if err := do(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	for i := range n {
		if ctx.Err() == nil {
			queue <- i
		}
	}
	close(queue)
	wg.Wait()
	return context.Cause(ctx)
}

// try runs the suites until one catches the mutant: the mutated package's own first, and of all of them the quick tests first. The slow ones
// are left out for a mutant that is listed.
func (r *report) try(ctx context.Context, suites []*suite, m *mutant) (*catch, error) {
	suites = slices.Clone(suites)
	slices.SortStableFunc(suites, func(a, b *suite) int {
		switch m.file.pkg {
		case a.pkg:
			return -1
		case b.pkg:
			return 1
		}
		return 0
	})
	for _, s := range suites {
		if c, err := s.runQuick(ctx, m); c != nil || err != nil {
			return c, err
		}
	}
	if r.quick || r.reason(m) != "" {
		return nil, nil
	}
	return trySlow(ctx, suites, m)
}

func trySlow(ctx context.Context, suites []*suite, on ...*mutant) (*catch, error) {
	for _, s := range suites {
		if c, err := s.runSlow(ctx, on...); c != nil || err != nil {
			return c, err
		}
	}
	return nil, nil
}

// apart puts mutants into batches in which no two are of the same function.
func apart(mutants []*mutant) [][]*mutant {
	var batches [][]*mutant
	for _, m := range mutants {
		i := slices.IndexFunc(batches, func(batch []*mutant) bool {
			return !slices.ContainsFunc(batch, func(other *mutant) bool { return other.fn == m.fn })
		})
		if i < 0 {
			i, batches = len(batches), append(batches, nil)
		}
		batches[i] = append(batches[i], m)
	}
	return batches
}

// tryTogether runs the slow tests with a batch of mutants that are said to change nothing, and finds out which do if they are not all quiet.
func (r *report) tryTogether(ctx context.Context, suites []*suite, batch []*mutant) error {
	c, err := trySlow(ctx, suites, batch...)
	if c == nil || err != nil {
		return err
	}
	alone := 0
	for _, m := range batch {
		c, err := trySlow(ctx, suites, m)
		if err != nil {
			return err
		}
		if c != nil {
			alone++
			r.recant(m, c)
		}
	}
	if alone == 0 {
		r.recant(batch[0], c) // each of them changes nothing, but all of them do
	}
	return nil
}

// recant takes back that a mutant has survived.
func (r *report) recant(m *mutant, c *catch) {
	r.mu.Lock()
	r.survived = slices.DeleteFunc(r.survived, func(other *mutant) bool { return other == m })
	r.mu.Unlock()
	r.note(m, c)
}

// reason is why a mutant is said to change nothing, "" if nobody says so.
func (r *report) reason(m *mutant) string { return r.listed[m.String()] }

func (r *report) note(m *mutant, c *catch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case c != nil:
		r.caught[m] = c
		fmt.Fprintf(r.out, "caught            %s\n                  by %s\n", m, c)
	case r.reason(m) != "":
		r.survived = append(r.survived, m)
		fmt.Fprintf(r.out, "changes nothing   %s\n                  %s\n", m, r.reason(m))
	default:
		r.survived = append(r.survived, m)
		fmt.Fprintf(r.out, "SURVIVED          %s\n", m)
	}
}

// sum prints the totals, and is an error if the list of survivors is not right.
func (r *report) sum(took time.Duration) error {
	var problems []string
	names := map[string]bool{}
	for _, m := range r.all {
		names[m.String()] = true
	}
	for name := range r.listed {
		if !names[name] {
			problems = append(problems, "listed as a survivor, but there is no such mutant: "+name)
		}
	}
	for m, c := range r.caught {
		if r.reason(m) != "" {
			problems = append(problems, fmt.Sprintf("listed as a survivor, but caught by %s: %s", c, m))
		}
	}
	for _, m := range r.invalid {
		if r.reason(m) != "" {
			problems = append(problems, "listed as a survivor, but does not compile: "+m.String())
		}
		if m.rule != "" {
			problems = append(problems, "made by hand, and does not compile: "+m.String())
		}
	}
	for _, m := range r.survived {
		if r.reason(m) == "" {
			problems = append(problems, "survived: "+m.String())
		}
	}
	total := len(r.caught) + len(r.survived)
	if r.whole && 20*len(r.survived) > total {
		problems = append(problems, fmt.Sprintf("%d of %d mutants survived: that is more than one in twenty", len(r.survived), total))
	}
	by := map[string]int{}
	for _, c := range r.caught {
		pkg, _, _ := strings.Cut(c.test, " ")
		by[pkg]++
	}
	fmt.Fprintf(r.out, "\n%d mutants in %v: %d caught %v, %d survived; %d more do not compile\n",
		total, took.Round(time.Second), len(r.caught), by, len(r.survived), len(r.invalid))
	if len(problems) == 0 {
		return nil
	}
	slices.Sort(problems)
	return fmt.Errorf("%d problems:\n%s", len(problems), strings.Join(problems, "\n"))
}
