//go:build e2e

package probetest

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubehold/kubehold/kinds"
	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/probe"
	"github.com/kubehold/kubehold/rapidtest/realstack/cluster"
	"github.com/kubehold/kubehold/retry"
)

var errKilled = errors.New("the process is dead")

// roundTripper is an http.RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// A probe is killed at each of its requests in turn, after the apiserver has
// carried it out. A probe that comes when the canaries have expired removes them
// all.
func TestP2NoTraceOfProbesThatWereKilled(t *testing.T) {
	w := newWorld(t, "killed")
	kind := kinds.Workload()
	opts := w.options()
	// A short life, so that it is over soon.
	opts.Timeout, opts.Engine = 3*time.Second, retry.Options{RequestTimeout: time.Second, CallBound: 2 * time.Second}
	w.grant(kind, opts, "")
	w.probeUntil(kind, opts, lacksOnly())
	w.create(kind.Resource, workload(w.namespace, "somebody"))
	before := w.snapshot(kind)
	left := 0
	for n := int64(1); ; n++ {
		sent := w.killedAt(n, opts)
		if sent < n {
			break
		}
		if w.snapshot(kind) != before {
			left++
		}
	}
	if left == 0 {
		t.Error("no probe left anything: what does this test show?")
	}
	err := cluster.Wait(w.bounded(), "the canaries are gone", func(context.Context) (bool, any, error) {
		if r := w.probe(kind, opts); r.State(meta.OpHold) != probe.Available {
			return false, r.String(), nil
		}
		after := w.snapshot(kind)
		return after == before, after, nil
	})
	if err != nil {
		t.Errorf("P2: %v", err)
	}
	t.Logf("canaries were left in %d states, and are gone", left)
}

// killedAt runs a probe that is killed at its n-th request, and returns how
// many it has sent.
func (w *world) killedAt(n int64, opts probe.Options) int64 {
	w.Helper()
	ctx, kill := context.WithCancel(w.bounded())
	defer kill()
	var sent atomic.Int64
	cfg := w.config()
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			i := sent.Add(1)
			if i > n {
				return nil, errKilled
			}
			resp, err := next.RoundTrip(req)
			if i == n {
				kill()
				if err == nil {
					_ = resp.Body.Close() // nobody reads it any more
				}
				return nil, errKilled
			}
			return resp, err
		})
	})
	if _, err := probe.Run(ctx, cfg, kinds.Workload(), opts); err != nil {
		w.Fatal(err)
	}
	return sent.Load()
}
