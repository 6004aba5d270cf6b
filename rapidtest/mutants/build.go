package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// compileAll writes overlays until one compiles, and returns it with the mutants that it had to leave out because they do not.
func compileAll(ctx context.Context, root, dir string, files []*source) (*overlay, map[*mutant]bool, error) {
	off := map[*mutant]bool{}
	for {
		o, err := newOverlay(root, dir, files, off)
		if err != nil {
			return nil, nil, err
		}
		out, err := o.goCommand(ctx, append([]string{"build", "-gcflags=-e"}, o.patterns()...)...)
		if err == nil {
			return o, off, nil
		}
		wrong := o.blame(out)
		if len(wrong) == 0 {
			return nil, nil, fmt.Errorf("the packages do not compile, and it is no mutant's fault: %w\n%s", err, out)
		}
		for _, m := range wrong {
			off[m] = true
		}
	}
}

func (o *overlay) patterns() []string {
	var patterns []string
	for _, pkg := range packages() {
		patterns = append(patterns, "./"+pkg)
	}
	return patterns
}

// goCommand runs the go command on the overlay, in the module.
func (o *overlay) goCommand(ctx context.Context, args ...string) (string, error) {
	args = slices.Insert(args, 1, "-overlay="+o.file)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = o.root
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// compilerError is how the compiler begins a message.
var compilerError = regexp.MustCompile(`(?m)^(\S+\.go):(\d+):\d+: `)

// blame returns the mutants on whose lines the compiler has found something.
func (o *overlay) blame(out string) []*mutant {
	var wrong []*mutant
	for _, match := range compilerError.FindAllStringSubmatch(out, -1) {
		name := match[1]
		if !filepath.IsAbs(name) {
			name = filepath.Join(o.root, name)
		}
		n, err := strconv.Atoi(match[2])
		if err != nil {
			continue
		}
		for _, s := range o.lines[name] {
			if s.first <= n && n <= s.last && !slices.Contains(wrong, s.m) {
				wrong = append(wrong, s.m)
			}
		}
	}
	return wrong
}

// A suite is the tests of a package.
type suite struct {
	pkg     string
	overlay *overlay
	// last says that all of its tests are slow, so that they are not even compiled before a mutant gets to them.
	last  bool
	ready func(context.Context) error

	binary, folder string
	// flags are what its tests are run with.
	flags []string
	// slow are the tests that are left for the mutants which no quick test catches.
	slow []string
	// quick and whole are how long its quick tests and its slow ones may take.
	quick, whole limit
}

// newSuite makes the suite of a package.
func (o *overlay) newSuite(pkg string, last bool) *suite {
	s := &suite{
		pkg: pkg, overlay: o, last: last,
		binary: filepath.Join(o.dir, strings.ReplaceAll(pkg, "/", "_")+".test"), folder: filepath.Join(o.root, pkg),
	}
	s.ready = once(s.prepare)
	return s
}

// once has f called once, and tells everybody what came of it.
func once(f func(context.Context) error) func(context.Context) error {
	var first sync.Once
	var err error
	return func(ctx context.Context) error {
		first.Do(func() { err = f(ctx) })
		return err
	}
}

// prepare compiles and measures the tests.
func (s *suite) prepare(ctx context.Context) error {
	if out, err := s.overlay.goCommand(ctx, "test", "-c", "-vet=off", "-gcflags=-e", "-o", s.binary, "./"+s.pkg); err != nil {
		return fmt.Errorf("compile the tests of %s: %w\n%s", s.pkg, err, out)
	}
	usage, err := exec.CommandContext(ctx, s.binary, "-help").CombinedOutput()
	if len(usage) == 0 {
		return fmt.Errorf("run the tests of %s: %w", s.pkg, err)
	}
	if bytes.Contains(usage, []byte("-rapid.seed")) {
		// The same draws in every run: what catches a mutant today does so tomorrow.
		s.flags = []string{"-rapid.seed=1", "-rapid.nofailfile", "-rapid.shrinktime=0s"}
	}
	return s.measure(ctx)
}
