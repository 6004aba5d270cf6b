package rapidtest_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubehold/kubehold/rapidtest"
)

// world is a server with everybody who works on a queued TrainJob "a".
type world struct {
	t       *testing.T
	server  *rapidtest.Server
	kueue   *rapidtest.Kueue
	trainer *rapidtest.Trainer
	kubelet *rapidtest.Kubelet
	human   rapidtest.Human
}

func inWorld(t *testing.T, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		w := &world{
			t: t, server: s,
			kueue:   &rapidtest.Kueue{Client: s.Dynamic("kueue")},
			trainer: &rapidtest.Trainer{Client: s.Dynamic("trainer"), Replicas: 2, Nodes: []string{"n1", "n2"}, Grace: 12 * time.Second},
			kubelet: &rapidtest.Kubelet{Client: s.Dynamic("kubelet")},
			human:   rapidtest.Human{Client: s.Dynamic("human")},
		}
		create(t, trainJobs(s.Dynamic("human")), edited(trainJob("a"), func(u *unstructured.Unstructured) {
			u.SetLabels(map[string]string{rapidtest.QueueNameLabel: "queue"})
		}))
		w.settle()
		test(w)
	})
}

func (w *world) settle() {
	w.t.Helper()
	if err := rapidtest.Settle(w.t.Context(), w.kueue, w.trainer, w.kubelet); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) job() *unstructured.Unstructured {
	return w.server.Stored(rapidtest.TrainJobs().GVR, "default", "a")
}

func (w *world) workload() *unstructured.Unstructured {
	w.t.Helper()
	found, err := w.kueue.WorkloadOf(w.t.Context(), w.job())
	if err != nil || found == nil {
		w.t.Fatalf("no Workload: %v", err)
	}
	return found
}

func (w *world) setActive(active bool) {
	w.t.Helper()
	name := w.workload().GetName()
	do := w.human.StopWorkload
	if active {
		do = w.human.ResumeWorkload
	}
	if err := do(w.t.Context(), "default", name); err != nil {
		w.t.Fatal(err)
	}
}

// conditions gives an object's conditions as type: status/reason.
func conditions(u *unstructured.Unstructured) map[string]string {
	list, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	out := map[string]string{}
	for _, c := range list {
		c := c.(map[string]any)
		out[c["type"].(string)] = c["status"].(string) + "/" + c["reason"].(string)
	}
	return out
}

func TestKueueStopsAndReadmits(t *testing.T) {
	inWorld(t, func(w *world) {
		t := w.t
		if diff := cmp.Diff(map[string]string{"QuotaReserved": "True/QuotaReserved", "Admitted": "True/Admitted"}, conditions(w.workload())); diff != "" {
			t.Error(diff)
		}
		if nested(w.job(), "spec", "suspend") != false || len(w.server.Executions("default", "a")) != 1 {
			t.Error("an admitted job must run")
		}
		w.setActive(false)
		w.settle()
		want := map[string]string{
			"QuotaReserved": "False/Pending", "Admitted": "False/NoReservation", "Evicted": "True/Deactivated", "Requeued": "False/Deactivated",
		}
		if diff := cmp.Diff(want, conditions(w.workload())); diff != "" || nested(w.job(), "spec", "suspend") != true {
			t.Errorf("deactivated: %s", diff)
		}
		w.setActive(true)
		w.settle()
		want = map[string]string{
			"QuotaReserved": "True/QuotaReserved", "Admitted": "True/Admitted", "Evicted": "False/QuotaReserved", "Requeued": "True/Reactivated",
		}
		if diff := cmp.Diff(want, conditions(w.workload())); diff != "" || nested(w.job(), "spec", "suspend") != false {
			t.Errorf("reactivated: %s", diff)
		}
		if got := w.server.Executions("default", "a"); len(got) != 2 {
			t.Errorf("executions %v: Kueue waits for no pod, so two must run side by side", got)
		}
		time.Sleep(12 * time.Second)
		w.settle()
		if got := w.server.Executions("default", "a"); len(got) != 1 {
			t.Errorf("executions %v after the grace is over, want one", got)
		}
	})
}

func TestKueueDeactivatesByItself(t *testing.T) {
	inWorld(t, func(w *world) {
		if err := w.kueue.Deactivate(w.t.Context(), "default", w.workload().GetName(), rapidtest.CauseMaximumExecutionTime); err != nil {
			w.t.Fatal(err)
		}
		w.settle()
		got := conditions(w.workload())
		if got["Evicted"] != "True/DeactivatedDueToMaximumExecutionTimeExceeded" || got["DeactivationTarget"] != "" || nested(w.workload(), "spec", "active") != false {
			w.t.Errorf("unexpected %v", got)
		}
	})
}

func TestKueueRecreatesAWorkload(t *testing.T) {
	inWorld(t, func(w *world) {
		w.setActive(false)
		w.settle()
		before := w.workload()
		if err := w.kueue.Recreate(w.t.Context(), "default", before.GetName()); err != nil {
			w.t.Fatal(err)
		}
		w.settle()
		after := w.workload()
		if after.GetUID() == before.GetUID() || nested(after, "spec", "active") != true || nested(w.job(), "spec", "suspend") != false {
			w.t.Error("a new Workload must be active and its job run")
		}
	})
}

func TestAdmissionChecksHoldAdmission(t *testing.T) {
	inWorld(t, func(w *world) {
		w.kueue.AdmissionChecks = []string{"gate"}
		w.settle()
		ready := edited(w.workload(), func(u *unstructured.Unstructured) {
			nested(u, "status", "admissionChecks").([]any)[0].(map[string]any)["state"] = "Ready"
		})
		workloads := w.server.Dynamic("gate").Resource(rapidtest.Workloads().GVR).Namespace("default")
		if _, err := workloads.UpdateStatus(w.t.Context(), ready, metav1.UpdateOptions{}); err != nil {
			w.t.Fatal(err)
		}
		w.settle()
		w.setActive(false)
		w.settle()
		w.setActive(true)
		w.settle()
		check := nested(w.workload(), "status", "admissionChecks").([]any)[0].(map[string]any)
		if check["state"] != "Pending" || check["message"] != "Reset to Pending after eviction. Previously: Ready" {
			w.t.Errorf("check %v", check)
		}
		if nested(w.job(), "spec", "suspend") != true || conditions(w.workload())["QuotaReserved"] != "True/QuotaReserved" {
			w.t.Error("a pending check must keep the job suspended while quota is held")
		}
	})
}

func TestKueueUndoesASuspensionOfTheJob(t *testing.T) {
	inWorld(t, func(w *world) {
		if err := w.human.Suspend(w.t.Context(), rapidtest.TrainJobs().GVR, "default", "a"); err != nil {
			w.t.Fatal(err)
		}
		w.settle()
		if nested(w.job(), "spec", "suspend") != false {
			w.t.Error("Kueue must unsuspend the job of an admitted Workload")
		}
	})
}

func TestQuotaKeepsAJobWaiting(t *testing.T) {
	inWorld(t, func(w *world) {
		w.kueue.Quota = func(*unstructured.Unstructured) bool { return false }
		w.setActive(false)
		w.settle()
		w.setActive(true)
		w.settle()
		if nested(w.job(), "spec", "suspend") != true || conditions(w.workload())["QuotaReserved"] != "False/Pending" {
			w.t.Errorf("without quota the job must wait: %v", conditions(w.workload()))
		}
	})
}

func TestLostNodeKeepsItsPods(t *testing.T) {
	inWorld(t, func(w *world) {
		w.kubelet.Lose("n1")
		w.setActive(false)
		w.settle()
		time.Sleep(time.Hour)
		w.settle()
		pods := w.server.StoredAll(rapidtest.Pods().GVR)
		if len(pods) != 1 || nested(pods[0], "status", "phase") != "Failed" || pods[0].GetDeletionTimestamp() == nil {
			w.t.Fatalf("%d pods, want the one on the lost node, terminating and Failed", len(pods))
		}
		state := nested(pods[0], "status", "containerStatuses").([]any)[0].(map[string]any)["state"].(map[string]any)
		if _, running := state["running"]; !running {
			w.t.Error("nobody can have seen the container end")
		}
		w.kubelet.Gone("n1")
		w.settle()
		if n := len(w.server.StoredAll(rapidtest.Pods().GVR)); n != 0 {
			w.t.Errorf("%d pods after the node is gone", n)
		}
	})
}

func TestReturningNodeEndsItsPods(t *testing.T) {
	inWorld(t, func(w *world) {
		w.kubelet.Lose("n1")
		w.setActive(false)
		w.settle()
		time.Sleep(time.Minute)
		w.kubelet.Return("n1")
		w.settle()
		if n := len(w.server.StoredAll(rapidtest.Pods().GVR)); n != 0 {
			w.t.Errorf("%d pods after the node is back", n)
		}
	})
}

func TestStuckTrainerLies(t *testing.T) {
	inWorld(t, func(w *world) {
		w.trainer.Stuck = func(*unstructured.Unstructured) bool { return true }
		w.setActive(false)
		w.settle()
		if conditions(w.job())["Suspended"] != "True/Suspended" || len(w.server.StoredAll(rapidtest.Pods().GVR)) != 2 {
			w.t.Error("the job must say Suspended while its pods run on")
		}
	})
}

func TestPodsOfADeletedJobAreCollected(t *testing.T) {
	inWorld(t, func(w *world) {
		if err := trainJobs(w.human.Client).Delete(w.t.Context(), "a", metav1.DeleteOptions{}); err != nil {
			w.t.Fatal(err)
		}
		w.settle()
		time.Sleep(time.Minute)
		w.settle()
		if n := len(w.server.StoredAll(rapidtest.Pods().GVR)); n != 0 {
			w.t.Errorf("%d pods of a job that is gone", n)
		}
	})
}

// A Relay makes what its maker makes, pauses it as that is paused, and leaves the
// rest alone; one that gets no turn is behind.
func TestRelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := rapidtest.NewServer(rapidtest.TrainJobs(), rapidtest.JobSets(), rapidtest.Jobs(), rapidtest.Pods())
		trainer := &rapidtest.Relay{Client: s.Dynamic("trainer"), From: rapidtest.TrainJobs(), To: rapidtest.JobSets()}
		jobSet := &rapidtest.Relay{Client: s.Dynamic("jobset"), From: rapidtest.JobSets(), To: rapidtest.Jobs()}
		jobs := &rapidtest.Trainer{Client: s.Dynamic("jobs"), Jobs: rapidtest.Jobs(), Nodes: []string{"n1"}}
		kubelet := &rapidtest.Kubelet{Client: s.Dynamic("kubelet")}
		settle := func(actors ...rapidtest.Actor) {
			t.Helper()
			if err := rapidtest.Settle(t.Context(), actors...); err != nil {
				t.Fatal(err)
			}
		}
		human := rapidtest.Human{Client: s.Dynamic("human")}
		suspended := func(r rapidtest.Resource) bool {
			t.Helper()
			obj := s.Stored(r.GVR, "default", "a")
			if obj == nil {
				t.Fatalf("no %s", r.Kind)
			}
			v, _, _ := unstructured.NestedBool(obj.Object, "spec", "suspend")
			return v
		}
		pods := func() int { return len(s.StoredAll(rapidtest.Pods().GVR)) }

		create(t, trainJobs(s.Dynamic("human")), trainJob("a"))
		settle(trainer, jobSet, jobs, kubelet)
		if suspended(rapidtest.JobSets()) || suspended(rapidtest.Jobs()) || pods() != 1 {
			t.Errorf("running: JobSet suspended %t, Job %t, %d pods", suspended(rapidtest.JobSets()), suspended(rapidtest.Jobs()), pods())
		}
		if err := human.Suspend(t.Context(), rapidtest.TrainJobs().GVR, "default", "a"); err != nil {
			t.Fatal(err)
		}
		settle(jobSet, jobs, kubelet)
		if suspended(rapidtest.JobSets()) || pods() != 1 {
			t.Error("a JobSet is suspended, and nobody did it")
		}
		settle(trainer)
		if !suspended(rapidtest.JobSets()) || suspended(rapidtest.Jobs()) || pods() != 1 {
			t.Error("while JobSet is behind, the JobSet is suspended and the Job is not")
		}
		settle(jobSet, jobs, kubelet)
		if !suspended(rapidtest.Jobs()) || pods() != 0 {
			t.Errorf("stopped: Job suspended %t, %d pods", suspended(rapidtest.Jobs()), pods())
		}
		if err := s.Dynamic("human").Resource(rapidtest.TrainJobs().GVR).Namespace("default").Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		settle(trainer, jobSet, jobs, kubelet)
		if left := len(s.StoredAll(rapidtest.JobSets().GVR)) + len(s.StoredAll(rapidtest.Jobs().GVR)); left != 0 {
			t.Errorf("%d objects are left of a deleted job", left)
		}
	})
}

func TestCompletedJobEndsItsWorkload(t *testing.T) {
	inWorld(t, func(w *world) {
		if err := w.trainer.Complete(w.t.Context(), "default", "a"); err != nil {
			w.t.Fatal(err)
		}
		w.settle()
		if conditions(w.workload())["Finished"] != "True/Succeeded" {
			w.t.Errorf("conditions %v", conditions(w.workload()))
		}
		for _, pod := range w.server.StoredAll(rapidtest.Pods().GVR) {
			if nested(pod, "status", "phase") != "Succeeded" {
				w.t.Errorf("pod %s: %v", pod.GetName(), nested(pod, "status", "phase"))
			}
		}
	})
}

func TestRunPollsInVirtualTime(t *testing.T) {
	inWorld(t, func(w *world) {
		ctx, cancel := context.WithCancel(w.t.Context())
		for _, a := range []rapidtest.Actor{w.kueue, w.trainer, w.kubelet} {
			go rapidtest.Run(ctx, 500*time.Millisecond, a)
		}
		w.setActive(false)
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := len(w.server.StoredAll(rapidtest.Pods().GVR)); n != 0 {
			w.t.Errorf("%d pods a minute after the job was stopped", n)
		}
		cancel()
	})
}
