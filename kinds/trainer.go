package kinds

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubehold/kubehold/holdable"
)

// TrainJob is Trainer's TrainJob. Its pods are those of the JobSet that Trainer
// makes under its name.
func TrainJob() holdable.Holdable[bool] {
	return holdable.Holdable[bool]{
		Kind:     "TrainJob",
		Resource: schema.GroupVersionResource{Group: "trainer.kubeflow.org", Version: "v1alpha1", Resource: "trainjobs"},
		Pause:    suspend(),
		Owners:   []holdable.Owner{byKueue()},
		Ended:    holdable.ConditionTrue("Complete", "Failed"),
		Pods:     holdable.PodsNamed(jobSetNameLabel),
		Makes:    append([]holdable.Made{JobSet().AsMade(nil)}, JobSet().Makes...),
	}
}
