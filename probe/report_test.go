package probe

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubehold/kubehold/meta"
)

// A verdict follows from the lines that name its call and concern its
// namespace, the worst of them first.
func TestP3Verdicts(t *testing.T) {
	hold, release := []meta.Op{meta.OpHold}, []meta.Op{meta.OpHold, meta.OpRelease}
	line := func(state State, namespace string, ops []meta.Op) Line {
		return Line{Theme: Access, Capability: string(state) + " thing", Namespace: namespace, State: state, Ops: ops}
	}
	for _, tt := range []struct {
		name    string
		lines   []Line
		hold    State
		release State
		why     string
	}{
		{"NothingKnown", nil, Available, Available, ""},
		{"AllThere", []Line{line(Available, "a", release)}, Available, Available, ""},
		{"OneLacking", []Line{line(Available, "a", release), line(Unavailable, "a", hold)}, Unavailable, Available, "unavailable thing"},
		{"OneUnknown", []Line{line(Unknown, "a", hold), line(Available, "a", release)}, Unknown, Available, "unknown thing"},
		{"LackingIsWorseThanUnknown", []Line{line(Unknown, "a", hold), line(Unavailable, "", hold)}, Unavailable, Available, "unavailable thing"},
		{"AnotherNamespace", []Line{line(Unavailable, "b", release)}, Available, Available, ""},
		{"EveryNamespace", []Line{line(Unavailable, "", release)}, Unavailable, Unavailable, "unavailable thing"},
		{"Advice", []Line{line(Unavailable, "a", nil)}, Available, Available, ""},
		{"AnotherVerdict", []Line{{Theme: Calls, State: Unavailable, Ops: hold}}, Available, Available, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := conclude([]meta.Op{meta.OpHold, meta.OpRelease}, []string{"a"}, tt.lines)
			want := []Line{
				{Theme: Calls, Capability: "Hold", Namespace: "a", State: tt.hold, Why: tt.why},
				{Theme: Calls, Capability: "Release", Namespace: "a", State: tt.release},
			}
			if tt.release != Available {
				want[1].Why = tt.why
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			r := Report{Kind: "Job", Lines: append(got, tt.lines...)}
			if r.State(meta.OpHold) != tt.hold || r.State(meta.OpRelease) != tt.release {
				t.Errorf("the report says %s and %s", r.State(meta.OpHold), r.State(meta.OpRelease))
			}
			object := meta.Object{Kind: "Job", Ref: meta.Ref{Namespace: "a", Name: "x"}}
			if blocked := r.Unavailable(object, meta.OpHold) != ""; blocked != (tt.hold == Unavailable) {
				t.Errorf("C5: Hold is held back: %v", blocked)
			}
			if r.Unavailable(meta.Object{Kind: "Pod", Ref: object.Ref}, meta.OpHold) != "" {
				t.Error("C5: another kind is held back")
			}
		})
	}
}

// A report that says nothing of a call does not vouch for it.
func TestP3OfWhatWasNotAsked(t *testing.T) {
	if s := (Report{}).State(meta.OpHold); s != Unknown {
		t.Errorf("Hold is %s", s)
	}
	if s := (Report{}).String(); s == "" {
		t.Error("an empty report prints nothing")
	}
}
