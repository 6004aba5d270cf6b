//go:build e2e

package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/kubehold/kubehold/rapidtest/realstack/cluster"
	"github.com/kubehold/kubehold/rapidtest/realstack/stack"
)

// Every component can be killed and started again, and afterwards the stack
// works as before.
func TestTheStackSurvivesEachComponent(t *testing.T) {
	s, c := start(t, stack.Options{})
	ctx := bounded(t)
	must(t, c.CreateQueue(ctx, cluster.Queue{Name: queueName}))
	before := runJob(t, c, "before")
	for _, component := range s.Components() {
		t.Run(string(component), func(t *testing.T) {
			must(t, s.Kill(component))
			must(t, s.Restart(bounded(t), component))
			runJobSoon(t, c, "after-"+string(component))
		})
	}
	must(t, c.WaitPods(ctx, before, 1))
	if err := s.Wait(ended()); err != nil {
		t.Errorf("a component that was killed on purpose counts as dead: %v", err)
	}
}

// runJobSoon is runJob for a stack in which somebody has only just come back,
// where requests may still fail for a moment.
func runJobSoon(t *testing.T, c *cluster.Cluster, name string) {
	t.Helper()
	ctx := bounded(t)
	var job *cluster.Object
	must(t, cluster.Wait(ctx, "a job can be made", func(ctx context.Context) (bool, any, error) {
		var err error
		job, err = c.CreateTrainJob(ctx, cluster.TrainJob{Name: name, Runtime: runtimeName, Queue: queueName})
		return err == nil, nil, err
	}))
	must(t, c.WaitPods(ctx, job, 1))
}

func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// A paused component does nothing until it goes on.
func TestAPausedComponentDoesNothing(t *testing.T) {
	s, c := start(t, stack.Options{})
	ctx := bounded(t)
	must(t, c.CreateQueue(ctx, cluster.Queue{Name: queueName}))
	must(t, s.Pause(stack.Scheduler))
	job, err := c.CreateTrainJob(ctx, cluster.TrainJob{Name: "job", Runtime: runtimeName, Queue: queueName})
	must(t, err)
	must(t, cluster.Wait(ctx, "the job has a pod", func(ctx context.Context) (bool, any, error) {
		pods, err := c.Pods(ctx, job)
		return len(pods) == 1, nil, err
	}))
	const watched = 2 * time.Second
	for until := time.Now().Add(watched); time.Now().Before(until); time.Sleep(100 * time.Millisecond) {
		pods, err := c.Pods(ctx, job)
		must(t, err)
		if len(cluster.Running(pods)) > 0 {
			t.Fatal("a pod runs that nobody can have scheduled")
		}
	}
	must(t, s.Resume(stack.Scheduler))
	must(t, c.WaitPods(ctx, job, 1))
}
