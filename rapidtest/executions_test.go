package rapidtest

import (
	"testing"
	"time"

	"github.com/kubehold/kubehold/meta"
)

// Rule I5 has a premise in each mode: in Kueue mode the readmission gate, in plain mode that the
// kind's controller makes no pods from a version of the object that is older than the hold. These
// are the shortest histories in which two executions run side by side because it does not hold; in
// the same ones, and in all others, they do not where it holds.
func TestI5EachPremiseIsNeeded(t *testing.T) {
	for name, c := range map[string]struct {
		mode    string
		without staging
		attempt attempt
	}{
		// Kueue evicts the job and readmits it at once; the pods of the first execution still end
		// when those of the second are made.
		"KueueWithoutTheGate": {"Kueue", staging{gateless: true}, attempt{"free", script{
			settles{},
			begins{op: meta.OpHold, instance: 3, within: time.Minute}, proceeds{}, proceeds{}, proceeds{},
			acts{which: 2}, // Kueue sees that the Workload is inactive
			begins{op: meta.OpRelease, instance: 3, within: time.Minute}, proceeds{}, proceeds{}, proceeds{},
			settles{},
		}}},
		// The trainer still sees the job as it was before the hold, and makes a pod after the
		// release has seen that there is none.
		"ControllerBehindItsObject": {"Plain", staging{behind: 1}, attempt{"held by 2", script{
			begins{op: meta.OpRelease, instance: 2, within: time.Minute}, proceeds{}, proceeds{},
			acts{},     // it sees the job running: a pod of the first execution
			proceeds{}, // the release is committed
			acts{},     // it sees the job held, and deletes the pod, which takes its time to end
			meddles{how: "status"},
			acts{}, // it sees the job running: a pod of the second execution
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			s := modes()[c.mode]
			without, _ := s.executions(c.without)
			with, _ := s.executions(staging{})
			if rule := ruleBroken(t, without, c.attempt); rule != "I5" {
				t.Errorf("without the premise, rule %q is broken, want I5", rule)
			}
			if rule := ruleBroken(t, with, c.attempt); rule != "" {
				t.Errorf("with the premise, rule %s is broken", rule)
			}
			if err := with.check(t); err != nil {
				t.Error(err)
			}
		})
	}
}

// The search finds two executions by itself.
func TestI5SearchFindsTwoExecutions(t *testing.T) {
	without, _ := modes()["Kueue"].executions(staging{gateless: true})
	mustFind(t, without, "I5")
}

// Without the gate, clients that look for pods themselves keep rule I5 as well, as long as nobody
// but they evicts the job.
func TestI5WithoutTheGateButWithCheckPods(t *testing.T) {
	p, _ := modes()["Kueue"].executions(staging{gateless: true, checkPods: true})
	if err := p.check(t); err != nil {
		t.Error(err)
	}
}
