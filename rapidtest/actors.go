package rapidtest

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// An Actor is one of the others that write to the objects under test: a controller such as [Kueue],
// [Trainer] or [Kubelet]. It is level-triggered: what it does depends on what it reads now, and on
// nothing that it remembers. It talks to the server through a dynamic client only, so that it can
// be given a [Scheduler] or a [Plan] like any other client, or run against a real cluster.
type Actor interface {
	// Step looks at the world and makes at most one write to bring it nearer to where the actor
	// wants it. It reports whether there was anything to do. A conflict is no error: somebody was
	// faster, and the next step looks again.
	Step(ctx context.Context) (bool, error)
}

// Settle lets the actors take turns until none of them has anything left to do.
func Settle(ctx context.Context, actors ...Actor) error {
	for {
		busy := false
		for _, a := range actors {
			did, err := a.Step(ctx)
			if err != nil {
				return err
			}
			busy = busy || did
		}
		if !busy {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// Run lets an actor work until ctx ends: it takes all the steps that there are, waits for interval,
// and looks again. Steps that fail are taken again after the next wait.
func Run(ctx context.Context, interval time.Duration, actor Actor) {
	for {
		for {
			did, err := actor.Step(ctx)
			if !did || err != nil || ctx.Err() != nil {
				break
			}
		}
		if !sleep(ctx, interval) {
			return
		}
	}
}

// hand is what an actor writes with.
type hand struct {
	client  dynamic.Interface
	manager string
}

func (h hand) in(gvr schema.GroupVersionResource, obj *unstructured.Unstructured) dynamic.ResourceInterface {
	return h.client.Resource(gvr).Namespace(obj.GetNamespace())
}

func (h hand) update(ctx context.Context, gvr schema.GroupVersionResource, obj *unstructured.Unstructured) (bool, error) {
	_, err := h.in(gvr, obj).Update(ctx, obj, metav1.UpdateOptions{FieldManager: h.manager})
	return true, overtaken(err)
}

func (h hand) updateStatus(ctx context.Context, gvr schema.GroupVersionResource, obj *unstructured.Unstructured) (bool, error) {
	_, err := h.in(gvr, obj).UpdateStatus(ctx, obj, metav1.UpdateOptions{FieldManager: h.manager})
	return true, overtaken(err)
}

func (h hand) create(ctx context.Context, gvr schema.GroupVersionResource, obj *unstructured.Unstructured) (bool, error) {
	_, err := h.in(gvr, obj).Create(ctx, obj, metav1.CreateOptions{FieldManager: h.manager})
	return true, overtaken(err)
}

func (h hand) delete(ctx context.Context, gvr schema.GroupVersionResource, obj *unstructured.Unstructured, opts metav1.DeleteOptions) (bool, error) {
	uid := obj.GetUID()
	opts.Preconditions = &metav1.Preconditions{UID: &uid}
	err := h.in(gvr, obj).Delete(ctx, obj.GetName(), opts)
	return true, overtaken(err)
}

// overtaken forgives what only means that somebody was faster.
func overtaken(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// list reads all objects of a resource; namespace "" means everywhere.
func (h hand) list(ctx context.Context, gvr schema.GroupVersionResource, namespace string) ([]unstructured.Unstructured, error) {
	list, err := h.client.Resource(gvr).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// A Human uses kubectl: merge patches without a resourceVersion, which never conflict and go over
// whatever is there.
type Human struct {
	// Client is what the human works with.
	Client dynamic.Interface
}

// Suspend does what kubectl patch with {"spec":{"suspend":true}} does.
func (h Human) Suspend(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string) error {
	return h.Patch(ctx, gvr, namespace, name, `{"spec":{"suspend":true}}`)
}

// Resume does what kubectl patch with {"spec":{"suspend":false}} does.
func (h Human) Resume(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string) error {
	return h.Patch(ctx, gvr, namespace, name, `{"spec":{"suspend":false}}`)
}

// StopWorkload does what kueuectl stop workload does.
func (h Human) StopWorkload(ctx context.Context, namespace, name string) error {
	return h.Patch(ctx, Workloads().GVR, namespace, name, `{"spec":{"active":false}}`)
}

// ResumeWorkload does what kueuectl resume workload does.
func (h Human) ResumeWorkload(ctx context.Context, namespace, name string) error {
	return h.Patch(ctx, Workloads().GVR, namespace, name, `{"spec":{"active":true}}`)
}

// Patch applies a JSON merge patch.
func (h Human) Patch(ctx context.Context, gvr schema.GroupVersionResource, namespace, name, patch string) error {
	_, err := h.Client.Resource(gvr).Namespace(namespace).Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "kubectl-patch"})
	return err
}
