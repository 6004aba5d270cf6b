package holdable

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/retry"
)

// of returns a kind with all that a kind can have, paused by p.
func of[T Value](p Pause[T]) Holdable[T] {
	return Holdable[T]{
		Kind:        "Machine",
		Resource:    schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "machines"},
		Pause:       p,
		Owners:      []Owner{OwnedByLabel("Fleet", "example.com/fleet", "hold the Fleet"), OwnedByController("Rack.example.com")},
		Ended:       ConditionTrue("Done"),
		Deactivated: ConditionTrue("Draining"),
		Pods:        PodsNamed("machine"),
	}
}

func machine() Holdable[bool] {
	return of(Pause[bool]{Path: Field("spec", "suspend"), Held: true})
}

func gated() Holdable[bool] {
	kind := machine()
	kind.StartGate = true
	return kind
}

// A subject is a kind with the type of its pause field out of sight.
type subject struct {
	gate    bool
	path    []string
	held    any
	runs    []any // values that let the object run; the first is Running
	absent  any
	resume  Resume
	decide  func(meta.Op, *unstructured.Unstructured, request) (verdict, error)
	inspect func(meta.Keys, *unstructured.Unstructured) Inspection
}

func subjectOf[T Value](kind Holdable[T], others ...T) subject {
	runs := []any{kind.Pause.Running}
	for _, v := range others {
		runs = append(runs, v)
	}
	return subject{
		gate:   kind.StartGate,
		path:   kind.Pause.Path,
		held:   kind.Pause.Held,
		runs:   runs,
		absent: kind.Pause.Absent,
		resume: kind.Pause.Resume,
		decide: func(op meta.Op, obj *unstructured.Unstructured, r request) (verdict, error) {
			decide := map[meta.Op]func(view[T], request) (verdict, error){
				meta.OpHold: kind.hold, meta.OpRelease: kind.release, meta.OpOpen: kind.open,
			}[op]
			return decide(kind.view(r.keys, obj), r)
		},
		inspect: func(keys meta.Keys, obj *unstructured.Unstructured) Inspection {
			return kind.inspect(kind.view(keys, obj))
		},
	}
}

// subjects are pause fields of every type, place and way to resume.
func subjects() map[string]subject {
	replicas := Pause[int64]{Path: Field("spec", "replicas"), Held: 0, Running: 1, Absent: 1, Resume: RestoreFound}
	policy := Pause[string]{Path: Field("spec", "stop", "policy"), Held: "Hold", Running: "None", Resume: RemoveField}
	annotation := Pause[string]{Path: Annotation("example.com/paused"), Held: "true", Running: "false", Resume: RestoreFound}
	label := Pause[string]{Path: Label("example.com/run"), Held: "no", Running: "yes", Absent: "no"}
	active := Pause[bool]{Path: Field("spec", "active"), Held: false, Running: true, Absent: true}
	gatedReplicas := of(replicas)
	gatedReplicas.StartGate = true
	return map[string]subject{
		"Suspend":       subjectOf(machine()),
		"GatedSuspend":  subjectOf(gated()),
		"Active":        subjectOf(of(active)),
		"Replicas":      subjectOf(of(replicas), 2, 7),
		"GatedReplicas": subjectOf(gatedReplicas, 2, 7),
		"Policy":        subjectOf(of(policy), "", "other"),
		"Annotation":    subjectOf(of(annotation), "", "a=\"b\""),
		"Label":         subjectOf(of(label), "maybe"),
	}
}

// A scene is an object and what was put on it.
type scene struct {
	subject
	keys meta.Keys
	obj  *unstructured.Unstructured
	uid  types.UID

	hold          *meta.Hold // in force
	unknown, void bool       // a hold that cannot be understood, one of another object

	value any // of the pause field, nil if there is none
	bad   bool

	opened, badA                     bool
	a                                int64
	owned, ended, draining, deleting bool
}

func (s scene) instance() int64 {
	if s.hold == nil {
		return 0
	}
	return s.hold.Instance
}

// paused reports whether the pause field reads held.
func (s scene) paused() bool {
	return !s.bad && (s.value == s.held || s.value == nil && s.absent == s.held)
}

// restorable returns the records of what a hold of the kind may have found.
func (s scene) restorable() []string {
	if s.resume != RestoreFound {
		return []string{""}
	}
	records := []string{"", "null"}
	for _, v := range s.runs {
		b, _ := json.Marshal(v)
		records = append(records, string(b))
	}
	return records
}

// check is rapid.Check on many more cases: these are cheap.
func check(t *testing.T, property func(*rapid.T)) {
	t.Helper()
	for range 20 {
		rapid.Check(t, property)
	}
}

func seldom(t *rapid.T, label string) bool {
	return rapid.SampledFrom([]bool{false, false, false, false, true}).Draw(t, label)
}

// drawScene draws an object of some kind, in any state.
func drawScene(t *rapid.T) scene {
	all := subjects()
	name := rapid.SampledFrom(slices.Sorted(maps.Keys(all))).Draw(t, "kind")
	s := scene{subject: all[name], uid: rapid.SampledFrom([]types.UID{"u", "w"}).Draw(t, "uid")}
	keys, err := meta.NewKeys(rapid.SampledFrom([]string{"", "holds.example.com"}).Draw(t, "prefix"))
	if err != nil {
		t.Fatal(err)
	}
	s.keys = keys
	s.obj = &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1",
		"kind":       "Machine",
		"metadata":   map[string]any{"name": "m", "namespace": "ns", "uid": string(s.uid), "resourceVersion": "7"},
	}}
	s.drawForeign(t)
	s.drawPause(t)
	s.drawHold(t)
	s.drawGate(t)
	s.drawState(t)
	return s
}

func (s *scene) set(t fataler, value any, path ...string) {
	t.Helper()
	s.obj = apply(t, s.obj, []retry.Edit{retry.Set(value, path...)})
}

func (s *scene) annotate(t fataler, annotations map[string]string) {
	t.Helper()
	for key, value := range annotations {
		s.set(t, value, Annotation(key)...)
	}
}

// drawForeign puts on it what is nobody's business here, also what looks much
// like ours.
func (s *scene) drawForeign(t *rapid.T) {
	things := map[string]func(){
		"our prefix":      func() { s.set(t, "x", Annotation("kubehold.dev/hold-other")...) },
		"another prefix":  func() { s.set(t, "9", Annotation("other.dev/hold-instance")...) },
		"key without one": func() { s.set(t, "9", Annotation("hold-instance")...) },
		"our key, label":  func() { s.set(t, "9", Label("kubehold.dev/hold-instance")...) },
		"template":        func() { s.set(t, "busybox", "spec", "template", "spec", "image") },
		"list":            func() { s.set(t, []any{map[string]any{"count": int64(3)}}, "spec", "podSets") },
		"status":          func() { s.set(t, int64(3), "status", "active") },
		"unheard of":      func() { s.set(t, map[string]any{"x": nil, "y": 0.5}, "spec", "added", "later") },
	}
	for _, thing := range slices.Sorted(maps.Keys(things)) {
		if rapid.Bool().Draw(t, "foreign "+thing) {
			things[thing]()
		}
	}
}

func (s *scene) drawPause(t *rapid.T) {
	switch v := rapid.SampledFrom(append([]any{s.held, s.held, nil}, s.runs...)).Draw(t, "pause"); {
	case seldom(t, "bad pause"):
		s.bad, s.value = true, []any{"x"}
		s.set(t, s.value, s.path...)
	case v != nil:
		s.value = v
		s.set(t, v, s.path...)
	}
}

func (s *scene) drawHold(t *rapid.T) {
	hold := meta.Hold{
		Instance: rapid.Int64Range(1, 4).Draw(t, "in force"),
		Holder:   "them",
		Reason:   "theirs",
		Since:    time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Found:    rapid.SampledFrom([]meta.Found{meta.FoundRunning, meta.FoundRunning, meta.FoundPaused, meta.FoundGate}).Draw(t, "found"),
		UID:      s.uid,
	}
	if hold.Found == meta.FoundRunning {
		hold.Restore = rapid.SampledFrom(s.restorable()).Draw(t, "restore")
	}
	switch rapid.SampledFrom([]string{"hold", "none", "hold", "void", "unknown"}).Draw(t, "hold") {
	case "hold":
		s.hold = &hold
		s.annotate(t, s.keys.Annotations(hold))
		if seldom(t, "bare") {
			*s.hold = meta.Hold{Instance: hold.Instance, Found: meta.FoundRunning, UID: s.uid}
			s.obj = apply(t, s.obj, removals(s.keys.OfHold()[1:]))
		}
	case "void":
		s.void = true
		hold.UID = "v"
		s.annotate(t, s.keys.Annotations(hold))
	case "unknown":
		s.unknown = true
		s.annotate(t, s.keys.Annotations(hold))
		held, _ := json.Marshal(s.held)
		s.annotate(t, rapid.SampledFrom([]map[string]string{
			{s.keys.Instance(): "x"}, {s.keys.Since(): "x"}, {s.keys.Found(): "x"}, {s.keys.Found(): "running=" + string(held)},
		}).Draw(t, "broken"))
	}
}

func (s *scene) drawGate(t *rapid.T) {
	mark := rapid.SampledFrom([]string{"", string(s.uid), "v"}).Draw(t, "opened")
	s.opened = mark == string(s.uid)
	if mark != "" {
		s.annotate(t, map[string]string{s.keys.Opened(): mark})
	}
	switch rapid.SampledFrom([]string{"none", "own", "void", "bad"}).Draw(t, "executions") {
	case "own":
		s.a = rapid.Int64Range(0, 9).Draw(t, "a")
		s.annotate(t, map[string]string{s.keys.Executions(): s.keys.ExecutionsValue(s.uid, s.a)})
	case "void":
		s.annotate(t, map[string]string{s.keys.Executions(): s.keys.ExecutionsValue("v", 5)})
	case "bad":
		s.badA = true
		s.annotate(t, map[string]string{s.keys.Executions(): "x " + string(s.uid)})
	}
}

func (s *scene) drawState(t *rapid.T) {
	if s.owned = seldom(t, "owned"); s.owned {
		s.set(t, "f", Label("example.com/fleet")...)
	}
	if s.deleting = seldom(t, "deleting"); s.deleting {
		s.set(t, "2026-01-02T03:04:05Z", "metadata", "deletionTimestamp")
	}
	var conditions []any
	condition := func(name string) bool {
		status := rapid.SampledFrom([]string{"", "False", "True"}).Draw(t, name)
		if status != "" {
			conditions = append(conditions, map[string]any{"type": name, "status": status})
		}
		return status == "True"
	}
	s.ended, s.draining = condition("Done"), condition("Draining")
	if len(conditions) > 0 {
		s.set(t, conditions, "status", "conditions")
	}
}

// drawRequest draws a call, and what it saw before.
func (s scene) drawRequest(t *rapid.T) request {
	r := request{
		Call: meta.Call{Instance: rapid.Int64Range(1, 4).Draw(t, "asked"), Holder: "me", Reason: "mine"},
		keys: s.keys,
		now:  time.Date(2026, 5, 6, 7, 8, 9, 999, time.UTC),
	}
	if rapid.Bool().Draw(t, "read before") {
		r.last = &seen{
			uid:      rapid.SampledFrom([]types.UID{s.uid, "v"}).Draw(t, "last uid"),
			instance: rapid.SampledFrom([]int64{s.instance(), s.instance(), 0, 1, 2, 3}).Draw(t, "last seen"),
		}
	}
	return r
}

// changed reports whether rule H6 has something to compare, and it differs.
func (s scene) changed(r request) bool {
	return r.last != nil && r.last.uid == s.uid && r.last.instance != s.instance()
}

func removals(keys []string) []retry.Edit {
	var edits []retry.Edit
	for _, key := range keys {
		edits = append(edits, retry.Remove(Annotation(key)...))
	}
	return edits
}

type fataler interface {
	Helper()
	Fatalf(string, ...any)
}

// apply makes the edits of a verdict.
func apply(t fataler, obj *unstructured.Unstructured, edits []retry.Edit) *unstructured.Unstructured {
	t.Helper()
	out, err := retry.Apply(obj, edits)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return out
}

// refused fails unless err is of that kind, tells what was seen, and comes with
// nothing to write.
func (s scene) refused(t fataler, got verdict, err error, kind meta.Sentinel, changed bool) *meta.Error {
	t.Helper()
	var e *meta.Error
	if !errors.As(err, &e) || e.Kind != kind || len(got.edits) > 0 {
		t.Fatalf("got %+v, %v, want %s", got, err, kind)
	}
	if kind == meta.ErrStaleHold && (e.Seen != s.instance() || e.Changed != changed) {
		t.Fatalf("seen %d, changed %t, want %d, %t", e.Seen, e.Changed, s.instance(), changed)
	}
	return e
}

// foreign returns, by path, what is on obj besides the pause field and our
// annotations. Maps themselves do not count.
func (s scene) foreign(obj *unstructured.Unstructured) map[string]any {
	ours := append(s.keys.OfHold(), s.keys.Opened(), s.keys.Executions())
	all := map[string]any{}
	var walk func(path []string, v any)
	walk = func(path []string, v any) {
		switch m, ok := v.(map[string]any); {
		case slices.Equal(path, s.path), len(path) == 3 && path[1] == "annotations" && slices.Contains(ours, path[2]):
		case ok:
			for key, v := range m {
				walk(append(slices.Clone(path), key), v)
			}
		default:
			all[fmt.Sprintf("%q", path)] = v
		}
	}
	walk(nil, obj.Object)
	return all
}

// ours returns our annotations on obj.
func (s scene) ours(obj *unstructured.Unstructured, keys ...string) map[string]string {
	found := map[string]string{}
	for key, value := range obj.GetAnnotations() {
		if slices.Contains(keys, key) {
			found[key] = value
		}
	}
	return found
}

// pause returns the value of the pause field of obj, nil if there is none.
func (s scene) pause(t fataler, obj *unstructured.Unstructured) any {
	t.Helper()
	v, err := retry.Lookup(obj, s.path...)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return v
}

// Rules H1, R2, O1, I1, I9 and I11: whatever is decided, of all that is on the
// object only the pause field and our own annotations change, a hold's six come
// and go together, and nothing that was read is written to.
func TestDecisionsTouchNothingElse(t *testing.T) {
	check(t, func(t *rapid.T) {
		s := drawScene(t)
		r := s.drawRequest(t)
		op := rapid.SampledFrom([]meta.Op{meta.OpHold, meta.OpRelease, meta.OpOpen}).Draw(t, "op")
		before := s.obj.DeepCopy()

		got, err := s.decide(op, s.obj, r)
		after := apply(t, s.obj, got.edits)
		if diff := cmp.Diff(before.Object, s.obj.Object); diff != "" {
			t.Fatalf("what was read was changed: %s", diff)
		}
		if err != nil && len(got.edits) > 0 {
			t.Fatalf("refused, and %v", got.edits)
		}
		if diff := cmp.Diff(s.foreign(before), s.foreign(after)); diff != "" {
			t.Fatalf("something else was changed: %s", diff)
		}
		if len(got.edits) == 0 {
			return
		}
		n := len(s.ours(after, s.keys.OfHold()...))
		if op == meta.OpHold && n != 6 || op == meta.OpRelease && n != 0 {
			t.Fatalf("%d annotations of a hold after %s", n, op)
		}
		if op == meta.OpOpen && !cmp.Equal(s.ours(before, s.keys.OfHold()...), s.ours(after, s.keys.OfHold()...)) {
			t.Fatal("an Open has changed a hold")
		}
		again, err := s.decide(op, s.obj, r)
		if diff := cmp.Diff(got.edits, again.edits); err != nil || diff != "" {
			t.Fatalf("decided otherwise the second time: %v %s", err, diff)
		}
	})
}

// The scenes would prove little if they were all alike.
func TestScenesReachEveryVerdict(t *testing.T) {
	reached := map[string]bool{}
	check(t, func(t *rapid.T) {
		s := drawScene(t)
		r := s.drawRequest(t)
		for _, op := range []meta.Op{meta.OpHold, meta.OpRelease, meta.OpOpen} {
			got, err := s.decide(op, s.obj, r)
			var e *meta.Error
			if errors.As(err, &e) {
				reached[string(op)+" "+string(e.Kind)] = true
			}
			reached[string(got.did)] = true
		}
		reached[string(s.inspect(s.keys, s.obj).State)] = true
	})
	for _, want := range []string{
		string(Placed), string(InForce), string(Lifted), string(KeptPaused), string(Opened), string(MarkedOpen), string(AlreadyOpen),
		"Hold stale hold", "Hold rejected", "Release stale hold", "Release rejected", "Open rejected",
		string(Held), string(Undone), string(Deactivated), string(Paused), string(Waiting), string(Running), string(Ended), string(Unknown),
	} {
		if !reached[want] {
			t.Errorf("no scene leads to %q", want)
		}
	}
}
