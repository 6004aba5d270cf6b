package kinds

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubehold/kubehold/holdable"
)

// JobSet is JobSet's JobSet. One that a TrainJob controls is the TrainJob's to
// pause.
func JobSet() holdable.Holdable[bool] {
	return holdable.Holdable[bool]{
		Kind:     "JobSet",
		Resource: schema.GroupVersionResource{Group: "jobset.x-k8s.io", Version: "v1alpha2", Resource: "jobsets"},
		Pause:    suspend(),
		Owners:   []holdable.Owner{byKueue(), holdable.OwnedByController("TrainJob.trainer.kubeflow.org")},
		Ended:    holdable.ConditionTrue("Completed", "Failed"),
		Pods:     holdable.PodsNamed(jobSetNameLabel),
		Makes:    []holdable.Made{Job().AsMade(holdable.PodsNamed(jobSetNameLabel))},
	}
}

// jobSetNameLabel is on every Job and every pod of a JobSet.
const jobSetNameLabel = "jobset.sigs.k8s.io/jobset-name"
