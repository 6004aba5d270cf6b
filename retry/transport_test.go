package retry_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/samber/lo"

	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/rapidtest"
	"github.com/kubehold/kubehold/retry"
)

// C7, the control: client-go by itself sends a PUT again that was answered with
// Retry-After, though it had committed. Its caller sees the answer to the last
// transmission, of eleven at the most.
func TestC7ClientGoSendsAgain(t *testing.T) {
	fault := rapidtest.Answer(503).AfterCommit().WithRetryAfter(1)
	for name, tc := range map[string]struct {
		rule          rapidtest.Rule
		transmissions int
		is            func(error) bool
	}{
		"Once":   {first(fault), 2, apierrors.IsConflict},
		"Always": {rapidtest.Each(rapidtest.Writes(), fault), 11, apierrors.IsServiceUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t, setup{rules: []rapidtest.Rule{tc.rule}})
				client, err := dynamic.NewForConfig(l.config)
				l.check(err)
				obj := l.stored()
				l.check(unstructured.SetNestedField(obj.Object, mine, "spec", "mark"))
				_, err = client.Resource(widgets()).Namespace("ns").Update(t.Context(), obj, metav1.UpdateOptions{})
				if !tc.is(err) || len(l.updates()) != tc.transmissions || len(l.commits()) != 1 {
					t.Errorf("%v after %d transmissions\n%s", err, len(l.updates()), l.plan.Timeline())
				}
			})
		})
	}
}

// C7, E3: the engine transmits an update once for each try, whatever client-go
// would do, waits as long as it was told to, and knows what a 409 means.
func TestC7OneUpdateIsOneTransmission(t *testing.T) {
	busy := rapidtest.Answer(503).WithRetryAfter(2)
	for name, tc := range map[string]struct {
		fault   rapidtest.Fault
		commits int
		waits   []time.Duration
	}{
		"Committed":    {busy.AfterCommit(), 1, []time.Duration{0, 2 * time.Second, 20 * time.Millisecond}},
		"NotCommitted": {busy, 1, []time.Duration{0, 2 * time.Second}},
		"TooMany":      {rapidtest.Answer(429).WithRetryAfter(2), 1, []time.Duration{0, 2 * time.Second, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t, setup{rules: []rapidtest.Rule{first(tc.fault)}})
				res, err := l.do()
				l.succeeded(res, err, res.Tries, tc.commits)
				if diff := cmp.Diff(tc.waits, l.waits()); diff != "" || len(l.updates()) != 2 {
					t.Errorf("%d updates; waits (-want +got):\n%s", len(l.updates()), diff)
				}
				for _, ev := range l.events {
					if ev.Transmissions != 1 {
						t.Errorf("%s was transmitted %d times", ev.Verb, ev.Transmissions)
					}
				}
			})
		})
	}
}

// C7: so nine tries are nine transmissions, and not eleven for each.
func TestC7NineTriesAreNineTransmissions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, setup{rules: []rapidtest.Rule{rapidtest.Each(rapidtest.Writes(), rapidtest.Answer(503).AfterCommit().WithRetryAfter(1))}})
		_, err := l.do()
		l.failed(err, meta.ErrInDoubt, meta.FatePending)
		l.sends(1, 9)
	})
}

// C7, I8: with client-go's own re-sends the engine is as honest, if less
// certain: the conflict with its own first transmission is success.
func TestC7ABareClientIsNoFalseNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, setup{face: bare, rules: []rapidtest.Rule{first(rapidtest.Answer(503).AfterCommit().WithRetryAfter(1))}})
		res, err := l.engine.Do(t.Context(), time.Now().Add(time.Minute), l.once())
		l.succeeded(res, err, 2, 1)
		l.sends(2, 2)
	})
}

// C7: reads are transmitted once as well: the engine paces them, not client-go.
func TestC7ReadsAreTransmittedOnce(t *testing.T) {
	for name, fault := range map[string]rapidtest.Fault{
		"503": rapidtest.Answer(503).WithRetryAfter(1), "Reset": rapidtest.ResetConnection(), "EOF": rapidtest.LoseResponse(),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t, setup{rules: []rapidtest.Rule{rapidtest.Each(rapidtest.Reads(), fault)}})
				_, err := l.do()
				l.failed(err, meta.ErrRejected, meta.FateNone)
				l.sends(9, 0)
			})
		})
	}
}

// C3: client-go's rate limiter spends the call's time. A wait within it is made,
// one that would run past the deadline is refused at once, and nothing is sent.
func TestC3ARateLimiterSpendsTheCallsTime(t *testing.T) {
	slow := func(cfg *rest.Config) { cfg.QPS, cfg.Burst = 0.5, 1 } // one request in 2 s
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, setup{config: slow})
		begin := time.Now()
		res, err := l.doWithin(3 * time.Second)
		l.succeeded(res, err, 1, 1)
		if took := time.Since(begin); took != 2*time.Second {
			t.Errorf("it took %v", took)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, setup{config: slow})
		begin := time.Now()
		_, err := l.doWithin(time.Second)
		l.failed(err, meta.ErrRejected, meta.FateNone)
		l.sends(1, 0)
		if took := time.Since(begin); took != 0 {
			t.Errorf("it took %v", took)
		}
	})
}

// A stubborn limiter makes every request after the first wait for ten seconds,
// and does not look at its context.
type stubborn struct {
	flowcontrol.RateLimiter
	asked int
}

func (s *stubborn) Wait(context.Context) error {
	if s.asked++; s.asked > 1 {
		time.Sleep(10 * time.Second)
	}
	return nil
}

// slowWrapper is a wrapper of the transport that takes its time over PUTs.
type slowWrapper struct{ next http.RoundTripper }

func (s slowWrapper) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPut {
		time.Sleep(10 * time.Second)
	}
	return s.next.RoundTrip(r)
}

// C3: nothing leaves after the deadline, whatever made the request wait: the
// deadline is checked next to the wire. The call knows that nothing was sent.
func TestC3NothingLeavesAfterTheDeadline(t *testing.T) {
	for name, config := range map[string]func(*rest.Config){
		"RateLimiter": func(cfg *rest.Config) { cfg.RateLimiter = &stubborn{} },
		"Wrapper": func(cfg *rest.Config) {
			cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper { return slowWrapper{rt} })
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for _, within := range []time.Duration{5 * time.Second, 10 * time.Second} {
					l := newLab(t, setup{config: config})
					_, err := l.doWithin(within)
					l.failed(err, meta.ErrDeadline, meta.FateNone)
					if !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("got %v", err)
					}
					if n := len(l.wire.of(http.MethodPut)); n != 0 {
						t.Errorf("%d updates left after the deadline", n)
					}
				}
				l := newLab(t, setup{config: config})
				res, err := l.doWithin(11 * time.Second)
				l.succeeded(res, err, 1, 1)
			})
		})
	}
}

// C3: with a fate open, the re-send that came too late leaves it open.
func TestC3ALateResendLeavesTheFateOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := &stubborn{}
		l := newLab(t, setup{
			config: func(cfg *rest.Config) { cfg.RateLimiter = limiter },
			rules:  []rapidtest.Rule{first(rapidtest.LoseResponse())},
		})
		_, err := l.doWithin(15 * time.Second)
		l.failed(err, meta.ErrInDoubt, meta.FatePending)
		l.sends(1, 1)
	})
}

// A repeating wrapper sends what it is given twice.
type repeating struct{ next http.RoundTripper }

func (d repeating) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := r.GetBody()
	if err != nil {
		return nil, err
	}
	if _, err := d.next.RoundTrip(r); err != nil {
		return nil, err
	}
	again := r.Clone(r.Context())
	again.Body = body
	return d.next.RoundTrip(again)
}

// C7: a wrapper above the engine's transport cannot send a request twice; what
// it then answers is no answer to the first, whose fate stays open until one is.
func TestC7NoWrapperSendsTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, setup{config: func(cfg *rest.Config) {
			cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper {
				return roundTripper(func(r *http.Request) (*http.Response, error) {
					if r.Method == http.MethodPut {
						return repeating{rt}.RoundTrip(r)
					}
					return rt.RoundTrip(r)
				})
			})
		}})
		_, err := l.do()
		l.failed(err, meta.ErrInDoubt, meta.FatePending)
		if len(l.updates()) != 9 || len(l.commits()) != 1 {
			t.Errorf("%d updates, %d commits", len(l.updates()), len(l.commits()))
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A body tells whether it was closed.
type body struct {
	io.Reader
	closed bool
}

func (b *body) Close() error {
	b.closed = true
	return nil
}

// The transport closes the body of a request that it does not send, as every
// http.RoundTripper must.
func TestC7ARefusedRequestsBodyIsClosed(t *testing.T) {
	var closed []bool
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, setup{config: func(cfg *rest.Config) {
			cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper {
				return roundTripper(func(r *http.Request) (*http.Response, error) {
					if r.Method != http.MethodPut {
						return rt.RoundTrip(r)
					}
					time.Sleep(time.Minute)
					b := &body{Reader: strings.NewReader("{}")}
					r = r.Clone(r.Context())
					r.Body = b
					resp, err := rt.RoundTrip(r)
					closed = append(closed, b.closed)
					return resp, err
				})
			})
		}})
		_, err := l.doWithin(time.Second)
		l.failed(err, meta.ErrDeadline, meta.FateNone)
	})
	if diff := cmp.Diff([]bool{true}, closed); diff != "" {
		t.Errorf("closed (-want +got):\n%s", diff)
	}
}

// T5: both forms of Retry-After are honoured; what is neither, or is not ahead,
// is no wait.
func TestT5RetryAfterForms(t *testing.T) {
	in := func(d time.Duration) func() string {
		return func() string { return time.Now().Add(d).UTC().Format(http.TimeFormat) }
	}
	is := func(s string) func() string { return func() string { return s } }
	own := 10 * time.Millisecond
	for name, tc := range map[string]struct {
		header func() string
		want   time.Duration
	}{
		"Seconds":    {is("7"), 7 * time.Second},
		"OneSecond":  {is("1"), time.Second},
		"Date":       {in(9 * time.Second), 9 * time.Second},
		"DatePast":   {in(-time.Hour), own},
		"Zero":       {is("0"), own},
		"Negative":   {is("-5"), own},
		"Words":      {is("soon"), own},
		"Fraction":   {is("1.5"), own},
		"Huge":       {is("99999999"), 24 * time.Hour},
		"Huger":      {is("99999999999999999999"), 24 * time.Hour},
		"LargeMinus": {is("-9999999999"), own},
		"HugeMinus":  {is("-99999999999999999999"), own},
		"FarDate":    {in(9 * 365 * 24 * time.Hour), 9 * 365 * 24 * time.Hour},
		"Absent":     {is(""), own},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t, setup{})
				l.wire.bend = func(n int, r *http.Request) (*http.Response, error) {
					if n > 1 {
						return nil, nil
					}
					return answer(r, 503, "busy", "Retry-After", tc.header(), "Content-Type", "text/plain"), nil
				}
				begin := time.Now()
				res, err := l.doWithin(20 * 365 * 24 * time.Hour)
				l.succeeded(res, err, 2, 1)
				if took := time.Since(begin); took != tc.want {
					t.Errorf("it waited %v, want %v", took, tc.want)
				}
				var e *retry.RequestError
				if want := lo.Ternary(tc.want == own, 0, tc.want); !errors.As(l.events[0].Err, &e) || e.RetryAfter != want {
					t.Errorf("the error has a RetryAfter of %v, want %v", e.RetryAfter, want)
				}
			})
		})
	}
}

// Odd answers to an update that was made are no answers: the same bytes go out
// again, and the read after their 409 shows that it has landed.
func TestT3OddAnswers(t *testing.T) {
	for name, bend := range map[string]func(r *http.Request, stored *http.Response) *http.Response{
		"Empty":     func(r *http.Request, _ *http.Response) *http.Response { return answer(r, 200, "") },
		"NoContent": func(r *http.Request, _ *http.Response) *http.Response { return answer(r, 204, "") },
		"Truncated": func(r *http.Request, stored *http.Response) *http.Response {
			all, _ := io.ReadAll(stored.Body)
			return answer(r, 200, string(all[:len(all)/2]))
		},
		"CutOff": func(r *http.Request, stored *http.Response) *http.Response {
			stored.Body = io.NopCloser(io.MultiReader(io.LimitReader(stored.Body, 9), brokenReader{}))
			return stored
		},
		"EmptyObject": func(r *http.Request, _ *http.Response) *http.Response { return answer(r, 200, "{}") },
		"Success": func(r *http.Request, _ *http.Response) *http.Response {
			return answer(r, 200, `{"kind":"Status","apiVersion":"v1","status":"Success"}`)
		},
		"AnotherUID": func(r *http.Request, stored *http.Response) *http.Response {
			all, _ := io.ReadAll(stored.Body)
			return answer(r, 200, strings.ReplaceAll(string(all), "5eed0000", "bad00000"))
		},
		"NoVersion": func(r *http.Request, stored *http.Response) *http.Response {
			all, _ := io.ReadAll(stored.Body)
			return answer(r, 200, strings.ReplaceAll(string(all), "resourceVersion", "version"))
		},
		"HTML": func(r *http.Request, _ *http.Response) *http.Response {
			return answer(r, 200, "<html>please log in</html>", "Content-Type", "text/html")
		},
		"Megabyte": func(r *http.Request, _ *http.Response) *http.Response {
			return answer(r, 502, strings.Repeat("x", 1<<20), "Content-Type", "text/plain")
		},
		"MovedElsewhere": func(r *http.Request, _ *http.Response) *http.Response {
			return answer(r, 308, "", "Location", "http://elsewhere.invalid"+r.URL.Path)
		},
		"SeeOther": func(r *http.Request, _ *http.Response) *http.Response {
			return answer(r, 303, "", "Location", r.URL.String())
		},
		"NotModified": func(r *http.Request, _ *http.Response) *http.Response { return answer(r, 304, "") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t, setup{})
				l.wire.bend = func(n int, r *http.Request) (*http.Response, error) {
					if n != 2 {
						return nil, nil
					}
					stored, err := l.wire.next.RoundTrip(r)
					if err != nil {
						return nil, err
					}
					return bend(r, stored), nil
				}
				res, err := l.engine.Do(t.Context(), time.Now().Add(time.Minute), l.once())
				l.succeeded(res, err, 3, 1)
				l.sends(2, 2)
				l.sameBytes()
			})
		})
	}
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// C7: a PUT is not sent on to where a redirect points, and neither is a read.
func TestC7NoRedirectIsFollowed(t *testing.T) {
	for _, code := range []int{301, 302, 303, 307, 308} {
		synctest.Test(t, func(t *testing.T) {
			l := newLab(t, setup{})
			l.wire.bend = func(_ int, r *http.Request) (*http.Response, error) {
				if r.Method == http.MethodGet {
					return nil, nil
				}
				return answer(r, code, "", "Location", "http://elsewhere.invalid/"), nil
			}
			_, err := l.do()
			l.failed(err, meta.ErrInDoubt, meta.FatePending)
			paths := lo.Uniq(lo.Map(l.wire.of(http.MethodGet, http.MethodPut), func(tr transmission, _ int) string { return tr.path }))
			if n := len(l.wire.of(http.MethodPut)); n != 9 || len(paths) != 1 {
				t.Errorf("%d: %d updates, to %v", code, n, paths)
			}
		})
	}
}

// The config that is handed in is not changed, and what others send with it is
// left alone.
func TestTheConfigIsNotChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, setup{})
		before := *l.config
		if _, err := retry.New(l.config, retry.Options{}); err != nil {
			t.Fatal(err)
		}
		if l.config.WrapTransport != nil || l.config.Transport != before.Transport || l.config.QPS != before.QPS || l.config.ContentType != before.ContentType {
			t.Errorf("the config is now %v", l.config)
		}

		// A client of somebody else on the wrapped config is client-go's as ever.
		plan := rapidtest.NewPlan(rapidtest.Nth(1, rapidtest.Reads(), rapidtest.Answer(503).WithRetryAfter(1)))
		client, err := dynamic.NewForConfig(retry.WithTransport(l.server.RESTConfig("other", plan.Middleware)))
		l.check(err)
		if _, err := client.Resource(widgets()).Namespace("ns").Get(t.Context(), "w", metav1.GetOptions{}); err != nil || len(plan.Events()) != 2 {
			t.Errorf("%v\n%s", err, plan.Timeline())
		}
	})
}

// client-go can see through the transport, to the one below it.
func TestTheTransportUnwraps(t *testing.T) {
	next := roundTripper(func(*http.Request) (*http.Response, error) { return nil, io.EOF })
	wrapped := retry.WithTransport(&rest.Config{}).WrapTransport(next)
	unwrapper, ok := wrapped.(interface{ WrappedRoundTripper() http.RoundTripper })
	if !ok {
		t.Fatalf("%T does not unwrap", wrapped)
	}
	if _, ok := unwrapper.WrappedRoundTripper().(roundTripper); !ok {
		t.Errorf("it unwraps to a %T", unwrapper.WrappedRoundTripper())
	}
}

// CountTransmission does nothing outside of an engine's request.
func TestCountTransmissionElsewhere(t *testing.T) {
	retry.CountTransmission(context.Background())
}

// The same over a real connection that is cut after the commit.
func TestT3OverARealConnection(t *testing.T) {
	l := newLab(t, setup{})
	l.plan = rapidtest.NewPlan(first(rapidtest.LoseResponse()))
	server := httptest.NewServer(l.server.Handler("engine", l.plan.Middleware))
	defer server.Close()
	engine, err := retry.New(&rest.Config{Host: server.URL, QPS: -1}, retry.Options{})
	l.check(err)
	res, err := engine.Do(t.Context(), time.Now().Add(time.Minute), l.once())
	l.succeeded(res, err, 3, 1)
	l.sends(2, 2)
}
