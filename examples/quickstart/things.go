package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/samber/lo"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/kubehold/kubehold/kinds"
	"github.com/kubehold/kubehold/rapidtest"
)

// The resources of the story.
func trainJobs() schema.GroupVersionResource { return kinds.TrainJob().Resource }
func workloads() schema.GroupVersionResource { return kinds.Workload().Resource }
func podsOf() schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: "pods"}
}
func namespaces() schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
}
func ofTrainer(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "trainer.kubeflow.org", Version: "v1alpha1", Resource: resource}
}
func ofKueue(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "kueue.x-k8s.io", Version: "v1beta2", Resource: resource}
}

// object returns an object of the story, without a namespace.
func (w *world) object(gvr schema.GroupVersionResource, kind, name string, spec map[string]any) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	obj.SetAPIVersion(gvr.GroupVersion().String())
	obj.SetKind(kind)
	obj.SetName(name)
	obj.SetLabels(w.labels())
	return obj
}

// in returns the resource in the story's namespace.
func (w *world) in(gvr schema.GroupVersionResource) dynamic.ResourceInterface {
	return w.client.Resource(gvr).Namespace(w.namespace)
}

// createJob makes a TrainJob that is suspended: in plain mode it waits at its
// start gate, in Kueue mode for its admission.
func (w *world) createJob(ctx context.Context, name string, labels map[string]string) error {
	w.cast.repair()
	job := w.object(trainJobs(), "TrainJob", w.job(name), map[string]any{
		"runtimeRef": map[string]any{"kind": "TrainingRuntime", "name": w.runtime},
		"suspend":    true,
	})
	job.SetLabels(lo.Assign(labels, w.labels()))
	_, err := w.in(trainJobs()).Create(ctx, job, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	return err
}

// pods returns the pods of a job.
func (w *world) pods(ctx context.Context, job string) ([]unstructured.Unstructured, error) {
	list, err := w.in(podsOf()).List(ctx, metav1.ListOptions{LabelSelector: rapidtest.JobSetNameLabel + "=" + w.job(job)})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

func nodeOf(pod unstructured.Unstructured) string { return textAt(pod, "spec", "nodeName") }

func runs(pod unstructured.Unstructured) bool {
	return textAt(pod, "status", "phase") == "Running" && pod.GetDeletionTimestamp() == nil
}

func textAt(obj unstructured.Unstructured, path ...string) string {
	text, _, _ := unstructured.NestedString(obj.Object, path...) // anything else is no text
	return text
}

// workload returns the Workload of a job.
func (w *world) workload(ctx context.Context, job string) (*unstructured.Unstructured, error) {
	owner, err := w.in(trainJobs()).Get(ctx, w.job(job), metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	list, err := w.in(workloads()).List(ctx, metav1.ListOptions{LabelSelector: rapidtest.JobUIDLabel + "=" + string(owner.GetUID())})
	if err != nil {
		return nil, err
	}
	if len(list.Items) != 1 {
		return nil, fmt.Errorf("the job has %d Workloads", len(list.Items))
	}
	return &list.Items[0], nil
}

// places lists where pods are, for the reader.
func places(pods []unstructured.Unstructured) string {
	if len(pods) == 0 {
		return "no pod"
	}
	return strings.Join(lo.Map(pods, func(p unstructured.Unstructured, _ int) string {
		state := textAt(p, "status", "phase")
		if p.GetDeletionTimestamp() != nil {
			state += ", being deleted"
		}
		return fmt.Sprintf("%s (%s) on %s", p.GetName(), state, nodeOf(p))
	}), "\n")
}
