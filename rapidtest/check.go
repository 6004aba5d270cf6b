package rapidtest

import (
	"errors"
	"flag"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/samber/lo"
	"pgregory.net/rapid"

	"github.com/kubehold/kubehold/holdable"
)

// Check fails t if a kind can be found to break the rules of holds: whatever the order in which
// calls reach the server, whatever becomes of them on their way, and whoever else writes. It is all
// that the test of a kind of your own needs:
//
//	func TestBackups(t *testing.T) {
//		rapidtest.Check(t, Backups(), rapidtest.Schema("spec.suspend", "spec.schedule", "status.*"))
//	}
//
// It first looks for mistakes in the descriptor, and says which one it is: a pause field that the
// schema lacks or that the kind's controller does not look at, values that hold nothing or resume
// nothing, a selector that finds none of the object's pods or those of others too, a second
// controller that owns the field. What it knows of schema and controller it knows from [Schema] and
// [Controller], and of the kinds of package kinds by itself.
//
// Then it plays random scripts on a [Server], in virtual time: calls of several supervisors, late
// ones and repeated ones; others who write status, notes and the pause field itself, or replace the
// object; requests and answers that are lost, late, repeated or refused; controllers that make
// pods. Every version that is committed is checked as it is committed, and so is what every caller
// is told:
//
//   - I1 all annotations of a hold, or none; I2 paused while a hold is in force; I3 no newer hold
//     is changed; I10 no Open resumes a held object, and no Release one that waits at its start
//     gate; I11 what others put on the object is still there
//   - I4 of supervisors that follow the protocol, which is said at [holdable.Holder], the newest
//     hold wins
//   - I5 no pod of one execution is made while one of another remains; I6 executions are counted,
//     and no two have the same number
//   - I7 nothing leaves after its deadline, and no call sends more than nine updates; I9 nothing is
//     written but the object that is held
//   - I8 a call that says it wrote nothing has not, and one that says it is settled changes nothing
//     any more
//   - some order of the calls on a register of holds explains what their callers were told
//
// A history that breaks a rule is made as short as it gets, and printed as a timeline, with the
// seed that finds it again. Flags of package rapid say how many scripts are played for each
// property (-rapid.checks), of how many steps (-rapid.steps), for how long one that fails is made
// shorter (-rapid.shrinktime), and which one is the first (-rapid.seed).
func Check[T holdable.Value](t *testing.T, kind holdable.Holdable[T], opts ...Option) {
	t.Helper()
	if err := newSuite(kind, opts).run(t); err != nil {
		t.Fatal(err)
	}
}

// Counterexample returns what [Check] would fail t with; nil if there is nothing. It is for tests
// of tests: that a mistake is found, and in which words.
func Counterexample[T holdable.Value](t *testing.T, kind holdable.Holdable[T], opts ...Option) error {
	t.Helper()
	return newSuite(kind, opts).run(t)
}

// An Option of a [Check] tells it what it cannot know of a kind.
type Option func(*suite)

// Schema names the fields that the schema of the held object has, as in [Resource].Fields. A pause
// field that is none of them is a mistake.
func Schema(fields ...string) Option {
	return func(s *suite) { s.resource.Fields = fields }
}

// Controller names the kind's own controller, to see whether it does what the descriptor says:
// while an object is paused it is to have no pods, and while it runs it is to have some. For most
// kinds a [Runner] will do.
func Controller(of func(*Server) Actor) Option {
	return func(s *suite) { s.controllers = func(server *Server) []Actor { return []Actor{of(server)} } }
}

// A suite is all that is checked of one kind.
type suite struct {
	subject *subject
	kind    holdable.Kind
	// resource is the held object as the server knows it.
	resource    Resource
	controllers func(*Server) []Actor
}

func newSuite[T holdable.Value](kind holdable.Holdable[T], opts []Option) *suite {
	s := &suite{subject: subjectOf(kind), kind: kind}
	s.resource = knownResource(s.subject.held, s.subject.heldKind, !s.subject.clusterScoped)
	for _, o := range opts {
		o(s)
	}
	return s
}

// run checks everything. The error is the first thing that was found.
func (s *suite) run(t *testing.T) error {
	t.Helper()
	if err := s.mistake(t); err != nil {
		return err
	}
	for _, p := range s.properties() {
		if err := p.check(t); err != nil {
			return err
		}
	}
	return nil
}

// A property is what has to hold of every history that some scripts make.
type property struct {
	name string
	// starts are the states of the world in which a script may begin, the simplest first.
	starts []string
	// draw draws a script, and the state of the world in which it begins.
	draw func(*rapid.T) attempt
	// play plays it. An error is a world that cannot be made.
	play func(*testing.T, attempt) (*history, error)
}

// An attempt is a script with the state of the world in which it begins.
type attempt struct {
	start  string
	script script
}

// check plays as many attempts as -rapid.checks says. The error is a *falsified that was made as
// short as it gets.
func (p property) check(t *testing.T) error {
	t.Helper()
	checks, seed := numberOfChecks(), firstSeed()
	began := time.Now()
	f, err := p.search(t, checks, seed)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", p.name, err)
	case f != nil:
		f.shrink(t)
		return f
	case testing.Verbose():
		t.Logf("%s: %d scripts from -rapid.seed=%d on, in %v", p.name, checks, seed, time.Since(began).Round(time.Millisecond))
	}
	return nil
}

// search plays a number of attempts, each from a seed of its own, until one breaks a rule. The seed
// is all that is needed to draw a script again, which is why they are drawn one by one and not by
// rapid.Check; and one that breaks a rule can be made shorter deed by deed.
func (p property) search(t *testing.T, checks int, seed uint64) (*falsified, error) {
	t.Helper()
	gen := rapid.Custom(p.draw)
	for i := range checks {
		a := gen.Example(int(seed) + i)
		h, err := p.play(t, a)
		if err != nil {
			return nil, err
		}
		if h.violated() != nil {
			return &falsified{property: p, runs: i + 1, seed: seed + uint64(i), attempt: a, history: h}, nil
		}
	}
	return nil, nil
}

// numberOfChecks is what rapid makes of its flag.
func numberOfChecks() int {
	checks := rapidFlag[int]("rapid.checks")
	if testing.Short() {
		checks /= 5
	}
	return checks
}

func firstSeed() uint64 {
	if seed := rapidFlag[uint64]("rapid.seed"); seed != 0 {
		return seed
	}
	return new(maphash.Hash).Sum64() >> 1 // random, and small enough to add to
}

func rapidFlag[T any](name string) (value T) {
	if f := flag.Lookup(name); f != nil {
		if g, ok := f.Value.(flag.Getter); ok {
			value, _ = g.Get().(T)
		}
	}
	return value
}

// A falsified is a property that does not hold, with a history that shows it.
type falsified struct {
	property
	attempt
	runs    int
	seed    uint64
	history *history
}

func (f *falsified) Unwrap() error { return f.history.broken }

// Error tells which rule was broken, how, and how to see it again.
func (f *falsified) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v\n\n%s\n", f.history.broken, f.history.timeline())
	b.WriteString(pageOf(f.history.broken))
	fmt.Fprintf(&b, "Found by script %d of %q. To find it again: -rapid.seed=%d\n", f.runs, f.name, f.seed)
	fmt.Fprintf(&b, "To keep it: from %q, %#v", f.start, f.script)
	return b.String()
}

// shrink looks for a shorter and simpler script that breaks the same rule, for as long as
// -rapid.shrinktime.
func (f *falsified) shrink(t *testing.T) {
	began, limit := time.Now(), rapidFlag[time.Duration]("rapid.shrinktime")
	rule := ruleOf(f.history.broken)
	better := func(a attempt) bool {
		if time.Since(began) > limit {
			return false
		}
		h, err := f.play(t, a)
		if err != nil || ruleOf(h.violated()) != rule {
			return false
		}
		f.attempt, f.history = a, h
		return true
	}
	for again := true; again; {
		again = f.cut(better)
		again = f.simplify(better) || again
		again = again || f.cutPairs(better)
	}
}

func ruleOf(err error) string {
	var v violation
	if errors.As(err, &v) {
		return v.rule
	}
	return ""
}

// cut tries to do without parts of the script, large ones first.
func (f *falsified) cut(better func(attempt) bool) (did bool) {
	for size := len(f.script); size > 0; size /= 2 {
		for at := 0; at < len(f.script); {
			end := min(at+size, len(f.script))
			rest := slices.Concat(f.script[:at], f.script[end:])
			if better(attempt{f.start, rest}) || better(attempt{f.start, rest.withOneLess(at)}) {
				did = true
			} else {
				at += size
			}
		}
	}
	return did
}

// cutPairs tries to do without two deeds that only make sense together.
func (f *falsified) cutPairs(better func(attempt) bool) bool {
	for i := range f.script {
		for j := i + 1; j < len(f.script); j++ {
			rest := slices.Concat(f.script[:i], f.script[i+1:j], f.script[j+1:])
			if better(attempt{f.start, rest}) || better(attempt{f.start, rest.withOneLess(i)}) {
				return true
			}
		}
	}
	return false
}

// withOneLess is the script with the requests counted as if one less were under way, from a deed
// on.
func (s script) withOneLess(from int) script {
	out := slices.Clone(s)
	for i, d := range out {
		if p, ok := d.(proceeds); ok && i >= from && p.which > 0 {
			p.which--
			out[i] = p
		}
	}
	return out
}

// simplify tries to do with a simpler start and with simpler deeds.
func (f *falsified) simplify(better func(attempt) bool) (did bool) {
	for _, start := range f.starts {
		if start == f.start {
			break
		}
		if better(attempt{start, f.script}) {
			did = true
			break
		}
	}
	for i := 0; i < len(f.script); i++ {
		for _, simpler := range simplerThan(f.script[i]) {
			changed := append(script{}, f.script...)
			changed[i] = simpler
			if better(attempt{f.start, changed}) {
				did = true
				break
			}
		}
	}
	return did
}

// simplerThan lists deeds that are simpler than d, the simplest first.
func simplerThan(original deed) []deed {
	switch d := original.(type) {
	case proceeds:
		var simpler []deed
		if d.fault.kind != "" {
			simpler = append(simpler, proceeds{}, proceeds{which: d.which}, proceeds{d.which, trouble{kind: unheard}})
			d.fault.retryAfter = 0
			simpler = append(simpler, d)
		}
		for which := range d.which {
			simpler = append(simpler, proceeds{which, d.fault})
		}
		return otherThan(original, simpler)
	case storms:
		calm, short := d, d
		calm.fault.retryAfter, short.requests = 0, d.requests-1
		return lo.Filter(otherThan(original, []deed{calm, short}), func(d deed, _ int) bool { return d.(storms).requests > 0 })
	case begins:
		all := []begins{d, d, d, d}
		all[0].http, all[0].pinned, all[0].within = false, false, time.Minute
		all[1].http = false
		all[2].pinned = false
		all[3].within = time.Minute
		return otherThan(original, deeds(all))
	case recovers:
		all := []recovers{d, d, d, d, d}
		all[0].http = false
		all[1].lag = 0
		all[2].within = time.Minute
		all[3].asserts = max(d.asserts-1, 0)
		all[4].release = false
		return otherThan(original, deeds(all))
	case opens:
		return otherThan(original, []deed{opens{within: time.Minute}})
	case dies:
		return lo.Times(d.which, func(which int) deed { return dies{which} })
	case acts:
		return lo.Times(d.which, func(which int) deed { return acts{which} })
	}
	return nil
}

func deeds[D deed](all []D) []deed {
	return lo.Map(all, func(d D, _ int) deed { return d })
}

func otherThan(original deed, deeds []deed) []deed {
	return lo.Filter(deeds, func(d deed, _ int) bool { return d != original })
}
