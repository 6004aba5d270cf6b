package rapidtest

import (
	"context"
	"encoding/json"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	clientretry "k8s.io/client-go/util/retry"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/kinds"
	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/retry"
)

// A peer is a way to pause an object and to let it run again.
type peer struct {
	name string
	// holder connects it to an apiserver.
	holder func(dynamic.Interface) (holdable.Holder, error)
}

// peers are this library and what people do without it, each written from the documentation of what it is called after. None of them puts
// anything on the object but the pause field: there is no place for it in what they do.
func peers() []peer {
	return []peer{
		{"this library", func(client dynamic.Interface) (holdable.Holder, error) {
			engine, err := retry.NewForClient(client, retry.Options{})
			if err != nil {
				return nil, err
			}
			return kinds.TrainJob().Connect(engine, holdable.Options{})
		}},
		{"RetryOnConflict around a boolean", byBoolean(retryOnConflict)},
		{"GET, then a merge patch without a precondition", byBoolean(mergePatch)},
		{"optimistic-lock patch with a blind second try", byBoolean(optimisticPatch)},
	}
}

// A setter brings spec.suspend of an object to a value.
type setter func(ctx context.Context, client dynamic.ResourceInterface, name string, value bool) error

// retryOnConflict is the example in the documentation of client-go's util/retry, with its recommended backoff.
func retryOnConflict(ctx context.Context, client dynamic.ResourceInterface, name string, value bool) error {
	return clientretry.RetryOnConflict(clientretry.DefaultRetry, func() error {
		obj, err := client.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if err := unstructured.SetNestedField(obj.Object, value, "spec", "suspend"); err != nil {
			return err
		}
		_, err = client.Update(ctx, obj, metav1.UpdateOptions{})
		return err
	})
}

// mergePatch is what kueuectl stop and resume and flux suspend and resume do: they read the object, to see that it is there, and patch one field.
func mergePatch(ctx context.Context, client dynamic.ResourceInterface, name string, value bool) error {
	if _, err := client.Get(ctx, name, metav1.GetOptions{}); err != nil {
		return err
	}
	return patchSuspend(ctx, client, name, "", value)
}

// optimisticPatch is controller-runtime's MergeFromWithOptimisticLock, which puts the resourceVersion into the patch; and what is often found around
// it: on a conflict the object is read again and the same patch is sent with what is there now.
func optimisticPatch(ctx context.Context, client dynamic.ResourceInterface, name string, value bool) error {
	obj, err := client.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	err = patchSuspend(ctx, client, name, obj.GetResourceVersion(), value)
	if !apierrors.IsConflict(err) {
		return err
	}
	if obj, err = client.Get(ctx, name, metav1.GetOptions{}); err != nil {
		return err
	}
	return patchSuspend(ctx, client, name, obj.GetResourceVersion(), value)
}

func patchSuspend(ctx context.Context, client dynamic.ResourceInterface, name, resourceVersion string, value bool) error {
	patch := map[string]any{"spec": map[string]any{"suspend": value}}
	if resourceVersion != "" {
		patch["metadata"] = map[string]any{"resourceVersion": resourceVersion}
	}
	body, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	_, err = client.Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{})
	return err
}

// byBoolean makes a holder out of a setter, for supervisors to use like any other.
func byBoolean(set setter) func(dynamic.Interface) (holdable.Holder, error) {
	return func(client dynamic.Interface) (holdable.Holder, error) { return boolean{client, set}, nil }
}

// A boolean holder pauses an object by its pause field alone.
type boolean struct {
	client dynamic.Interface
	set    setter
}

// Hold implements holdable.Holder.
func (b boolean) Hold(ctx context.Context, ref meta.Ref, call meta.Call) (holdable.Receipt, error) {
	return holdable.Receipt{Did: holdable.Placed}, b.write(ctx, meta.OpHold, ref, call, true)
}

// Release implements holdable.Holder.
func (b boolean) Release(ctx context.Context, ref meta.Ref, call meta.Call) (holdable.Receipt, error) {
	return holdable.Receipt{Did: holdable.Lifted}, b.write(ctx, meta.OpRelease, ref, call, false)
}

// Open implements holdable.Holder.
func (b boolean) Open(context.Context, meta.Ref, meta.Call) (holdable.Receipt, error) {
	return holdable.Receipt{}, meta.Errorf(meta.ErrUnsupported, "no start gate")
}

// Inspect implements holdable.Holder.
func (b boolean) Inspect(context.Context, meta.Ref) (holdable.Inspection, error) {
	return holdable.Inspection{}, meta.Errorf(meta.ErrUnsupported, "there is nothing to inspect")
}

// CallBound implements holdable.Holder.
func (b boolean) CallBound() time.Duration { return meta.DefaultRequestTimeout + meta.DefaultMargin }

// write sets the field, and says of an error as much as its caller could find out: a conflict and any other 4xx was not carried out, of anything
// else one has to wait for what becomes of it.
func (b boolean) write(ctx context.Context, op meta.Op, ref meta.Ref, call meta.Call, value bool) error {
	ctx, cancel := context.WithDeadline(ctx, call.Deadline)
	defer cancel()
	err := b.set(ctx, b.client.Resource(TrainJobs().GVR).Namespace(ref.Namespace), ref.Name, value)
	if err == nil {
		return nil
	}
	failed := meta.Errorf(meta.ErrInDoubt, "").Because(err)
	failed.Op, failed.Instance, failed.Fate, failed.PendingUntil = op, call.Instance, meta.FatePending, call.Deadline.Add(b.CallBound())
	if status, ok := err.(apierrors.APIStatus); ok && status.Status().Code < 500 {
		failed.Kind, failed.Fate, failed.PendingUntil = meta.ErrRejected, meta.FateNone, time.Time{}
		if apierrors.IsConflict(err) || apierrors.IsTooManyRequests(err) {
			failed.Kind = meta.ErrConflict
		}
	}
	return failed
}
