package holdable_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/samber/lo"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/kinds"
	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/retry"
)

// What each call costs in requests, counted below client-go, where nothing goes
// wrong. Each row goes on from where the one before it ended.
func TestWhatIsTransmitted(t *testing.T) {
	const (
		getJob   = "GET trainjobs/job"
		putJob   = "PUT trainjobs/job"
		listPods = "GET pods?jobset.sigs.k8s.io/jobset-name=job"
		putWL    = "PUT workloads/wl"
		listAll  = "GET workloads"
	)
	type step struct {
		call func(holdable.Holder, meta.Ref) (holdable.Receipt, error)
		did  holdable.Did
		sent []string
	}
	hold := func(n int64) func(holdable.Holder, meta.Ref) (holdable.Receipt, error) {
		return func(h holdable.Holder, ref meta.Ref) (holdable.Receipt, error) {
			return h.Hold(context.Background(), ref, call(n))
		}
	}
	release := func(n int64) func(holdable.Holder, meta.Ref) (holdable.Receipt, error) {
		return func(h holdable.Holder, ref meta.Ref) (holdable.Receipt, error) {
			return h.Release(context.Background(), ref, call(n))
		}
	}
	open := func(h holdable.Holder, ref meta.Ref) (holdable.Receipt, error) {
		return h.Open(context.Background(), ref, call(0))
	}
	for name, tc := range map[string]struct {
		kind      holdable.Holdable[bool]
		pinned    bool
		unlabel   bool // the Workload is found by its owner only
		checkPods bool
		steps     []step
	}{
		"Plain": {kind: plain(), steps: []step{
			{hold(1), holdable.Placed, []string{getJob, putJob}},
			{hold(1), holdable.InForce, []string{getJob}}, // H2
			{hold(2), holdable.Placed, []string{getJob, putJob}},
			{release(2), holdable.Lifted, []string{getJob, listPods, putJob}}, // R4
		}},
		"PlainPinned": {kind: plain(), pinned: true, steps: []step{
			{hold(1), holdable.Placed, []string{getJob, putJob}},
			{release(1), holdable.Lifted, []string{getJob, listPods, putJob}},
		}},
		"StartGate": {kind: gated(), steps: []step{
			{hold(1), holdable.Placed, []string{getJob, putJob}},
			{release(1), holdable.KeptPaused, []string{getJob, putJob}}, // R6
			{open, holdable.Opened, []string{getJob, listPods, putJob}}, // O1
			{open, holdable.AlreadyOpen, []string{getJob}},              // O3
			{hold(2), holdable.Placed, []string{getJob, putJob}},
			{release(2), holdable.Lifted, []string{getJob, listPods, putJob}},
		}},
		"Kueue": {kind: kueue(), steps: []step{
			{hold(1), holdable.Placed, []string{getJob, "", putWL}},
			{hold(1), holdable.InForce, []string{getJob, ""}},
			{release(1), holdable.Lifted, []string{getJob, "", putWL}},
		}},
		"KueuePinned": {kind: kueue(), pinned: true, steps: []step{
			{hold(1), holdable.Placed, []string{"", putWL}},
			{hold(1), holdable.InForce, []string{""}},
			{release(1), holdable.Lifted, []string{"", putWL}},
		}},
		"KueueByOwner": {kind: kueue(), unlabel: true, steps: []step{
			{hold(1), holdable.Placed, []string{getJob, "", listAll, putWL}},
		}},
		"KueueCheckPods": {kind: kueue(), pinned: true, checkPods: true, steps: []step{
			{hold(1), holdable.Placed, []string{getJob, "", putWL}},
			{release(1), holdable.Lifted, []string{getJob, "", listPods, putWL}},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newKueueCluster(t)
				if tc.kind.StartGate {
					c.patch(trainJobs(), "job", `{"spec":{"suspend":true}}`)
				}
				if tc.unlabel {
					c.patch(workloads(), "wl", `{"metadata":{"labels":null}}`)
				}
				h := c.clientWith(tc.kind, holdable.Options{CheckPods: tc.checkPods})
				ref := job()
				if tc.pinned {
					ref.UID = c.job
				}
				byLabel := fmt.Sprintf("GET workloads?kueue.x-k8s.io/job-uid=%s", c.job)
				for i, s := range tc.steps {
					r, err := s.call(h, ref)
					r = c.did(r, err, s.did)
					want := lo.Map(s.sent, func(line string, _ int) string { return lo.CoalesceOrEmpty(line, byLabel) })
					if diff := cmp.Diff(want, c.wire.take()); diff != "" {
						t.Errorf("step %d: transmitted (-want +got):\n%s", i+1, diff)
					}
					if r.Tries != 1 || r.Object.UID != c.job || r.Object.Kind != "TrainJob" {
						t.Errorf("step %d: receipt %+v", i+1, r)
					}
				}
				if took := len(c.commits()); took == 0 {
					t.Error("nothing was written")
				}
			})
		})
	}
}

// What Inspect costs.
func TestWhatInspectTransmits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newKueueCluster(t)
		for _, tc := range []struct {
			kind holdable.Holdable[bool]
			want []string
		}{
			{plain(), []string{"GET trainjobs/job", "GET pods?jobset.sigs.k8s.io/jobset-name=job"}},
			{kueue(), []string{
				"GET trainjobs/job", fmt.Sprintf("GET workloads?kueue.x-k8s.io/job-uid=%s", c.job), "GET pods?jobset.sigs.k8s.io/jobset-name=job"}},
		} {
			_, err := c.client(tc.kind).Inspect(t.Context(), job())
			c.check(err)
			if diff := cmp.Diff(tc.want, c.wire.take()); diff != "" {
				t.Errorf("transmitted (-want +got):\n%s", diff)
			}
		}
	})
}

// A Workload that is held by its own name has no pods to look for.
func TestWhatAHoldOfAWorkloadTransmits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newKueueCluster(t)
		h := c.client(kinds.Workload())
		ref := meta.Ref{Namespace: "ns", Name: "wl"}
		r, err := h.Hold(t.Context(), ref, call(1))
		c.did(r, err, holdable.Placed)
		r, err = h.Release(t.Context(), ref, call(1))
		c.did(r, err, holdable.Lifted)
		in, err := h.Inspect(t.Context(), ref)
		if err != nil || in.Drained != holdable.DrainedUnknown {
			t.Errorf("%+v, %v", in, err)
		}
		want := []string{"GET workloads/wl", "PUT workloads/wl", "GET workloads/wl", "PUT workloads/wl", "GET workloads/wl"}
		if diff := cmp.Diff(want, c.wire.take()); diff != "" {
			t.Errorf("transmitted (-want +got):\n%s", diff)
		}
	})
}

// C8: the writes of a holder name their manager and are validated strictly, in
// either mode and for every operation.
func TestC8OnTheWire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newKueueCluster(t)
		c.patch(trainJobs(), "job", `{"spec":{"suspend":true}}`)
		for _, kind := range []holdable.Holdable[bool]{gated(), kueue()} {
			h := c.client(kind)
			if kind.StartGate {
				_, err := h.Open(t.Context(), job(), call(0))
				c.check(err)
			}
			_, err := h.Hold(t.Context(), job(), call(1))
			c.check(err)
			_, err = h.Release(t.Context(), job(), call(1))
			c.check(err)
		}
		puts := 0
		for _, r := range c.wire.sent {
			if r.Method != "PUT" {
				continue
			}
			puts++
			if q := r.URL.Query(); q.Get("fieldManager") != retry.FieldManager || q.Get("fieldValidation") != "Strict" {
				t.Errorf("%s %s", r.Method, r.URL)
			}
		}
		if puts != 5 {
			t.Errorf("%d writes", puts)
		}
	})
}

// C3: the deadline of the call is that of each request, and Inspect, which has
// none, takes its context's or else CallBound.
func TestC3TheDeadlineIsOnEveryRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newKueueCluster(t)
		deadlines := func(want time.Time) {
			t.Helper()
			for _, r := range c.wire.sent {
				if got, _ := r.Context().Deadline(); !got.Equal(want) {
					t.Errorf("%s %s has the deadline %v, want %v", r.Method, r.URL.Path, got, want)
				}
			}
			if len(c.wire.take()) < 3 {
				t.Error("that was not all")
			}
		}
		for _, kind := range []holdable.Holdable[bool]{plain(), kueue()} {
			h := c.clientWith(kind, holdable.Options{CheckPods: true})
			_, err := h.Hold(t.Context(), job(), call(1))
			c.check(err)
			_, err = h.Release(t.Context(), job(), call(1))
			c.check(err)
			deadlines(time.Now().Add(time.Minute))
		}
		h := c.client(kueue())
		_, err := h.Inspect(context.Background(), job())
		c.check(err)
		deadlines(time.Now().Add(h.CallBound()))
		for _, within := range []time.Duration{time.Second, time.Hour} {
			ctx, cancel := context.WithTimeout(t.Context(), within)
			_, err = h.Inspect(ctx, job())
			cancel()
			c.check(err)
			deadlines(time.Now().Add(within))
		}
	})
}
