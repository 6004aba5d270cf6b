package kinds_test

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubehold/kubehold/kinds"
)

// Kueue mode: callers name the TrainJob, and its Workload is held.
func ExampleOnKueue() {
	kind := kinds.OnKueue(kinds.TrainJob())
	fmt.Println("named:", kind.GroupVersionKind().Kind)
	fmt.Println("held:", kind.Kind, "by", kind.Pause.Path, "=", kind.Pause.Held)
	// Output:
	// named: TrainJob
	// held: Workload by [spec active] = false
}

// Plain mode: the TrainJob itself is held, and runs for the first time once it
// was opened.
func ExampleWithStartGate() {
	kind := kinds.WithStartGate(kinds.TrainJob())
	fmt.Println("named:", kind.GroupVersionKind().Kind)
	fmt.Println("held:", kind.Kind, "by", kind.Pause.Path, "=", kind.Pause.Held)
	fmt.Println("start gate:", kind.StartGate)
	// Output:
	// named: TrainJob
	// held: TrainJob by [spec suspend] = true
	// start gate: true
}

// The descriptor of a kind that is known only when the program runs.
func ExampleFor() {
	for _, gvk := range []schema.GroupVersionKind{
		{Group: "jobset.x-k8s.io", Version: "v1alpha2", Kind: "JobSet"},
		{Group: "example.com", Version: "v1", Kind: "Backup"},
	} {
		kind, ok := kinds.For(gvk)
		if !ok {
			fmt.Println(gvk.Kind, "is not known")
			continue
		}
		fmt.Println(gvk.Kind, "is sound:", kind.Check() == nil)
	}
	// Output:
	// JobSet is sound: true
	// Backup is not known
}
