package holdable

import (
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/retry"
)

// A Value is what a pause field may hold.
type Value interface{ bool | int64 | string }

// A Holdable says how one kind is paused, over unstructured objects, so that a
// field which a newer version of the kind has added is never dropped. T is the
// Go type of the pause field. A Holdable is a plain value: copy it, change the
// copy, compose it (see package kinds).
//
// The smallest one that works, for a kind paused by spec.suspend:
//
//	holdable.Holdable[bool]{
//		Kind:     "Backup",
//		Resource: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "backups"},
//		Pause:    holdable.Pause[bool]{Path: holdable.Field("spec", "suspend"), Held: true},
//	}
type Holdable[T Value] struct {
	// Kind and Resource name the held object: the one that is written.
	Kind     string
	Resource schema.GroupVersionResource
	// ClusterScoped is set for a kind without namespaces.
	ClusterScoped bool
	// Pause is the field that stops the object.
	Pause Pause[T]

	// Owners are the other controllers that may own the pause field. On an
	// object that one of them owns, Hold and Open are refused and Release
	// leaves the field alone (rule H8).
	Owners []Owner
	// Ended says how the object has ended, "" if it has not: an object that
	// has ended is not resumed (rule R7). Nil: the kind never ends.
	Ended func(*unstructured.Unstructured) string
	// Deactivated says why the kind's own controller has paused the object, or
	// is about to, "" if it has not (rule K1). Nil: no controller does that.
	Deactivated func(*unstructured.Unstructured) string

	// Pods returns the label selector of the pods of the named object. Nil: its
	// pods cannot be found, so they are not waited for (rule R4), and whether
	// the object is drained is not known (rule K3).
	Pods func(named *unstructured.Unstructured) (string, error)
	// Makes are the kinds of objects that stand between the named object and its
	// pods, from the top down. The readmission gate goes by them (rule G1); a
	// Release, and whether an object is drained, go by its pods alone (rule R5).
	Makes []Made
	// GatedElsewhere says that something else keeps a resumed object from
	// running beside its earlier pods, so that Release does not have to: in
	// Kueue mode, the readmission gate.
	GatedElsewhere bool
	// StartGate says that an object is created paused and runs only once it
	// was opened, and that its executions are counted.
	StartGate bool

	// Of is set where callers name another object than the one that is held.
	// Nil: they name the held object itself.
	Of *Named
}

// A Named is the object that callers name where it is not the one that is held:
// in Kueue mode, the job whose Workload is held.
type Named struct {
	Kind     string
	Resource schema.GroupVersionResource
	// UIDLabel is the label of the held object that carries the named object's
	// UID. Where no object has it, the held object is looked for by its
	// controller ownerReference (rule H7).
	UIDLabel string
	// Stop is the pause field of the named object itself. The readmission gate
	// goes by it.
	Stop Stop
}

// A Pause is the field that stops an object.
type Pause[T Value] struct {
	// Path leads to the field; see Field, Annotation and Label.
	Path []string
	// Held stops the object and Running lets it run. Absent is what the field
	// reads where it is missing.
	Held, Running, Absent T
	// Resume says what a release writes.
	Resume Resume
	// RequireParent refuses a hold on an object that lacks the map the field
	// lies in, for kinds where its presence has a meaning of its own.
	// Otherwise it is made.
	RequireParent bool
}

// Resume says what a release writes to the pause field.
type Resume int

const (
	// WriteRunning writes Pause.Running.
	WriteRunning Resume = iota
	// RemoveField removes the field.
	RemoveField
	// RestoreFound puts back what the hold found, which may be that there was
	// no field. The hold records it; where the record lacks it, Pause.Running
	// is written.
	RestoreFound
)

// Field returns the path of a field, from the root of the object.
func Field(path ...string) []string { return path }

// Annotation returns the path of an annotation. T must be string.
func Annotation(key string) []string { return []string{"metadata", "annotations", key} }

// Label returns the path of a label. T must be string.
func Label(key string) []string { return []string{"metadata", "labels", key} }

// An Owner reports who else owns the pause field of an object, and what to do
// about it, as the end of a sentence; "" if nobody does.
type Owner func(*unstructured.Unstructured) string

// A Kind is a Holdable[T] of any T.
type Kind interface {
	// GroupVersionKind is the kind that callers name.
	GroupVersionKind() schema.GroupVersionKind
	// Check returns an ErrInvalid that names the first mistake in the
	// descriptor, nil if there is none.
	Check() error
	// Connect returns a holder for the kind, or an ErrInvalid that says what is
	// wrong with the descriptor, the engine or the options.
	Connect(*retry.Engine, Options) (Holder, error)
	// Describe returns the kind without the type of its pause field.
	Describe() Description
	// Direct returns the kind of which callers name the held object itself:
	// the kind itself, unless Holdable.Of is set.
	Direct() Kind
}

// GroupVersionKind returns the kind that callers name.
func (h Holdable[T]) GroupVersionKind() schema.GroupVersionKind {
	if h.Of != nil {
		return h.Of.Resource.GroupVersion().WithKind(h.Of.Kind)
	}
	return h.Resource.GroupVersion().WithKind(h.Kind)
}

// Connect returns a *Client[T] on the engine.
func (h Holdable[T]) Connect(engine *retry.Engine, opts Options) (Holder, error) {
	return connect(h, engine, opts)
}

// Check returns an ErrInvalid that names the first mistake in h, nil if there
// is none.
func (h Holdable[T]) Check() error {
	p := h.Pause
	inMetadata := len(p.Path) > 0 && p.Path[0] == "metadata"
	_, isText := any(p.Held).(string)
	switch {
	case h.Kind == "" || h.Resource.Version == "" || h.Resource.Resource == "":
		return meta.Invalidf("descriptor of %q: kind, version and resource must be set, not %v", h.Kind, h.Resource)
	case h.Of != nil && (h.Of.Kind == "" || h.Of.Resource.Version == "" || h.Of.Resource.Resource == "" || h.Of.UIDLabel == ""):
		return meta.Invalidf("descriptor of %s: the named kind needs a kind, a version, a resource and a label", h.Kind)
	case len(p.Path) == 0 || slices.Contains(p.Path, ""):
		return meta.Invalidf("descriptor of %s: the pause field has no path, or an empty step in it: %q", h.Kind, p.Path)
	case p.Held == p.Running:
		return meta.Invalidf("descriptor of %s: %s=%v would both hold the object and let it run", h.Kind, retry.PathString(p.Path), p.Held)
	case inMetadata && (len(p.Path) != 3 || p.Path[1] != "annotations" && p.Path[1] != "labels"):
		return meta.Invalidf("descriptor of %s: %s cannot be a pause field: of the metadata, only labels and annotations can", h.Kind, retry.PathString(p.Path))
	case inMetadata && !isText:
		return meta.Invalidf("descriptor of %s: %s is text, so its values must be strings, not %T", h.Kind, retry.PathString(p.Path), p.Held)
	case p.Path[0] == "apiVersion" || p.Path[0] == "kind" || p.Path[0] == "status":
		return meta.Invalidf("descriptor of %s: an update cannot write %s", h.Kind, retry.PathString(p.Path))
	case p.Resume == RemoveField && p.Absent == p.Held:
		return meta.Invalidf("descriptor of %s: a missing %s reads held, so removing it resumes nothing", h.Kind, retry.PathString(p.Path))
	case p.Resume < WriteRunning || p.Resume > RestoreFound:
		return meta.Invalidf("descriptor of %s: unknown Resume %d", h.Kind, p.Resume)
	case h.StartGate && h.Of != nil:
		return meta.Invalidf("descriptor of %s: a start gate belongs to the object that callers name", h.Kind)
	}
	for _, m := range h.Makes {
		if m.Kind == "" || m.Resource.Version == "" || m.Resource.Resource == "" || len(m.Stop.path) == 0 {
			return meta.Invalidf("descriptor of %s: what is made for it needs a kind, a version, a resource and a pause field, not %q %v %q", h.Kind, m.Kind, m.Resource, m.Stop.path)
		}
	}
	return nil
}

// read returns the value of the pause field and whether the field is there, or
// an error if what is there is no T.
func (p Pause[T]) read(obj *unstructured.Unstructured) (value T, present bool, err error) {
	v, err := retry.Lookup(obj, p.Path...)
	if err != nil {
		return p.Absent, false, err
	}
	if v == nil {
		return p.Absent, false, nil
	}
	value, ok := v.(T)
	if !ok {
		return p.Absent, true, fmt.Errorf("%s is %T %v, not %T", retry.PathString(p.Path), v, v, value)
	}
	return value, true, nil
}

// hasParent reports whether the map that the field lies in is there.
func (p Pause[T]) hasParent(obj *unstructured.Unstructured) bool {
	parent, _ := retry.Lookup(obj, p.Path[:len(p.Path)-1]...) // nil beside an error
	return parent != nil
}

// resume returns the edit that lets the object run again.
func (p Pause[T]) resume(hold *meta.Hold) (retry.Edit, error) {
	switch {
	case p.Resume == RemoveField:
		return retry.Remove(p.Path...), nil
	case p.Resume == WriteRunning || hold == nil || hold.Restore == "":
		return retry.Set(p.Running, p.Path...), nil
	}
	value, err := p.restored(hold.Restore)
	if err != nil || value == nil {
		return retry.Remove(p.Path...), err
	}
	return retry.Set(*value, p.Path...), nil
}

// found returns what the record of a hold keeps of the field's value.
func (p Pause[T]) found(value T, present bool) string {
	if p.Resume != RestoreFound {
		return ""
	}
	if !present {
		return "null"
	}
	b, err := json.Marshal(value)
	if err != nil { // no value of T fails to marshal
		return ""
	}
	return string(b)
}

// restored parses what found returned: nil means that there was no field.
func (p Pause[T]) restored(record string) (*T, error) {
	var value *T
	if p.Resume != RestoreFound {
		return nil, fmt.Errorf("the record has a value, but a release of this kind restores none")
	}
	if err := json.Unmarshal([]byte(record), &value); err != nil {
		return nil, fmt.Errorf("the record's value is no %T", p.Held)
	}
	if value != nil && *value == p.Held || value == nil && p.Absent == p.Held {
		return nil, fmt.Errorf("the record's value would not resume the object")
	}
	return value, nil
}
