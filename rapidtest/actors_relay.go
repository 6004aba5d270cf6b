package rapidtest

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
)

// A Relay is a controller between a job and its pods: for every object of one resource it makes one
// of another, under the same name, and pauses that as its maker is paused. Two of them stand for
// what Trainer and JobSet do, and a [Trainer] then makes the pods of the Jobs:
//
//	&Relay{Client: c, From: TrainJobs(), To: JobSets()}
//	&Relay{Client: c, From: JobSets(), To: Jobs()}
//	&Trainer{Client: c, Jobs: Jobs()}
//
// One that is given no step is behind: what it should have paused runs on. When it
// acts, it goes by what is there now.
type Relay struct {
	// Client is what it works with.
	Client dynamic.Interface
	// Namespace limits it to one namespace; it works in all where empty.
	Namespace string
	// From and To are what it goes by and what it makes. Both must have a spec.suspend.
	From, To Resource
}

func (r *Relay) hand() hand { return hand{client: r.Client, manager: "relay"} }

// Step implements [Actor].
func (r *Relay) Step(ctx context.Context) (bool, error) {
	makers, err := r.hand().list(ctx, r.From.GVR, r.Namespace)
	if err != nil {
		return false, err
	}
	made, err := r.hand().list(ctx, r.To.GVR, r.Namespace)
	if err != nil {
		return false, err
	}
	if did, err := r.hand().collect(ctx, r.To.GVR, made, r.From.Kind, makers); did || err != nil {
		return did, err
	}
	for i := range makers {
		if did, err := r.reconcile(ctx, &makers[i], made); did || err != nil {
			return did, err
		}
	}
	return false, nil
}

func (r *Relay) reconcile(ctx context.Context, maker *unstructured.Unstructured, made []unstructured.Unstructured) (bool, error) {
	if hasEnded(maker) || maker.GetDeletionTimestamp() != nil {
		return false, nil
	}
	suspend := boolAt(maker, false, "spec", "suspend")
	for i := range made {
		obj := &made[i]
		if !ownedBy(obj, maker) {
			continue
		}
		if hasEnded(obj) || obj.GetDeletionTimestamp() != nil || boolAt(obj, false, "spec", "suspend") == suspend {
			return false, nil
		}
		_ = unstructured.SetNestedField(obj.Object, suspend, "spec", "suspend") // fails only where spec is no object
		return r.hand().update(ctx, r.To.GVR, obj)
	}
	return r.hand().create(ctx, r.To.GVR, r.newObject(maker, suspend))
}

func (r *Relay) newObject(maker *unstructured.Unstructured, suspend bool) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"suspend": suspend}}}
	obj.SetGroupVersionKind(r.To.GVR.GroupVersion().WithKind(r.To.Kind))
	obj.SetNamespace(maker.GetNamespace())
	obj.SetName(maker.GetName())
	obj.SetLabels(map[string]string{JobSetNameLabel: maker.GetName()})
	controlledBy(obj, maker)
	return obj
}
