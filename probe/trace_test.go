package probe_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/kinds"
	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/probe"
	"github.com/kubehold/kubehold/rapidtest"
	"github.com/kubehold/kubehold/retry"
)

// A line counts the requests that go over it, and cuts or breaks one.
type line struct {
	mu   sync.Mutex
	sent int
	// at is the number of the request that something happens to, from 1.
	at   int
	what func(next http.RoundTripper, req *http.Request) (*http.Response, error)
	// dead says that nothing passes after that request.
	dead bool
}

func (l *line) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		l.mu.Lock()
		l.sent++
		n := l.sent
		l.mu.Unlock()
		switch {
		case n == l.at:
			return l.what(next, req)
		case l.dead && n > l.at:
			return nil, errKilled
		}
		return next.RoundTrip(req)
	})
}

var errKilled = errors.New("the process is dead")

// long is longer than a probe takes, and than anything of it lasts.
const long = probe.DefaultTimeout + meta.DefaultRequestTimeout + meta.DefaultMargin + time.Minute

// A probe is killed at each of its requests in turn, before it is sent and
// after it was executed. The next probe leaves what may be a living probe's
// canary alone, and once that has expired it is gone.
func TestP2NoTraceOfAProbeThatWasKilled(t *testing.T) {
	for _, m := range modes() {
		for _, executed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/executed=%v", m.name, executed), func(t *testing.T) {
				orphans, n := 0, 1
				for ; ; n++ {
					finished, orphaned := killedAt(t, m.kind, n, executed)
					if finished {
						break
					}
					if orphaned {
						orphans++
					}
				}
				if n < 15 || orphans < 8 {
					t.Errorf("killed at %d requests with %d canaries left: what does this test show?", n-1, orphans)
				}
			})
		}
	}
}

// killedAt kills a probe at its n-th request, and reports whether it had fewer
// and whether it has left something.
func killedAt(t *testing.T, kind holdable.Kind, n int, executed bool) (finished, orphaned bool) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(t)
		before := snapshot(t, server)
		ctx, kill := context.WithCancel(t.Context())
		defer kill()
		l := &line{at: n, dead: true, what: func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
			if executed {
				if resp, err := next.RoundTrip(req); err == nil {
					_ = resp.Body.Close() // nobody reads it any more
				}
			}
			kill()
			return nil, errKilled
		}}
		if _, err := probe.Run(ctx, withTransport(server.RESTConfig("first"), l.wrap), kind, optionsFor(kind)); err != nil {
			t.Fatal(err)
		}
		finished = l.sent < n
		left := snapshot(t, server)
		orphaned = left != before

		mustAllow(t, mustRun(t, server.RESTConfig("second"), kind, optionsFor(kind)))
		if diff := cmp.Diff(left, snapshot(t, server)); diff != "" {
			t.Errorf("killed at %d: the next probe took another one's canary (-before +after):\n%s", n, diff)
		}
		time.Sleep(long)
		mustAllow(t, mustRun(t, server.RESTConfig("third"), kind, optionsFor(kind)))
		if diff := cmp.Diff(before, snapshot(t, server)); diff != "" {
			t.Errorf("killed at %d: a trace was left (-before +after):\n%s", n, diff)
		}
	})
	return finished, orphaned
}

// One request fails, each in its turn and in each of several ways: the probe
// goes on, and leaves nothing.
func TestP2NoTraceOfAProbeThatFailed(t *testing.T) {
	fails := map[string]func(next http.RoundTripper, req *http.Request) (*http.Response, error){
		"NotSent": func(http.RoundTripper, *http.Request) (*http.Response, error) {
			return nil, errors.New("connection refused")
		},
		"AnswerLost": func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
			if resp, err := next.RoundTrip(req); err == nil {
				_ = resp.Body.Close() // lost
			}
			return nil, io.ErrUnexpectedEOF
		},
		"Hangs": func(_ http.RoundTripper, req *http.Request) (*http.Response, error) {
			<-req.Context().Done()
			return nil, req.Context().Err()
		},
		"HangsExecuted": func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
			if resp, err := next.RoundTrip(req); err == nil {
				_ = resp.Body.Close() // lost
			}
			<-req.Context().Done()
			return nil, req.Context().Err()
		},
		"Answered500": func(_ http.RoundTripper, req *http.Request) (*http.Response, error) {
			return answer(req, 500, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":500,"reason":"InternalError","message":"etcd is away"}`), nil
		},
		"Answered429": func(_ http.RoundTripper, req *http.Request) (*http.Response, error) {
			resp := answer(req, 429, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":429,"reason":"TooManyRequests","message":"slow down"}`)
			resp.Header.Set("Retry-After", "1")
			return resp, nil
		},
		"Answered200WithoutSense": func(_ http.RoundTripper, req *http.Request) (*http.Response, error) {
			return answer(req, 200, `{"kind":"Cat"}`), nil
		},
	}
	for name, fail := range fails {
		t.Run(name, func(t *testing.T) {
			for _, m := range modes()[:3] {
				for n := 1; !failedAt(t, m.kind, n, fail); n++ {
				}
			}
		})
	}
}

// failedAt fails the n-th request of a probe, and reports whether it had fewer.
func failedAt(t *testing.T, kind holdable.Kind, n int, fail func(http.RoundTripper, *http.Request) (*http.Response, error)) (finished bool) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(t)
		before := snapshot(t, server)
		l := &line{at: n, what: fail}
		r := mustRun(t, withTransport(server.RESTConfig("probe"), l.wrap), kind, optionsFor(kind))
		finished = l.sent < n
		if diff := cmp.Diff(before, snapshot(t, server)); diff != "" {
			t.Errorf("P2: failed at %d: a trace was left (-before +after):\n%s\n%s", n, diff, r)
		}
		for _, op := range []meta.Op{meta.OpHold, meta.OpRelease, meta.OpInspect} {
			if r.State(op) == probe.Unavailable && !finished {
				t.Errorf("P3: failed at %d: %s is unavailable for a failure in passing\n%s", n, op, r)
			}
		}
	})
	return finished
}

// A creation whose answer was lost, and which the apiserver carries out later
// than the probe looks: the report says so, and the next probe after the expiry
// removes it.
func TestP2ACanaryThatComesLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kind := kinds.JobSet()
		server := newServer(t)
		before := snapshot(t, server)
		creation := rapidtest.Verbs(rapidtest.VerbCreate).And(rapidtest.OfResource("jobsets")).And(rapidtest.Writes())
		plan := rapidtest.NewPlan(rapidtest.Nth(1, creation, rapidtest.CommitLater(30*time.Second)))
		r := mustRun(t, server.RESTConfig("probe", plan.Middleware), kind, optionsFor(kind))
		mustSay(t, r, probe.RoundTrip, "nothing left behind", probe.Unknown, "may yet appear")
		time.Sleep(time.Minute)
		if snapshot(t, server) == before {
			t.Fatal("the canary did not come")
		}
		time.Sleep(long)
		r = mustRun(t, server.RESTConfig("probe"), kind, optionsFor(kind))
		mustSay(t, r, probe.RoundTrip, "a hold and its release", probe.Available, "canaries of earlier probes removed: 1")
		if diff := cmp.Diff(before, snapshot(t, server)); diff != "" {
			t.Errorf("a trace was left (-before +after):\n%s", diff)
		}
	})
}

// A canary that cannot be removed is reported with the command that does it.
func TestP2ACanaryThatCannotBeRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kind := kinds.Job()
		server := newServer(t)
		server.AdmitValidating(func(r rapidtest.AdmissionRequest) error {
			if r.Operation == "DELETE" {
				return rapidtest.Denied("keep.example.com", 403, metav1.StatusReasonForbidden, "nothing may be deleted")
			}
			return nil
		})
		r := mustRun(t, server.RESTConfig("probe"), kind, optionsFor(kind))
		mustSay(t, r, probe.RoundTrip, "nothing left behind", probe.Unavailable, "could not be removed", "nothing may be deleted")
		if l := find(t, r, probe.RoundTrip, "nothing left behind"); !strings.Contains(l.Remedy, "kubectl delete jobs.batch -n team-a kubehold-canary-") {
			t.Errorf("the remedy is %q", l.Remedy)
		}
		mustAllow(t, r) // of calls nothing is known
		time.Sleep(long)
		r = mustRun(t, server.RESTConfig("probe"), kind, optionsFor(kind))
		mustSay(t, r, probe.RoundTrip, "nothing left behind", probe.Unavailable, "canaries of earlier probes could not be removed")
	})
}

// Finalizers keep a canary: what waits for whom is in the report.
func TestP2ACanaryWithFinalizers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kind := kinds.JobSet()
		server := newServer(t)
		opts := optionsFor(kind)
		opts.Canary = object(kind.Resource, kind.Kind, "", map[string]any{"spec": map[string]any{}})
		opts.Canary.SetFinalizers([]string{"example.com/mine"})
		r := mustRun(t, server.RESTConfig("probe"), kind, opts)
		mustSay(t, r, probe.RoundTrip, "nothing left behind", probe.Unavailable, "waits for its finalizers: example.com/mine")
	})
}

// Whose canary it is, and when it may go, is written on it. What cannot be read
// is left, and said.
func TestP2OtherProbesCanaries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kind := kinds.JobSet()
		server := newServer(t)
		before := snapshot(t, server)
		l := &line{at: 1 << 20}
		mustRun(t, withTransport(server.RESTConfig("probe"), l.wrap), kind, optionsFor(kind))
		put := func(name, expires string) {
			obj := object(kind.Resource, kind.Kind, name, map[string]any{"spec": map[string]any{"suspend": true}})
			obj.SetNamespace(namespace)
			obj.SetLabels(map[string]string{"kubehold.dev/canary-expires": expires})
			create(t, server, kind.Resource, obj)
		}
		const layout = "20060102T150405Z"
		put("expired", time.Now().UTC().Add(-time.Minute).Format(layout))
		put("running", time.Now().UTC().Add(time.Minute).Format(layout))
		put("unreadable", "tomorrow")
		r := mustRun(t, server.RESTConfig("probe"), kind, optionsFor(kind))
		mustSay(t, r, probe.RoundTrip, "a hold and its release", probe.Available, "removed: 1")
		mustSay(t, r, probe.RoundTrip, "nothing left behind", probe.Unavailable, "unreadable", "tomorrow")
		at := server.Dynamic("admin").Resource(kind.Resource).Namespace(namespace)
		for name, there := range map[string]bool{"expired": false, "running": true, "unreadable": true, "somebody": true} {
			if _, err := at.Get(t.Context(), name, metav1.GetOptions{}); (err == nil) != there {
				t.Errorf("%s: %v", name, err)
			}
			_ = at.Delete(t.Context(), name, metav1.DeleteOptions{}) // as far as it is there
		}
		if strings.Count(before, `"name"`) == 0 {
			t.Error("the snapshot is empty")
		}
	})
}

// Many probes of one namespace at once do not get into each other's way.
func TestP2ProbesSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kind := kinds.WithStartGate(kinds.TrainJob())
		server := newServer(t)
		before := snapshot(t, server)
		slow := rapidtest.NewPlan(rapidtest.Each(rapidtest.Everything(), rapidtest.DelayRequest(50*time.Millisecond)))
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				time.Sleep(time.Duration(i) * 70 * time.Millisecond)
				mustAllow(t, mustRun(t, server.RESTConfig("probe", slow.Middleware), kind, optionsFor(kind)))
			})
		}
		all.Wait()
		if diff := cmp.Diff(before, snapshot(t, server)); diff != "" {
			t.Errorf("a trace was left (-before +after):\n%s", diff)
		}
	})
}

// A canary expires by the apiserver's clock, which is the one that probes on
// different machines share: one whose own clock is two hours fast takes nobody's
// canary too early, and nobody's clock makes its own expire too early.
func TestP2ExpiryByTheApiserversClock(t *testing.T) {
	for _, tt := range []struct {
		name          string
		first, second time.Duration // how far the apiserver is ahead of each
	}{
		{"TheSecondIsFast", 0, -2 * time.Hour},
		{"TheFirstIsSlow", 2 * time.Hour, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				kind := kinds.Job()
				server := newServer(t)
				before := snapshot(t, server)
				ctx, kill := context.WithCancel(t.Context())
				defer kill()
				// The first probe is killed when its canary is there.
				created := false
				cfg := withTransport(server.RESTConfig("first"), func(next http.RoundTripper) http.RoundTripper {
					return roundTripper(func(req *http.Request) (*http.Response, error) {
						if created {
							kill()
							return nil, errKilled
						}
						created = req.Method == http.MethodPost && strings.HasSuffix(req.URL.Path, "/jobs") && !req.URL.Query().Has("dryRun")
						return next.RoundTrip(req)
					})
				})
				if _, err := probe.Run(ctx, dated(cfg, tt.first), kind, optionsFor(kind)); err != nil {
					t.Fatal(err)
				}
				left := snapshot(t, server)
				if left == before {
					t.Fatal("nothing was left to look for")
				}
				// The second comes at once, by the apiserver's clock.
				time.Sleep(2 * time.Hour)
				mustRun(t, dated(server.RESTConfig("second"), tt.second), kind, optionsFor(kind))
				if diff := cmp.Diff(left, snapshot(t, server)); diff != "" {
					t.Errorf("P2: it took another one's canary (-before +after):\n%s", diff)
				}
				time.Sleep(long)
				mustRun(t, dated(server.RESTConfig("third"), tt.second+2*time.Hour), kind, optionsFor(kind))
				if diff := cmp.Diff(before, snapshot(t, server)); diff != "" {
					t.Errorf("P2: a trace was left (-before +after):\n%s", diff)
				}
			})
		})
	}
}

// What took the place of a canary since it was looked at is not removed.
func TestP2OnlyTheCanaryItselfIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kind := kinds.JobSet()
		server := newServer(t)
		put := func(labels map[string]string) {
			obj := object(kind.Resource, kind.Kind, "expired", map[string]any{"spec": map[string]any{"suspend": true}})
			obj.SetNamespace(namespace)
			obj.SetLabels(labels)
			create(t, server, kind.Resource, obj)
		}
		put(map[string]string{"kubehold.dev/canary-expires": time.Now().UTC().Add(-time.Minute).Format("20060102T150405Z")})
		at := server.Dynamic("admin").Resource(kind.Resource).Namespace(namespace)
		cfg := withTransport(server.RESTConfig("probe"), func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(req *http.Request) (*http.Response, error) {
				if req.Method == http.MethodDelete && strings.HasSuffix(req.URL.Path, "/expired") {
					if err := at.Delete(context.Background(), "expired", metav1.DeleteOptions{}); err != nil {
						return nil, err
					}
					put(nil)
				}
				return next.RoundTrip(req)
			})
		})
		mustAllow(t, mustRun(t, cfg, kind, optionsFor(kind)))
		if _, err := at.Get(t.Context(), "expired", metav1.GetOptions{}); err != nil {
			t.Errorf("P2: another object of that name is gone: %v", err)
		}
	})
}

// A step that hangs leaves time to remove the canary, however little there is,
// and an answer that asks to wait is not waited for.
func TestP2TimeIsLeftToRemoveTheCanary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kind := kinds.JobSet()
		server := newServer(t)
		before := snapshot(t, server)
		cfg := withTransport(server.RESTConfig("probe"), func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(req *http.Request) (*http.Response, error) {
				if req.Method == http.MethodPut {
					<-req.Context().Done()
					return nil, req.Context().Err()
				}
				return next.RoundTrip(req)
			})
		})
		opts := optionsFor(kind)
		opts.Timeout = 2 * time.Second
		begin := time.Now()
		r := mustRun(t, cfg, kind, opts)
		mustSay(t, r, probe.RoundTrip, "a hold and its release", probe.Unknown, "the hold came to no end")
		if took := time.Since(begin); took >= opts.Timeout {
			t.Errorf("the step that hung took all of the time: %v", took)
		}
		if diff := cmp.Diff(before, snapshot(t, server)); diff != "" {
			t.Errorf("P2: a trace was left (-before +after):\n%s", diff)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		kind := kinds.JobSet()
		plan := rapidtest.NewPlan(rapidtest.Each(rapidtest.OfResource("selfsubjectaccessreviews"), rapidtest.Answer(429).WithRetryAfter(7)))
		begin := time.Now()
		r := mustRun(t, newServer(t).RESTConfig("probe", plan.Middleware), kind, optionsFor(kind))
		mustSay(t, r, probe.Access, "get jobsets", probe.Unknown, "too many requests")
		if took := time.Since(begin); took > 2*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// dated answers with the Date of a clock that is ahead of ours.
func dated(cfg *rest.Config, ahead time.Duration) *rest.Config {
	return withTransport(cfg, func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(req)
			if err == nil {
				resp.Header.Set("Date", time.Now().Add(ahead).UTC().Format(http.TimeFormat))
			}
			return resp, err
		})
	})
}

// Everything that is sent has a deadline, none later than the caller's, and
// nothing waits longer, whatever hangs.
func TestP2NothingOutlastsTheContext(t *testing.T) {
	for _, tt := range []struct {
		name  string
		hangs func(n int) bool
	}{
		{"Nothing", func(int) bool { return false }},
		{"Everything", func(int) bool { return true }},
		{"EverySecond", func(n int) bool { return n%2 == 0 }},
		{"FromTheMiddle", func(n int) bool { return n > 18 }},
	} {
		for _, timeout := range []time.Duration{0, 3 * time.Second, time.Hour} {
			t.Run(fmt.Sprintf("%s/%v", tt.name, timeout), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					server := newServer(t)
					kind := kinds.OnKueue(kinds.TrainJob())
					limit := min(timeout, probe.DefaultTimeout)
					ctx := context.Background()
					if timeout == 0 {
						limit = probe.DefaultTimeout
					} else {
						var cancel context.CancelFunc
						ctx, cancel = context.WithTimeout(ctx, timeout)
						defer cancel()
					}
					begin, n := time.Now(), 0
					cfg := withTransport(server.RESTConfig("probe"), func(next http.RoundTripper) http.RoundTripper {
						return roundTripper(func(req *http.Request) (*http.Response, error) {
							n++
							if until, ok := req.Context().Deadline(); !ok || until.After(begin.Add(limit)) {
								t.Errorf("%s %s has the deadline %v", req.Method, req.URL.Path, until.Sub(begin))
							}
							if tt.hangs(n) {
								<-req.Context().Done()
								return nil, req.Context().Err()
							}
							return next.RoundTrip(req)
						})
					})
					r, err := probe.Run(ctx, cfg, kind, optionsFor(kind))
					if took := time.Since(begin); err != nil || took > limit {
						t.Errorf("it took %v of %v, and is %v", took, limit, err)
					}
					if n == 0 || len(r.Lines) == 0 {
						t.Error("nothing was probed")
					}
				})
			})
		}
	}
}

// A context that has ended lets nothing leave.
func TestP2AContextThatHasEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	cfg := withTransport(newServer(t).RESTConfig("probe"), func(http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			t.Errorf("%s %s was sent", req.Method, req.URL.Path)
			return nil, errKilled
		})
	})
	r, err := probe.Run(ctx, cfg, kinds.Job(), optionsFor(kinds.Job()))
	if err != nil || r.State(meta.OpHold) != probe.Unknown {
		t.Errorf("it is %v, and Hold is %s", err, r.State(meta.OpHold))
	}
}

// The prefix of the annotations is that of the real clients, on the canary too.
func TestP2Prefix(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kind := kinds.Job()
		server := newServer(t)
		seen := map[string]bool{}
		server.OnCommit(func(c rapidtest.Commit) {
			if c.Object == nil {
				return
			}
			for key := range c.Object.GetAnnotations() {
				seen[key] = true
			}
			for key := range c.Object.GetLabels() {
				seen[key] = true
			}
		})
		opts := optionsFor(kind)
		opts.Client = holdable.Options{Prefix: "jobs.example.org"}
		opts.Engine = retry.Options{RequestTimeout: 5 * time.Second}
		mustAllow(t, mustRun(t, server.RESTConfig("probe"), kind, opts))
		for key := range seen {
			if !strings.HasPrefix(key, "jobs.example.org/") {
				t.Errorf("a canary carries %s", key)
			}
		}
		if !seen["jobs.example.org/hold-instance"] || !seen["jobs.example.org/canary-expires"] || !seen["jobs.example.org/canary"] {
			t.Errorf("a canary carries %v", seen)
		}
	})
}
