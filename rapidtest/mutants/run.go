package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A limit is how long a run may take before it counts as hanging.
type limit time.Duration

// limitFor allows for a machine that is busier later than it was for the first run.
func limitFor(took time.Duration) limit {
	const least, factor = 20 * time.Second, 15
	return limit(max(least, factor*took))
}

// slow is from when on a test is left for the mutants that no quicker one catches.
const slow = 2 * time.Second

// A catch is how a run with a mutant failed.
type catch struct {
	// test is the one that failed, with its package.
	test string
	// how is what became of it: failed, panicked or hung.
	how string
}

func (c *catch) String() string { return c.test + " (" + c.how + ")" }

var (
	tookLine = regexp.MustCompile(`(?m)^ *--- PASS: ([^/\s]+)\S* \((\d+\.\d+)s\)`)
	failLine = regexp.MustCompile(`(?m)^--- FAIL: (\S+)`)
	runLine  = regexp.MustCompile(`(?m)^=== RUN +([^/\s]+)`)
)

// measure runs all tests without a mutant, which have to pass, and finds the slow ones.
func (s *suite) measure(ctx context.Context) error {
	begin := time.Now()
	out, err := s.exec(ctx, nil, limit(10*time.Minute), "-test.skip="+anyOf(aboutTests()))
	if err != nil {
		return fmt.Errorf("without a mutant the tests of %s fail: %w\n%s", s.pkg, err, out)
	}
	// A test whose parts run in parallel takes no time itself: the longest of them counts.
	took := map[string]time.Duration{}
	for _, match := range tookLine.FindAllStringSubmatch(out, -1) {
		seconds, err := strconv.ParseFloat(match[2], 64)
		if err != nil {
			return fmt.Errorf("the tests of %s: %w", s.pkg, err)
		}
		took[match[1]] = max(took[match[1]], time.Duration(seconds*float64(time.Second)))
	}
	var quick time.Duration
	for test, d := range took {
		if d >= slow || s.last {
			s.slow = append(s.slow, test)
		} else {
			quick += d
		}
	}
	slices.Sort(s.slow)
	s.quick, s.whole = limitFor(quick), limitFor(time.Since(begin))
	return nil
}

// runQuick runs the quick tests with these mutants turned on, runSlow the slow ones. They return nil if the tests pass.
func (s *suite) runQuick(ctx context.Context, on ...*mutant) (*catch, error) {
	if s.last {
		return nil, nil
	}
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	return s.run(ctx, on, s.quick, "-test.skip="+anyOf(append(aboutTests(), s.slow...)))
}

func (s *suite) runSlow(ctx context.Context, on ...*mutant) (*catch, error) {
	if err := s.ready(ctx); err != nil || len(s.slow) == 0 {
		return nil, err
	}
	return s.run(ctx, on, s.whole, "-test.run="+anyOf(s.slow))
}

// aboutTests are the tests of other tests. Of their draws they want that no two are the same, and these are the same in every run.
func aboutTests() []string { return []string{"TestScenesReachEveryVerdict"} }

// anyOf is the pattern of these tests and no others.
func anyOf(tests []string) string { return "^(" + strings.Join(tests, "|") + ")$" }

func (s *suite) run(ctx context.Context, on []*mutant, within limit, flags ...string) (*catch, error) {
	out, err := s.exec(ctx, on, within, flags...)
	switch {
	case err == nil:
		return nil, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case !errors.As(err, new(*exec.ExitError)):
		return nil, fmt.Errorf("run the tests of %s: %w", s.pkg, err)
	}
	return caughtBy(s.pkg, out, strings.Contains(err.Error(), "killed")), nil
}

// caughtBy reads off what the tests of a package have printed which of them failed, and how.
func caughtBy(pkg, out string, killed bool) *catch {
	c := &catch{test: pkg, how: "failed"}
	for _, line := range []*regexp.Regexp{failLine, runLine} {
		if all := line.FindAllStringSubmatch(out, -1); len(all) > 0 {
			c.test += " " + all[len(all)-1][1]
			break
		}
	}
	switch {
	case killed || strings.Contains(out, "panic: test timed out"):
		c.how = "hung"
	case strings.Contains(out, "\npanic: ") || strings.Contains(out, "fatal error: "):
		c.how = "panicked"
	}
	return c
}

// exec runs the test binary with mutants turned on, up to its first failure.
func (s *suite) exec(ctx context.Context, on []*mutant, within limit, flags ...string) (string, error) {
	const grace = 10 * time.Second // for the binary to end by its own timeout
	ctx, cancel := context.WithTimeout(ctx, time.Duration(within)+grace)
	defer cancel()
	args := append([]string{"-test.v", "-test.failfast", "-test.timeout=" + time.Duration(within).String()}, s.flags...)
	cmd := exec.CommandContext(ctx, s.binary, append(args, flags...)...)
	cmd.Dir = s.folder
	// One processor for each run, of which there are as many as processors; and goroutines take turns in fewer ways.
	cmd.Env = append(os.Environ(), variable+"="+numbers(on), "GOMAXPROCS=1")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

func numbers(on []*mutant) string {
	var ids []string
	for _, m := range on {
		ids = append(ids, strconv.Itoa(m.id))
	}
	return strings.Join(ids, ",")
}
