package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/rapidtest"
)

const (
	// removalTime is how long it may take until nothing of a run is left.
	removalTime = 2 * time.Minute
	// namespaceTime is how long a namespace that is being deleted may take
	// before the story looks whether anybody is at it.
	namespaceTime = 5 * time.Second
)

// A made object is one that the story has made in a real cluster, besides jobs.
type made struct {
	client dynamic.ResourceInterface
	gvr    schema.GroupVersionResource
	name   string
}

// make creates an object and remembers to remove it, unless it was refused: no
// answer, or one that says nothing, leaves it open whether the object is there.
func (w *world) make(ctx context.Context, gvr schema.GroupVersionResource, client dynamic.ResourceInterface, obj *unstructured.Unstructured) error {
	_, err := client.Create(ctx, obj, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Code < http.StatusInternalServerError {
		return fmt.Errorf("making a %s: %w", obj.GetKind(), err)
	}
	w.made = append(w.made, made{client, gvr, obj.GetName()})
	return err
}

// removeAll removes all that a run has made in a real cluster, and waits until it
// is gone.
func (w *world) removeAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, removalTime)
	defer cancel()
	errs := []error{w.removeJobs(ctx)}
	for _, m := range slices.Backward(w.made) {
		errs = append(errs, w.removeMade(ctx, m))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("not all that this run has made could be removed; it has the label %s=%s: %w", runLabel, w.run, err)
	}
	return nil
}

// removeJobs removes the jobs, and what controllers have made for them: the real
// ones' by the garbage collector, that of those who are played by hand.
func (w *world) removeJobs(ctx context.Context) error {
	if w.namespace == "" {
		return nil
	}
	owners := map[string]bool{}
	for {
		left, err := w.removeRound(ctx, owners)
		if err == nil && len(left) == 0 {
			return nil
		}
		if !pause(ctx, w.pace) {
			return errors.Join(fmt.Errorf("still there: %s", strings.Join(left, ", ")), err)
		}
	}
}

// removeRound deletes what is there, and returns what was. It remembers the UIDs
// of the jobs, by which their Workloads are found when they are gone themselves.
func (w *world) removeRound(ctx context.Context, owners map[string]bool) (left []string, err error) {
	jobs, err := w.in(trainJobs()).List(ctx, metav1.ListOptions{LabelSelector: runLabel + "=" + w.run})
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, job := range jobs.Items {
		owners[string(job.GetUID())] = true
		left = append(left, "TrainJob "+job.GetName())
		errs = append(errs, w.deleteJob(ctx, job.GetName()))
	}
	queued, err := w.in(workloads()).List(ctx, metav1.ListOptions{LabelSelector: rapidtest.JobUIDLabel})
	if err != nil {
		return left, err
	}
	for _, wl := range queued.Items {
		if !owners[wl.GetLabels()[rapidtest.JobUIDLabel]] {
			continue
		}
		left = append(left, "Workload "+wl.GetName())
		if w.cast.kueue != nil {
			errs = append(errs, w.force(ctx, workloads(), wl.GetName()))
		}
	}
	for _, name := range jobNames() {
		pods, err := w.pods(ctx, name)
		errs = append(errs, err)
		for _, pod := range pods {
			left = append(left, "Pod "+pod.GetName())
			if w.cast.trainer != nil || pod.GetLabels()[runLabel] == w.run {
				errs = append(errs, w.force(ctx, podsOf(), pod.GetName()))
			}
		}
	}
	return left, errors.Join(errs...)
}

// deleteJob deletes a job, and leaves what belongs to it to the garbage collector.
func (w *world) deleteJob(ctx context.Context, name string) error {
	background := metav1.DeletePropagationBackground
	return ignoreGone(w.in(trainJobs()).Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &background}))
}

// force deletes an object with no regard to its finalizers or its node.
func (w *world) force(ctx context.Context, gvr schema.GroupVersionResource, name string) error {
	_, err := w.in(gvr).Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	if err != nil {
		return ignoreGone(err)
	}
	return ignoreGone(w.in(gvr).Delete(ctx, name, *metav1.NewDeleteOptions(0)))
}

// ignoreGone is err, unless that says that the object is gone already.
func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// removeMade deletes an object and waits until it is gone.
func (w *world) removeMade(ctx context.Context, m made) error {
	if err := ignoreGone(m.client.Delete(ctx, m.name, metav1.DeleteOptions{})); err != nil {
		return err
	}
	began := time.Now()
	for {
		obj, err := m.client.Get(ctx, m.name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err == nil && m.gvr == namespaces() && time.Since(began) > namespaceTime {
			err = w.finalize(ctx, obj)
		}
		if !pause(ctx, w.pace) {
			return errors.Join(fmt.Errorf("%s %s is still there", m.gvr.Resource, m.name), err)
		}
	}
}

// finalize plays the part of the namespace controller where none runs: that one
// would have written conditions on a namespace that takes its time. It is empty:
// what the story had in it is gone.
func (w *world) finalize(ctx context.Context, ns *unstructured.Unstructured) error {
	if len(holdable.Conditions(ns)) > 0 {
		return nil
	}
	ns.Object["spec"] = map[string]any{"finalizers": []any{}}
	_, err := w.client.Resource(namespaces()).Update(ctx, ns, metav1.UpdateOptions{}, "finalize")
	return ignoreGone(err)
}
