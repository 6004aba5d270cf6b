package holdable

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"

	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/retry"
)

// A history is one object on which calls and other writers take turns, each of
// them on the version that the one before has left, which is what the
// precondition of an update amounts to.
type history struct {
	scene
	// lost says that a foreign writer has resumed the object or taken its hold,
	// so that it need not be paused.
	lost bool
}

// do makes one call and checks what it has made of the object.
func (h *history) do(t *rapid.T, op meta.Op, instance int64) {
	before := h.read()
	r := request{Call: meta.Call{Instance: instance, Holder: "me"}, keys: h.keys, now: time.Unix(0, 0)}
	got, err := h.decide(op, h.obj, r)
	h.obj = apply(t, h.obj, got.edits)
	after := h.read()

	placed, lifted := op == meta.OpHold && err == nil, op == meta.OpRelease && err == nil
	switch n := len(h.ours(h.obj, h.keys.OfHold()...)); { // Rule I1
	case after.hold > 0 && n != 6, after.hold == 0 && n != 0:
		t.Fatalf("%d annotations of hold %d", n, after.hold)
	}
	switch { // Rule I3
	case placed && after.hold != instance, lifted && (before.hold != instance || after.hold != 0),
		!placed && !lifted && after.hold != before.hold, op != meta.OpOpen && before.hold > instance && err == nil:
		t.Fatalf("%s(%d) took hold %d to %d", op, instance, before.hold, after.hold)
	}
	h.lost = h.lost && !placed
	if after.hold > 0 && !h.lost && !after.paused { // Rule I2
		t.Fatalf("%s(%d) left hold %d running", op, instance, after.hold)
	}
	ran := before.paused && !after.paused
	switch { // Rule I10
	case ran && op == meta.OpHold, ran && op == meta.OpOpen && before.hold > 0, ran && h.gate && !after.opened:
		t.Fatalf("%s(%d) runs what is held or behind its gate: %+v", op, instance, before)
	case ran != got.resumes:
		t.Fatalf("ran %t, and the verdict says %t", ran, got.resumes)
	}
	if rise := after.a - before.a; h.gate && ran != (rise == 1) || rise < 0 || rise > 1 { // Rule I6
		t.Fatalf("%s(%d) took A from %d to %d, ran %t", op, instance, before.a, after.a, ran)
	}
}

// A reading is what the annotations and the pause field say, read here without
// the code under test.
type reading struct {
	hold, a        int64
	paused, opened bool
}

func (h *history) read() reading {
	annotations := h.obj.GetAnnotations()
	hold, _ := h.keys.ReadHold(h.uid, annotations)
	a, _ := h.keys.ReadExecutions(h.uid, annotations)
	out := reading{a: a, opened: annotations[h.keys.Opened()] == string(h.uid)}
	if hold != nil {
		out.hold = hold.Instance
	}
	value, _, _ := unstructured.NestedFieldNoCopy(h.obj.Object, h.path...)
	out.paused = value == h.held || value == nil && h.absent == h.held
	return out
}

// Rules I1, I2, I3, I6, I10 and I11, in every history of calls and other
// writers.
func TestHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := &history{scene: drawScene(t)}
		// A history starts with an object that we have not touched yet.
		h.obj = apply(t, h.obj, removals(append(h.keys.OfHold(), h.keys.Opened(), h.keys.Executions())))
		if h.bad {
			h.set(t, h.held, h.path...)
		}
		instance := rapid.Int64Range(1, 5)
		call := func(op meta.Op) func(*rapid.T) {
			return func(t *rapid.T) {
				foreign := h.foreign(h.obj)
				h.do(t, op, instance.Draw(t, "instance"))
				if diff := cmp.Diff(foreign, h.foreign(h.obj)); diff != "" { // Rule I11
					t.Fatalf("%s changed something else: %s", op, diff)
				}
			}
		}
		actions := map[string]func(*rapid.T){
			"Hold":        call(meta.OpHold),
			"HoldAgain":   call(meta.OpHold),
			"Release":     call(meta.OpRelease),
			"ReleaseIt":   func(t *rapid.T) { h.do(t, meta.OpRelease, max(h.read().hold, 1)) },
			"Status":      func(t *rapid.T) { h.set(t, rapid.Int64().Draw(t, "active"), "status", "active") },
			"PauseByHand": func(t *rapid.T) { h.set(t, h.held, h.path...) },
			"ResumeByHand": func(t *rapid.T) {
				h.lost = true
				h.set(t, rapid.SampledFrom(h.runs).Draw(t, "value"), h.path...)
			},
			"End": func(t *rapid.T) {
				h.set(t, []any{map[string]any{"type": "Done", "status": "True"}}, "status", "conditions")
			},
			"Delete": func(t *rapid.T) { h.set(t, "2026-01-02T03:04:05Z", "metadata", "deletionTimestamp") },
			"Own":    func(t *rapid.T) { h.set(t, "f", Label("example.com/fleet")...) },
			"Disown": func(t *rapid.T) { h.obj = apply(t, h.obj, []retry.Edit{retry.Remove(Label("example.com/fleet")...)}) },
		}
		if h.gate {
			actions["Open"] = call(meta.OpOpen)
		}
		t.Repeat(actions)
	})
}

// Rule H9 over time: whatever holds follow one another and however they are
// lifted, an object that was running runs again, one that was paused does not,
// and what it ran with comes back.
func TestHoldsComeAndGo(t *testing.T) {
	check(t, func(t *rapid.T) {
		s := drawScene(t)
		s.obj = apply(t, s.obj, removals(append(s.keys.OfHold(), s.keys.Executions())))
		if s.gate {
			s.annotate(t, map[string]string{s.keys.Opened(): string(s.uid)})
		}
		if s.hold, s.unknown = nil, false; s.bad || s.owned || s.ended || s.draining || s.deleting {
			return
		}
		before := s.pause(t, s.obj)
		obj, last := s.obj, int64(0)
		for range rapid.IntRange(1, 4).Draw(t, "holds") {
			last += rapid.Int64Range(1, 3).Draw(t, "step")
			got, err := s.decide(meta.OpHold, obj, request{Call: meta.Call{Instance: last}, keys: s.keys})
			if err != nil || got.did != Placed {
				t.Fatalf("Hold(%d): %+v, %v", last, got, err)
			}
			obj = apply(t, obj, got.edits)
		}
		got, err := s.decide(meta.OpRelease, obj, request{Call: meta.Call{Instance: last}, keys: s.keys})
		if err != nil {
			t.Fatalf("Release(%d): %v", last, err)
		}
		after := s.pause(t, apply(t, obj, got.edits))
		switch {
		case s.paused() && got.did != KeptPaused, s.paused() && after != s.held:
			t.Fatalf("it was paused before, and is %v now: %+v", after, got)
		case !s.paused() && got.did != Lifted:
			t.Fatalf("it was running before: %+v", got)
		case !s.paused() && s.resume == RestoreFound && after != before:
			t.Fatalf("it ran with %v before, and with %v now", before, after)
		}
	})
}
