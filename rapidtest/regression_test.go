package rapidtest

import (
	"testing"
	"time"

	"github.com/kubehold/kubehold/meta"
)

// Histories that broke a rule once, as short as they get.
func TestHistoriesThatBrokeARule(t *testing.T) {
	executions, _ := modes()["Kueue"].executions(staging{})
	// A conflict; Kueue makes another Workload, which a read shows to carry no hold; then the look at
	// the first one fails, and the next read shows that an older hold was placed meanwhile: it was
	// overwritten, since the read whose try got no further was forgotten.
	if rule := ruleBroken(t, executions, attempt{"free", script{
		begins{op: meta.OpHold, instance: 4, within: time.Minute, pinned: true},
		proceeds{}, acts{which: 2}, proceeds{},
		meddles{how: "recreate by Kueue"}, acts{which: 2},
		begins{op: meta.OpHold, instance: 4, within: time.Minute},
		answers{within: 100 * time.Millisecond},
		passes{time: 30 * time.Millisecond}, proceeds{},
		begins{op: meta.OpHold, instance: 1, within: time.Minute},
		answers{within: time.Minute},
		storms{requests: 20, fault: trouble{kind: "executed, and answered", code: 504}},
	}}); rule != "" {
		t.Errorf("H6 after a try that got no further: rule %s is broken", rule)
	}
	for name, c := range map[string]struct {
		mode    string
		attempt attempt
	}{
		// A Release lands, its answer is lost, and an Open follows before it looks again: its
		// receipt told of an A that the object no longer had at the resourceVersion that the
		// receipt names.
		"I6ReceiptOfAnOvertakenRelease": {"Plain", attempt{"at its start gate", script{
			begins{op: meta.OpOpen, within: time.Minute},
			proceeds{},
			begins{op: meta.OpHold, instance: 3, within: time.Minute},
			meddles{how: "note"},
			proceeds{}, proceeds{},
			begins{op: meta.OpRelease, instance: 3, within: time.Minute},
			proceeds{}, proceeds{}, proceeds{},
			proceeds{fault: trouble{kind: unheard}},
		}}},
		// A write is in doubt, and the next read shows another object, which settles it. The call
		// went on to read that object once more, and when this read failed, it said that the write
		// might still land.
		"E3PendingThoughReplaced": {"Plain", attempt{"free", script{
			begins{op: meta.OpHold, instance: 1, within: time.Minute},
			proceeds{}, proceeds{fault: trouble{kind: unheard}},
			meddles{how: "recreate"},
			passes{time: time.Second}, proceeds{},
			passes{time: time.Second}, proceeds{},
			proceeds{fault: trouble{kind: unheard}},
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			if rule := ruleBroken(t, modes()[c.mode].calls(), c.attempt); rule != "" {
				t.Errorf("rule %s is broken", rule)
			}
		})
	}
}
