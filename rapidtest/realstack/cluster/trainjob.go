package cluster

import (
	"cmp"
	"context"
	"fmt"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// JobSetLabel names, on a pod, the JobSet that it belongs to, which has the name
// of its TrainJob.
const JobSetLabel = "jobset.sigs.k8s.io/jobset-name"

// A Runtime is a template that TrainJobs are made from. Its pods do nothing: no
// container ever runs.
type Runtime struct {
	Name string
	// Namespace makes it a TrainingRuntime of that namespace; without one it is
	// a ClusterTrainingRuntime.
	Namespace string
	// Nodes is the number of pods of a job; zero means one.
	Nodes int
	// CPU is what each pod asks for; empty means one core.
	CPU string
	// PodAnnotations are put on its pods.
	PodAnnotations map[string]any
}

// CreateRuntime makes a runtime.
func (c *Cluster) CreateRuntime(ctx context.Context, r Runtime) error {
	resource, kind := r.resource()
	_, err := c.create(ctx, resource, kind, named(r.Name, r.Namespace, r.spec()))
	return err
}

func (r Runtime) resource() (schema.GroupVersionResource, string) {
	if r.Namespace == "" {
		return trainer("clustertrainingruntimes"), "ClusterTrainingRuntime"
	}
	return trainer("trainingruntimes"), "TrainingRuntime"
}

// SetRuntimeImage changes the image of a runtime's containers, as someone would
// who edits the template under the jobs that were made from it.
func (c *Cluster) SetRuntimeImage(ctx context.Context, r Runtime, image string) error {
	resource, _ := r.resource()
	runtimes := c.in(resource, r.Namespace)
	object, err := runtimes.Get(ctx, r.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	jobs, _, err := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "replicatedJobs")
	if err != nil || len(jobs) != 1 {
		return fmt.Errorf("runtime %s has %d replicated jobs, want one: %w", r.Name, len(jobs), err)
	}
	job, _ := jobs[0].(map[string]any)
	if err := unstructured.SetNestedSlice(job, r.containers(image), "template", "spec", "template", "spec", "containers"); err != nil {
		return err
	}
	if err := unstructured.SetNestedSlice(object.Object, jobs, "spec", "template", "spec", "replicatedJobs"); err != nil {
		return err
	}
	_, err = runtimes.Update(ctx, object, metav1.UpdateOptions{})
	return err
}

func (r Runtime) spec() map[string]any {
	return map[string]any{
		"mlPolicy": map[string]any{"numNodes": int64(max(r.Nodes, 1))},
		"template": map[string]any{"spec": map[string]any{"replicatedJobs": []any{map[string]any{
			"name": "node",
			"template": map[string]any{
				"metadata": map[string]any{
					"labels": map[string]any{"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"},
				},
				"spec": map[string]any{"template": r.podTemplate()},
			},
		}}}},
	}
}

func (r Runtime) podTemplate() map[string]any {
	template := map[string]any{"spec": map[string]any{"containers": r.containers("example.invalid/sleep:1")}}
	if len(r.PodAnnotations) > 0 {
		template["metadata"] = map[string]any{"annotations": maps.Clone(r.PodAnnotations)}
	}
	return template
}

func (r Runtime) containers(image string) []any {
	return []any{map[string]any{
		"name":      "node",
		"image":     image,
		"resources": map[string]any{"requests": map[string]any{"cpu": cmp.Or(r.CPU, "1")}},
	}}
}

// A TrainJob is a job to be made.
type TrainJob struct {
	Name string
	// Namespace may be empty, which means Namespace.
	Namespace string
	// Runtime is the name of the ClusterTrainingRuntime that it is made from.
	Runtime string
	// RuntimeKind is TrainingRuntime where the runtime is one of the job's own
	// namespace.
	RuntimeKind string
	// Queue is the LocalQueue that it waits in; empty means that Kueue has
	// nothing to do with it.
	Queue string
	// Suspend makes a job that does not run until someone resumes it.
	Suspend bool
}

// CreateTrainJob makes a TrainJob.
func (c *Cluster) CreateTrainJob(ctx context.Context, j TrainJob) (*Object, error) {
	job := named(j.Name, cmp.Or(j.Namespace, Namespace), map[string]any{
		"runtimeRef": map[string]any{"name": j.Runtime, "kind": cmp.Or(j.RuntimeKind, "ClusterTrainingRuntime")},
		"suspend":    j.Suspend,
	})
	if j.Queue != "" {
		job.SetLabels(map[string]string{QueueLabel: j.Queue})
	}
	return c.create(ctx, TrainJobs(), "TrainJob", job)
}

// Pods lists the pods of a TrainJob, those that are being deleted included.
func (c *Cluster) Pods(ctx context.Context, job *Object) ([]Object, error) {
	list, err := c.in(pods(), job.GetNamespace()).List(ctx, metav1.ListOptions{
		LabelSelector: JobSetLabel + "=" + job.GetName()})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// Running are the pods that run and are not being deleted.
func Running(pods []Object) []Object {
	var found []Object
	for _, pod := range pods {
		phase, _, _ := unstructured.NestedString(pod.Object, "status", "phase")
		if phase == "Running" && pod.GetDeletionTimestamp() == nil {
			found = append(found, pod)
		}
	}
	return found
}

// WaitPods waits until a TrainJob has n pods that run, and no other pods; with n
// zero, until every pod is gone.
//
// A job with pods must count them as well before it runs for everybody. Kueue
// takes a TrainJob that counts none for stopped as soon as it has suspended it, and
// takes back what it has put into its template; Trainer cannot write both to the
// JobSet at once, and the suspension never reaches the pods.
func (c *Cluster) WaitPods(ctx context.Context, job *Object, n int) error {
	err := Wait(ctx, fmt.Sprintf("%s has %d running pods and no others", job.GetName(), n),
		func(ctx context.Context) (bool, any, error) {
			all, err := c.Pods(ctx, job)
			return len(all) == n && len(Running(all)) == n, podStates(all), err
		})
	if err != nil || n == 0 {
		return err
	}
	_, err = c.WaitFor(ctx, TrainJobs(), job, job.GetName()+" counts its pods", func(job *Object) bool {
		return CountedJobs(job, "active") > 0
	})
	return err
}

// CountedJobs is how many of its Jobs a TrainJob counts as active, or ready, or
// whatever else its status has a number for.
func CountedJobs(job *Object, as string) int64 {
	total := int64(0)
	all, _, _ := unstructured.NestedSlice(job.Object, "status", "jobsStatus")
	for _, one := range all {
		jobs, _ := one.(map[string]any)
		n, _ := jobs[as].(int64)
		total += n
	}
	return total
}

// podStates is what a wait for pods says it has seen.
func podStates(pods []Object) map[string]string {
	states := map[string]string{}
	for _, pod := range pods {
		phase, _, _ := unstructured.NestedString(pod.Object, "status", "phase")
		if pod.GetDeletionTimestamp() != nil {
			phase += ", being deleted"
		}
		states[pod.GetName()] = phase
	}
	return states
}
