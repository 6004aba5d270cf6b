package rapidtest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/samber/lo"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

const (
	// JobSetNameLabel on a pod is the name of its TrainJob, whose JobSet has the same name.
	JobSetNameLabel = "jobset.sigs.k8s.io/jobset-name"
	// ExecutionLabel on a pod of [Trainer] tells the executions of a job apart: it is the
	// generation of the job when its first pod was made, which moves with every stop and start. Two
	// pods that are there at the same time and differ in it are two executions side by side.
	ExecutionLabel = "rapidtest.kubehold.dev/execution"
)

// Trainer is Kubeflow Trainer 2.2 together with JobSet and the Job controller, as far as pods can
// tell: it makes the pods of a TrainJob that is not suspended and deletes those of one that is.
// Like the real ones it does not wait for pods that are still ending, neither before it says
// Suspended nor before it makes new ones. The pods run and end by [Kubelet]. The JobSets and Jobs
// between a TrainJob and its pods are left out, so that a pod's controller is its TrainJob; where it
// matters that one of these controllers may be behind another, put a [Relay] for each in between.
type Trainer struct {
	// Client is what it works with.
	Client dynamic.Interface
	// Namespace limits it to one namespace; it works in all where empty.
	Namespace string
	// Jobs is what it makes the pods of: TrainJobs where it is zero. Of anything else it reports no
	// status.
	Jobs Resource
	// Replicas is the number of pods of a job; 1 where 0.
	Replicas int
	// Nodes are the nodes to which pods are bound, in turn. Without any they stay unbound.
	Nodes []string
	// Grace is how long pods take to end, in whole seconds; they end at once where 0.
	Grace time.Duration
	// Stuck says of which jobs the suspension never reaches the pods, as after an edit of the
	// TrainingRuntime: the job says Suspended, and its pods run on.
	Stuck func(job *unstructured.Unstructured) bool
}

func (tr *Trainer) hand() hand { return hand{client: tr.Client, manager: "trainer"} }

func (tr *Trainer) jobs() Resource {
	if tr.Jobs.Kind == "" {
		return TrainJobs()
	}
	return tr.Jobs
}

// Step implements [Actor].
func (tr *Trainer) Step(ctx context.Context) (bool, error) {
	jobs, err := tr.hand().list(ctx, tr.jobs().GVR, tr.Namespace)
	if err != nil {
		return false, err
	}
	pods, err := tr.hand().list(ctx, Pods().GVR, tr.Namespace)
	if err != nil {
		return false, err
	}
	if did, err := tr.hand().collect(ctx, Pods().GVR, pods, tr.jobs().Kind, jobs); did || err != nil {
		return did, err
	}
	for i := range jobs {
		mine := lo.Filter(pods, func(p unstructured.Unstructured, _ int) bool { return ownedBy(&p, &jobs[i]) })
		if did, err := tr.reconcile(ctx, &jobs[i], mine); did || err != nil {
			return did, err
		}
	}
	return false, nil
}

func ownedBy(pod, job *unstructured.Unstructured) bool {
	owner := metav1.GetControllerOfNoCopy(pod)
	return owner != nil && owner.UID == job.GetUID()
}

// collect deletes an object whose controller is gone, as the garbage collector does.
func (h hand) collect(ctx context.Context, gvr schema.GroupVersionResource, objects []unstructured.Unstructured, ownerKind string, owners []unstructured.Unstructured) (bool, error) {
	for i := range objects {
		owner := metav1.GetControllerOfNoCopy(&objects[i])
		if owner == nil || owner.Kind != ownerKind || objects[i].GetDeletionTimestamp() != nil {
			continue
		}
		if !slices.ContainsFunc(owners, func(o unstructured.Unstructured) bool { return o.GetUID() == owner.UID }) {
			return h.delete(ctx, gvr, &objects[i], metav1.DeleteOptions{})
		}
	}
	return false, nil
}

func (tr *Trainer) reconcile(ctx context.Context, job *unstructured.Unstructured, pods []unstructured.Unstructured) (bool, error) {
	if hasEnded(job) || job.GetDeletionTimestamp() != nil {
		return false, nil
	}
	alive := lo.Filter(pods, func(p unstructured.Unstructured, _ int) bool { return isAlive(&p) })
	suspended := boolAt(job, false, "spec", "suspend")
	switch {
	case suspended && len(alive) > 0 && (tr.Stuck == nil || !tr.Stuck(job)):
		return tr.hand().delete(ctx, Pods().GVR, &alive[0], metav1.DeleteOptions{})
	case !suspended && len(alive) < max(tr.Replicas, 1):
		return tr.hand().create(ctx, Pods().GVR, tr.newPod(job, alive))
	case tr.jobs().Kind != TrainJobs().Kind:
		return false, nil
	}
	return tr.report(ctx, job, suspended, len(alive))
}

// isAlive says whether the Job controller counts a pod as active: it is, until its deletion is issued.
func isAlive(pod *unstructured.Unstructured) bool {
	phase, _, _ := unstructured.NestedString(pod.Object, "status", "phase")
	return pod.GetDeletionTimestamp() == nil && phase != "Failed" && phase != "Succeeded"
}

// newPod is the next pod of a job. It belongs to the execution that runs, if one does.
func (tr *Trainer) newPod(job *unstructured.Unstructured, alive []unstructured.Unstructured) *unstructured.Unstructured {
	execution := strconv.FormatInt(job.GetGeneration(), 10)
	if len(alive) > 0 {
		execution = alive[0].GetLabels()[ExecutionLabel]
	}
	spec := map[string]any{
		"containers":                    []any{map[string]any{"name": "node", "image": "node"}},
		"restartPolicy":                 "Never",
		"terminationGracePeriodSeconds": int64(tr.Grace / time.Second),
	}
	if len(tr.Nodes) > 0 {
		spec["nodeName"] = tr.Nodes[len(alive)%len(tr.Nodes)]
	}
	pod := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod", "spec": spec}}
	pod.SetNamespace(job.GetNamespace())
	pod.SetGenerateName(fmt.Sprintf("%s-node-0-%d-", job.GetName(), len(alive)))
	pod.SetLabels(map[string]string{JobSetNameLabel: job.GetName(), ExecutionLabel: execution})
	controlledBy(pod, job)
	return pod
}

func controlledBy(obj, owner *unstructured.Unstructured) {
	obj.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(owner, owner.GroupVersionKind())})
}

// report writes the job's status: what it says of suspension proves nothing about pods.
func (tr *Trainer) report(ctx context.Context, job *unstructured.Unstructured, suspended bool, alive int) (bool, error) {
	before := job.DeepCopy()
	if suspended {
		alive = 0
		setCondition(job, "Suspended", "True", "Suspended", "TrainJob is suspended")
	} else if conditionOf(job, "Suspended") != nil {
		setCondition(job, "Suspended", "False", "Resumed", "TrainJob is resumed")
	}
	statusOf(job)["jobsStatus"] = []any{map[string]any{
		"name": "node", "active": int64(alive), "ready": int64(alive), "failed": int64(0), "succeeded": int64(0), "suspended": int64(0),
	}}
	if sameStatus(before, job) {
		return false, nil
	}
	return tr.hand().updateStatus(ctx, TrainJobs().GVR, job)
}

// sameStatus compares two statuses but for what conditions say of generations.
func sameStatus(a, b *unstructured.Unstructured) bool {
	strip := func(u *unstructured.Unstructured) any {
		out := u.DeepCopy()
		list, _, _ := unstructured.NestedFieldNoCopy(out.Object, "status", "conditions")
		conditions, _ := list.([]any)
		for _, c := range conditions {
			if c, ok := c.(map[string]any); ok {
				delete(c, "observedGeneration")
			}
		}
		return out.Object["status"]
	}
	return sameValue(strip(a), strip(b))
}

// Complete ends a TrainJob that has its pods itself well: they succeed, every container of theirs, and the job says Complete.
func (tr *Trainer) Complete(ctx context.Context, namespace, name string) error {
	jobs := tr.Client.Resource(TrainJobs().GVR).Namespace(namespace)
	job, err := jobs.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	pods, err := tr.hand().list(ctx, Pods().GVR, namespace)
	if err != nil {
		return err
	}
	for i := range pods {
		if !ownedBy(&pods[i], job) || !isAlive(&pods[i]) {
			continue
		}
		terminateContainers(&pods[i], "Succeeded", 0)
		if _, err := tr.hand().updateStatus(ctx, Pods().GVR, &pods[i]); err != nil {
			return err
		}
	}
	setCondition(job, "Complete", "True", "JobsCompleted", "jobset completed successfully")
	_, err = jobs.UpdateStatus(ctx, job, metav1.UpdateOptions{FieldManager: "trainer"})
	return err
}

// Kubelet runs pods: it starts those that are bound to a node, and ends those that are being
// deleted when their grace is over, with a terminated status for every container before the pod
// goes. On a node that is lost it does nothing of that.
type Kubelet struct {
	// Client is what it works with.
	Client dynamic.Interface
	// Namespace limits it to one namespace; it works in all where empty.
	Namespace string
	// Keeps says of which pods the end does not come though their grace is over; none where nil.
	Keeps func(pod *unstructured.Unstructured) bool

	mu   sync.Mutex
	lost map[string]bool // true: the node is gone for good
}

func (k *Kubelet) hand() hand { return hand{client: k.Client, manager: "kubelet"} }

// Lose loses a node: it may run on, but nobody hears of it. Its pods stay. When they are deleted, a
// controller writes phase Failed on them, which proves nothing: no container status says that
// anything ended.
func (k *Kubelet) Lose(node string) { k.mark(node, false) }

// Gone says that a lost node is gone for good: its pods are deleted by force.
func (k *Kubelet) Gone(node string) { k.mark(node, true) }

// Return brings a lost node back.
func (k *Kubelet) Return(node string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.lost, node)
}

func (k *Kubelet) mark(node string, gone bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.lost == nil {
		k.lost = map[string]bool{}
	}
	k.lost[node] = gone
}

func (k *Kubelet) stateOf(node string) (lost, gone bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	gone, lost = k.lost[node]
	return lost, gone
}

// Step implements [Actor].
func (k *Kubelet) Step(ctx context.Context) (bool, error) {
	pods, err := k.hand().list(ctx, Pods().GVR, k.Namespace)
	if err != nil {
		return false, err
	}
	for i := range pods {
		if did, err := k.reconcile(ctx, &pods[i]); did || err != nil {
			return did, err
		}
	}
	return false, nil
}

func (k *Kubelet) reconcile(ctx context.Context, pod *unstructured.Unstructured) (bool, error) {
	node, _, _ := unstructured.NestedString(pod.Object, "spec", "nodeName")
	phase, _, _ := unstructured.NestedString(pod.Object, "status", "phase")
	lost, gone := k.stateOf(node)
	deleted := pod.GetDeletionTimestamp()
	switch {
	case node == "":
		return false, nil
	case gone:
		return k.remove(ctx, pod)
	case lost && deleted != nil && phase != "Failed":
		statusOf(pod)["phase"], statusOf(pod)["reason"] = "Failed", "NodeLost"
		return k.hand().updateStatus(ctx, Pods().GVR, pod)
	case lost:
		return false, nil
	case deleted == nil && (phase == "" || phase == "Pending"):
		startContainers(pod)
		return k.hand().updateStatus(ctx, Pods().GVR, pod)
	case deleted == nil || time.Now().Before(deleted.Time) || (k.Keeps != nil && k.Keeps(pod)):
		return false, nil
	case !allTerminated(pod):
		terminateContainers(pod, "Failed", 143)
		return k.hand().updateStatus(ctx, Pods().GVR, pod)
	}
	return k.remove(ctx, pod)
}

func (k *Kubelet) remove(ctx context.Context, pod *unstructured.Unstructured) (bool, error) {
	return k.hand().delete(ctx, Pods().GVR, pod, *metav1.NewDeleteOptions(0))
}

// containerNames are the names of a pod's containers.
func containerNames(pod *unstructured.Unstructured) []string {
	list, _, _ := unstructured.NestedSlice(pod.Object, "spec", "containers")
	return lo.FilterMap(list, func(c any, _ int) (string, bool) {
		m, _ := c.(map[string]any)
		name, ok := m["name"].(string)
		return name, ok
	})
}

func setContainerStates(pod *unstructured.Unstructured, phase string, state map[string]any) {
	statusOf(pod)["phase"] = phase
	statusOf(pod)["containerStatuses"] = lo.Map(containerNames(pod), func(name string, _ int) any {
		return map[string]any{
			"name": name, "image": "node", "imageID": "node", "ready": phase == "Running", "restartCount": int64(0),
			"state": state, "lastState": map[string]any{},
		}
	})
}

func startContainers(pod *unstructured.Unstructured) {
	setContainerStates(pod, "Running", map[string]any{"running": map[string]any{"startedAt": timestamp(time.Now())}})
}

func terminateContainers(pod *unstructured.Unstructured, phase string, exitCode int64) {
	setContainerStates(pod, phase, map[string]any{"terminated": map[string]any{
		"exitCode": exitCode, "reason": phase, "finishedAt": timestamp(time.Now()),
	}})
}

func allTerminated(pod *unstructured.Unstructured) bool {
	list, _, _ := unstructured.NestedSlice(pod.Object, "status", "containerStatuses")
	for _, c := range list {
		m, _ := c.(map[string]any)
		if _, ok, _ := unstructured.NestedMap(m, "state", "terminated"); !ok {
			return false
		}
	}
	return len(list) > 0
}

// Executions returns the executions, by [ExecutionLabel], of which a pod of the job is there, be it
// running, ending or lost. More than one is two executions side by side.
func (s *Server) Executions(namespace, job string) []string {
	out := lo.FilterMap(s.StoredAll(Pods().GVR), func(p *unstructured.Unstructured, _ int) (string, bool) {
		labels := p.GetLabels()
		return labels[ExecutionLabel], p.GetNamespace() == namespace && labels[JobSetNameLabel] == job
	})
	out = lo.Uniq(out)
	slices.Sort(out)
	return out
}
