//go:build e2e

package holdtest

import (
	"context"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/rapidtest/realstack/cluster"
)

// What Kueue deactivates because it has run for too long is no hold.
func TestKueueDeactivatesByExecutionTime(t *testing.T) {
	s := newScene(t)
	s.makeGatedQueue("1", s.config())
	m := s.kueue()
	job := m.makeJob("job", false, m.queued("kueue.x-k8s.io/max-exec-time-seconds", "3"))
	m.runs(job)
	m.isDeactivated(job, "execution time limit", "MaximumExecutionTimeExceeded")
}

// What Kueue deactivates because a check was answered with Rejected is no hold.
func TestKueueDeactivatesByARejectedCheck(t *testing.T) {
	s := newScene(t)
	check := s.namespace
	s.must(s.cluster.CreateAdmissionCheck(s.soon(), check, "example.com/never"))
	s.Cleanup(func() {
		checks := s.cluster.Client().Resource(gvr("kueue.x-k8s.io", "v1beta2", "admissionchecks"))
		if err := checks.Delete(context.Background(), check, metav1.DeleteOptions{}); err != nil {
			s.Error(err)
		}
	})
	s.makeQueue("1", check)
	m := s.kueue()
	job := m.makeJob("job", false, m.queued())
	_, err := s.cluster.WaitWorkload(s.soon(), job, "the check is asked for", says("QuotaReserved", ""))
	s.must(err)
	s.must(cluster.Wait(s.soon(), "the check is rejected", func(ctx context.Context) (bool, any, error) {
		workload, err := s.cluster.Workload(ctx, job)
		if err == nil {
			_, err = s.cluster.SetCheckState(ctx, workload, check, "Rejected", "not today")
		}
		return err == nil, nil, err
	}))
	m.isDeactivated(job, "admission check", "AdmissionCheck")
}

// isDeactivated waits until Kueue has deactivated a job, with its reason, and
// sees that it is told from a hold: alone, under one, and when that is lifted.
func (m mode) isDeactivated(job *cluster.Object, cause, reason string) {
	m.Helper()
	in := m.waitState(job, "it is deactivated", func(in holdable.Inspection) bool { return in.State == holdable.Deactivated })
	if in.Deactivated != cause || in.Hold != nil {
		m.Errorf("cause %q, hold %+v, want %q and none", in.Deactivated, in.Hold, cause)
	}
	_, err := m.cluster.WaitWorkload(m.soon(), job, "Kueue is done with it", func(w *cluster.Object) bool {
		active, _, _ := nestedBool(w, "spec", "active")
		return !active && says("Evicted", "DeactivatedDueTo"+reason)(w)
	})
	m.must(err)
	if in := m.wantState(job, holdable.Deactivated); in.Deactivated != cause {
		m.Errorf("cause %q after the eviction, want %q", in.Deactivated, cause)
	}
	m.hold(job, 1)
	in = m.wantState(job, holdable.Held)
	if in.Deactivated != cause || in.Hold.Found != meta.FoundPaused {
		m.Errorf("cause %q, found %q beside the hold", in.Deactivated, in.Hold.Found)
	}
	m.did(holdable.KeptPaused)(m.holder.Release(m.Context(), ref(job), call(1)))
	m.wantState(job, holdable.Deactivated)
}

// A Workload that is made anew carries no hold: the job runs, Inspect shows the
// hold gone, and the same Hold places it again.
func TestTheWorkloadIsRecreatedUnderAHold(t *testing.T) {
	s := newScene(t)
	s.makeGatedQueue("1", s.config())
	m := s.kueue()
	job := m.start("job")
	m.hold(job, 1)
	m.drained(job)
	old := m.heldObject(job)
	err := s.cluster.Client().Resource(cluster.Workloads()).Namespace(s.namespace).Delete(s.soon(), old.GetName(), metav1.DeleteOptions{})
	if !apierrors.IsNotFound(err) {
		s.must(err)
	}
	in := m.waitState(job, "there is another Workload", func(in holdable.Inspection) bool { return in.Held.UID != old.GetUID() })
	if in.Hold != nil || in.State != holdable.Running {
		t.Errorf("the new Workload is %s with hold %+v, want it running without", in.State, in.Hold)
	}
	m.refused(m.holder.Release, job, 1, meta.ErrStaleHold)
	m.runs(job) // against the hold
	m.hold(job, 1)
	m.wantState(job, holdable.Held)
	m.drained(job)
	m.release(job, 1)
	m.runs(job)
	m.neverTwice(job)
}

const priorityLabel = "kueue.x-k8s.io/priority-class"

// makePreemptingQueue makes a queue with room for one job, from which a job of
// the priority that it returns drives out one without.
func (s *scene) makePreemptingQueue() (high string) {
	s.Helper()
	s.makeGatedQueue("1", s.config())
	_, err := s.cluster.Patch(s.soon(), gvr("kueue.x-k8s.io", "v1beta2", "clusterqueues"), named(s.namespace),
		map[string]any{"spec": map[string]any{"preemption": map[string]any{"withinClusterQueue": "LowerPriority"}}})
	s.must(err)
	priorities := s.cluster.Client().Resource(gvr("kueue.x-k8s.io", "v1beta2", "workloadpriorityclasses"))
	class := named(s.namespace)
	class.SetAPIVersion("kueue.x-k8s.io/v1beta2")
	class.SetKind("WorkloadPriorityClass")
	class.Object["value"] = int64(1000)
	_, err = priorities.Create(s.soon(), class, metav1.CreateOptions{})
	s.must(err)
	s.Cleanup(func() {
		if err := priorities.Delete(context.Background(), class.GetName(), metav1.DeleteOptions{}); err != nil {
			s.Error(err)
		}
	})
	return class.GetName()
}

func named(name string) *cluster.Object {
	object := &cluster.Object{Object: map[string]any{}}
	object.SetName(name)
	return object
}

// A held job stays held when others want its room, and gets it back in its turn.
func TestPreemptionWhileHeld(t *testing.T) {
	s := newScene(t)
	high := s.makePreemptingQueue()
	m := s.kueue()
	job := m.start("low")
	m.hold(job, 1)
	other := m.makeJob("high", false, m.queued(priorityLabel, high))
	m.runs(other)
	m.wantState(job, holdable.Held)
	m.release(job, 1)
	m.waitsInLine(job)
	m.remove(other)
	m.runs(job)
	m.neverTwice(job)
	m.executionsAre(job, 2)
}

// A job that is being preempted can be held: its eviction keeps its reason, and
// it does not come back before it is released.
func TestHoldDuringAPreemption(t *testing.T) {
	s := newScene(t)
	high := s.makePreemptingQueue()
	m := s.kueue()
	job := m.start("low")
	other := m.makeJob("high", false, m.queued(priorityLabel, high))
	_, err := s.cluster.WaitWorkload(s.soon(), job, "it is preempted", says("Evicted", "Preempted"))
	s.must(err)
	m.hold(job, 1)
	m.wantState(job, holdable.Held)
	m.runs(other)
	m.drained(job)
	m.remove(other)
	m.wantState(job, holdable.Held)
	m.release(job, 1)
	m.runs(job)
	m.neverTwice(job)
}

// A job that was just released may be preempted, which is no hold and leaves no
// trace of one.
func TestPreemptionAfterRelease(t *testing.T) {
	s := newScene(t)
	high := s.makePreemptingQueue()
	m := s.kueue()
	job := m.start("low")
	m.hold(job, 1)
	m.drained(job)
	m.release(job, 1)
	other := m.makeJob("high", false, m.queued(priorityLabel, high))
	m.runs(other)
	m.waitsInLine(job)
	m.remove(other)
	m.runs(job)
	m.neverTwice(job)
}

// waitsInLine fails unless nothing but Kueue's queue stops a job.
func (m mode) waitsInLine(job *cluster.Object) {
	m.Helper()
	_, err := m.cluster.WaitWorkload(m.soon(), job, "it has no quota", func(w *cluster.Object) bool {
		return !says("QuotaReserved", "")(w)
	})
	m.must(err)
	if in := m.wantState(job, holdable.Running); in.Hold != nil {
		m.Errorf("the hold is %+v", in.Hold)
	}
}

// remove deletes a job.
func (s *scene) remove(job *cluster.Object) {
	s.Helper()
	s.must(s.cluster.Client().Resource(cluster.TrainJobs()).Namespace(s.namespace).Delete(s.soon(), job.GetName(), metav1.DeleteOptions{}))
}
