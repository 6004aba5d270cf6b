package holdable_test

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubehold/kubehold/holdable"
)

// A kind of one's own: how it is paused, and what else is known of it.
func ExampleHoldable() {
	backup := holdable.Holdable[bool]{
		Kind:     "Backup",
		Resource: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "backups"},
		Pause:    holdable.Pause[bool]{Path: holdable.Field("spec", "suspend"), Held: true},
		Ended:    holdable.ConditionTrue("Complete", "Failed"),
		Pods:     holdable.PodsNamed("example.com/backup"),
	}
	fmt.Println(backup.GroupVersionKind(), backup.Check())
	// Output:
	// example.com/v1, Kind=Backup <nil>
}

// Check says what is wrong with a descriptor before anything is held by it.
func ExampleHoldable_Check() {
	queue := holdable.Holdable[string]{
		Kind:     "Queue",
		Resource: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "queues"},
		Pause:    holdable.Pause[string]{Path: holdable.Field("spec", "stopPolicy"), Held: "Hold", Running: "Hold"},
	}
	fmt.Println(queue.Check())

	queue.Pause.Running = "None"
	fmt.Println(queue.Check())

	queue.Pause.Path = holdable.Field("status", "stopped")
	fmt.Println(queue.Check())
	// Output:
	// invalid: descriptor of Queue: spec.stopPolicy=Hold would both hold the object and let it run
	// <nil>
	// invalid: descriptor of Queue: an update cannot write status.stopped
}

// A pause field of another type: the number of replicas, which a release puts
// back to what the hold has found.
func ExamplePause() {
	p := holdable.Pause[int64]{
		Path:    holdable.Field("spec", "replicas"),
		Held:    0,
		Running: 1,
		Absent:  1,
		Resume:  holdable.RestoreFound,
	}
	fleet := holdable.Holdable[int64]{
		Kind:     "Deployment",
		Resource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"},
		Pause:    p,
	}
	fmt.Println(fleet.Check())
	// Output:
	// <nil>
}
