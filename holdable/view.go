package holdable

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/retry"
)

// A view is everything that a decision looks at, read off one version of the
// held object.
type view[T Value] struct {
	obj *unstructured.Unstructured
	uid types.UID

	// hold is the hold in force, nil if there is none; unknown is set where
	// there is one that cannot be understood (rule H10). void says that
	// annotations of another object's hold lie there (rule H13).
	hold    *meta.Hold
	unknown *meta.AnnotationError
	void    bool

	value   T
	present bool
	paused  bool // the pause field reads held
	badType error

	opened         bool
	executions     int64
	badExecutions  error
	owner          string
	ended          string
	deactivated    string
	beingDeleted   bool
	lacksTheParent bool
}

func (h *Holdable[T]) view(keys meta.Keys, obj *unstructured.Unstructured) view[T] {
	annotations := own(keys, obj)
	v := view[T]{
		obj:            obj,
		uid:            obj.GetUID(),
		beingDeleted:   obj.GetDeletionTimestamp() != nil,
		ended:          ask(h.Ended, obj),
		deactivated:    ask(h.Deactivated, obj),
		owner:          h.ownerOf(obj),
		lacksTheParent: h.Pause.RequireParent && !h.Pause.hasParent(obj),
	}
	v.value, v.present, v.badType = h.Pause.read(obj)
	v.paused = v.badType == nil && v.value == h.Pause.Held
	v.opened = keys.ReadOpened(v.uid, annotations)
	v.executions, v.badExecutions = keys.ReadExecutions(v.uid, annotations)
	v.void = keys.Void(v.uid, annotations)
	v.hold, v.unknown = h.readHold(keys, v.uid, annotations)
	return v
}

// readHold reads the hold, and the part of its record that only the kind can
// read.
func (h *Holdable[T]) readHold(keys meta.Keys, uid types.UID, annotations map[string]string) (*meta.Hold, *meta.AnnotationError) {
	hold, err := keys.ReadHold(uid, annotations)
	if bad, ok := err.(*meta.AnnotationError); ok {
		return nil, bad
	}
	if hold == nil || hold.Restore == "" {
		return hold, nil
	}
	if _, err := h.Pause.restored(hold.Restore); err != nil {
		return nil, &meta.AnnotationError{Key: keys.Found(), Value: annotations[keys.Found()], Problem: err.Error()}
	}
	return hold, nil
}

// own returns the annotations of obj that are ours.
func own(keys meta.Keys, obj *unstructured.Unstructured) map[string]string {
	all, _ := retry.Lookup(obj, "metadata", "annotations")
	annotations, _ := all.(map[string]any) // nil if they are anything else
	ours := map[string]string{}
	for _, key := range append(keys.OfHold(), keys.Opened(), keys.Executions(), keys.Admission()) {
		if v, ok := annotations[key]; ok {
			ours[key] = fmt.Sprint(v)
		}
	}
	return ours
}

func ask(f func(*unstructured.Unstructured) string, obj *unstructured.Unstructured) string {
	if f == nil {
		return ""
	}
	return f(obj)
}

// instance is the instance in force, 0 if there is none.
func (v *view[T]) instance() int64 {
	if v.hold == nil {
		return 0
	}
	return v.hold.Instance
}
