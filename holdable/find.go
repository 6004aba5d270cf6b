package holdable

import (
	"context"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/samber/lo"

	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/retry"
)

// A finder reads the held object of one call. Every try looks it up again; what
// stays is the UID of the named object (rule C6).
type finder[T Value] struct {
	kind *Holdable[T]
	// ref is what the caller named; its UID is fixed at the first read.
	ref meta.Ref
	// wantNamed asks for the named object: to learn its UID, or for more.
	wantNamed bool
	// namedRead is the named object as it was read last, nil if it was not.
	namedRead *unstructured.Unstructured
}

func (f *finder[T]) object() meta.Object {
	return meta.Object{Kind: f.kind.GroupVersionKind().Kind, Ref: f.ref}
}

// read returns the held object.
func (f *finder[T]) read(ctx context.Context, r retry.Reader) (*unstructured.Unstructured, error) {
	if f.kind.Of == nil {
		return f.readNamed(ctx, r)
	}
	if f.wantNamed {
		if _, err := f.readNamed(ctx, r); err != nil {
			return nil, err
		}
	}
	held, err := f.candidates(ctx, r)
	if err != nil {
		return nil, err
	}
	return f.pick(held)
}

// readNamed reads the named object and holds it against its UID.
func (f *finder[T]) readNamed(ctx context.Context, r retry.Reader) (*unstructured.Unstructured, error) {
	resource := f.kind.Resource
	if f.kind.Of != nil {
		resource = f.kind.Of.Resource
	}
	obj, err := r.Get(ctx, resource, f.ref.Namespace, f.ref.Name)
	if err != nil {
		return nil, err
	}
	uid := obj.GetUID()
	switch {
	case uid == "": // without one it cannot be told from anything else
		return nil, meta.Errorf(meta.ErrRejected, "the answer is no stored object: it has no UID")
	case f.ref.UID != "" && f.ref.UID != uid:
		return nil, meta.Errorf(meta.ErrReplaced, "its UID is %s, not %s", uid, f.ref.UID)
	}
	f.ref.UID = uid
	f.namedRead = obj
	return obj, nil
}

// candidates returns the objects that may be the held one: those that carry the
// label, and only if there are none, those that the named object controls.
func (f *finder[T]) candidates(ctx context.Context, r retry.Reader) ([]*unstructured.Unstructured, error) {
	selector := labels.Set{f.kind.Of.UIDLabel: string(f.ref.UID)}.String()
	held, err := f.list(ctx, r, selector, func(owner types.UID) bool { return owner == "" || owner == f.ref.UID })
	if err != nil || len(held) > 0 {
		return held, err
	}
	return f.list(ctx, r, "", func(owner types.UID) bool { return owner == f.ref.UID })
}

// list returns the objects whose controller's UID ("" for none) is wanted.
func (f *finder[T]) list(ctx context.Context, r retry.Reader, selector string, wanted func(owner types.UID) bool) ([]*unstructured.Unstructured, error) {
	var found []*unstructured.Unstructured
	err := r.Each(ctx, f.kind.Resource, f.ref.Namespace, selector, func(obj *unstructured.Unstructured) bool {
		if wanted(controller(obj).UID) {
			found = append(found, obj)
		}
		return true
	})
	return found, err
}

// pick returns the one that has not ended (rule H7), or the newest where all
// have.
func (f *finder[T]) pick(held []*unstructured.Unstructured) (*unstructured.Unstructured, error) {
	running := lo.Filter(held, func(obj *unstructured.Unstructured, _ int) bool { return ask(f.kind.Ended, obj) == "" })
	name := func(obj *unstructured.Unstructured, _ int) string { return obj.GetName() }
	switch {
	case len(held) == 0:
		return nil, meta.Errorf(meta.ErrMissing, "%s %s/%s (UID %s) has no %s",
			f.kind.Of.Kind, f.ref.Namespace, f.ref.Name, f.ref.UID, f.kind.Kind)
	case len(running) > 1:
		return nil, meta.Errorf(meta.ErrRejected, "it has more than one unfinished %s: %s",
			f.kind.Kind, strings.Join(lo.Map(running, name), ", "))
	case len(running) == 1:
		return running[0], nil
	}
	return lo.MaxBy(held, func(a, b *unstructured.Unstructured) bool {
		return a.GetCreationTimestamp().After(b.GetCreationTimestamp().Time)
	}), nil
}

// controller returns the controller ownerReference, or a zero one.
func controller(obj *unstructured.Unstructured) metav1.OwnerReference {
	return lo.FromPtr(metav1.GetControllerOfNoCopy(obj))
}
