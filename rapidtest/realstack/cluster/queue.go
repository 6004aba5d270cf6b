package cluster

import (
	"cmp"
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Labels by which Kueue and its objects find each other.
const (
	// QueueLabel names, on a job, the LocalQueue that it waits in.
	QueueLabel = "kueue.x-k8s.io/queue-name"
	// JobUIDLabel names, on a Workload, the UID of its job.
	JobUIDLabel = "kueue.x-k8s.io/job-uid"
)

// A Queue is a LocalQueue, with a ClusterQueue and a ResourceFlavor of its own
// that have the same name.
type Queue struct {
	Name string
	// Namespace is that of the LocalQueue; empty means Namespace.
	Namespace string
	// CPU is the quota in cores; empty means 100. Memory is not limited.
	CPU string
	// AdmissionChecks are the names of the checks that a Workload has to pass.
	AdmissionChecks []string
}

// CreateQueue makes a queue and waits until jobs can be admitted through it.
func (c *Cluster) CreateQueue(ctx context.Context, q Queue) error {
	if _, err := c.create(ctx, kueue("resourceflavors"), "ResourceFlavor", named(q.Name, "", map[string]any{})); err != nil {
		return err
	}
	shared, err := c.create(ctx, kueue("clusterqueues"), "ClusterQueue", named(q.Name, "", q.clusterQueueSpec()))
	if err != nil {
		return err
	}
	local, err := c.create(ctx, kueue("localqueues"), "LocalQueue",
		named(q.Name, cmp.Or(q.Namespace, Namespace), map[string]any{"clusterQueue": q.Name}))
	if err != nil {
		return err
	}
	if _, err := c.WaitFor(ctx, kueue("clusterqueues"), shared, "the ClusterQueue is active", isTrue("Active")); err != nil {
		return err
	}
	_, err = c.WaitFor(ctx, kueue("localqueues"), local, "the LocalQueue is active", isTrue("Active"))
	return err
}

func (q Queue) clusterQueueSpec() map[string]any {
	spec := map[string]any{
		"namespaceSelector": map[string]any{}, // all namespaces
		"resourceGroups": []any{map[string]any{
			"coveredResources": []any{"cpu"},
			"flavors": []any{map[string]any{
				"name":      q.Name,
				"resources": []any{map[string]any{"name": "cpu", "nominalQuota": cmp.Or(q.CPU, "100")}},
			}},
		}},
	}
	var checks []any
	for _, check := range q.AdmissionChecks {
		checks = append(checks, map[string]any{"name": check})
	}
	if len(checks) > 0 {
		spec["admissionChecksStrategy"] = map[string]any{"admissionChecks": checks}
	}
	return spec
}

// named is an object with a name and a spec; its namespace may be empty.
func named(name, namespace string, spec map[string]any) *Object {
	object := &Object{Object: map[string]any{"spec": spec}}
	object.SetName(name)
	object.SetNamespace(namespace)
	return object
}

// CreateAdmissionCheck makes an AdmissionCheck and says, in the place of the
// controller that it names, that it is being looked after.
func (c *Cluster) CreateAdmissionCheck(ctx context.Context, name, controller string) error {
	check, err := c.create(ctx, kueue("admissionchecks"), "AdmissionCheck",
		named(name, "", map[string]any{"controllerName": controller}))
	if err != nil {
		return err
	}
	_, err = c.Patch(ctx, kueue("admissionchecks"), check, map[string]any{"status": map[string]any{
		"conditions": []any{map[string]any{
			"type": "Active", "status": "True", "reason": "Active", "message": "looked after by a test",
			"lastTransitionTime": now(),
		}},
	}}, "status")
	return err
}

// CheckState is what a Workload's admission check stands at: Pending, Ready,
// Retry, Rejected, or nothing where Kueue has not asked for the check.
func CheckState(workload *Object, check string) (state, message string) {
	checks, _, _ := unstructured.NestedSlice(workload.Object, "status", "admissionChecks")
	for _, c := range checks {
		entry, _ := c.(map[string]any)
		if entry["name"] == check {
			state, _ = entry["state"].(string)
			message, _ = entry["message"].(string)
		}
	}
	return state, message
}

// SetCheckState answers a Workload's admission check as its controller would. It
// fails with a conflict if the Workload has changed since it was read.
func (c *Cluster) SetCheckState(ctx context.Context, workload *Object, check, state, message string) (*Object, error) {
	changed := workload.DeepCopy()
	checks, _, err := unstructured.NestedSlice(changed.Object, "status", "admissionChecks")
	if err != nil {
		return nil, err
	}
	for _, c := range checks {
		if entry, _ := c.(map[string]any); entry["name"] == check {
			entry["state"], entry["message"], entry["lastTransitionTime"] = state, message, now()
		}
	}
	if err := unstructured.SetNestedSlice(changed.Object, checks, "status", "admissionChecks"); err != nil {
		return nil, err
	}
	return c.in(Workloads(), changed.GetNamespace()).UpdateStatus(ctx, changed, metav1.UpdateOptions{})
}

func now() string { return time.Now().UTC().Format(time.RFC3339) }

// Workload returns the Workload of a job, or an error if it does not have
// exactly one.
func (c *Cluster) Workload(ctx context.Context, job *Object) (*Object, error) {
	list, err := c.in(Workloads(), job.GetNamespace()).List(ctx, metav1.ListOptions{
		LabelSelector: JobUIDLabel + "=" + string(job.GetUID())})
	if err != nil {
		return nil, err
	}
	if len(list.Items) != 1 {
		return nil, fmt.Errorf("job %s has %d Workloads, want one", job.GetName(), len(list.Items))
	}
	return &list.Items[0], nil
}

// WaitWorkload waits until a job has a Workload of which holds is true.
func (c *Cluster) WaitWorkload(ctx context.Context, job *Object, what string, holds func(*Object) bool) (*Object, error) {
	var seen *Object
	err := Wait(ctx, what, func(ctx context.Context) (bool, any, error) {
		var err error
		if seen, err = c.Workload(ctx, job); err != nil {
			return false, nil, err
		}
		return holds(seen), seen.Object, nil
	})
	return seen, err
}
