package holdable

import (
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/retry"
)

// What Hold decides, in the order in which the rules take precedence.
func TestHoldDecides(t *testing.T) {
	check(t, func(t *rapid.T) {
		s := drawScene(t)
		r := s.drawRequest(t)
		got, err := s.decide(meta.OpHold, s.obj, r)
		if got.resumes {
			t.Fatal("a hold that resumes")
		}
		in := s.instance()
		switch {
		case s.unknown: // Rule H10: nobody knows what that would overwrite.
			s.refused(t, got, err, meta.ErrRejected, false)
			var bad *meta.AnnotationError
			if !errors.As(err, &bad) || !strings.Contains(err.Error(), bad.Key) || !strings.Contains(err.Error(), strconv.Quote(bad.Value)) {
				t.Fatalf("%v does not name the annotation", err)
			}
		case in > r.Instance: // Rules H4 and I3: a newer hold stays.
			s.refused(t, got, err, meta.ErrStaleHold, s.changed(r))
		case in != r.Instance && s.changed(r): // Rule H6: somebody else's hold came or went.
			s.refused(t, got, err, meta.ErrStaleHold, true)
		case s.deleting: // Rule H11
			s.refused(t, got, err, meta.ErrRejected, false)
		case s.owned: // Rule H8
			s.refused(t, got, err, meta.ErrRejected, false)
			if !strings.Contains(err.Error(), "hold the Fleet") {
				t.Fatalf("%v does not say what to do instead", err)
			}
		case s.bad:
			s.refused(t, got, err, meta.ErrRejected, false)
		case in == r.Instance && s.paused(): // Rule H2: nothing is left to do.
			if err != nil || got.did != InForce || len(got.edits) > 0 {
				t.Fatalf("got %+v, %v", got, err)
			}
		default: // Rules H1, H3 and H5
			if err != nil || got.did != Placed {
				t.Fatalf("got %+v, %v", got, err)
			}
			s.placed(t, apply(t, s.obj, got.edits), r)
		}
	})
}

// placed checks the object that a Hold has made (rule H1).
func (s scene) placed(t *rapid.T, after *unstructured.Unstructured, r request) {
	if got := s.pause(t, after); got != s.held {
		t.Fatalf("the pause field is %v, want %v", got, s.held)
	}
	want := meta.Hold{Instance: r.Instance, Holder: r.Holder, Reason: r.Reason, Since: r.now, UID: s.uid}
	want.Found, want.Restore = s.record()
	if s.instance() == r.Instance && !s.hold.Since.IsZero() {
		want.Since = s.hold.Since // the hold is as old as it was
	}
	if diff := cmp.Diff(s.keys.Annotations(want), s.ours(after, s.keys.OfHold()...)); diff != "" {
		t.Fatal(diff)
	}
	gate := []string{s.keys.Opened(), s.keys.Executions()}
	if diff := cmp.Diff(s.ours(s.obj, gate...), s.ours(after, gate...)); diff != "" {
		t.Fatalf("the start gate was changed: %s", diff)
	}
	if again, err := s.decide(meta.OpHold, after, r); err != nil || again.did != InForce {
		t.Fatalf("made again: got %+v, %v", again, err)
	}
}

// record is what rule H9 says that a hold placed now has found.
func (s scene) record() (meta.Found, string) {
	switch {
	case s.hold != nil && s.paused(): // an asserted hold passes on what it found
		return s.hold.Found, s.hold.Restore
	case s.gate && !s.opened:
		return meta.FoundGate, ""
	case s.paused() || s.draining:
		return meta.FoundPaused, ""
	case s.resume != RestoreFound:
		return meta.FoundRunning, ""
	}
	b, _ := json.Marshal(s.value)
	return meta.FoundRunning, string(b)
}

// What Release decides.
func TestReleaseDecides(t *testing.T) {
	check(t, func(t *rapid.T) {
		s := drawScene(t)
		r := s.drawRequest(t)
		got, err := s.decide(meta.OpRelease, s.obj, r)
		switch {
		case s.unknown: // Rule H10: nobody knows whether it is this one.
			s.refused(t, got, err, meta.ErrStaleHold, false)
			if !errors.As(err, new(*meta.AnnotationError)) {
				t.Fatalf("%v does not name the annotation", err)
			}
			return
		case s.instance() != r.Instance: // Rules R1, R8 and I3
			s.refused(t, got, err, meta.ErrStaleHold, s.changed(r))
			return
		}
		kept := s.ended || s.deleting || // Rules R7 and H11
			s.owned || // Rule H8
			s.hold.Found == meta.FoundPaused || // Rule R3
			(s.gate || s.hold.Found == meta.FoundGate) && !s.opened // Rules R6 and I10
		switch {
		case kept:
			s.lifted(t, got, err, KeptPaused)
			s.leaves(t, got)
		case s.bad:
			s.refused(t, got, err, meta.ErrRejected, false)
		case !s.paused(): // Rule R4: the field reads running already
			s.lifted(t, got, err, Lifted)
			s.leaves(t, got)
		case s.gate && s.badA: // Rule I6
			s.refused(t, got, err, meta.ErrRejected, false)
		default: // Rules R2 and R3
			s.lifted(t, got, err, Lifted)
			s.resumes(t, got, s.restored())
		}
	})
}

// lifted checks that a Release takes the whole hold away, and says why where it
// does not resume.
func (s scene) lifted(t *rapid.T, got verdict, err error, did Did) {
	if err != nil || got.did != did || did == KeptPaused && got.why == "" {
		t.Fatalf("got %+v, %v, want %s", got, err, did)
	}
	if left := s.ours(apply(t, s.obj, got.edits), s.keys.OfHold()...); len(left) > 0 {
		t.Fatalf("left behind: %v", left)
	}
}

// leaves checks that a verdict lets nothing run, nor count as an execution.
func (s scene) leaves(t *rapid.T, got verdict) {
	after := apply(t, s.obj, got.edits)
	if diff := cmp.Diff(s.pause(t, s.obj), s.pause(t, after)); got.resumes || diff != "" {
		t.Fatalf("resumes %t: %s", got.resumes, diff)
	}
	if diff := cmp.Diff(s.ours(s.obj, s.keys.Executions()), s.ours(after, s.keys.Executions())); diff != "" || !s.badA && got.executions != s.a {
		t.Fatalf("A is said to be %d: %s", got.executions, diff)
	}
}

// resumes checks that a verdict lets the object run, asks for its pods, and
// counts the execution for a kind with a start gate (rules R4 and O1).
func (s scene) resumes(t *rapid.T, got verdict, value any) {
	after := apply(t, s.obj, got.edits)
	if v := s.pause(t, after); !got.resumes || v != value {
		t.Fatalf("resumes %t: the pause field is %v, want %v", got.resumes, v, value)
	}
	want := s.ours(s.obj, s.keys.Executions())
	if s.gate {
		want = map[string]string{s.keys.Executions(): s.keys.ExecutionsValue(s.uid, s.a+1)}
	}
	if diff := cmp.Diff(want, s.ours(after, s.keys.Executions())); diff != "" {
		t.Fatal(diff)
	}
	if s.gate && got.executions != s.a+1 {
		t.Fatalf("A is said to be %d, want %d", got.executions, s.a+1)
	}
}

// restored is what a release writes to the pause field, nil for none.
func (s scene) restored() any {
	switch {
	case s.resume == RemoveField || s.resume == RestoreFound && s.hold.Restore == "null":
		return nil
	case s.resume == WriteRunning || s.hold.Restore == "":
		return s.runs[0]
	}
	for _, v := range s.runs {
		if b, _ := json.Marshal(v); string(b) == s.hold.Restore {
			return v
		}
	}
	return s.held
}

// What Open decides, for kinds with a start gate; others do not get here.
func TestOpenDecides(t *testing.T) {
	check(t, func(t *rapid.T) {
		s := drawScene(t)
		if !s.gate {
			return
		}
		r := s.drawRequest(t)
		got, err := s.decide(meta.OpOpen, s.obj, r)
		switch {
		case s.opened: // Rule O3
			if err != nil || got.did != AlreadyOpen || len(got.edits) > 0 {
				t.Fatalf("got %+v, %v", got, err)
			}
			return
		case s.ended, s.deleting, // Rule O3
			s.owned, // Rule H8
			s.bad:
			s.refused(t, got, err, meta.ErrRejected, false)
			return
		case s.hold != nil, s.unknown: // Rules O2, H10 and I10
			s.marked(t, got, err, MarkedOpen)
			s.leaves(t, got)
		case !s.paused(): // it runs already
			s.marked(t, got, err, Opened)
			s.leaves(t, got)
		case s.badA: // Rule I6
			s.refused(t, got, err, meta.ErrRejected, false)
			return
		default: // Rule O1
			s.marked(t, got, err, Opened)
			s.resumes(t, got, s.runs[0])
		}
		if again, err := s.decide(meta.OpOpen, apply(t, s.obj, got.edits), r); err != nil || again.did != AlreadyOpen {
			t.Fatalf("made again: got %+v, %v", again, err)
		}
	})
}

// marked checks that an Open leaves its mark.
func (s scene) marked(t *rapid.T, got verdict, err error, did Did) {
	if err != nil || got.did != did || did == MarkedOpen && got.why == "" {
		t.Fatalf("got %+v, %v, want %s", got, err, did)
	}
	after := apply(t, s.obj, got.edits)
	if diff := cmp.Diff(map[string]string{s.keys.Opened(): string(s.uid)}, s.ours(after, s.keys.Opened())); diff != "" {
		t.Fatal(diff)
	}
}

// object returns an object of a table, with those conditions True.
func object(metadata, spec any, conditions ...string) *unstructured.Unstructured {
	var all []any
	for _, c := range conditions {
		all = append(all, map[string]any{"type": c, "status": "True"})
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Machine", "metadata": metadata, "spec": spec,
		"status": map[string]any{"conditions": all},
	}}
}

// held returns the metadata of an object that carries that hold.
func held(h meta.Hold, more ...string) map[string]any {
	annotations := map[string]any{}
	for key, value := range (meta.Keys{}).Annotations(h) {
		annotations[key] = value
	}
	for i := 0; i < len(more); i += 2 {
		annotations[more[i]] = more[i+1]
	}
	return map[string]any{"name": "m", "namespace": "ns", "uid": "u", "annotations": annotations}
}

func suspended(is bool) map[string]any { return map[string]any{"suspend": is} }

// Rule H9: what a new hold finds.
func TestRecord(t *testing.T) {
	bare := map[string]any{"uid": "u"}
	opened := map[string]any{"uid": "u", "annotations": map[string]any{meta.Keys{}.Opened(): "u"}}
	older := func(f meta.Found) map[string]any {
		return held(meta.Hold{Instance: 1, Found: f, UID: "u"}, meta.Keys{}.Opened(), "u")
	}
	cases := map[string]struct {
		obj         *unstructured.Unstructured
		plain, gate meta.Found
	}{
		"Running":                  {object(bare, suspended(false)), meta.FoundRunning, meta.FoundGate},
		"FieldAbsent":              {object(bare, nil), meta.FoundRunning, meta.FoundGate},
		"PausedBySomeone":          {object(bare, suspended(true)), meta.FoundPaused, meta.FoundGate},
		"BeingDeactivated":         {object(bare, suspended(false), "Draining"), meta.FoundPaused, meta.FoundGate},
		"OpenedRunning":            {object(opened, suspended(false)), meta.FoundRunning, meta.FoundRunning},
		"OpenedPaused":             {object(opened, suspended(true)), meta.FoundPaused, meta.FoundPaused},
		"OlderHoldFoundRunning":    {object(older(meta.FoundRunning), suspended(true)), meta.FoundRunning, meta.FoundRunning},
		"OlderHoldFoundPaused":     {object(older(meta.FoundPaused), suspended(true)), meta.FoundPaused, meta.FoundPaused},
		"OlderHoldFoundGate":       {object(older(meta.FoundGate), suspended(true)), meta.FoundGate, meta.FoundGate},
		"OlderHoldUndone":          {object(older(meta.FoundPaused), suspended(false)), meta.FoundRunning, meta.FoundRunning},
		"OlderHoldUndoneAndEvicts": {object(older(meta.FoundRunning), suspended(false), "Draining"), meta.FoundPaused, meta.FoundPaused},
		"HoldOfAnotherObject": {
			object(held(meta.Hold{Instance: 9, Found: meta.FoundRunning, UID: "v"}), suspended(true)),
			meta.FoundPaused, meta.FoundGate,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for _, kind := range []struct {
				of   Holdable[bool]
				want meta.Found
			}{{machine(), tc.plain}, {gated(), tc.gate}} {
				v := kind.of.view(meta.Keys{}, tc.obj)
				got, err := kind.of.hold(v, request{Call: meta.Call{Instance: 2}})
				if err != nil {
					t.Fatal(err)
				}
				after := apply(t, tc.obj, got.edits)
				if found := after.GetAnnotations()[meta.Keys{}.Found()]; found != string(kind.want) {
					t.Errorf("start gate %t: got %s, want %s", kind.of.StartGate, found, kind.want)
				}
			}
		})
	}
}

// Rule H6: what happened to the hold in force between two reads of one call.
func TestHoldAfterAConflict(t *testing.T) {
	const asked = 5
	cases := map[string]struct {
		last    *seen
		now     int64
		stale   bool
		changed bool
	}{
		"FirstReadNone":         {nil, 0, false, false},
		"FirstReadOlder":        {nil, 3, false, false},
		"FirstReadNewer":        {nil, 6, true, false},
		"NoneAsBefore":          {&seen{"u", 0}, 0, false, false},
		"OlderAsBefore":         {&seen{"u", 3}, 3, false, false},
		"NewerCame":             {&seen{"u", 3}, 6, true, true},
		"OlderCame":             {&seen{"u", 0}, 3, true, true},
		"OlderWent":             {&seen{"u", 3}, 0, true, true},
		"OlderByOlder":          {&seen{"u", 3}, 4, true, true},
		"OlderByStillOlder":     {&seen{"u", 3}, 1, true, true},
		"OwnLanded":             {&seen{"u", 3}, asked, false, false},
		"OwnLandedOnNone":       {&seen{"u", 0}, asked, false, false},
		"OwnWasThere":           {&seen{"u", asked}, asked, false, false},
		"OwnWentToNone":         {&seen{"u", asked}, 0, true, true},
		"OwnWentToOlder":        {&seen{"u", asked}, 3, true, true},
		"ReplacedOlderWent":     {&seen{"v", 3}, 0, false, false},
		"ReplacedOlderCame":     {&seen{"v", 0}, 3, false, false},
		"ReplacedNewer":         {&seen{"v", 0}, 6, true, false},
		"ReplacedOwnWasBefore":  {&seen{"v", asked}, 0, false, false},
		"ReplacedNewerIsBefore": {&seen{"v", 6}, 6, true, false},
	}
	kind := machine()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			obj := object(map[string]any{"uid": "u"}, suspended(false))
			if tc.now > 0 {
				obj = object(held(meta.Hold{Instance: tc.now, Found: meta.FoundRunning, UID: "u"}), suspended(true))
			}
			_, err := kind.hold(kind.view(meta.Keys{}, obj), request{Call: meta.Call{Instance: asked}, last: tc.last})
			if tc.stale != errors.Is(err, meta.ErrStaleHold) || !tc.stale && err != nil {
				t.Fatalf("got %v, want stale: %t", err, tc.stale)
			}
			var e *meta.Error
			if errors.As(err, &e) && (e.Changed != tc.changed || e.Seen != tc.now) {
				t.Errorf("changed %t, seen %d, want %t, %d", e.Changed, e.Seen, tc.changed, tc.now)
			}
		})
	}
}

// Rule H11: what is being deleted is not held any more, not even by the hold
// that lies on it already; that one can be lifted.
func TestBeingDeleted(t *testing.T) {
	kind := gated()
	metadata := held(meta.Hold{Instance: 2, Found: meta.FoundRunning, UID: "u"}, meta.Keys{}.Opened(), "u")
	metadata["deletionTimestamp"] = "2026-01-02T03:04:05Z"
	v := kind.view(meta.Keys{}, object(metadata, suspended(true)))
	for _, instance := range []int64{2, 3} {
		if _, err := kind.hold(v, request{Call: meta.Call{Instance: instance}}); !errors.Is(err, meta.ErrRejected) || errors.Is(err, meta.ErrStaleHold) {
			t.Errorf("Hold(%d): got %v", instance, err)
		}
	}
	got, err := kind.release(v, request{Call: meta.Call{Instance: 2}})
	if err != nil || got.did != KeptPaused || got.resumes {
		t.Fatalf("Release: got %+v, %v", got, err)
	}
	if diff := cmp.Diff(removals(meta.Keys{}.OfHold()), got.edits); diff != "" {
		t.Errorf("Release does more than remove the annotations: %s", diff)
	}
}

// Rule H13: after a restore under a new UID nothing of what was written for the
// old object counts: no hold, no opened mark, no executions.
func TestRestoredObject(t *testing.T) {
	kind, keys := gated(), meta.Keys{}
	metadata := held(meta.Hold{Instance: 9, Found: meta.FoundRunning, UID: "old"},
		keys.Opened(), "old", keys.Executions(), keys.ExecutionsValue("old", 5))
	obj := object(metadata, suspended(true))

	if in := kind.inspect(kind.view(keys, obj)); in.State != Waiting || !in.Void || in.Hold != nil || in.Opened {
		t.Errorf("Inspect: got %+v", in)
	}
	if _, err := kind.release(kind.view(keys, obj), request{keys: keys, Call: meta.Call{Instance: 9}}); !errors.Is(err, meta.ErrStaleHold) {
		t.Errorf("Release: got %v", err)
	}
	placed, err := kind.hold(kind.view(keys, obj), request{keys: keys, Call: meta.Call{Instance: 1}})
	if err != nil {
		t.Fatalf("Hold: %v", err)
	}
	if v := kind.view(keys, apply(t, obj, placed.edits)); v.instance() != 1 || v.hold.Found != meta.FoundGate || v.void {
		t.Errorf("Hold: got %+v", v.hold)
	}
	opened, err := kind.open(kind.view(keys, obj), request{keys: keys})
	if err != nil || opened.executions != 1 {
		t.Errorf("Open: got %+v, %v", opened, err)
	}
}

// Rule I6: a count that cannot be raised is not guessed, and does not wrap
// around.
func TestExecutionsThatCannotBeRaised(t *testing.T) {
	kind, keys := gated(), meta.Keys{}
	for name, value := range map[string]string{"Unknown": "five u", "Largest": keys.ExecutionsValue("u", math.MaxInt64)} {
		t.Run(name, func(t *testing.T) {
			obj := object(map[string]any{"uid": "u", "annotations": map[string]any{keys.Executions(): value}}, suspended(true))
			got, err := kind.open(kind.view(keys, obj), request{keys: keys})
			if !errors.Is(err, meta.ErrRejected) || len(got.edits) > 0 {
				t.Errorf("Open: got %+v, %v", got, err)
			}
			obj = object(held(meta.Hold{Instance: 1, Found: meta.FoundRunning, UID: "u"}, keys.Opened(), "u", keys.Executions(), value), suspended(true))
			got, err = kind.release(kind.view(keys, obj), request{keys: keys, Call: meta.Call{Instance: 1}})
			if !errors.Is(err, meta.ErrRejected) || len(got.edits) > 0 {
				t.Errorf("Release: got %+v, %v", got, err)
			}
		})
	}
}

// Rules R6 and I10: what a hold found at its start gate goes back there, also
// where it is lifted by a client whose descriptor knows of no gate.
func TestReleaseIntoTheStartGate(t *testing.T) {
	obj := object(held(meta.Hold{Instance: 1, Found: meta.FoundGate, UID: "u"}), suspended(true))
	for _, kind := range []Holdable[bool]{gated(), machine()} {
		got, err := kind.release(kind.view(meta.Keys{}, obj), request{Call: meta.Call{Instance: 1}})
		if err != nil || got.did != KeptPaused || got.resumes {
			t.Errorf("start gate %t: got %+v, %v", kind.StartGate, got, err)
		}
	}
}

// Bad input is refused, whatever it is, and a Release of what cannot be resumed
// leaves the hold where it is.
func TestBadObjects(t *testing.T) {
	required := machine()
	required.Pause.RequireParent = true
	cases := map[string]struct {
		kind     Holdable[bool]
		obj      *unstructured.Unstructured
		hold     meta.Sentinel // "": it succeeds
		classify State
	}{
		"SuspendIsText":         {machine(), object(map[string]any{"uid": "u"}, map[string]any{"suspend": "yes"}), meta.ErrRejected, Unknown},
		"SuspendIsANumber":      {machine(), object(map[string]any{"uid": "u"}, map[string]any{"suspend": int64(1)}), meta.ErrRejected, Unknown},
		"SuspendIsNull":         {machine(), object(map[string]any{"uid": "u"}, map[string]any{"suspend": nil}), "", Running},
		"SpecIsText":            {machine(), object(map[string]any{"uid": "u"}, "text"), meta.ErrRejected, Unknown},
		"SpecIsAList":           {machine(), object(map[string]any{"uid": "u"}, []any{}), meta.ErrRejected, Unknown},
		"NoSpec":                {machine(), object(map[string]any{"uid": "u"}, nil), "", Running},
		"NoSpecThatIsRequired":  {required, object(map[string]any{"uid": "u"}, nil), meta.ErrRejected, Running},
		"SpecThatIsRequired":    {required, object(map[string]any{"uid": "u"}, map[string]any{}), "", Running},
		"AnnotationsAreNull":    {machine(), object(map[string]any{"uid": "u", "annotations": nil}, nil), "", Running},
		"InstanceIsNull":        {machine(), object(map[string]any{"uid": "u", "annotations": map[string]any{meta.Keys{}.Instance(): nil}}, nil), meta.ErrRejected, Unknown},
		"InstanceIsAList":       {machine(), object(map[string]any{"uid": "u", "annotations": map[string]any{meta.Keys{}.Instance(): []any{"1"}}}, nil), meta.ErrRejected, Unknown},
		"HolderIsTrue":          {machine(), object(map[string]any{"uid": "u", "annotations": map[string]any{meta.Keys{}.Holder(): true}}, nil), meta.ErrRejected, Unknown},
		"ForeignAnnotationTrue": {machine(), object(map[string]any{"uid": "u", "annotations": map[string]any{"x": true}}, nil), "", Running},
		"ConditionsAreText":     {machine(), &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"conditions": "x"}}}, "", Running},
		"ConditionsAreMixed":    {machine(), &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"conditions": []any{"x", nil, map[string]any{"type": int64(3)}}}}}, "", Running},
		"Empty":                 {machine(), &unstructured.Unstructured{Object: map[string]any{}}, "", Running},
		"Nil":                   {machine(), &unstructured.Unstructured{}, "", Running},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			v := tc.kind.view(meta.Keys{}, tc.obj)
			got, err := tc.kind.hold(v, request{Call: meta.Call{Instance: 1}})
			if tc.hold == "" && err != nil || tc.hold != "" && (!errors.Is(err, tc.hold) || len(got.edits) > 0) {
				t.Errorf("Hold: got %+v, %v, want %q", got, err, tc.hold)
			}
			if in := tc.kind.inspect(v); in.State != tc.classify || in.State == Unknown && in.Why == "" {
				t.Errorf("Inspect: got %+v, want %s", in, tc.classify)
			}
		})
	}
}

// Annotations that are no map leave no place for a hold.
func TestAnnotationsThatAreText(t *testing.T) {
	kind := machine()
	obj := object(map[string]any{"uid": "u", "annotations": "text"}, nil)
	got, err := kind.hold(kind.view(meta.Keys{}, obj), request{Call: meta.Call{Instance: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := retry.Apply(obj, got.edits); !errors.As(err, new(*retry.PathError)) {
		t.Errorf("got %v", err)
	}
}

// Rules H1 and I11: a thousand podSets and a megabyte stay as they are, and are
// not even copied.
func TestLargeObject(t *testing.T) {
	sets := make([]any, 1000)
	for i := range sets {
		sets[i] = map[string]any{"count": int64(i), "template": map[string]any{"blob": strings.Repeat("x", 1000)}}
	}
	kind := machine()
	obj := object(map[string]any{"uid": "u"}, map[string]any{"podSets": sets})
	before := obj.DeepCopy()
	got, err := kind.hold(kind.view(meta.Keys{}, obj), request{Call: meta.Call{Instance: 1}})
	if err != nil {
		t.Fatal(err)
	}
	after := apply(t, obj, got.edits)
	if diff := cmp.Diff(before.Object, obj.Object); diff != "" {
		t.Errorf("what was read was changed: %s", diff)
	}
	read, _ := retry.Lookup(obj, "spec", "podSets")
	written, _ := retry.Lookup(after, "spec", "podSets")
	if len(read.([]any)) != 1000 || &read.([]any)[0] != &written.([]any)[0] {
		t.Error("the podSets are not those that were read")
	}
}

// Rule H12: a Hold asks for no pods: it says that the hold is in force, never
// that anything has stopped.
func TestHoldIsNotStopped(t *testing.T) {
	kind := machine()
	got, err := kind.hold(kind.view(meta.Keys{}, object(map[string]any{"uid": "u"}, suspended(false))), request{Call: meta.Call{Instance: 1}})
	if err != nil || got.did != Placed || got.resumes {
		t.Errorf("got %+v, %v", got, err)
	}
}

// Rule T1: of a call only what it saw last is carried from one try to the next,
// and what it saw is compared on the same object only.
func TestSeenChanged(t *testing.T) {
	check(t, func(t *rapid.T) {
		uid := rapid.SampledFrom([]types.UID{"", "u", "v"})
		s := &seen{uid.Draw(t, "last uid"), rapid.Int64Range(0, 2).Draw(t, "last")}
		now, instance := uid.Draw(t, "uid"), rapid.Int64Range(0, 2).Draw(t, "instance")
		if got, want := s.changed(now, instance), now == s.uid && instance != s.instance; got != want {
			t.Fatalf("got %t, want %t", got, want)
		}
		if (*seen)(nil).changed(now, instance) {
			t.Fatal("a first read has nothing to compare")
		}
	})
}

func TestHoldKeepsItsAge(t *testing.T) {
	kind := machine()
	placed := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	obj := object(held(meta.Hold{Instance: 1, Found: meta.FoundRunning, UID: "u", Since: placed}), suspended(false))
	for instance, want := range map[int64]time.Time{1: placed, 2: placed.Add(time.Hour)} {
		got, err := kind.hold(kind.view(meta.Keys{}, obj), request{Call: meta.Call{Instance: instance}, now: placed.Add(time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		if v := kind.view(meta.Keys{}, apply(t, obj, got.edits)); !v.hold.Since.Equal(want) {
			t.Errorf("Hold(%d): since %v, want %v", instance, v.hold.Since, want)
		}
	}
}
