package rapidtest

import (
	"slices"
	"testing"
	"time"

	"github.com/kubehold/kubehold/kinds"
)

// modes are the two ways to hold a TrainJob.
func modes() map[string]*suite {
	return map[string]*suite{
		"Plain": newSuite(kinds.WithStartGate(kinds.TrainJob()), nil),
		"Kueue": newSuite(kinds.OnKueue(kinds.TrainJob()), nil),
	}
}

// ruleBroken plays a script of a property and returns the rule that its history breaks, "" for
// none.
func ruleBroken(t *testing.T, p property, a attempt) string {
	t.Helper()
	h, err := p.play(t, a)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("from %q:\n%s", a.start, h.timeline())
	return ruleOf(h.violated())
}

// Rule I4 is what the supervisors' protocol is for, and every part of it is needed. These are the
// shortest histories in which the newest hold does not win because a part is missing; in the same
// ones it wins where none is.
func TestI4EveryPartOfTheProtocolIsNeeded(t *testing.T) {
	for name, c := range map[string]struct {
		without manners
		script  func(reads script) script // reads are those of a Hold, which has two where another object is held than is named
	}{
		// A supervisor stands still before it makes its call. Meanwhile another one places a newer
		// hold and takes it away again, without waiting for the first: nothing on the object tells
		// the old hold that it is late.
		"ReleaseWithoutTheWait": {manners{hasty: true}, func(script) script {
			return script{
				recovers{within: time.Minute, lag: 4 * time.Second},
				recovers{within: time.Minute, release: true},
			}
		}},
		// Somebody takes the hold off. Its supervisor puts it back, in doubt, and goes on to
		// release it: there is nothing to release, so that nothing is written, and so the update in
		// doubt may still commit.
		"InDoubtCountedAsSettled": {manners{trusting: true}, func(reads script) script {
			return slices.Concat(
				script{recovers{within: 100 * time.Millisecond, asserts: 1, release: true}},
				reads, script{proceeds{}, meddles{how: "void"}, passes{time: 100 * time.Millisecond}},
				reads, script{proceeds{fault: trouble{kind: lateAndMute, after: 3 * time.Second}}},
			)
		}},
		// A supervisor holds again although a newer instance was given out, and released, since.
		"HoldAgainAfterANewerOne": {manners{stubborn: true}, func(script) script {
			return script{
				recovers{within: time.Minute, asserts: 1, release: true},
				recovers{within: time.Minute, release: true},
			}
		}},
	} {
		for mode, s := range modes() {
			t.Run(name+"/"+mode, func(t *testing.T) {
				reads := script{proceeds{}}
				if s.subject.indirect() {
					reads = script{proceeds{}, proceeds{}}
				}
				a := attempt{"free", c.script(reads)}
				if rule := ruleBroken(t, s.protocol(c.without), a); rule != "I4" {
					t.Errorf("without a part of the protocol, rule %q is broken, want I4", rule)
				}
				if rule := ruleBroken(t, s.protocol(manners{}), a); rule != "" {
					t.Errorf("with the whole protocol, rule %s is broken", rule)
				}
			})
		}
	}
}

// The search finds by itself what is wrong with two of them; for the third it takes too much to
// come together.
func TestI4SearchFindsABadSupervisor(t *testing.T) {
	for name, m := range map[string]manners{
		"ReleaseWithoutTheWait":   {hasty: true},
		"HoldAgainAfterANewerOne": {stubborn: true},
	} {
		t.Run(name, func(t *testing.T) {
			mustFind(t, modes()["Plain"].protocol(m), "I4")
		})
	}
}

// mustFind fails t if the search does not find a script that breaks a rule.
func mustFind(t *testing.T, p property, rule string) {
	t.Helper()
	const scripts = 5000
	f, err := p.search(t, scripts, 1)
	if err != nil {
		t.Fatal(err)
	}
	if f == nil {
		t.Fatalf("%d scripts from seed 1, and none breaks %s", scripts, rule)
	}
	if ruleOf(f) != rule {
		f.shrink(t)
		t.Fatalf("want a script that breaks %s, got %v", rule, f)
	}
	t.Logf("script %d breaks %v", f.runs, f.history.broken)
}
