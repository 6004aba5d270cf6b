package rapidtest

import (
	"errors"
	goflag "flag"
	"fmt"
	"runtime/debug"
	"testing"
	"testing/synctest"

	"github.com/kubehold/kubehold/kinds"
)

var long = goflag.Bool("long", false, "explore one size up, which takes many minutes")

// TestExhaustive goes through every history within the bounds that it prints: every choice of calls, from every starting state, in every order
// of their requests, with every fault and every foreign write in every place. Under the race detector it stays one fault smaller.
func TestExhaustive(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // most of what it makes lives shortly
	plain := subjectOf(kinds.WithStartGate(kinds.TrainJob()))
	kueue := subjectOf(kinds.OnKueue(kinds.TrainJob()))
	for _, scope := range []struct {
		name    string
		subject *subject
		calls   int
		bounds  bounds
	}{
		{"plain, two calls", plain, 2, bounds{faults: 2, foreign: 1, retries: 3}},
		{"kueue, two calls, UID pinned", kueue.pin(), 2, bounds{faults: 2, foreign: 1, retries: 3}},
		{"kueue, two calls", kueue, 2, bounds{faults: 1, foreign: 1, retries: 3}},
		{"plain, three calls", plain, 3, bounds{faults: 1, retries: 3}},
		{"kueue, three calls, UID pinned", kueue.pin(), 3, bounds{faults: 1, retries: 3}},
	} {
		if *long {
			scope.bounds.faults++
		}
		if raceDetector {
			scope.bounds.faults--
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
				if sum.outcomes[i] > 0 {
					t.Logf("%14d histories with a call that ended: %s", sum.outcomes[i], class)
				}
			}
		})
	}
}

func exploreOne(t *testing.T, s *subject, b bounds, st start, specs []callSpec) (sum tally, states int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		x, w, err := newExplorer(s, b, st, specs...)
		if err != nil {
			t.Fatal(err)
		}
		defer x.stop()
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
		t.Fatal(fmt.Sprintf("%v from %q: %v", specs, st.name, err))
	})
	return sum, states
}
