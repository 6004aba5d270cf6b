//go:build e2e

package holdtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/rapidtest/realstack/cluster"
	"github.com/kubehold/kubehold/rapidtest/realstack/stack"
)

// A running job is held, drains, is released, and runs again as the next execution.
func TestHoldDrainRelease(t *testing.T) {
	inBothModes(t, func(m mode) {
		job := m.start("job")
		m.wantState(job, holdable.Running)
		m.hold(job, 1)
		in := m.wantState(job, holdable.Held)
		if in.Hold.Instance != 1 || in.Hold.Holder != "holdtest" || in.Hold.Found != meta.FoundRunning {
			t.Errorf("the hold is %+v", in.Hold)
		}
		// Rule H12: that it is held does not say that it has stopped.
		if in.Drained != holdable.NotDrained || in.Pod == "" {
			t.Errorf("drained is %q with pods that take %v to end", in.Drained, slowPods)
		}
		m.drained(job)
		m.trainJobSays(job, "Suspended")
		m.release(job, 1)
		m.runs(job)
		m.executionsAre(job, 2)
		if held := m.heldObject(job); m.wantState(job, holdable.Running).Hold != nil || hasHold(held) {
			t.Errorf("annotations were left: %v", held.GetAnnotations())
		}
		m.neverTwice(job)
	})
}

// hasHold reports whether any annotation of a hold lies on an object.
func hasHold(o *cluster.Object) bool {
	for _, key := range (meta.Keys{}).OfHold() {
		if _, there := o.GetAnnotations()[key]; there {
			return true
		}
	}
	return false
}

// A hold that is lifted while pods still end does not run two executions side by
// side, because the gate waits.
func TestReleaseBeforeItIsDrained(t *testing.T) {
	s := newScene(t)
	s.makeGatedQueue("1", s.config())
	m := s.kueue()
	job := m.start("job")
	m.hold(job, 1)
	_, err := s.cluster.WaitWorkload(s.soon(), job, "Kueue has evicted it", says("Evicted", "Deactivated"))
	s.must(err)
	if in := m.inspect(job); in.Drained != holdable.NotDrained {
		t.Errorf("drained is %q with pods that take %v to end", in.Drained, slowPods)
	}
	m.release(job, 1)
	m.nextExecution(job, 2)
	m.neverTwice(job)
}

// nextExecution waits until a job runs as execution a.
func (m mode) nextExecution(job *cluster.Object, a int64) {
	m.Helper()
	m.waitState(job, fmt.Sprintf("execution %d is counted", a), func(in holdable.Inspection) bool { return in.Executions == a })
	m.runs(job)
}

// Without a gate, a Release that is told to look at the pods is refused while one
// remains.
func TestReleaseWithoutAGate(t *testing.T) {
	s := newScene(t)
	s.makeQueue("1")
	m := s.kueue()
	job := m.start("job")
	m.hold(job, 1)
	m.refused(m.holder.Release, job, 1, meta.ErrPodsRemain)
	m.drained(job)
	m.release(job, 1)
	m.runs(job)
	m.neverTwice(job)
}

// In plain mode A counts the executions: Open begins the first, and each Release
// that resumes begins another.
func TestExecutionsAreCounted(t *testing.T) {
	m := newScene(t).plain()
	job := m.start("job")
	want := int64(1)
	for n := int64(1); n <= 2; n++ {
		m.executionsAre(job, want)
		m.hold(job, n)
		m.executionsAre(job, want)
		m.refused(m.holder.Release, job, n, meta.ErrPodsRemain)
		m.drained(job)
		want++
		if got := m.release(job, n); got.Executions != want {
			t.Errorf("the receipt says that A is %d, want %d", got.Executions, want)
		}
		m.runs(job)
	}
	m.executionsAre(job, want)
	m.neverTwice(job)
}

func (m mode) executionsAre(job *cluster.Object, want int64) {
	m.Helper()
	if got := m.inspect(job).Executions; got != want {
		m.Errorf("A is %d, want %d", got, want)
	}
}

// A job that is held before it was opened waits at its start gate afterwards.
func TestHoldBeforeOpen(t *testing.T) {
	m := newScene(t).plain()
	job := m.makeJob("job", true, nil)
	m.wantState(job, holdable.Waiting)
	m.hold(job, 1)
	if in := m.wantState(job, holdable.Held); in.Hold.Found != meta.FoundGate {
		t.Errorf("the hold found it %q", in.Hold.Found)
	}
	m.did(holdable.KeptPaused)(m.holder.Release(t.Context(), ref(job), call(1)))
	m.wantState(job, holdable.Waiting)
	m.trainJobSays(job, "Suspended")
	m.hasNeverRun(job)
	m.did(holdable.Opened)(m.holder.Open(t.Context(), ref(job), call(0)))
	m.runs(job)
	m.executionsAre(job, 1)
}

// hasNeverRun fails if a job ever had a pod.
func (s *scene) hasNeverRun(job *cluster.Object) {
	s.Helper()
	s.must(s.recorder.catchUp(s.soon(), s.cluster))
	for _, v := range s.recorder.under(podKeys + s.namespace + "/") {
		if v.object != nil && v.object.GetLabels()[cluster.JobSetLabel] == job.GetName() {
			s.Fatalf("pod %s came before its time", v.object.GetName())
		}
	}
}

// Open under a hold makes its mark and lets nothing run; Release then does.
func TestOpenUnderAHold(t *testing.T) {
	m := newScene(t).plain()
	job := m.makeJob("job", true, nil)
	m.hold(job, 1)
	m.did(holdable.MarkedOpen)(m.holder.Open(t.Context(), ref(job), call(0)))
	if in := m.wantState(job, holdable.Held); !in.Opened || in.Executions != 0 {
		t.Errorf("opened is %t, A is %d", in.Opened, in.Executions)
	}
	m.trainJobSays(job, "Suspended")
	m.hasNeverRun(job)
	m.did(holdable.AlreadyOpen)(m.holder.Open(t.Context(), ref(job), call(0)))
	m.release(job, 1)
	m.runs(job)
	m.executionsAre(job, 1)
}

// There is no start gate in Kueue mode, where Kueue says when a job runs.
func TestOpenInKueueMode(t *testing.T) {
	s := newScene(t)
	s.makeQueue("1")
	m := s.kueue()
	m.refused(m.holder.Open, m.start("job"), 0, meta.ErrUnsupported)
}

// A newer hold takes over, and whatever comes late for the older one is refused.
func TestSupersededHold(t *testing.T) {
	inBothModes(t, func(m mode) {
		job := m.start("job")
		m.hold(job, 1)
		m.hold(job, 2)
		before := holdAnnotations(m.heldObject(job))
		for name, late := range map[string]method{"Hold": m.holder.Hold, "Release": m.holder.Release} {
			if e := m.refused(late, job, 1, meta.ErrStaleHold); e.Seen != 2 {
				t.Errorf("late %s(1) saw instance %d, want 2", name, e.Seen)
			}
		}
		if after := holdAnnotations(m.heldObject(job)); !maps.Equal(before, after) {
			t.Errorf("late calls have made %v of %v", after, before)
		}
		m.drained(job)
		m.refused(m.holder.Release, job, 1, meta.ErrStaleHold)
		m.release(job, 2)
		m.refused(m.holder.Release, job, 2, meta.ErrStaleHold)
		m.runs(job)
		m.neverTwice(job)
	})
}

// Plain mode keeps off what Kueue manages.
func TestPlainModeKeepsOffKueue(t *testing.T) {
	s := newScene(t)
	s.makeQueue("1")
	job := s.kueue().start("job")
	m := s.plain()
	m.refused(m.holder.Hold, job, 1, meta.ErrRejected)
	m.refused(m.holder.Open, job, 0, meta.ErrRejected)
}

// What a person resumes beside a hold is seen, and put right by the same hold.
func TestAHumanResumesAHeldJob(t *testing.T) {
	inBothModes(t, func(m mode) {
		job := m.start("job")
		m.hold(job, 1)
		m.drained(job)
		m.humanResumes(job)
		in := m.wantState(job, holdable.Undone)
		if in.Hold == nil || in.Hold.Instance != 1 {
			t.Errorf("the hold is %+v", in.Hold)
		}
		m.againstTheHold(job)
		m.hold(job, 1)
		m.wantState(job, holdable.Held)
		m.drained(job)
		m.release(job, 1)
		m.runs(job)
		m.neverTwice(job)
	})
}

// againstTheHold waits for what comes of a held job that somebody resumes: in plain
// mode it runs, in Kueue mode the gate stays shut (rule G2).
func (m mode) againstTheHold(job *cluster.Object) {
	m.Helper()
	if m.gate == "" {
		m.runs(job)
		return
	}
	workload, err := m.cluster.WaitWorkload(m.soon(), job, "the gate says why it stays shut", func(w *cluster.Object) bool {
		state, why := cluster.CheckState(w, m.gate)
		return state == "Pending" && says("QuotaReserved", "")(w) && strings.Contains(why, "hold 1 is in force")
	})
	m.must(err)
	_, why := cluster.CheckState(workload, m.gate)
	m.Logf("the gate stays shut: %s", why)
}

// A template that is edited under a job keeps the job's suspension from its
// pods, while the TrainJob says Suspended: they run on, and nothing resumes it.
func TestASuspensionThatNeverArrives(t *testing.T) {
	m := newScene(t).plain()
	job := m.startThenEdit(true, nil)
	m.hold(job, 1)
	m.trainJobSays(job, "Suspended")
	m.hasNotStopped(job)
	m.neverTwice(job)
}

// In Kueue mode the same edit has Kueue delete the Workload and make no other for
// as long as the pods run. There is nothing to hold then, and every call says so.
//
// It is so for a job at rest. Kueue looks at an edit only when something happens
// to the job; where its JobSet or a Job changes while there is no Workload, Kueue
// suspends that itself, the pods end, and the job starts anew.
func TestAWorkloadThatIsNotMadeAgain(t *testing.T) {
	s := newScene(t)
	s.makeQueue("1")
	m := s.kueue()
	job := m.startThenEdit(false, s.queued())
	touched := 0
	s.must(cluster.Wait(s.soon(), "the Workload is gone", func(ctx context.Context) (bool, any, error) {
		touched++
		_, err := s.cluster.Patch(ctx, cluster.TrainJobs(), job,
			map[string]any{"metadata": map[string]any{"annotations": map[string]any{"example.com/touched": fmt.Sprint(touched)}}})
		if err != nil {
			return false, nil, err
		}
		_, err = m.holder.Inspect(ctx, ref(job))
		return errors.Is(err, meta.ErrMissing), err, nil
	}))
	m.trainJobSays(job, "Suspended")
	m.refused(m.holder.Hold, job, 1, meta.ErrMissing)
	m.refused(m.holder.Release, job, 1, meta.ErrMissing)
	m.runs(job)
	m.neverTwice(job)
}

// startThenEdit runs a job and edits the runtime that it was made from.
func (m mode) startThenEdit(gated bool, labels map[string]string) *cluster.Object {
	m.Helper()
	runtime := cluster.Runtime{Name: "edited", Namespace: m.namespace}
	m.must(m.cluster.CreateRuntime(m.soon(), runtime))
	job, err := m.tryJob(m.soon(), "job", "TrainingRuntime/"+runtime.Name, gated, labels)
	m.must(err)
	if gated {
		m.did(holdable.Opened)(m.holder.Open(m.Context(), ref(job), call(0)))
	}
	m.runs(job)
	_, err = m.cluster.WaitFor(m.soon(), cluster.TrainJobs(), job, "the job is at rest", func(job *cluster.Object) bool {
		return cluster.CountedJobs(job, "ready") == 1 // the last that its Job, its JobSet and then it are told
	})
	m.must(err)
	m.edit(runtime)
	return job
}

// hasNotStopped fails unless a held job is not drained, and cannot be released.
func (m mode) hasNotStopped(job *cluster.Object) {
	m.Helper()
	in := m.wantState(job, holdable.Held)
	if in.Drained != holdable.NotDrained || in.Pod == "" {
		m.Errorf("drained is %q, pod %q", in.Drained, in.Pod)
	}
	e := m.refused(m.holder.Release, job, 1, meta.ErrPodsRemain)
	if len(e.Pods) != 1 || e.Pods[0] != in.Pod {
		m.Errorf("the pods that remain are %v, want %s", e.Pods, in.Pod)
	}
	m.runs(job) // the same execution still
}

// A suspension that is stuck on its way, because a controller is down, stops
// nothing until that is back.
func TestASuspensionThatIsStuck(t *testing.T) {
	inModes(t, alone, false, func(m mode) {
		job := m.start("job")
		m.must(m.stack.Kill(stack.JobSet))
		t.Cleanup(func() { // also if the test ends before
			if err := m.stack.Restart(context.Background(), stack.JobSet); err != nil {
				t.Error(err)
			}
		})
		m.hold(job, 1)
		_, err := m.cluster.WaitFor(m.soon(), cluster.TrainJobs(), job, "the TrainJob is suspended", func(o *cluster.Object) bool {
			suspended, _, _ := nestedBool(o, "spec", "suspend")
			return suspended
		})
		m.must(err)
		m.hasNotStopped(job)
		m.must(m.stack.Restart(m.soon(), stack.JobSet))
		m.drained(job)
		m.release(job, 1)
		m.runs(job)
		m.neverTwice(job)
	})
}

// edit changes a runtime and waits until Trainer makes JobSets from what it is now.
func (s *scene) edit(runtime cluster.Runtime) {
	s.Helper()
	const image = "example.invalid/sleep:2"
	s.must(s.cluster.SetRuntimeImage(s.soon(), runtime, image))
	tries := 0
	s.must(cluster.Wait(s.soon(), "Trainer has seen the runtime's new image", func(ctx context.Context) (bool, any, error) {
		tries++
		witness, err := s.tryJob(ctx, fmt.Sprintf("witness-%d", tries), "TrainingRuntime/"+runtime.Name, true, nil)
		if err != nil {
			return false, nil, err
		}
		made, err := s.cluster.WaitFor(ctx, gvr("jobset.x-k8s.io", "v1alpha2", "jobsets"), witness, "it has a JobSet",
			func(*cluster.Object) bool { return true })
		if err != nil {
			return false, nil, err
		}
		text, err := json.Marshal(made.Object["spec"])
		return strings.Contains(string(text), image), string(text), err
	}))
}

// A job that ends while it is held has ended; its hold can be lifted, and
// nothing runs.
func TestAJobCompletesWhileHeld(t *testing.T) {
	inModes(t, alone, true, func(m mode) {
		job := m.start("job")
		// The suspension is on its way when the job's pod ends by itself.
		m.pause(stack.JobSet)
		m.hold(job, 1)
		m.complete(job)
		m.resume(stack.JobSet)
		m.trainJobSays(job, "Complete")
		in := m.waitState(job, "the job has ended", func(in holdable.Inspection) bool { return in.State == holdable.Ended })
		if in.Hold == nil || in.Hold.Instance != 1 || in.Drained != holdable.IsDrained {
			t.Errorf("hold %+v, drained %q", in.Hold, in.Drained)
		}
		m.did(holdable.KeptPaused)(m.holder.Release(t.Context(), ref(job), call(1)))
		if in := m.wantState(job, holdable.Ended); in.Hold != nil {
			t.Errorf("the hold is still %+v", in.Hold)
		}
		if n := m.executionsEver(job); n != 1 {
			t.Errorf("the job had %d pods, want 1", n)
		}
	})
}

// complete has the pod of a job end well, as its kubelet would say it.
func (s *scene) complete(job *cluster.Object) {
	s.Helper()
	pods, err := s.cluster.Pods(s.soon(), job)
	s.must(err)
	for _, pod := range pods {
		_, err := s.cluster.Patch(s.soon(), gvr("", "v1", "pods"), &pod, map[string]any{"status": map[string]any{
			"phase": "Succeeded",
			"containerStatuses": []any{map[string]any{
				"name": "node", "image": "example.invalid/sleep:1", "imageID": "", "ready": false, "restartCount": 0,
				"state": map[string]any{"terminated": map[string]any{"exitCode": 0, "reason": "Completed"}},
			}},
		}}, "status")
		s.must(err)
	}
	s.must(cluster.Wait(s.soon(), "the Job of "+job.GetName()+" is complete", func(ctx context.Context) (bool, any, error) {
		jobs, err := s.batchJobs(ctx, job)
		return err == nil && len(jobs) == 1 && says("Complete", "")(&jobs[0]), jobs, err
	}))
}

// executionsEver is how many pods a job has had.
func (s *scene) executionsEver(job *cluster.Object) int {
	s.Helper()
	s.must(s.recorder.catchUp(s.soon(), s.cluster))
	pods := map[string]bool{}
	for _, v := range s.recorder.under(podKeys + s.namespace + "/") {
		if v.object != nil && v.object.GetLabels()[cluster.JobSetLabel] == job.GetName() {
			pods[v.object.GetName()] = true
		}
	}
	return len(pods)
}
