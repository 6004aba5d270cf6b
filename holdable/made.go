package holdable

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/retry"
)

// A Made is a kind of objects that stand between an object and its pods: a
// controller makes them for the object, and pauses them once it has seen that
// the object is paused. Until then pods may still be made for them, which no
// list of pods shows. Whoever may see the object's pods must be able to see what
// is made: a kind that is not served is an error.
type Made struct {
	Kind     string
	Resource schema.GroupVersionResource
	// Selector returns the label selector of those that were made for the named
	// object. Nil: there is at most one, and it has the name of the named object,
	// whoever made it.
	Selector func(named *unstructured.Unstructured) (string, error)
	// Stop is their pause field.
	Stop Stop
	// Ended says how one of them has ended, "" if it has not: nothing is made any
	// more for what has ended, nor for what is being deleted. Nil: they never end.
	Ended func(*unstructured.Unstructured) string
}

// AsMade returns the kind as one that is made for another, found by selector; see
// Made.
func (h Holdable[T]) AsMade(selector func(*unstructured.Unstructured) (string, error)) Made {
	return Made{Kind: h.Kind, Resource: h.Resource, Selector: selector, Stop: h.Pause.Stop(), Ended: h.Ended}
}

// A Stop is a pause field as it is read, whatever its type; see Pause.Stop. The
// zero Stop says of no object that it runs.
type Stop struct {
	path         []string
	held, absent any
}

// Stop returns the field as it is read.
func (p Pause[T]) Stop() Stop { return Stop{path: p.Path, held: p.Held, absent: p.Absent} }

// runs reports whether an object is not stopped by the field. One that cannot be
// read stops nothing.
func (s Stop) runs(obj *unstructured.Unstructured) bool {
	value, err := retry.Lookup(obj, s.path...)
	if value == nil {
		value = s.absent
	}
	return len(s.path) > 0 && (err != nil || value != s.held)
}

// runs reports whether something may still be made for obj.
func (m Made) runs(obj *unstructured.Unstructured) bool {
	return m.Stop.runs(obj) && ask(m.Ended, obj) == "" && obj.GetDeletionTimestamp() == nil
}

// running returns the first of what was made for the named object that is not
// paused, "" if all is.
func running(ctx context.Context, r retry.Reader, makes []Made, named *unstructured.Unstructured) (string, error) {
	for _, m := range makes {
		name, err := m.first(ctx, r, named, m.runs)
		if err != nil {
			return "", err
		}
		if name != "" {
			return m.Kind + " " + name, nil
		}
	}
	return "", nil
}

// first returns the name of the first that was made for the named object and of
// which is says so, "" if there is none.
func (m Made) first(ctx context.Context, r retry.Reader, named *unstructured.Unstructured, is func(*unstructured.Unstructured) bool) (string, error) {
	found := ""
	err := m.each(ctx, r, named, func(obj *unstructured.Unstructured) bool {
		if is(obj) {
			found = obj.GetName()
		}
		return found == ""
	})
	return found, err
}

// each calls visit for what was made for the named object, until visit returns
// false.
func (m Made) each(ctx context.Context, r retry.Reader, named *unstructured.Unstructured, visit func(*unstructured.Unstructured) bool) error {
	if m.Selector == nil {
		obj, err := r.Get(ctx, m.Resource, named.GetNamespace(), named.GetName())
		switch {
		case apierrors.IsNotFound(err) && !apierrors.IsUnexpectedServerError(err): // no proxy's 404
			return nil
		case err == nil:
			visit(obj)
		}
		return err
	}
	selector, err := m.Selector(named)
	if err == nil && selector == "" {
		err = meta.Errorf(meta.ErrRejected, "an empty selector would take every %s of the namespace for the object's", m.Kind)
	}
	if err != nil {
		return meta.Errorf(meta.ErrRejected, "the %ss of the object cannot be found", m.Kind).Because(err)
	}
	return r.Each(ctx, m.Resource, named.GetNamespace(), selector, visit)
}
