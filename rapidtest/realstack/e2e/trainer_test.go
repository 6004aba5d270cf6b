//go:build e2e

package e2e

import (
	"testing"
	"time"

	"github.com/kubehold/kubehold/rapidtest/realstack/cluster"
	"github.com/kubehold/kubehold/rapidtest/realstack/stack"
)

// A TrainJob says Suspended while its pods run on: once its runtime has been
// edited, the suspension never reaches its JobSet.
func TestSuspendedProvesNothing(t *testing.T) { eachVersion(t, suspendedProvesNothing) }

func suspendedProvesNothing(t *testing.T, options stack.Options) {
	_, c := start(t, options)
	ctx := bounded(t)
	runtime := cluster.Runtime{Name: "edited", Namespace: cluster.Namespace}
	must(t, c.CreateRuntime(ctx, runtime))
	job, err := c.CreateTrainJob(ctx, cluster.TrainJob{Name: "job", Runtime: runtime.Name, RuntimeKind: "TrainingRuntime"})
	must(t, err)
	must(t, c.WaitPods(ctx, job, 1))

	must(t, c.SetRuntimeImage(ctx, runtime, "example.invalid/sleep:2"))
	_, err = c.Patch(ctx, cluster.TrainJobs(), job, map[string]any{"spec": map[string]any{"suspend": true}})
	must(t, err)
	_, err = c.WaitFor(ctx, cluster.TrainJobs(), job, "the job says Suspended", condition("Suspended", "True", ""))
	must(t, err)

	const watched = 5 * time.Second
	for until := time.Now().Add(watched); time.Now().Before(until); time.Sleep(100 * time.Millisecond) {
		pods, err := c.Pods(ctx, job)
		must(t, err)
		if len(cluster.Running(pods)) != 1 {
			t.Fatalf("the suspension reached the pods after all: %d run", len(cluster.Running(pods)))
		}
	}
}
