package rapidtest

import (
	"errors"
	goflag "flag"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubehold/kubehold/kinds"
)

var long = goflag.Bool("long", false, "explore one size up")

// TestExhaustive goes through every history within its bounds.
func TestExhaustive(t *testing.T) {
	for _, mode := range []struct {
		name    string
		subject *subject
	}{
		{"plain", subjectOf(kinds.WithStartGate(kinds.TrainJob()))},
		{"kueue", subjectOf(kinds.OnKueue(kinds.TrainJob()))},
	} {
		for _, scope := range []struct {
			name   string
			calls  int
			bounds bounds
		}{
			{"two calls", 2, bounds{faults: 1, foreign: 1, retries: 3}},
			{"three calls", 3, bounds{faults: 0, foreign: 0, retries: 3}},
		} {
			if *long {
				scope.bounds.faults++
			}
			begin := time.Now()
			t.Run(mode.name+"/"+scope.name, func(t *testing.T) {
				t.Parallel()
				var sum tally
				states := 0
				for _, st := range mode.subject.starts() {
					for _, specs := range combinations(specsFor(mode.subject), scope.calls) {
						one, n := exploreOne(t, mode.subject, scope.bounds, st, specs)
						sum.add(one)
						states += n
					}
				}
				t.Logf("%v explored %d histories, %d distinct states, 0 violations", time.Since(begin), sum.histories, states)
				for i, class := range outcomeClasses() {
					t.Logf("%20d histories with a call that ended: %s", sum.outcomes[i], class)
				}
			})
		}
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
