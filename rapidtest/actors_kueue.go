package rapidtest

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// The names by which Kueue and its jobs find each other.
const (
	// QueueNameLabel on a job puts it under Kueue's management.
	QueueNameLabel = "kueue.x-k8s.io/queue-name"
	// JobUIDLabel on a Workload is the UID of its job.
	JobUIDLabel = "kueue.x-k8s.io/job-uid"

	workloadFinalizer = "kueue.x-k8s.io/resource-in-use"
)

// The reasons for which Kueue deactivates a Workload by itself; see [Kueue.Deactivate].
const (
	CauseMaximumExecutionTime = "MaximumExecutionTimeExceeded"
	CauseRequeuingLimit       = "RequeuingLimitExceeded"
	CauseAdmissionCheck       = "AdmissionCheck"
	CauseManagerEviction      = "EvictedOnManagerCluster"
)

// Kueue is Kueue 0.17, as far as a job that is stopped and started can tell. It makes a Workload
// for every job with a queue name, admits it, lets the job run while its Workload is admitted and
// suspends it while it is not. A Workload that is made inactive is evicted; one that is made active
// again is admitted anew. It does not wait for pods that are still ending: a job that is readmitted
// at once runs beside what is left of its earlier run.
type Kueue struct {
	// Client is what it works with.
	Client dynamic.Interface
	// Namespace limits it to one namespace; it works in all where empty.
	Namespace string
	// Jobs is the resource of the jobs that it manages, which must have a spec.suspend; TrainJobs
	// where it is zero.
	Jobs schema.GroupVersionResource
	// ClusterQueue is the name that admissions carry; "cluster-queue" where empty.
	ClusterQueue string
	// AdmissionChecks are the checks of the ClusterQueue: a Workload with a reservation is admitted
	// only once all of its entries for them are Ready, and every eviction resets these to Pending.
	AdmissionChecks []string
	// Quota decides whether there is quota for a Workload; always where nil.
	Quota func(workload *unstructured.Unstructured) bool
}

func (k *Kueue) hand() hand { return hand{client: k.Client, manager: "kueue"} }

func (k *Kueue) jobs() schema.GroupVersionResource {
	if k.Jobs.Empty() {
		return TrainJobs().GVR
	}
	return k.Jobs
}

// Step implements [Actor].
func (k *Kueue) Step(ctx context.Context) (bool, error) {
	jobs, err := k.hand().list(ctx, k.jobs(), k.Namespace)
	if err != nil {
		return false, err
	}
	workloads, err := k.hand().list(ctx, Workloads().GVR, k.Namespace)
	if err != nil {
		return false, err
	}
	for i := range jobs {
		if did, err := k.reconcile(ctx, &jobs[i], workloads); did || err != nil {
			return did, err
		}
	}
	return false, nil
}

func (k *Kueue) reconcile(ctx context.Context, job *unstructured.Unstructured, workloads []unstructured.Unstructured) (bool, error) {
	if job.GetLabels()[QueueNameLabel] == "" || job.GetDeletionTimestamp() != nil {
		return false, nil
	}
	i := slices.IndexFunc(workloads, func(w unstructured.Unstructured) bool {
		return w.GetNamespace() == job.GetNamespace() && w.GetLabels()[JobUIDLabel] == string(job.GetUID())
	})
	if i < 0 {
		return k.withoutWorkload(ctx, job)
	}
	return k.withWorkload(ctx, job, &workloads[i])
}

// withoutWorkload makes the Workload of a job, which has to stand still meanwhile.
func (k *Kueue) withoutWorkload(ctx context.Context, job *unstructured.Unstructured) (bool, error) {
	switch {
	case hasEnded(job):
		return false, nil
	case !boolAt(job, false, "spec", "suspend"):
		return k.suspend(ctx, job, true)
	}
	return k.hand().create(ctx, Workloads().GVR, newWorkload(job))
}

// newWorkload is the Workload that Kueue makes for a job. Its name comes from the job's UID, so
// that it is the same each time.
func newWorkload(job *unstructured.Unstructured) *unstructured.Unstructured {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(job.GetUID())) // never fails
	controls := true
	w := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": Workloads().apiVersion(), "kind": "Workload",
		"spec": map[string]any{
			"queueName": job.GetLabels()[QueueNameLabel],
			"podSets": []any{map[string]any{
				"name": "node", "count": int64(1),
				"template": map[string]any{"spec": map[string]any{
					"containers":    []any{map[string]any{"name": "node", "image": "node"}},
					"restartPolicy": "Never",
				}},
			}},
		},
	}}
	w.SetNamespace(job.GetNamespace())
	w.SetName(fmt.Sprintf("%s-%s-%05x", strings.ToLower(job.GetKind()), job.GetName(), sum.Sum32()&0xfffff))
	w.SetLabels(map[string]string{JobUIDLabel: string(job.GetUID())})
	w.SetFinalizers([]string{workloadFinalizer})
	w.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: job.GetAPIVersion(), Kind: job.GetKind(), Name: job.GetName(), UID: job.GetUID(),
		Controller: &controls, BlockOwnerDeletion: &controls,
	}})
	return w
}

func (k *Kueue) suspend(ctx context.Context, job *unstructured.Unstructured, value bool) (bool, error) {
	_ = unstructured.SetNestedField(job.Object, value, "spec", "suspend") // fails only where spec is no object
	return k.hand().update(ctx, k.jobs(), job)
}

// withWorkload is one round over a job and its Workload: the Workload first, then the job, as it
// follows from the Workload.
func (k *Kueue) withWorkload(ctx context.Context, job, w *unstructured.Unstructured) (bool, error) {
	suspended := boolAt(job, false, "spec", "suspend")
	switch {
	case conditionIs(w, "Finished", "True"):
		return false, nil
	case w.GetDeletionTimestamp() != nil:
		return k.letGo(ctx, job, w, suspended)
	case hasEnded(job):
		setCondition(w, "Finished", "True", "Succeeded", "Job finished")
		return k.hand().updateStatus(ctx, Workloads().GVR, w)
	}
	if did, err := k.reconcileWorkload(ctx, w); did || err != nil {
		return did, err
	}
	switch {
	case conditionIs(w, "Evicted", "True"):
		return k.stopEvicted(ctx, job, w, suspended)
	case suspended == conditionIs(w, "Admitted", "True"):
		return k.suspend(ctx, job, !suspended)
	}
	return false, nil
}

// letGo suspends the job of a Workload that is being deleted, and then lets the Workload go.
func (k *Kueue) letGo(ctx context.Context, job, w *unstructured.Unstructured, suspended bool) (bool, error) {
	if !suspended && !hasEnded(job) {
		return k.suspend(ctx, job, true)
	}
	w.SetFinalizers(slices.DeleteFunc(w.GetFinalizers(), func(f string) bool { return f == workloadFinalizer }))
	return k.hand().update(ctx, Workloads().GVR, w)
}

func (k *Kueue) reconcileWorkload(ctx context.Context, w *unstructured.Unstructured) (bool, error) {
	if !boolAt(w, true, "spec", "active") {
		return k.evict(ctx, w)
	}
	if conditionIs(w, "DeactivationTarget", "True") {
		_ = unstructured.SetNestedField(w.Object, false, "spec", "active") // fails only where spec is no object
		return k.hand().update(ctx, Workloads().GVR, w)
	}
	changed := k.syncChecks(w)
	reserved := conditionIs(w, "QuotaReserved", "True")
	switch {
	case conditionIs(w, "Requeued", "False") && strings.HasPrefix(conditionReason(w, "Requeued"), "Deactivated"):
		setCondition(w, "Requeued", "True", "Reactivated", "The workload was reactivated")
	case !reserved && (k.Quota == nil || k.Quota(w)):
		k.reserve(w)
	case reserved && !conditionIs(w, "Evicted", "True") && !conditionIs(w, "Admitted", "True") && checksReady(w):
		setCondition(w, "Admitted", "True", "Admitted", "The workload is admitted")
	case !changed:
		return false, nil
	}
	return k.hand().updateStatus(ctx, Workloads().GVR, w)
}

// evict marks an inactive Workload as evicted. One that is evicted already keeps its reason.
func (k *Kueue) evict(ctx context.Context, w *unstructured.Unstructured) (bool, error) {
	if conditionIs(w, "Evicted", "True") {
		return false, nil
	}
	reason, message := "Deactivated", "The workload is deactivated"
	if cause := conditionReason(w, "DeactivationTarget"); cause != "" {
		reason, message = reason+"DueTo"+cause, message+" due to "+conditionMessage(w, "DeactivationTarget")
		removeCondition(w, "DeactivationTarget")
	}
	setCondition(w, "Evicted", "True", reason, message)
	for _, check := range checksOf(w) {
		resetCheck(check)
	}
	delete(statusOf(w), "requeueState")
	return k.hand().updateStatus(ctx, Workloads().GVR, w)
}

// stopEvicted suspends the job of an evicted Workload, and takes back its quota once the job counts
// no pod as active. That count drops when the deletion of pods is issued, not when they have ended.
func (k *Kueue) stopEvicted(ctx context.Context, job, w *unstructured.Unstructured, suspended bool) (bool, error) {
	if !suspended {
		return k.suspend(ctx, job, true)
	}
	if !conditionIs(w, "QuotaReserved", "True") || activePods(job) > 0 {
		return false, nil
	}
	reason, message := conditionReason(w, "Evicted"), conditionMessage(w, "Evicted")
	setCondition(w, "Requeued", "False", reason, message)
	setCondition(w, "QuotaReserved", "False", "Pending", message)
	if checksReady(w) {
		setCondition(w, "Admitted", "False", "NoReservation", "The workload has no reservation")
	} else {
		setCondition(w, "Admitted", "False", "NoReservationUnsatisfiedChecks", "The workload has no reservation and not all checks ready")
	}
	delete(statusOf(w), "admission")
	return k.hand().updateStatus(ctx, Workloads().GVR, w)
}

// reserve gives a Workload its quota, and with it, where there are no checks, its admission.
func (k *Kueue) reserve(w *unstructured.Unstructured) {
	queue := k.ClusterQueue
	if queue == "" {
		queue = "cluster-queue"
	}
	statusOf(w)["admission"] = map[string]any{
		"clusterQueue":      queue,
		"podSetAssignments": []any{map[string]any{"name": "node", "count": int64(1)}},
	}
	setCondition(w, "QuotaReserved", "True", "QuotaReserved", "Quota reserved in ClusterQueue "+queue)
	if conditionIs(w, "Evicted", "True") {
		setCondition(w, "Evicted", "False", "QuotaReserved", "Previously: "+conditionMessage(w, "Evicted"))
	}
	if checksReady(w) {
		setCondition(w, "Admitted", "True", "Admitted", "The workload is admitted")
	}
}

func activePods(job *unstructured.Unstructured) int64 {
	jobs, _, _ := unstructured.NestedSlice(job.Object, "status", "jobsStatus")
	var sum int64
	for _, j := range jobs {
		if j, ok := j.(map[string]any); ok {
			active, _ := j["active"].(int64)
			sum += active
		}
	}
	return sum
}

// checksOf returns the entries for admission checks, to read and to change in place.
func checksOf(w *unstructured.Unstructured) []map[string]any {
	found, _, _ := unstructured.NestedFieldNoCopy(w.Object, "status", "admissionChecks")
	list, _ := found.([]any)
	var out []map[string]any
	for _, c := range list {
		if c, ok := c.(map[string]any); ok {
			out = append(out, c)
		}
	}
	return out
}

func checksReady(w *unstructured.Unstructured) bool {
	return !slices.ContainsFunc(checksOf(w), func(c map[string]any) bool { return c["state"] != "Ready" })
}

// syncChecks adds the entries that are missing. Those that a check has set are kept.
func (k *Kueue) syncChecks(w *unstructured.Unstructured) bool {
	changed := false
	for _, name := range k.AdmissionChecks {
		if slices.ContainsFunc(checksOf(w), func(c map[string]any) bool { return c["name"] == name }) {
			continue
		}
		list, _ := statusOf(w)["admissionChecks"].([]any)
		statusOf(w)["admissionChecks"] = append(list, map[string]any{
			"name": name, "state": "Pending", "message": "", "lastTransitionTime": timestamp(time.Now()),
		})
		changed = true
	}
	return changed
}

func resetCheck(check map[string]any) {
	if check["state"] == "Pending" {
		return
	}
	check["message"] = fmt.Sprintf("Reset to Pending after eviction. Previously: %v", check["state"])
	check["state"] = "Pending"
	check["lastTransitionTime"] = timestamp(time.Now())
}

// WorkloadOf returns the Workload of a job; nil where it has none.
func (k *Kueue) WorkloadOf(ctx context.Context, job *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	list, err := k.Client.Resource(Workloads().GVR).Namespace(job.GetNamespace()).List(ctx, metav1.ListOptions{
		LabelSelector: JobUIDLabel + "=" + string(job.GetUID()),
	})
	if err != nil || len(list.Items) == 0 {
		return nil, err
	}
	return &list.Items[0], nil
}

// Deactivate has Kueue deactivate a Workload by itself, for one of the causes: it sets the
// condition DeactivationTarget, from which the following steps go on.
func (k *Kueue) Deactivate(ctx context.Context, namespace, name, cause string) error {
	c := k.Client.Resource(Workloads().GVR).Namespace(namespace)
	w, err := c.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	setCondition(w, "DeactivationTarget", "True", cause, cause)
	_, err = c.UpdateStatus(ctx, w, metav1.UpdateOptions{FieldManager: "kueue"})
	return err
}

// Recreate has Kueue delete a Workload, as it does when the job's template changes while quota is
// reserved, or as anyone may: the following steps suspend the job, let the Workload go and make a
// new one, which is active and has none of the old one's annotations.
func (k *Kueue) Recreate(ctx context.Context, namespace, name string) error {
	return k.Client.Resource(Workloads().GVR).Namespace(namespace).Delete(ctx, name, metav1.DeleteOptions{})
}
