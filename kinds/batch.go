package kinds

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubehold/kubehold/holdable"
)

// Job is the batch Job. A Job that a JobSet or a training job controls is its
// parent's to pause.
func Job() holdable.Holdable[bool] {
	return holdable.Holdable[bool]{
		Kind:     "Job",
		Resource: schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"},
		Pause:    suspend(),
		Owners: []holdable.Owner{
			byKueue(),
			holdable.OwnedByController("JobSet.jobset.x-k8s.io", "MPIJob.kubeflow.org", "TrainJob.trainer.kubeflow.org", "RayJob.ray.io"),
		},
		Ended: holdable.ConditionTrue("Complete", "Failed"),
		Pods:  holdable.PodsOfUID("batch.kubernetes.io/controller-uid"),
	}
}

// suspend is the pause field that most job kinds have.
func suspend() holdable.Pause[bool] {
	return holdable.Pause[bool]{Path: holdable.Field("spec", "suspend"), Held: true}
}
