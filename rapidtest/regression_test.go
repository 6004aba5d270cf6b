package rapidtest

import (
	"testing"
	"time"

	"github.com/kubehold/kubehold/meta"
)

// Histories that broke a rule once, as short as they get.
func TestHistoriesThatBrokeARule(t *testing.T) {
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
