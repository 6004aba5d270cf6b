package holdable

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"pgregory.net/rapid"

	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/retry"
)

// described returns what Check says of a kind after a change.
func described[T Value](kind Holdable[T], change func(*Holdable[T])) error {
	change(&kind)
	return kind.Check()
}

// Every mistake in a descriptor is refused with a sentence of its own.
func TestHoldableCheck(t *testing.T) {
	text := of(Pause[string]{Path: Annotation("example.com/paused"), Held: "true", Running: "false"})
	valid := map[string]error{
		"Machine":            machine().Check(),
		"StartGate":          gated().Check(),
		"Of":                 ticketed().Check(),
		"Annotation":         text.Check(),
		"Label":              described(text, func(h *Holdable[string]) { h.Pause.Path = Label("a") }),
		"TopLevelField":      described(machine(), func(h *Holdable[bool]) { h.Pause.Path = Field("suspend") }),
		"CoreGroup":          described(machine(), func(h *Holdable[bool]) { h.Resource.Group = "" }),
		"NoFunctions":        described(machine(), func(h *Holdable[bool]) { h.Ended, h.Pods, h.Owners, h.Deactivated = nil, nil, nil, nil }),
		"RemoveReadsRunning": described(machine(), func(h *Holdable[bool]) { h.Pause.Resume = RemoveField }),
	}
	for name, err := range valid {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}

	machineWith := func(change func(*Holdable[bool])) error { return described(machine(), change) }
	invalid := map[string]struct {
		err  error
		says string
	}{
		"Zero":               {Holdable[bool]{}.Check(), "kind, version and resource must be set"},
		"NoKind":             {machineWith(func(h *Holdable[bool]) { h.Kind = "" }), "kind, version and resource must be set"},
		"NoVersion":          {machineWith(func(h *Holdable[bool]) { h.Resource.Version = "" }), "kind, version and resource must be set"},
		"NoResource":         {machineWith(func(h *Holdable[bool]) { h.Resource.Resource = "" }), "kind, version and resource must be set"},
		"OfNoKind":           {described(ticketed(), func(h *Holdable[bool]) { h.Of = &Named{Resource: tickets(), UIDLabel: "l"} }), "the named kind needs"},
		"OfNoVersion":        {described(ticketed(), func(h *Holdable[bool]) { h.Of.Resource.Version = "" }), "the named kind needs"},
		"OfNoResource":       {described(ticketed(), func(h *Holdable[bool]) { h.Of.Resource.Resource = "" }), "the named kind needs"},
		"OfNoLabel":          {described(ticketed(), func(h *Holdable[bool]) { h.Of.UIDLabel = "" }), "the named kind needs"},
		"NoPath":             {machineWith(func(h *Holdable[bool]) { h.Pause.Path = nil }), "has no path"},
		"EmptyStep":          {machineWith(func(h *Holdable[bool]) { h.Pause.Path = Field("spec", "") }), "an empty step"},
		"HeldIsRunning":      {machineWith(func(h *Holdable[bool]) { h.Pause.Held = false }), "spec.suspend=false would both hold"},
		"Name":               {machineWith(func(h *Holdable[bool]) { h.Pause.Path = Field("metadata", "name") }), "cannot be a pause field"},
		"Finalizers":         {machineWith(func(h *Holdable[bool]) { h.Pause.Path = Field("metadata", "finalizers", "x") }), "cannot be a pause field"},
		"AllOfMetadata":      {machineWith(func(h *Holdable[bool]) { h.Pause.Path = Field("metadata") }), "cannot be a pause field"},
		"InsideAnAnnotation": {described(text, func(h *Holdable[string]) { h.Pause.Path = append(Annotation("a"), "b") }), "cannot be a pause field"},
		"BoolAnnotation":     {machineWith(func(h *Holdable[bool]) { h.Pause.Path = Annotation("a") }), "must be strings, not bool"},
		"IntLabel":           {of(Pause[int64]{Path: Label("a"), Held: 1}).Check(), "must be strings, not int64"},
		"Status":             {machineWith(func(h *Holdable[bool]) { h.Pause.Path = Field("status", "suspended") }), "cannot write status.suspended"},
		"APIVersion":         {of(Pause[string]{Path: Field("apiVersion"), Held: "x"}).Check(), "cannot write apiVersion"},
		"KindField":          {of(Pause[string]{Path: Field("kind"), Held: "x"}).Check(), "cannot write kind"},
		"RemoveReadsHeld":    {machineWith(func(h *Holdable[bool]) { h.Pause.Absent, h.Pause.Resume = true, RemoveField }), "removing it resumes nothing"},
		"ResumeBelow":        {machineWith(func(h *Holdable[bool]) { h.Pause.Resume = -1 }), "unknown Resume -1"},
		"ResumeAbove":        {machineWith(func(h *Holdable[bool]) { h.Pause.Resume = RestoreFound + 1 }), "unknown Resume 3"},
		"MadeOfNoKind":       {machineWith(func(h *Holdable[bool]) { h.Makes = []Made{part(nil), {Resource: parts()}} }), "what is made for it needs"},
		"MadeOfNoVersion":    {machineWith(func(h *Holdable[bool]) { h.Makes = []Made{part(nil)}; h.Makes[0].Resource.Version = "" }), "what is made for it needs"},
		"MadeOfNoResource":   {machineWith(func(h *Holdable[bool]) { h.Makes = []Made{part(nil)}; h.Makes[0].Resource.Resource = "" }), "what is made for it needs"},
		"MadeWithoutAPause":  {machineWith(func(h *Holdable[bool]) { h.Makes = []Made{part(nil)}; h.Makes[0].Stop = Stop{} }), "what is made for it needs"},
		"GateOfAnother":      {described(ticketed(), func(h *Holdable[bool]) { h.StartGate = true }), "a start gate belongs to"},
	}
	for name, tc := range invalid {
		t.Run(name, func(t *testing.T) {
			if !errors.Is(tc.err, meta.ErrInvalid) || !strings.Contains(tc.err.Error(), tc.says) {
				t.Errorf("got %v, want an ErrInvalid that says %q", tc.err, tc.says)
			}
		})
	}
}

func TestGroupVersionKindIsTheNamedOne(t *testing.T) {
	want := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Machine"}
	for name, kind := range map[string]Kind{"Itself": machine(), "ByTicket": ticketed()} {
		if diff := cmp.Diff(want, kind.GroupVersionKind()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// A pauseCase is a value that a pause field has, and what is read of it.
type pauseCase struct {
	field   any // what is in the object; absent where it is the type absent
	value   any
	present bool
	bad     bool
}

type absent struct{}

func testRead[T Value](t *testing.T, p Pause[T], cases map[string]pauseCase) {
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			obj := &unstructured.Unstructured{Object: map[string]any{}}
			if tc.field != (absent{}) {
				obj = apply(t, obj, []retry.Edit{retry.Set("", p.Path...)})
				with(obj, tc.field, p.Path...)
			}
			value, present, err := p.read(obj)
			if value != tc.value || present != tc.present || tc.bad != (err != nil) {
				t.Errorf("got %v, %t, %v", value, present, err)
			}
		})
	}
}

func TestPauseRead(t *testing.T) {
	t.Run("Bool", func(t *testing.T) {
		testRead(t, Pause[bool]{Path: Field("spec", "active"), Running: true, Absent: true}, map[string]pauseCase{
			"Held":    {false, false, true, false},
			"Running": {true, true, true, false},
			"Absent":  {absent{}, true, false, false},
			"Null":    {nil, true, false, false},
			"Text":    {"false", true, true, true},
			"Number":  {int64(0), true, true, true},
		})
	})
	t.Run("Int64", func(t *testing.T) {
		testRead(t, Pause[int64]{Path: Field("spec", "replicas"), Running: 1, Absent: 1}, map[string]pauseCase{
			"Held":     {int64(0), int64(0), true, false},
			"Running":  {int64(7), int64(7), true, false},
			"Negative": {int64(-1), int64(-1), true, false},
			"Absent":   {absent{}, int64(1), false, false},
			"Fraction": {0.5, int64(1), true, true},
			"Text":     {"0", int64(1), true, true},
		})
	})
	t.Run("String", func(t *testing.T) {
		testRead(t, Pause[string]{Path: Label("example.com/run"), Held: "no", Running: "yes", Absent: "yes"}, map[string]pauseCase{
			"Held":   {"no", "no", true, false},
			"Other":  {"perhaps", "perhaps", true, false},
			"Empty":  {"", "", true, false},
			"Absent": {absent{}, "yes", false, false},
			"Bool":   {false, "yes", true, true},
		})
	})
}

// What a hold has found comes back, whatever it was, also if that was nothing.
func TestRestoreFound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		testRestore(t, Pause[bool]{Path: Field("x"), Held: true, Resume: RestoreFound}, rapid.Bool())
		testRestore(t, Pause[int64]{Path: Field("x"), Absent: 1, Running: 1, Resume: RestoreFound}, rapid.Int64())
		testRestore(t, Pause[string]{Path: Field("x"), Held: "held", Resume: RestoreFound}, rapid.String())
	})
}

func testRestore[T Value](t *rapid.T, p Pause[T], values *rapid.Generator[T]) {
	value, present := values.Draw(t, "value"), rapid.Bool().Draw(t, "present")
	if !present {
		value = p.Absent
	}
	if value == p.Held {
		return
	}
	edit, err := p.resume(&meta.Hold{Restore: p.found(value, present)})
	want := retry.Remove("x")
	if present {
		want = retry.Set(value, "x")
	}
	if diff := cmp.Diff(want, edit); err != nil || diff != "" {
		t.Fatalf("%v: %s", err, diff)
	}
}

// What a release writes, for each way to resume.
func TestPauseResume(t *testing.T) {
	fleet := func(r Resume) Pause[int64] {
		return Pause[int64]{Path: Field("spec", "replicas"), Running: 1, Absent: 1, Resume: r}
	}
	set, remove := func(n int64) retry.Edit { return retry.Set(n, "spec", "replicas") }, retry.Remove("spec", "replicas")
	cases := map[string]struct {
		pause Pause[int64]
		hold  *meta.Hold
		want  retry.Edit
	}{
		"Write":            {fleet(WriteRunning), &meta.Hold{}, set(1)},
		"WriteWithoutHold": {fleet(WriteRunning), nil, set(1)},
		"Remove":           {fleet(RemoveField), &meta.Hold{}, remove},
		"RemoveNoHold":     {fleet(RemoveField), nil, remove},
		"Restore":          {fleet(RestoreFound), &meta.Hold{Restore: "7"}, set(7)},
		"RestoreLargest":   {fleet(RestoreFound), &meta.Hold{Restore: "9223372036854775807"}, set(math.MaxInt64)},
		"RestoreAbsent":    {fleet(RestoreFound), &meta.Hold{Restore: "null"}, remove},
		"RestoreNoRecord":  {fleet(RestoreFound), &meta.Hold{}, set(1)},
		"RestoreNoHold":    {fleet(RestoreFound), nil, set(1)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := tc.pause.resume(tc.hold)
			if diff := cmp.Diff(tc.want, got); err != nil || diff != "" {
				t.Errorf("%v: %s", err, diff)
			}
		})
	}
}

// Rule H10: a record that would not resume the object, or that is no value of
// the field, is not understood.
func TestRecordThatCannotBeRestored(t *testing.T) {
	replicas := Pause[int64]{Path: Field("spec", "replicas"), Running: 1, Absent: 1, Resume: RestoreFound}
	absentIsHeld, constant := replicas, replicas
	absentIsHeld.Absent = 0
	constant.Resume = WriteRunning
	cases := map[string]struct {
		pause  Pause[int64]
		record string
	}{
		"Held":         {replicas, "0"},
		"AbsentIsHeld": {absentIsHeld, "null"},
		"Fraction":     {replicas, "1.5"},
		"Exponent":     {replicas, "1e3"},
		"TooLarge":     {replicas, "9223372036854775808"},
		"Text":         {replicas, `"7"`},
		"Bool":         {replicas, "true"},
		"NoJSON":       {replicas, "seven"},
		"Two":          {replicas, "7 8"},
		"OtherKind":    {constant, "7"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			kind := of(tc.pause)
			obj := object(held(meta.Hold{Instance: 1, Found: meta.FoundRunning, Restore: tc.record, UID: "u"}), map[string]any{"replicas": int64(0)})
			v := kind.view(meta.Keys{}, obj)
			if v.unknown == nil || v.unknown.Key != (meta.Keys{}).Found() || v.unknown.Value != "running="+tc.record {
				t.Fatalf("got %+v", v.unknown)
			}
			if _, err := kind.release(v, request{Call: meta.Call{Instance: 1}}); !errors.Is(err, meta.ErrStaleHold) {
				t.Errorf("Release: got %v", err)
			}
			if _, err := kind.hold(v, request{Call: meta.Call{Instance: 2}}); !errors.Is(err, meta.ErrRejected) || errors.Is(err, meta.ErrStaleHold) {
				t.Errorf("Hold: got %v", err)
			}
		})
	}
}

// The record of a kind that restores nothing has no value to misread.
func TestFoundIsRecordedWhereItIsRestored(t *testing.T) {
	for resume, want := range map[Resume]string{WriteRunning: "", RemoveField: "", RestoreFound: "7"} {
		p := Pause[int64]{Path: Field("x"), Running: 1, Resume: resume}
		if got := p.found(7, true); got != want {
			t.Errorf("%d: got %q, want %q", resume, got, want)
		}
	}
	if b, _ := json.Marshal("</script>\u2028"); (Pause[string]{Resume: RestoreFound}).found("</script>\u2028", true) != string(b) {
		t.Error("the record is not JSON")
	}
}

func TestRequiredParent(t *testing.T) {
	cases := map[string]struct {
		path []string
		spec any
		want bool
	}{
		"There":       {Field("spec", "run", "policy"), map[string]any{"run": map[string]any{}}, true},
		"Absent":      {Field("spec", "run", "policy"), map[string]any{}, false},
		"Null":        {Field("spec", "run", "policy"), map[string]any{"run": nil}, false},
		"GrandAbsent": {Field("spec", "run", "policy"), nil, false},
		"TopLevel":    {Field("policy"), nil, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := Pause[string]{Path: tc.path, Held: "stop", RequireParent: true}
			if got := p.hasParent(object(map[string]any{}, tc.spec)); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}
