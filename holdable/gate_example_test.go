package holdable_test

import (
	"context"
	"fmt"
	"log"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/kinds"
	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/rapidtest"
	"github.com/kubehold/kubehold/retry"
)

// The gate of TrainJobs: Kueue is about to admit one again, and a pod of its
// earlier execution has not ended.
func ExampleGate() {
	ctx := context.Background()
	server := rapidtest.NewServer(rapidtest.TrainJobs(), rapidtest.JobSets(), rapidtest.Jobs(), rapidtest.Workloads(), rapidtest.Pods())
	client := server.Dynamic("example") // on a cluster: dynamic.NewForConfig
	store := func(resource rapidtest.Resource, obj *unstructured.Unstructured) *unstructured.Unstructured {
		status := obj.Object["status"]
		made, err := client.Resource(resource.GVR).Namespace("ns").Create(ctx, obj, metav1.CreateOptions{})
		if err == nil && status != nil {
			made.Object["status"] = status
			made, err = client.Resource(resource.GVR).Namespace("ns").UpdateStatus(ctx, made, metav1.UpdateOptions{})
		}
		if err != nil {
			log.Fatal(err)
		}
		return made
	}
	job := store(rapidtest.TrainJobs(), stopped(trainJob("job")))
	asked := workload("wl", job.GetUID())
	asked.Object["status"] = map[string]any{
		"conditions": []any{map[string]any{"type": "QuotaReserved", "status": "True"}},
		"admissionChecks": []any{map[string]any{
			"name": "readmission-gate", "state": "Pending", "message": "", "lastTransitionTime": "2026-05-06T07:08:09Z",
		}},
	}
	store(rapidtest.Workloads(), asked)
	store(rapidtest.Pods(), pod("job-node-0-0", "job"))

	engine, err := retry.NewForClient(client, retry.Options{}) // on a cluster: retry.New
	if err != nil {
		log.Fatal(err)
	}
	gate, err := holdable.NewGate(kinds.OnKueue(kinds.TrainJob()), engine, holdable.Options{})
	if err != nil {
		log.Fatal(err)
	}
	look := func() {
		answer, err := gate.Answer(ctx, meta.Ref{Namespace: "ns", Name: "job"}, time.Now().Add(10*time.Second))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s: %s\n", answer.State, answer.Why)
	}
	look()
	now := int64(0)
	err = client.Resource(rapidtest.Pods().GVR).Namespace("ns").Delete(ctx, "job-node-0-0", metav1.DeleteOptions{GracePeriodSeconds: &now})
	if err != nil {
		log.Fatal(err)
	}
	look()
	look()
	// Output:
	// shut: pod job-node-0-0 of the earlier execution remains
	// opened: execution 1: no pod of an earlier one remains
	// idle: the check stands at Ready
}
