//go:build e2e

package gatetest

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/rapidtest/realstack/cluster"
)

const priorityLabel = "kueue.x-k8s.io/priority-class"

// Rule G1: after a preemption, which no hold has caused, the gate waits for the
// pods as well.
func TestPreemptedByPriority(t *testing.T) {
	s := newScene(t)
	shared.startGate(t).ready()
	s.makeQueue(1, holdable.DefaultGateCheck)
	_, err := s.Patch(s.soon(), kueueResource("clusterqueues"), s.clusterQueue(), map[string]any{
		"spec": map[string]any{"preemption": map[string]any{"withinClusterQueue": "LowerPriority"}},
	})
	must(t, err)
	s.makePriority("low", 10)
	s.makePriority("high", 1000)
	low := s.makeJob("low", map[string]string{priorityLabel: "low"})
	before := s.runs(low, "")
	const rounds = 3
	for round := range rounds {
		high := s.makeJob("high", map[string]string{priorityLabel: "high"})
		_, err := s.WaitWorkload(s.soon(), low, "it is preempted", says("Evicted", "Preempted"))
		must(t, err)
		s.delete(high) // at once, so that its place is free while low's pod ends
		before = s.runs(low, before)
		if a := s.executions(low); a != int64(round+2) {
			t.Errorf("I6: A is %d after %d preemptions", a, round+1)
		}
	}
	s.neverTwice()
	t.Logf("preempted %d times", rounds)
}

// Rule G1: so it is after a Workload was deactivated and activated again by hand,
// as kueuectl does it. It carries no hold.
func TestStoppedAndResumedByHand(t *testing.T) {
	s := newScene(t)
	shared.startGate(t).ready()
	s.makeQueue(parallel, holdable.DefaultGateCheck)
	jobs := s.makeJobs(parallel / 2)
	const each = 2
	s.inParallel(jobs, func(job *cluster.Object) error {
		ctx, cancel := context.WithTimeout(s.Context(), each*patience)
		defer cancel()
		pod, err := s.waitRuns(ctx, job, "")
		for range each {
			if err == nil {
				err = s.setActive(ctx, job, false)
			}
			if err == nil {
				err = until(ctx, job.GetName()+" is suspended", func() bool { return suspended(s.watcher.current(job)) })
			}
			if err == nil {
				err = s.setActive(ctx, job, true)
			}
			if err == nil {
				pod, err = s.waitRuns(ctx, job, pod)
			}
		}
		return err
	})
	s.neverTwice()
	for _, job := range jobs {
		if a := s.executions(job); a != each+1 {
			t.Errorf("I6: %s has run %d executions, and A is %d", job.GetName(), each+1, a)
		}
	}
}

// Rule G2: a hold that a person has undone keeps the gate shut, which says so,
// until it is released.
func TestUndoneHoldKeepsTheGateShut(t *testing.T) {
	s := newScene(t)
	shared.startGate(t).ready()
	s.makeQueue(10, holdable.DefaultGateCheck)
	job := s.makeJob("job", nil)
	pod := s.runs(job, "")
	must(t, s.hold(s.soon(), job, 7))
	must(t, s.WaitPods(s.soon(), job, 0))
	must(t, s.setActive(s.soon(), job, true))
	_, err := s.WaitWorkload(s.soon(), job, "the gate says what it waits for", func(w *cluster.Object) bool {
		state, message := cluster.CheckState(w, holdable.DefaultGateCheck)
		return state == "Pending" && message == "hold 7 is in force, by gatetest: to see what happens"
	})
	must(t, err)
	in, err := s.holder.Inspect(s.soon(), ref(job))
	must(t, err)
	if in.State != holdable.Undone || in.Gate != "Pending" || in.Drained != holdable.IsDrained {
		t.Errorf("%+v", in)
	}
	must(t, s.release(s.soon(), job, 7))
	s.runs(job, pod)
	s.neverTwice()
}

func (s *scene) setActive(ctx context.Context, job *cluster.Object, active bool) error {
	workload, err := s.Workload(ctx, job)
	if err != nil {
		return err
	}
	_, err = s.Patch(ctx, cluster.Workloads(), workload, map[string]any{"spec": map[string]any{"active": active}})
	return err
}

func says(condition, reason string) func(*cluster.Object) bool {
	return func(o *cluster.Object) bool {
		status, why := cluster.Condition(o, condition)
		return status == "True" && why == reason
	}
}

func (s *scene) clusterQueue() *cluster.Object {
	queue := &cluster.Object{}
	queue.SetName(s.name)
	return queue
}

func (s *scene) makePriority(name string, value int64) {
	s.Helper()
	class := &cluster.Object{Object: map[string]any{
		"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "value": value,
	}}
	class.SetName(name)
	_, err := s.Client().Resource(kueueResource("workloadpriorityclasses")).Create(s.soon(), class, metav1.CreateOptions{})
	must(s.T, err)
}

// delete deletes a job and waits until it is gone.
func (s *scene) delete(job *cluster.Object) {
	s.Helper()
	jobs := s.Client().Resource(cluster.TrainJobs()).Namespace(s.name)
	must(s.T, jobs.Delete(s.soon(), job.GetName(), metav1.DeleteOptions{}))
	uid := job.GetUID()
	must(s.T, until(s.soon(), "the job is gone", func() bool {
		seen, there, _ := s.watcher.jobs.GetStore().GetByKey(job.GetNamespace() + "/" + job.GetName())
		o, ok := seen.(*cluster.Object)
		return !there || ok && o.GetUID() != uid
	}))
}
