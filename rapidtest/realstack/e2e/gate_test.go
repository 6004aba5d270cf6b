//go:build e2e

package e2e

import (
	"testing"

	"github.com/kubehold/kubehold/rapidtest/realstack/cluster"
	"github.com/kubehold/kubehold/rapidtest/realstack/stack"
)

// An admission check is reset when an eviction begins, not when it ends: for as
// long as the old execution is being stopped, the Workload asks for the check,
// is evicted, and has its quota and its admission still. An answer given then
// stays, and the next execution starts without asking again. A gate therefore
// answers only a Workload that has quota and is not Evicted.
func TestAnAnswerDuringAnEvictionCountsForTheNextExecution(t *testing.T) {
	eachVersion(t, anAnswerDuringAnEvictionCounts)
}

func anAnswerDuringAnEvictionCounts(t *testing.T, options stack.Options) {
	const check = "gate"
	s, c := start(t, options)
	ctx := bounded(t)
	must(t, c.CreateAdmissionCheck(ctx, check, "example.com/gate"))
	must(t, c.CreateQueue(ctx, cluster.Queue{Name: queueName, AdmissionChecks: []string{check}}))
	job, err := c.CreateTrainJob(ctx, cluster.TrainJob{Name: "job", Runtime: runtimeName, Queue: queueName})
	must(t, err)
	_, err = c.WaitWorkload(ctx, job, "the check is asked for", condition("QuotaReserved", "True", ""))
	must(t, err)
	answerReady(ctx, t, c, job, check)
	must(t, c.WaitPods(ctx, job, 1))

	must(t, s.Pause(stack.JobSet)) // whose pods therefore run on
	setActive(t, c, job, false)
	_, err = c.WaitWorkload(ctx, job, "it is evicted, with quota, and asks for the check", func(workload *cluster.Object) bool {
		state, _ := cluster.CheckState(workload, check)
		return state == "Pending" && condition("Evicted", "True", "")(workload) &&
			condition("QuotaReserved", "True", "")(workload) && condition("Admitted", "True", "")(workload)
	})
	must(t, err)
	answerReady(ctx, t, c, job, check)
	must(t, s.Resume(stack.JobSet))
	must(t, c.WaitPods(ctx, job, 0))
	workload, err := c.WaitWorkload(ctx, job, "its quota is free again", condition("QuotaReserved", "False", ""))
	must(t, err)
	if state, message := cluster.CheckState(workload, check); state != "Ready" {
		t.Errorf("the check was reset once more, to %s: %s", state, message)
	}

	setActive(t, c, job, true)
	must(t, c.WaitPods(ctx, job, 1))
}
