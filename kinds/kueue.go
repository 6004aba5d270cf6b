package kinds

import (
	"cmp"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubehold/kubehold/holdable"
)

// QueueNameLabel is on every job in a queue of Kueue's, and tells what Kueue
// manages. A Kueue that also manages jobs without it cannot be told by it.
const QueueNameLabel = "kueue.x-k8s.io/queue-name"

// Workload is Kueue's Workload, held by the caller under its own name. To hold
// the Workload of a job by the job's name, use OnKueue.
func Workload() holdable.Holdable[bool] {
	return holdable.Holdable[bool]{
		Kind:     "Workload",
		Resource: schema.GroupVersionResource{Group: "kueue.x-k8s.io", Version: "v1beta2", Resource: "workloads"},
		Pause: holdable.Pause[bool]{
			Path:    holdable.Field("spec", "active"),
			Held:    false,
			Running: true,
			Absent:  true,
		},
		Ended:          holdable.ConditionTrue("Finished"),
		Deactivated:    deactivated,
		GatedElsewhere: true,
	}
}

// OnKueue is Kueue mode for any kind that Kueue manages: callers name an object
// of kind, and its Workload is held. Kueue stops the object, and Kueue's
// admission decides when it runs again. That no two of its executions run side
// by side is the work of a readmission gate, which is holdable.Gate; without one,
// set holdable.Options.CheckPods.
func OnKueue[T holdable.Value](kind holdable.Holdable[T]) holdable.Holdable[bool] {
	held := Workload()
	held.Pods, held.Makes = kind.Pods, kind.Makes
	held.Of = &holdable.Named{
		Kind:     kind.Kind,
		Resource: kind.Resource,
		UIDLabel: "kueue.x-k8s.io/job-uid",
		Stop:     kind.Pause.Stop(),
	}
	return held
}

// WithStartGate is kind with a start gate: its objects are created paused, run
// once they were opened, and have their executions counted.
func WithStartGate[T holdable.Value](kind holdable.Holdable[T]) holdable.Holdable[T] {
	kind.StartGate = true
	return kind
}

// deactivated says why Kueue has deactivated a Workload, or is about to (rule
// K1). From outside the reason is exactly Deactivated, which says nothing of
// Kueue's.
func deactivated(workload *unstructured.Unstructured) string {
	active, found, err := unstructured.NestedBool(workload.Object, "spec", "active")
	inactive := err == nil && found && !active
	for _, c := range holdable.Conditions(workload) {
		if c.Status != "True" {
			continue
		}
		if c.Type == "DeactivationTarget" {
			return cmp.Or(cause(c.Reason), c.Type)
		}
		if reason, by := strings.CutPrefix(c.Reason, "DeactivatedDueTo"); by && inactive && c.Type == "Evicted" {
			return cause(reason)
		}
	}
	return ""
}

// cause puts Kueue's reason into words.
func cause(reason string) string {
	switch reason {
	case "MaximumExecutionTimeExceeded":
		return "execution time limit"
	case "RequeuingLimitExceeded":
		return "requeue limit"
	case "AdmissionCheck":
		return "admission check"
	case "EvictedOnManagerCluster":
		return "evicted on the manager cluster"
	}
	return reason
}

// byKueue is Kueue as the owner of a job's pause field.
func byKueue() holdable.Owner {
	return holdable.OwnedByLabel("Kueue", QueueNameLabel, "use Kueue mode, which holds its Workload (kinds.OnKueue)")
}
