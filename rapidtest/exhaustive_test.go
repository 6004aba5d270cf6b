package rapidtest

import (
	"errors"
	goflag "flag"
	"fmt"
	"runtime/debug"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/kinds"
	"github.com/kubehold/kubehold/meta"
)

var long = goflag.Bool("long", false, "explore one size up, which takes many minutes")

// TestExhaustive goes through every history within the bounds that it prints: every choice of calls, from every starting state, in every order
// of their requests, with each of faultKinds and of foreignKinds in every place. Under the race detector it stays smaller by a fault and the foreign write.
func TestExhaustive(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // most of what it makes lives shortly
	plain := subjectOf(kinds.WithStartGate(kinds.TrainJob()))
	kueue := subjectOf(kinds.OnKueue(kinds.TrainJob()))
	for _, scope := range []struct {
		name    string
		subject *subject
		calls   int
		bounds  bounds
		// outcomes are the ways to end of which every one has to be seen.
		outcomes []string
	}{
		{"plain, two calls", plain, 2, bounds{faults: 2, foreign: 1, retries: 3}, without(outcomeClasses(), meta.ErrMissing)},
		{"kueue, two calls, UID pinned", kueue.pin(), 2, bounds{faults: 2, foreign: 1, retries: 3}, without(outcomeClasses(),
			meta.ErrReplaced, meta.ErrPodsRemain, meta.Sentinel(holdable.Opened), meta.Sentinel(holdable.MarkedOpen), meta.Sentinel(holdable.AlreadyOpen))},
		{"kueue, two calls", kueue, 2, bounds{faults: 1, foreign: 1, retries: 3}, []string{string(meta.ErrReplaced), string(meta.ErrMissing)}},
		{"plain, three calls", plain, 3, bounds{faults: 1, retries: 3}, nil},
		{"kueue, three calls, UID pinned", kueue.pin(), 3, bounds{faults: 1, retries: 3}, nil},
	} {
		if *long {
			scope.bounds.faults++
		}
		if raceDetector {
			scope.bounds.faults--
			scope.bounds.foreign = 0
			scope.outcomes = nil
		}
		t.Run(scope.name, func(t *testing.T) {
			t.Parallel()
			var sum tally
			states := 0
			for _, st := range scope.subject.starts() {
				for _, specs := range combinations(specsFor(scope.subject), scope.calls) {
					one, n := exploreOne(t, scope.subject, scope.bounds, st, specs)
					sum.add(one)
					states += n
				}
			}
			t.Logf("%+v: explored %d histories, %d distinct states, 0 violations", scope.bounds, sum.histories, states)
			for i, class := range outcomeClasses() {
				switch n := sum.outcomes[i]; {
				case n > 0:
					t.Logf("%14d histories with a call that ended: %s", n, class)
				case slices.Contains(scope.outcomes, class):
					t.Errorf("no history has a call that ended: %s", class)
				}
			}
		})
	}
}

func without(classes []string, never ...meta.Sentinel) []string {
	return slices.DeleteFunc(classes, func(class string) bool { return slices.Contains(never, meta.Sentinel(class)) })
}

// Two ways to a state are merged only if what can follow is the same: then as many histories, with the same outcomes, are found where none are.
func TestExhaustiveMergesWhatIsTheSame(t *testing.T) {
	kueue := subjectOf(kinds.OnKueue(kinds.TrainJob()))
	for name, s := range map[string]*subject{"Plain": subjectOf(kinds.WithStartGate(kinds.TrainJob())), "Kueue": kueue, "KueuePinned": kueue.pin()} {
		for calls, b := range map[int]bounds{1: {faults: 2, retries: 3}, 2: {faults: 1, retries: 1}} {
			t.Run(fmt.Sprintf("%s%d", name, calls), func(t *testing.T) {
				for _, st := range s.starts() {
					for _, specs := range combinations(specsFor(s), calls) {
						merged, _ := exploreOne(t, s, b, st, specs)
						if all, _ := exploreOne(t, s, b, st, specs, func(x *explorer) { x.oneByOne = true }); all != merged {
							t.Errorf("%v from %q: %+v, and one by one %+v", specs, st.name, merged, all)
						}
					}
				}
			})
		}
	}
}

func exploreOne(t *testing.T, s *subject, b bounds, st start, specs []callSpec, how ...func(*explorer)) (sum tally, states int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		x, w, err := newExplorer(s, b, st, specs...)
		if err != nil {
			t.Fatal(err)
		}
		defer x.stop()
		for _, change := range how {
			change(x)
		}
		sum, err = x.explore(w)
		states = len(x.seen)
		if err == nil {
			return
		}
		if errors.As(err, new(*counterexample)) {
			if short := x.shortest(w); short != nil {
				err = short
			}
		}
		t.Fatalf("%v from %q: %v", specs, st.name, err)
	})
	return sum, states
}
