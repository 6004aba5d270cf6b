//go:build e2e

package holdtest

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/rapidtest/realstack/cluster"
)

// The judge finds whatever reports do not allow.
func TestTheJudge(t *testing.T) {
	const uid = types.UID("uid")
	start := time.Now()
	at := func(second int) time.Time { return start.Add(time.Duration(second) * time.Minute) }
	free := func(second int) version {
		o := named("job")
		o.SetUID(uid)
		return version{revision: int64(second), seen: at(second), object: o}
	}
	held := func(second int, instance int64, id string) version {
		v := free(second)
		v.object.SetAnnotations(meta.Keys{}.Annotations(meta.Hold{
			Instance: instance, Holder: id, Since: start, Found: meta.FoundRunning, UID: uid}))
		v.object.Object["spec"] = map[string]any{"suspend": true}
		return v
	}
	resumed := func(v version) version {
		v.object.Object["spec"] = map[string]any{"suspend": false}
		return v
	}
	torn := func(v version) version {
		annotations := v.object.GetAnnotations()
		delete(annotations, meta.Keys{}.Reason())
		v.object.SetAnnotations(annotations)
		return v
	}
	told := func(op meta.Op, id string, n int64, second int, did holdable.Did) report {
		return report{op: op, id: id, instance: n, began: at(second - 1), ended: at(second), receipt: holdable.Receipt{Did: did}}
	}
	failed := func(op meta.Op, id string, n int64, second int, fate meta.Fate) report {
		r := told(op, id, n, second, "")
		r.err = &meta.Error{Kind: meta.ErrInDoubt, Fate: fate, PendingUntil: at(second + 1)}
		return r
	}
	late := failed(meta.OpHold, "a", 1, 2, meta.FatePending)
	late.err.PendingUntil = at(6)
	hold1, release1 := told(meta.OpHold, "a", 1, 2, holdable.Placed), told(meta.OpRelease, "a'", 1, 4, holdable.Lifted)
	for name, c := range map[string]struct {
		history []version
		reports []report
		fault   string // "" for none
	}{
		"AllIsWell": {[]version{free(1), held(2, 1, "a"), free(4)}, []report{hold1, release1}, ""},
		"InDoubtAndLanded": {[]version{free(1), held(3, 1, "a"), free(4)},
			[]report{failed(meta.OpHold, "a", 1, 2, meta.FatePending), release1}, ""},
		"InDoubtAndNot": {[]version{free(1)}, []report{failed(meta.OpHold, "a", 1, 2, meta.FatePending)}, ""},
		"Recreated":     {[]version{free(1), held(2, 1, "a"), {key: "k", seen: at(3)}, free(4)}, []report{hold1}, ""},
		"NoneWasALie": {[]version{free(1), held(2, 1, "a")},
			[]report{failed(meta.OpHold, "a", 1, 2, meta.FateNone)}, "wrote nothing"},
		"LandedAfterItWasSettled": {[]version{free(1), held(3, 1, "a")},
			[]report{failed(meta.OpHold, "a", 1, 2, meta.FateSettled)}, "after its last effect"},
		"LandedTooLate": {[]version{free(1), held(5, 1, "a")},
			[]report{failed(meta.OpHold, "a", 1, 2, meta.FatePending)}, "after its last effect"},
		"Lost":           {[]version{free(1)}, []report{hold1}, "happened 0 times"},
		"NotLifted":      {[]version{free(1), held(2, 1, "a")}, []report{hold1, release1}, "happened 0 times"},
		"LiftedByNobody": {[]version{free(1), held(2, 1, "a"), free(4)}, []report{hold1}, "nobody says so"},
		"PlacedByNobody": {[]version{free(1), held(2, 1, "b")}, nil, "nobody made"},
		"OlderOverNewer": {[]version{free(1), held(2, 2, "b"), held(3, 1, "a")},
			[]report{told(meta.OpHold, "b", 2, 2, holdable.Placed), told(meta.OpHold, "a", 1, 3, holdable.Placed)}, "over the newer"},
		"PlacedAgain": {[]version{free(1), held(2, 1, "a"), free(4), held(6, 1, "c")},
			[]report{hold1, release1, told(meta.OpHold, "c", 1, 6, holdable.Placed)}, "released before"},
		"OlderAfterTheRelease": {[]version{free(1), held(2, 2, "b"), free(4), held(5, 1, "a")},
			[]report{told(meta.OpHold, "b", 2, 2, holdable.Placed), told(meta.OpRelease, "b'", 2, 4, holdable.Lifted),
				late}, "from before the release"},
		"NotPaused": {[]version{free(1), resumed(held(2, 1, "a")), free(4)}, []report{hold1, release1}, "not paused"},
		"Torn":      {[]version{free(1), torn(held(2, 1, "a")), free(4)}, []report{hold1, release1}, "5 annotations"},
	} {
		t.Run(name, func(t *testing.T) {
			j := &judge{job: "job", reports: c.reports, paused: func(o *cluster.Object) bool {
				value, _, _ := nestedBool(o, "spec", "suspend")
				return value
			}}
			faults := strings.Join(j.verdict(c.history), "\n")
			if (faults == "") != (c.fault == "") || !strings.Contains(faults, c.fault) {
				t.Errorf("faults %q, want one that says %q", faults, c.fault)
			}
		})
	}
}

// A pod that comes while one of its job remains is a double execution.
func TestOverlaps(t *testing.T) {
	pod := func(name, node, phase string) version {
		o := named(name)
		o.SetUID(types.UID(name))
		o.SetLabels(map[string]string{cluster.JobSetLabel: "job"})
		o.Object["spec"] = map[string]any{"nodeName": node, "containers": []any{map[string]any{"name": "node"}}}
		o.Object["status"] = map[string]any{"phase": phase}
		return version{key: name, object: o}
	}
	for name, c := range map[string]struct {
		history []version
		want    int
	}{
		"OneAfterTheOther": {[]version{pod("a", "", "Pending"), pod("a", "n", "Running"), {key: "a"}, pod("b", "", "Pending")}, 0},
		"NeverBound":       {[]version{pod("a", "", "Pending"), pod("b", "", "Pending")}, 0},
		"SideBySide":       {[]version{pod("a", "n", "Running"), pod("b", "", "Pending"), pod("b", "n", "Running")}, 1},
		"OnlyItsPhase":     {[]version{pod("a", "n", "Failed"), pod("b", "", "Pending")}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			if got := overlaps(c.history, ""); len(got) != c.want {
				t.Errorf("%d overlaps, want %d: %v", len(got), c.want, got)
			}
		})
	}
}
