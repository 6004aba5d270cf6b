package holdable_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/rapidtest"
)

func gateOnly() []string { return []string{gateCheck} }

// The situations in which the gate is asked to look.
func gateSituations() map[string][]string {
	waits := []string{"all go on"}
	runs := append(slices.Clone(waits), "another gate", "all go on")
	after := func(first []string, deeds ...string) []string { return append(slices.Clone(first), deeds...) }
	return map[string][]string{
		"FirstStart":        waits,
		"NoQuota":           after([]string{"no quota"}, waits...),
		"GateComesLater":    {"no gate", "kueue goes on", "install the gate", "kueue goes on"},
		"StoppedByHand":     after(waits, "a person stops the workload"),
		"RaisedNotAnswered": after(waits, "raise only"),
		"Running":           runs,
		"LiftedUnseen":      after(runs, "hold", "release"),
		"BeingEvicted":      after(runs, "hold", "kueue"),
		"PodsRemain":        after(runs, "hold", "all go on", "release", "all go on"),
		"PodsGone":          after(runs, "hold", "all go on", "pods end", "release", "all go on"),
		"Held":              after(runs, "hold", "all go on", "pods end"),
		"Undone":            after(runs, "hold", "all go on", "pods end", "a person resumes the workload", "all go on"),
		"Preempted":         after(runs, "preempt", "all go on"),
		"TrainerIsBehind":   after(waits, "another gate", "kueue goes on", "trainer goes on", "hold", "kueue goes on", "release", "kueue goes on"),
		"JobSetIsBehind": after(waits, "another gate", "kueue goes on", "trainer goes on", "jobset goes on",
			"hold", "kueue goes on", "trainer goes on", "release", "kueue goes on"),
	}
}

// raiseOnly has a gate killed between its two writes.
func (w *gateWorld) raiseOnly() {
	for point := 0; given(w.theJob()) == 0; point++ {
		if _, err := w.run(nil, point); err == nil {
			w.Fatalf("it was not killed")
		}
	}
	if state, _ := w.checkState(gateCheck); state != "Pending" {
		w.Fatalf("the check is %s already", state)
	}
}

// Rules G1, G2, G3, I5 and I6: whatever one other does at whichever point of an
// answer, before or after any of its requests, be it Kueue, a hold, another gate
// or a kill: no two executions run side by side, each has a number of its own,
// and in the end the job runs.
func TestG3OneDeedAtEveryPoint(t *testing.T) {
	deeds := []string{
		"", "hold", "release", "kueue", "kueue goes on", "trainer goes on", "jobset goes on", "jobs go on", "all go on", "pods end",
		"another gate", "preempt", "recreate", "list is rewritten", "touch the workload", "touch the job", "edit the job", "a person stops the workload",
		"an execution passes",
	}
	play := func(t *testing.T, situation []string, point int, deed string, killed bool) (points int) {
		synctest.Test(t, func(t *testing.T) {
			w := newGateWorld(t, gateOnly())
			w.begin(situation)
			crash := -1
			if killed {
				crash = point
			}
			points, _ = w.run(map[int][]string{point: {deed}}, crash)
			if err := w.finish(); err != nil {
				t.Errorf("%q at point %d, killed: %t: %v", deed, point, killed, err)
			}
		})
		return points
	}
	for name, situation := range gateSituations() {
		t.Run(name, func(t *testing.T) {
			for _, deed := range deeds {
				for point, points := 0, 1; point < points && !t.Failed(); point++ {
					points = play(t, situation, point, deed, false)
					if deed == "" || deed == "an execution passes" {
						play(t, situation, point, deed, true)
					}
				}
			}
		})
	}
}

// Rules G1, G2, G3, I5 and I6: so it is with any two deeds before any two
// requests of an answer.
func TestG3TwoDeedsAtEveryPairOfPoints(t *testing.T) {
	deeds := []string{"hold", "all go on", "another gate"}
	histories := 0
	play := func(t *testing.T, at map[int][]string) (points int) {
		synctest.Test(t, func(t *testing.T) {
			w := newGateWorld(t, gateOnly(), rapidtest.BeforeExecution)
			w.begin(gateSituations()["PodsGone"])
			points, _ = w.run(at, -1)
			if err := w.finish(); err != nil {
				t.Errorf("%v: %v", at, err)
			}
		})
		histories++
		return points
	}
	for _, first := range deeds {
		for _, second := range deeds {
			for i, points := 0, 1; i < points && !t.Failed(); i++ {
				points = play(t, map[int][]string{i: {first, second}})
				for j, most := i+1, i+2; j < most; j++ {
					most = play(t, map[int][]string{i: {first}, j: {second}})
				}
			}
		}
	}
	t.Logf("%d histories", histories)
}

// A plot is a random history of two gates at once, each stopped at every
// request.
type plot struct {
	checks []string
	begin  []string
	// turns are what happens, one after the other: a deed, or the number of the
	// gate that goes on.
	turns []string
}

func drawPlot(t *rapid.T) plot {
	turn := rapid.SampledFrom([]string{
		"1", "1", "1", "1", "2", "2", "2", "2", "1 is killed", "2 is killed",
		"hold", "release", "kueue", "kueue goes on", "trainer goes on", "jobset goes on", "jobs go on", "all go on", "pods end",
		"another gate", "preempt", "recreate", "list is rewritten", "touch the workload", "touch the job",
		"a person stops the workload", "a person resumes the workload", "an execution passes",
		"other check: retry", "gate's check: retry", "checks go on",
	})
	situations := gateSituations()
	return plot{
		checks: rapid.SampledFrom([][]string{{gateCheck}, {gateCheck, otherCheck}, {otherCheck, gateCheck}}).Draw(t, "checks"),
		begin:  situations[rapid.SampledFrom(slices.Sorted(maps.Keys(situations))).Draw(t, "situation")],
		turns:  rapid.SliceOfN(turn, 0, 40).Draw(t, "turns"),
	}
}

// Rules G1, G2, G3, I5, I6, I9 and I11: two gates answer at once, others do what
// they like in between, gates are killed and restarted, and another check on the
// same Workload has its own say.
func TestG3TwoGatesAtOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPlot(t)
		rapid.SyncTest(t, func(t *rapid.T) {
			w := newGateWorld(t, p.checks)
			w.begin(p.begin)
			w.playTurns(p.turns)
			if err := w.finish(); err != nil {
				t.Fatalf("%v\n%+v", err, p)
			}
		})
	})
}

// playTurns has both gates answer again and again while the turns are taken.
func (w *gateWorld) playTurns(turns []string) {
	type player struct {
		kill  context.CancelFunc
		ended func() bool
	}
	players := map[string]*player{}
	start := func(number string) {
		g := w.slow
		if number == "2" {
			g = w.slower
		}
		ctx, kill := context.WithCancel(context.Background())
		var err error
		left := w.start(ctx, g, &err)
		players[number] = &player{kill, func() bool { return left.Load() == 0 }}
		synctest.Wait()
	}
	for _, turn := range turns {
		number, what, _ := strings.Cut(turn, " ")
		if number != "1" && number != "2" {
			w.do(turn)
			continue
		}
		if p := players[number]; p == nil || p.ended() {
			start(number)
		}
		if what != "" {
			players[number].kill()
			synctest.Wait()
			continue
		}
		who := map[string]string{"1": "slow", "2": "slower"}[number]
		if i := slices.IndexFunc(w.sched.Parked(), func(s *rapidtest.Step) bool { return s.Actor == who }); i >= 0 {
			w.sched.Parked()[i].Proceed()
		}
		synctest.Wait()
	}
	for _, p := range players {
		for !p.ended() {
			w.drain()
		}
	}
}

// drain lets everything that is stopped go on.
func (w *gateWorld) drain() {
	for _, s := range w.sched.Parked() {
		s.Proceed()
	}
	w.pause()
}

// Without its premise, the gate, rule I5 does not hold: Kueue readmits beside
// the pods that still end.
func TestI5WithoutTheGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newGateWorld(t, nil)
		for _, deed := range []string{"all go on", "hold", "all go on", "release", "all go on"} {
			w.do(deed)
		}
		if found := strings.Join(w.violations, "\n"); !strings.Contains(found, "I5") {
			t.Errorf("got %q, want two executions side by side", found)
		}
	})
}

// Nor does it hold for a gate that looks at pods alone: a controller that is
// behind makes one after they have been listed.
func TestI5WhatIsOnItsWay(t *testing.T) {
	behind := []string{"jobset goes on", "jobs go on", "trainer goes on", "jobset goes on", "jobs go on", "all go on"}
	for name, sees := range map[string]bool{"PodsAlone": false, "WhatMakesThem": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newGateWorld(t, gateOnly())
				kind := kueue()
				if !sees {
					kind.Makes = nil
				}
				w.begin(gateSituations()["TrainerIsBehind"])
				a, err := w.answer(t.Context(), w.gate(kind))
				w.must(err)
				w.begin(behind)
				w.begin([]string{"another gate", "all go on"})
				found := strings.Join(w.violations, "\n")
				if sees && (found != "" || a.State != holdable.GateShut || a.Why != "JobSet job is not paused") {
					t.Errorf("%+v, %q", a, found)
				}
				if !sees && !strings.Contains(found, "I5") {
					t.Errorf("got %q, want two executions side by side", found)
				}
			})
		})
	}
}
