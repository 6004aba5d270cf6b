//go:build e2e

package e2e

import (
	"context"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubehold/kubehold/rapidtest/realstack/cluster"
	"github.com/kubehold/kubehold/rapidtest/realstack/stack"
)

// A Workload that is made inactive stops its job, and one that is made active
// again runs it; what others wrote on the Workload stays.
func TestDeactivationStopsTheJobAndReactivationRunsIt(t *testing.T) {
	eachVersion(t, deactivationStopsTheJobAndReactivationRunsIt)
}

func deactivationStopsTheJobAndReactivationRunsIt(t *testing.T, options stack.Options) {
	_, c := start(t, options)
	ctx := bounded(t)
	must(t, c.CreateQueue(ctx, cluster.Queue{Name: queueName}))
	job := runJob(t, c, "job")
	workload, err := c.Workload(ctx, job)
	must(t, err)
	_, err = c.Patch(ctx, cluster.Workloads(), workload,
		map[string]any{"metadata": map[string]any{"annotations": map[string]any{"example.com/mine": "stays"}}})
	must(t, err)

	began := time.Now()
	setActive(t, c, job, false)
	_, err = c.WaitWorkload(ctx, job, "it is deactivated", condition("Evicted", "True", "Deactivated"))
	must(t, err)
	_, err = c.WaitFor(ctx, cluster.TrainJobs(), job, "Kueue has suspended the job", suspended)
	must(t, err)
	t.Logf("deactivated and suspended after %v", time.Since(began).Round(time.Millisecond))
	must(t, c.WaitPods(ctx, job, 0))
	t.Logf("pods gone after %v", time.Since(began).Round(time.Millisecond))
	_, err = c.WaitWorkload(ctx, job, "its quota is free again", condition("QuotaReserved", "False", ""))
	must(t, err)

	began = time.Now()
	setActive(t, c, job, true)
	workload, err = c.WaitWorkload(ctx, job, "it is admitted again", condition("Admitted", "True", ""))
	must(t, err)
	if !condition("Requeued", "True", "Reactivated")(workload) {
		t.Errorf("readmitted without Requeued=True/Reactivated: %v", workload.Object["status"])
	}
	must(t, c.WaitPods(ctx, job, 1))
	t.Logf("running again after %v", time.Since(began).Round(time.Millisecond))
	job, err = c.Get(ctx, cluster.TrainJobs(), job)
	must(t, err)
	if suspended(job) {
		t.Error("the job runs and is suspended")
	}
	if got := workload.GetAnnotations()["example.com/mine"]; got != "stays" {
		t.Errorf("annotation of somebody else is %q now", got)
	}
}

// A job that Kueue has admitted cannot be paused by its own field.
func TestKueueUndoesASuspendBesideIt(t *testing.T) {
	eachVersion(t, kueueUndoesASuspendBesideIt)
}

func kueueUndoesASuspendBesideIt(t *testing.T, options stack.Options) {
	_, c := start(t, options)
	ctx := bounded(t)
	must(t, c.CreateQueue(ctx, cluster.Queue{Name: queueName}))
	job := runJob(t, c, "job")

	_, err := c.Patch(ctx, cluster.TrainJobs(), job, map[string]any{"spec": map[string]any{"suspend": true}})
	must(t, err)
	_, err = c.WaitFor(ctx, cluster.TrainJobs(), job, "Kueue has resumed the job",
		func(job *cluster.Object) bool { return !suspended(job) })
	must(t, err)
	must(t, c.WaitPods(ctx, job, 1))
}

// Kueue readmits a job while the pods of its last execution still end, so that
// two executions run side by side.
func TestKueueDoesNotWaitForPodsThatEnd(t *testing.T) {
	eachVersion(t, kueueDoesNotWaitForPodsThatEnd)
}

func kueueDoesNotWaitForPodsThatEnd(t *testing.T, options stack.Options) {
	const slow = 8 * time.Second
	options.SlowPods = slow
	_, c := start(t, options)
	ctx := bounded(t)
	must(t, c.CreateQueue(ctx, cluster.Queue{Name: queueName}))
	job := runJob(t, c, "job")
	old, err := c.Pods(ctx, job)
	must(t, err)

	setActive(t, c, job, false)
	_, err = c.WaitFor(ctx, cluster.TrainJobs(), job, "Kueue has suspended the job", suspended)
	must(t, err)
	setActive(t, c, job, true)

	overlap := measureOverlap(ctx, t, c, job, old[0].GetUID())
	t.Logf("two executions ran side by side for %v", overlap.Round(100*time.Millisecond))
	if overlap < slow/4 {
		t.Errorf("two executions ran side by side for %v only, with pods that take %v to end", overlap, slow)
	}
}

// measureOverlap watches a job until its old pod is gone, and returns for how
// long another one ran beside it.
func measureOverlap(ctx context.Context, t *testing.T, c *cluster.Cluster, job *cluster.Object, old types.UID) time.Duration {
	t.Helper()
	var began time.Time
	err := cluster.Wait(ctx, "the old pod is gone", func(ctx context.Context) (bool, any, error) {
		pods, err := c.Pods(ctx, job)
		if err != nil {
			return false, nil, err
		}
		if len(cluster.Running(pods)) > 0 && began.IsZero() {
			began = time.Now()
		}
		for _, pod := range pods {
			if pod.GetUID() == old {
				return false, pod.Object, nil
			}
		}
		return true, nil, nil
	})
	must(t, err)
	if began.IsZero() {
		return 0
	}
	return time.Since(began)
}

// An admission check is asked again for every readmission, and nothing runs
// before it is answered: the place for a gate that waits for the old pods.
func TestAnAdmissionCheckGuardsReadmission(t *testing.T) {
	eachVersion(t, anAdmissionCheckGuardsReadmission)
}

func anAdmissionCheckGuardsReadmission(t *testing.T, options stack.Options) {
	const check = "gate"
	_, c := start(t, options)
	ctx := bounded(t)
	must(t, c.CreateAdmissionCheck(ctx, check, "example.com/gate"))
	must(t, c.CreateQueue(ctx, cluster.Queue{Name: queueName, AdmissionChecks: []string{check}}))
	job, err := c.CreateTrainJob(ctx, cluster.TrainJob{Name: "job", Runtime: runtimeName, Queue: queueName})
	must(t, err)
	pending := func(workload *cluster.Object) bool {
		state, _ := cluster.CheckState(workload, check)
		return state == "Pending"
	}

	_, err = c.WaitWorkload(ctx, job, "the check is asked for", pending)
	must(t, err)
	staysWithoutPods(t, c, job)
	answerReady(ctx, t, c, job, check)
	must(t, c.WaitPods(ctx, job, 1))

	setActive(t, c, job, false)
	must(t, c.WaitPods(ctx, job, 0))
	setActive(t, c, job, true)
	workload, err := c.WaitWorkload(ctx, job, "the check is asked for again, with quota reserved", func(workload *cluster.Object) bool {
		return pending(workload) && condition("QuotaReserved", "True", "")(workload)
	})
	must(t, err)
	if _, message := cluster.CheckState(workload, check); !strings.Contains(message, "Previously: Ready") {
		t.Errorf("message of the check that was reset: %q", message)
	}
	staysWithoutPods(t, c, job)
	answerReady(ctx, t, c, job, check)
	must(t, c.WaitPods(ctx, job, 1))
}

// answerReady answers a job's admission check, each time on what it has just
// read, because Kueue writes to the same Workload.
func answerReady(ctx context.Context, t *testing.T, c *cluster.Cluster, job *cluster.Object, check string) {
	t.Helper()
	must(t, cluster.Wait(ctx, "the check is answered", func(ctx context.Context) (bool, any, error) {
		workload, err := c.Workload(ctx, job)
		if err != nil {
			return false, nil, err
		}
		_, err = c.SetCheckState(ctx, workload, check, "Ready", "answered by a test")
		return err == nil, nil, err
	}))
}

// staysWithoutPods fails if a pod of the job shows up within a time in which it
// surely would if nothing kept it.
func staysWithoutPods(t *testing.T, c *cluster.Cluster, job *cluster.Object) {
	t.Helper()
	const watched = 4 * time.Second
	for until := time.Now().Add(watched); time.Now().Before(until); time.Sleep(50 * time.Millisecond) {
		pods, err := c.Pods(t.Context(), job)
		must(t, err)
		if len(pods) > 0 {
			t.Fatalf("pod %s came before its time", pods[0].GetName())
		}
	}
}
