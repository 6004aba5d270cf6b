package rapidtest

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The reasons for which Kueue evicts a Workload that stays active; see [Kueue.Evict].
const (
	EvictedPreempted      = "Preempted"
	EvictedAdmissionCheck = "AdmissionCheck"
)

// Evict has Kueue evict a Workload that stays active, as it does for one of higher priority, or
// because a check says Retry: its admission checks are reset as the eviction begins, the following
// steps stop the job and take back the quota, and then it is admitted anew. A Workload that has no
// quota, or is being evicted, is left alone.
func (k *Kueue) Evict(ctx context.Context, namespace, name, reason string) error {
	c := k.Client.Resource(Workloads().GVR).Namespace(namespace)
	w, err := c.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if !conditionIs(w, "QuotaReserved", "True") || conditionIs(w, "Evicted", "True") {
		return nil
	}
	setCondition(w, "Evicted", "True", reason, "The workload is evicted: "+reason)
	for _, check := range checksOf(w) {
		resetCheck(check)
	}
	_, err = k.hand().updateStatus(ctx, Workloads().GVR, w)
	return err
}

// SetCheck answers an admission check of a Workload as its controller would, with the state that it
// is given. It is no error if Kueue does not ask for the check.
func (k *Kueue) SetCheck(ctx context.Context, namespace, name, check, state string) error {
	c := k.Client.Resource(Workloads().GVR).Namespace(namespace)
	w, err := c.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, entry := range checksOf(w) {
		if entry["name"] == check {
			entry["state"], entry["message"] = state, "set to "+state
		}
	}
	_, err = hand{client: k.Client, manager: "check"}.updateStatus(ctx, Workloads().GVR, w)
	return err
}
