package holdable

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"

	"github.com/kubehold/kubehold/meta"
)

// Rules K1 and K2: one state for every object, in the order in which they take
// precedence; a deactivation without a hold is never a hold.
func TestClassify(t *testing.T) {
	check(t, func(t *rapid.T) {
		s := drawScene(t)
		want := Running
		switch waits := s.gate && !s.opened; {
		case s.unknown: // Rule H10
			want = Unknown
		case s.ended:
			want = Ended
		case s.bad:
			want = Unknown
		case s.hold != nil && s.paused():
			want = Held
		case s.hold != nil:
			want = Undone
		case s.draining:
			want = Deactivated
		case s.paused() && waits:
			want = Waiting
		case s.paused():
			want = Paused
		}
		before := s.obj.DeepCopy()
		got := s.inspect(s.keys, s.obj)
		if got.State != want {
			t.Fatalf("got %+v, want %s", got, want)
		}
		if diff := cmp.Diff(s.hold, got.Hold); diff != "" {
			t.Fatalf("the hold in force: %s", diff)
		}
		if got.Void != s.void { // Rule H13
			t.Fatalf("void: got %t, want %t", got.Void, s.void)
		}
		if (got.Deactivated != "") != s.draining { // Rule K2
			t.Fatalf("deactivated: got %q, want %t", got.Deactivated, s.draining)
		}
		if got.Opened != s.opened || got.Drained != DrainedUnknown {
			t.Fatalf("got %+v", got)
		}
		if got.Why == "" && want != Running && want != Waiting {
			t.Fatalf("%s, and no word why", want)
		}
		if diff := cmp.Diff(before.Object, s.obj.Object); diff != "" {
			t.Fatalf("what was read was changed: %s", diff)
		}
	})
}

// Rule K1: every state.
func TestStates(t *testing.T) {
	keys := meta.Keys{}
	hold := meta.Hold{Instance: 7, Holder: "dispatch", Reason: "node-3 is lost", Found: meta.FoundRunning, UID: "u", Since: time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)}
	ofAnother := hold
	ofAnother.UID = "v"
	fleet := map[string]any{"uid": "u", "labels": map[string]any{"example.com/fleet": "f"}}
	bare := map[string]any{"uid": "u"}
	cases := map[string]struct {
		kind  Holdable[bool]
		obj   *unstructured.Unstructured
		state State
		why   string // a part of it
	}{
		"Held":               {machine(), object(held(hold), suspended(true)), Held, "instance 7, by dispatch: node-3 is lost"},
		"HeldAndDeactivated": {machine(), object(held(hold), suspended(true), "Draining"), Held, "instance 7"},
		"HeldAndWaiting":     {gated(), object(held(hold), suspended(true)), Held, "instance 7"},
		"Undone":             {machine(), object(held(hold), suspended(false)), Undone, "instance 7"},
		"UndoneNoField":      {machine(), object(held(hold), nil), Undone, "instance 7"},
		"UndoneAndEvicts":    {machine(), object(held(hold), suspended(false), "Draining"), Undone, "instance 7"},
		"Deactivated":        {machine(), object(bare, suspended(true), "Draining"), Deactivated, "Draining"},
		"AboutToBe":          {machine(), object(bare, suspended(false), "Draining"), Deactivated, "Draining"},
		"Paused":             {machine(), object(bare, suspended(true)), Paused, "someone else"},
		"PausedByItsOwner":   {machine(), object(fleet, suspended(true)), Paused, "Fleet owns it"},
		"PausedVoidHold":     {machine(), object(held(ofAnother), suspended(true)), Paused, "someone else"},
		"PausedOnceOpened":   {gated(), object(map[string]any{"uid": "u", "annotations": map[string]any{keys.Opened(): "u"}}, suspended(true)), Paused, "someone else"},
		"Waiting":            {gated(), object(bare, suspended(true)), Waiting, ""},
		"WaitingAgain":       {gated(), object(map[string]any{"uid": "u", "annotations": map[string]any{keys.Opened(): "v"}}, suspended(true)), Waiting, ""},
		"Running":            {machine(), object(bare, suspended(false)), Running, ""},
		"RunningNoField":     {machine(), object(bare, nil), Running, ""},
		"RunningPastItsGate": {gated(), object(bare, suspended(false)), Running, ""},
		"Ended":              {machine(), object(bare, suspended(false), "Done"), Ended, "Done"},
		"EndedPaused":        {machine(), object(bare, suspended(true), "Done"), Ended, "Done"},
		"EndedHeld":          {machine(), object(held(hold), suspended(true), "Done"), Ended, "Done"},
		"Unknown":            {machine(), object(held(hold, keys.Instance(), "seven"), suspended(true)), Unknown, "seven"},
		"UnknownEnded":       {machine(), object(held(hold, keys.Instance(), "seven"), suspended(true), "Done"), Unknown, "seven"},
		"UnknownField":       {machine(), object(held(hold), map[string]any{"suspend": "yes"}), Unknown, "spec.suspend"},
		"UnknownFieldEnded":  {machine(), object(held(hold), map[string]any{"suspend": "yes"}, "Done"), Ended, "Done"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := tc.kind.inspect(tc.kind.view(keys, tc.obj))
			if got.State != tc.state || !strings.Contains(got.Why, tc.why) || tc.why == "" && got.Why != "" {
				t.Errorf("got %s, %q, want %s, %q", got.State, got.Why, tc.state, tc.why)
			}
		})
	}
}

// Rule K1: what there is to know of a hold is there, whatever the state.
func TestInspectShowsTheHold(t *testing.T) {
	kind := machine()
	hold := meta.Hold{Instance: 7, Holder: "dispatch", Reason: "node-3 is lost", Found: meta.FoundPaused, UID: "u", Since: time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)}
	for _, obj := range []*unstructured.Unstructured{
		object(held(hold), suspended(true)), object(held(hold), suspended(false)), object(held(hold), suspended(true), "Done"),
	} {
		if diff := cmp.Diff(&hold, kind.inspect(kind.view(meta.Keys{}, obj)).Hold); diff != "" {
			t.Error(diff)
		}
	}
}

// Rule K3: drained is said of the pods of the named object, and of nothing else.
func TestDrained(t *testing.T) {
	named := object(map[string]any{"name": "m", "namespace": "ns", "uid": "u"}, suspended(true), "Suspended")
	blind := machine()
	blind.Pods = nil
	cases := map[string]struct {
		kind Holdable[bool]
		pods []*unstructured.Unstructured
		want Drained
		pod  string
	}{
		"NoPods":         {machine(), nil, IsDrained, ""},
		"OneRuns":        {machine(), []*unstructured.Unstructured{pod("a", "Running")}, NotDrained, "a"},
		"OneHasEnded":    {machine(), []*unstructured.Unstructured{ended(pod("a", "Failed"))}, IsDrained, ""},
		"TheSecondRuns":  {machine(), []*unstructured.Unstructured{ended(pod("a", "Failed")), pod("b", "Running")}, NotDrained, "b"},
		"PodsOfOthers":   {machine(), []*unstructured.Unstructured{labelled(pod("a", "Running"), "machine", "n")}, IsDrained, ""},
		"NotToBeFound":   {blind, []*unstructured.Unstructured{pod("a", "Running")}, DrainedUnknown, ""},
		"SuspendedNoEnd": {machine(), []*unstructured.Unstructured{pod("a", "Failed")}, NotDrained, "a"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			in := tc.kind.inspect(tc.kind.view(meta.Keys{}, named))
			c := &Client[bool]{kind: tc.kind}
			if check := c.drained(&in, &finder[bool]{kind: &c.kind, namedRead: named}); check != nil {
				if err := check(t.Context(), &objects{pods(): tc.pods}); err != nil {
					t.Fatal(err)
				}
			}
			if in.Drained != tc.want || in.Pod != tc.pod {
				t.Errorf("got %s %q, want %s %q", in.Drained, in.Pod, tc.want, tc.pod)
			}
		})
	}
}

// Rule K3: pods that could not be listed are not gone.
func TestDrainedFailsWithTheList(t *testing.T) {
	kind := machine()
	in := Inspection{Drained: DrainedUnknown}
	c := &Client[bool]{kind: kind}
	named := object(map[string]any{"name": "m", "namespace": "ns", "uid": "u"}, nil)
	if err := c.drained(&in, &finder[bool]{kind: &c.kind, namedRead: named})(t.Context(), broken{}); !errors.Is(err, errBroken) {
		t.Errorf("got %v", err)
	}
	if in.Drained != DrainedUnknown {
		t.Errorf("drained: %s", in.Drained)
	}
}

// Rule G3: A is read off the named object, and for that object only.
func TestExecutionsOfTheNamedObject(t *testing.T) {
	keys := meta.Keys{}
	c := &Client[bool]{kind: machine()}
	for name, tc := range map[string]struct {
		value string
		want  int64
	}{
		"Own": {"3 u", 3}, "AnotherObject": {"3 v", 0}, "Unknown": {"three u", 0},
	} {
		t.Run(name, func(t *testing.T) {
			named := object(map[string]any{"uid": "u", "annotations": map[string]any{keys.Executions(): tc.value}}, nil)
			if got := c.executions(named); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
}
