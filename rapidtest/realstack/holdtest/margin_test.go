//go:build e2e

package holdtest

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/kinds"
	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/rapidtest/realstack/cluster"
	"github.com/kubehold/kubehold/retry"
)

// An update that the network delays by less than the margin lands before the
// time that its error names, or never. One that it delays for longer lands
// afterwards, on an object whose supervisor rightly believes that no hold can
// come: that is what the margin is for.
func TestWhatTheMarginIsFor(t *testing.T) {
	t.Parallel()
	const margin = 3 * time.Second
	for name, c := range map[string]struct {
		delay  time.Duration
		inTime bool
	}{
		"DelayWithinTheMargin": {margin - time.Second, true},
		"DelayBeyondTheMargin": {requestTimeout + margin + 2*time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			m := s.plain()
			job := m.makeJob("job", true, nil)
			// Any other write in between would have the update refused.
			_, err := s.cluster.WaitFor(s.soon(), cluster.TrainJobs(), job, "Trainer has no more to write", isAtRest)
			s.must(err)
			proxy, cfg := newProxy(t, s.config())
			holder, err := holdable.New(kinds.WithStartGate(kinds.TrainJob()), cfg,
				retry.Options{RequestTimeout: requestTimeout, CallBound: requestTimeout + margin}, holdable.Options{})
			s.must(err)
			proxy.does(func(r *http.Request) harm {
				if r.Method != http.MethodPut {
					return harm{}
				}
				return harm{delay: c.delay}
			})
			one := call(1)
			one.Deadline = time.Now().Add(time.Second)
			_, err = holder.Hold(t.Context(), ref(job), one)
			var e *meta.Error
			if !errors.As(err, &e) || !errors.Is(err, meta.ErrInDoubt) || e.Fate != meta.FatePending {
				t.Fatalf("%v, want a hold in doubt", err)
			}
			s.waitUntil(e.PendingUntil)
			landed := hasHold(m.heldObject(job))
			if landed != c.inTime {
				t.Fatalf("at the end of the bound of %v the hold has landed: %t, want %t", holder.CallBound(), landed, c.inTime)
			}
			_, err = s.cluster.WaitFor(s.soon(), cluster.TrainJobs(), job, "the hold lands", hasHold)
			s.must(err)
			t.Logf("delayed by %v with a margin of %v, the hold landed %s", c.delay, margin,
				map[bool]string{true: "before its error's PendingUntil", false: "after its error's PendingUntil"}[c.inTime])
		})
	}
}

// isAtRest reports whether a suspended TrainJob says all that there is to say of it.
func isAtRest(job *cluster.Object) bool {
	jobs, _, _ := unstructured.NestedSlice(job.Object, "status", "jobsStatus")
	if len(jobs) != 1 || !says("Suspended", "")(job) {
		return false
	}
	status, _ := jobs[0].(map[string]any)
	return status["suspended"] == int64(1)
}

// waitUntil lets the time pass until then.
func (s *scene) waitUntil(then time.Time) {
	s.Helper()
	ctx, cancel := context.WithDeadline(s.Context(), then)
	defer cancel()
	<-ctx.Done()
	s.must(s.Context().Err())
}
