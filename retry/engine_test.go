package retry_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"pgregory.net/rapid"

	"github.com/samber/lo"

	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/rapidtest"
	"github.com/kubehold/kubehold/retry"
)

// A call that nothing disturbs is one read and one update of it.
func TestDoIsOneReadAndOneUpdate(t *testing.T) {
	for _, f := range []face{overHTTP, bare, inProcess} {
		t.Run(string(f), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t, setup{face: f})
				begin := time.Now()
				res, err := l.do()
				l.succeeded(res, err, 1, 1)
				l.sends(1, 1)
				if took := time.Since(begin); took != 0 {
					t.Errorf("it waited %v", took)
				}
			})
		})
	}
}

func TestDoWithNothingToWriteOnlyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, setup{})
		l.write(mine)
		res, err := l.do()
		l.succeeded(res, err, 1, 0)
		l.sends(1, 0)
	})
}

func TestNewRefusesWhatItCannotWorkWith(t *testing.T) {
	cfg := rapidtest.NewServer().RESTConfig("engine")
	for name, make := range map[string]func() (*retry.Engine, error){
		"NoConfig":  func() (*retry.Engine, error) { return retry.New(nil, retry.Options{}) },
		"BadConfig": func() (*retry.Engine, error) { return retry.New(&rest.Config{Host: "http://[::1"}, retry.Options{}) },
		"NoClient":  func() (*retry.Engine, error) { return retry.NewForClient(nil, retry.Options{}) },
		"BoundBelowTheTimeout (C4)": func() (*retry.Engine, error) {
			return retry.New(cfg, retry.Options{RequestTimeout: time.Minute, CallBound: time.Minute})
		},
		"NegativeRetries": func() (*retry.Engine, error) { return retry.New(cfg, retry.Options{Retries: -1}) },
		"TooManyRetries":  func() (*retry.Engine, error) { return retry.New(cfg, retry.Options{Retries: retry.MaxRetries + 1}) },
	} {
		t.Run(name, func(t *testing.T) {
			if engine, err := make(); engine != nil || !errors.Is(err, meta.ErrInvalid) {
				t.Errorf("got %v, %v; want ErrInvalid", engine, err)
			}
		})
	}
}

// C4: the bound is the request timeout plus a margin, unless it is given.
func TestC4CallBound(t *testing.T) {
	for _, tc := range []struct {
		opts retry.Options
		want time.Duration
	}{
		{retry.Options{}, 65 * time.Second},
		{retry.Options{RequestTimeout: 2 * time.Minute}, 125 * time.Second},
		{retry.Options{CallBound: 90 * time.Second}, 90 * time.Second},
	} {
		engine, err := retry.New(rapidtest.NewServer().RESTConfig("engine"), tc.opts)
		if err != nil {
			t.Fatal(err)
		}
		if got := engine.CallBound(); got != tc.want {
			t.Errorf("%+v: got %v, want %v", tc.opts, got, tc.want)
		}
	}
}

func TestInvalidCallsSendNothing(t *testing.T) {
	for name, spoil := range map[string]func(*retry.Op, *time.Time){
		"C1NoDeadline": func(_ *retry.Op, deadline *time.Time) { *deadline = time.Time{} },
		"NoRead":       func(op *retry.Op, _ *time.Time) { op.Read = nil },
		"NoDecide":     func(op *retry.Op, _ *time.Time) { op.Decide = nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t, setup{})
				op, deadline := l.op(), time.Now().Add(time.Minute)
				spoil(&op, &deadline)
				_, err := l.engine.Do(t.Context(), deadline, op)
				if e := l.failed(err, meta.ErrInvalid, meta.FateNone); e.Tries != 0 {
					t.Errorf("tries: %d", e.Tries)
				}
				l.sends(0, 0)
			})
		})
	}
}

// An Engine that New did not make refuses clearly.
func TestTheZeroEngineIsInvalid(t *testing.T) {
	op := retry.Op{Read: getWidget, Decide: decideMark}
	for name, engine := range map[string]*retry.Engine{"nil": nil, "zero": {}} {
		if _, err := engine.Do(t.Context(), time.Now().Add(time.Minute), op); !errors.Is(err, meta.ErrInvalid) {
			t.Errorf("%s: got %v, want ErrInvalid", name, err)
		}
	}
}

// C2: a call whose deadline has passed is ErrRejected, and sends nothing. So is
// one whose context has ended.
func TestC2TooLateSendsNothing(t *testing.T) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for name, tc := range map[string]struct {
		ctx    context.Context
		within time.Duration
		cause  error
	}{
		"Now":        {context.Background(), 0, context.DeadlineExceeded},
		"Before":     {context.Background(), -time.Second, context.DeadlineExceeded},
		"LongBefore": {context.Background(), -250 * 365 * 24 * time.Hour, context.DeadlineExceeded},
		"Canceled":   {ended, time.Minute, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t, setup{})
				_, err := l.engine.Do(tc.ctx, time.Now().Add(tc.within), l.op())
				l.failed(err, meta.ErrDeadline, meta.FateNone)
				if !errors.Is(err, meta.ErrRejected) || !errors.Is(err, tc.cause) {
					t.Errorf("%v: not rejected for %v", err, tc.cause)
				}
				if own := strings.Contains(err.Error(), "the deadline has passed"); own != (tc.cause == context.DeadlineExceeded) {
					t.Errorf("it says %v", err)
				}
				l.sends(0, 0)
			})
		})
	}
}

// A lagging context has a deadline, and does not notice when it is over.
type lagging struct {
	context.Context
	deadline time.Time
}

func (l lagging) Deadline() (time.Time, bool) { return l.deadline, true }

// C3: whether there is time left is asked of the clock, not only of the context:
// its timer may be late.
func TestC3TheClockIsAsked(t *testing.T) {
	for _, left := range []time.Duration{-time.Second, 0} {
		synctest.Test(t, func(t *testing.T) {
			l := newLab(t, setup{})
			_, err := l.engine.Do(lagging{context.Background(), time.Now().Add(left)}, time.Now().Add(time.Minute), l.op())
			l.failed(err, meta.ErrDeadline, meta.FateNone)
			if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "the caller's context has ended") {
				t.Errorf("got %v", err)
			}
			l.sends(0, 0)
		})
	}
}

// C3: a decision that took too long is not sent, and is known not to have been,
// whatever the client.
func TestC3ASlowDecisionIsNotSent(t *testing.T) {
	for _, f := range []face{overHTTP, bare, inProcess} {
		synctest.Test(t, func(t *testing.T) {
			l := newLab(t, setup{face: f})
			op := l.op()
			op.Decide = func(read *unstructured.Unstructured) (retry.Decision, error) {
				time.Sleep(time.Minute)
				return decideMark(read)
			}
			_, err := l.engine.Do(context.Background(), time.Now().Add(time.Minute), op)
			l.failed(err, meta.ErrDeadline, meta.FateNone)
			l.sends(1, 0)
			if len(l.events) != 1 {
				t.Errorf("the observer was told of %v", l.events)
			}
		})
	}
}

// C3: the deadline is the context's of every request, and of Read and Check.
func TestC3TheDeadlineGoesWithEveryRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, setup{rules: []rapidtest.Rule{rapidtest.Nth(1, rapidtest.Writes(), rapidtest.Answer(500))}})
		deadline := time.Now().Add(time.Minute).In(time.FixedZone("elsewhere", 3600))
		check := func(ctx context.Context, what string) {
			if got, _ := ctx.Deadline(); !got.Equal(deadline) {
				t.Errorf("the deadline of %s is %v, want %v", what, got, deadline)
			}
		}
		op := l.op()
		op.Read = func(ctx context.Context, r retry.Reader) (*unstructured.Unstructured, error) {
			check(ctx, "Read")
			return getWidget(ctx, r)
		}
		op.Decide = func(read *unstructured.Unstructured) (retry.Decision, error) {
			d, err := decideMark(read)
			d.Check = func(ctx context.Context, r retry.Reader) error {
				check(ctx, "Check")
				return r.Each(ctx, widgets(), "ns", "", func(*unstructured.Unstructured) bool { return true })
			}
			return d, err
		}
		res, err := l.engine.Do(t.Context(), deadline, op)
		l.succeeded(res, err, 2, 1)
		for _, tr := range l.wire.of(http.MethodGet, http.MethodPut) {
			if !tr.deadline.Equal(deadline) {
				t.Errorf("%s %s has the deadline %v, want %v", tr.method, tr.path, tr.deadline, deadline)
			}
		}
		l.sends(2, 2)
	})
}

// C3: the timer runs on the monotonic clock, though the caller's time, which may
// have come out of a file, had none.
func TestC3TheDeadlineIsMonotonic(t *testing.T) {
	l := newLab(t, setup{})
	var got time.Time
	op := l.op()
	op.Read = func(ctx context.Context, _ retry.Reader) (*unstructured.Unstructured, error) {
		got, _ = ctx.Deadline()
		return nil, errors.New("that is enough")
	}
	_, err := l.engine.Do(context.Background(), time.Now().Add(time.Hour).Round(0), op)
	l.failed(err, meta.ErrRejected, meta.FateNone)
	if got == got.Round(0) {
		t.Errorf("%v has no monotonic clock", got)
	}
}

// C3: a request under a context of a Read's own making ends with the call all
// the same.
func TestC3ReadsEndWithTheCall(t *testing.T) {
	for name, tc := range map[string]struct {
		cancelAfter, within, want time.Duration
		cause                     error
	}{
		"Deadline": {time.Hour, time.Minute, time.Minute, context.DeadlineExceeded},
		"Canceled": {time.Second, time.Minute, time.Second, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t, setup{rules: []rapidtest.Rule{rapidtest.Each(rapidtest.Reads(), rapidtest.HangRequest())}})
				op := l.op()
				op.Read = func(_ context.Context, r retry.Reader) (*unstructured.Unstructured, error) {
					return getWidget(context.Background(), r)
				}
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				time.AfterFunc(tc.cancelAfter, cancel)
				begin := time.Now()
				_, err := l.engine.Do(ctx, begin.Add(tc.within), op)
				l.failed(err, meta.ErrDeadline, meta.FateNone)
				if took := time.Since(begin); took != tc.want || !errors.Is(err, tc.cause) {
					t.Errorf("it ended after %v with %v, want %v and %v", took, err, tc.want, tc.cause)
				}
			})
		})
	}
}

// C3: the caller's context wins if it ends sooner, wherever the call is then,
// and is in the chain (E1).
func TestC3TheCallersContextWins(t *testing.T) {
	hang := []rapidtest.Rule{rapidtest.Each(rapidtest.Writes(), rapidtest.HangRequest())}
	busy := []rapidtest.Rule{rapidtest.Each(rapidtest.Reads(), rapidtest.Answer(429).WithRetryAfter(10))}
	for name, tc := range map[string]struct {
		rules    []rapidtest.Rule
		deadline bool
		fate     meta.Fate
	}{
		"CanceledInARequest":  {hang, false, meta.FatePending},
		"CanceledInAWait":     {busy, false, meta.FateNone},
		"TimedOutInARequest":  {hang, true, meta.FatePending},
		"WaitBeyondItsEnd T5": {busy, true, meta.FateNone},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t, setup{rules: tc.rules})
				ctx, cancel := context.WithCancel(context.Background())
				cause := context.Canceled
				time.AfterFunc(5*time.Second, cancel)
				if tc.deadline {
					ctx, cancel = context.WithTimeout(context.Background(), 5*time.Second)
					cause = context.DeadlineExceeded
				}
				defer cancel()
				begin := time.Now()
				_, err := l.engine.Do(ctx, begin.Add(time.Minute), l.op())
				kind := lo.Ternary(tc.fate == meta.FatePending, meta.ErrInDoubt, meta.ErrDeadline)
				e := l.failed(err, kind, tc.fate)
				waits := tc.deadline && tc.fate == meta.FateNone // refused at once, before the context ends
				if !waits && !errors.Is(err, cause) {
					t.Errorf("%v is not in the chain of %v", cause, err)
				}
				if said := "the caller's context has ended"; !waits && !strings.Contains(err.Error(), said) {
					t.Errorf("%q does not say %q", err, said)
				}
				if !errors.As(err, new(*retry.RequestError)) {
					t.Errorf("the last failure is not in the chain of %v", err)
				}
				if took, want := time.Since(begin), lo.Ternary(waits, 0, 5*time.Second); took != want {
					t.Errorf("it took %v, want %v", took, want)
				}
				if until := begin.Add(time.Minute + l.engine.CallBound()); tc.fate == meta.FatePending && !e.PendingUntil.Equal(until) {
					t.Errorf("pending until %v, want %v", e.PendingUntil, until)
				}
			})
		})
	}
}

// C8: every write names the field manager and asks for strict validation, on
// the wire.
func TestC8EveryWriteNamesItsManager(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, setup{rules: []rapidtest.Rule{rapidtest.Span(1, 2, rapidtest.Writes(), rapidtest.Answer(500))}})
		res, err := l.do()
		l.succeeded(res, err, 3, 1)
		for _, tr := range l.wire.of(http.MethodPut) {
			if m, v := tr.query.Get("fieldManager"), tr.query.Get("fieldValidation"); m != retry.FieldManager || v != metav1.FieldValidationStrict {
				t.Errorf("fieldManager=%q fieldValidation=%q", m, v)
			}
		}
		if n := len(l.wire.of(http.MethodPut)); n != 3 {
			t.Errorf("%d writes", n)
		}
	})
}

// C8: so a field that the schema lacks is refused, not dropped.
func TestC8UnknownFieldsAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, setup{})
		op := l.op()
		op.Decide = func(*unstructured.Unstructured) (retry.Decision, error) {
			return retry.Decision{Edits: []retry.Edit{retry.Set(true, "spec", "typo")}}, nil
		}
		_, err := l.engine.Do(t.Context(), time.Now().Add(time.Minute), op)
		l.failed(err, meta.ErrRejected, meta.FateNone)
		if !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), "spec.typo") {
			t.Errorf("got %v", err)
		}
		l.sends(1, 1)
	})
}

// T1: every try decides again, from a read of its own, and its update is bound
// to the version of that read and differs from it in the edits alone.
func TestT1EveryTryDecidesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, setup{})
		l.before(rapidtest.VerbUpdate, 3, l.touch)
		var decidedOn []*unstructured.Unstructured
		op := l.op()
		op.Decide = func(read *unstructured.Unstructured) (retry.Decision, error) {
			decidedOn = append(decidedOn, read.DeepCopy())
			return decideMark(read)
		}
		res, err := l.engine.Do(t.Context(), time.Now().Add(time.Minute), op)
		l.succeeded(res, err, 4, 1)
		l.sends(4, 4)
		for i, u := range l.updates() {
			want := decidedOn[i]
			l.check(unstructured.SetNestedField(want.Object, mine, "spec", "mark"))
			if diff := cmp.Diff(want.Object, u.Request.Object.Object); diff != "" {
				t.Errorf("update %d differs from what it was decided on (-want +got):\n%s", i+1, diff)
			}
		}
		if a, b := decidedOn[0].GetResourceVersion(), decidedOn[3].GetResourceVersion(); a == b {
			t.Errorf("all tries decided on version %s", a)
		}
	})
}

// T1: without a resourceVersion there is no precondition, and a resource that
// takes unconditional updates would be overwritten.
func TestT1NoUpdateWithoutAPrecondition(t *testing.T) {
	for name, spoil := range map[string]func(*unstructured.Unstructured) *unstructured.Unstructured{
		"Nothing": func(*unstructured.Unstructured) *unstructured.Unstructured { return nil },
		"Empty":   func(*unstructured.Unstructured) *unstructured.Unstructured { return &unstructured.Unstructured{} },
		"NoVersion": func(obj *unstructured.Unstructured) *unstructured.Unstructured {
			obj.SetResourceVersion("")
			return obj
		},
		"NoUID": func(obj *unstructured.Unstructured) *unstructured.Unstructured {
			obj.SetUID("")
			return obj
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t, setup{})
				op := l.op()
				op.Read = func(ctx context.Context, r retry.Reader) (*unstructured.Unstructured, error) {
					obj, err := getWidget(ctx, r)
					return spoil(obj), err
				}
				_, err := l.engine.Do(t.Context(), time.Now().Add(time.Minute), op)
				l.failed(err, meta.ErrRejected, meta.FateNone)
				l.sends(1, 0)
			})
		})
	}
}

// T2: with k conflicting commits between read and update, a call takes k+1
// updates, and with nine it is ErrConflict.
func TestT2Conflicts(t *testing.T) {
	for k := range 10 {
		t.Run(fmt.Sprint(k), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t, setup{})
				l.before(rapidtest.VerbUpdate, k, l.touch)
				begin := time.Now()
				res, err := l.do()
				tries := min(k+1, 9)
				if want := 10 * time.Millisecond * (1<<(tries-1) - 1); time.Since(begin) != want {
					t.Errorf("it took %v, want %v", time.Since(begin), want) // T5: the waits double
				}
				l.sends(tries, tries)
				if k < 9 {
					l.succeeded(res, err, tries, 1)
					return
				}
				e := l.failed(err, meta.ErrConflict, meta.FateNone)
				if !apierrors.IsConflict(err) || errors.Is(err, meta.ErrRejected) || e.Tries != 9 || len(l.commits()) != 0 {
					t.Errorf("%v, tries %d, commits %d", err, e.Tries, len(l.commits()))
				}
			})
		})
	}
}

// A caller who asks for fewer retries gets fewer.
func TestT2FewerRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, setup{options: retry.Options{Retries: 2}})
		l.before(rapidtest.VerbUpdate, 9, l.touch)
		_, err := l.do()
		l.failed(err, meta.ErrConflict, meta.FateNone)
		l.sends(3, 3)
	})
}

// T2: a call is tried nine times whatever fails, no more and no less, and its
// end says what the last failure was, unless a fate is open.
func TestT2NineTriesWhateverFails(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { rapid.SyncTest(t, nineTries) })
}

func nineTries(t *rapid.T) {
	const requests = 20
	readFault := rapid.SampledFrom([]rapidtest.Fault{
		{}, {}, rapidtest.LoseRequest(), rapidtest.ResetConnection(), rapidtest.Answer(500), rapidtest.Answer(429), rapidtest.Answer(503).WithRetryAfter(1),
	})
	writeFault := rapid.SampledFrom([]rapidtest.Fault{
		{}, {}, rapidtest.LoseRequest(), rapidtest.Answer(500), rapidtest.Answer(504), rapidtest.Answer(429).WithRetryAfter(1),
	})
	var rules []rapidtest.Rule
	for i := range requests {
		rules = append(rules,
			rapidtest.Nth(i+1, rapidtest.Reads(), readFault.Draw(t, "read")),
			rapidtest.Nth(i+1, rapidtest.Writes(), writeFault.Draw(t, "write")))
	}
	l := newLab(t, setup{rules: rules})
	l.before(rapidtest.VerbUpdate, requests, l.touch) // so that no update is made

	_, err := l.doWithin(time.Hour)
	open, conflict := false, false
	refused := false
	for _, e := range l.sent("") {
		update := e.Request.Verb == rapidtest.VerbUpdate
		code := 0
		if e.Response != nil {
			code = e.Response.Code
		}
		switch {
		case update && code == http.StatusConflict:
			refused = true
		case update && code != http.StatusTooManyRequests:
			refused, open = false, true
		case update:
			refused = false
		case refused && code == http.StatusOK:
			refused, open = false, false
		}
		conflict = update && code == http.StatusConflict
	}
	kind := lo.Ternary(open, meta.ErrInDoubt, lo.Ternary(conflict, meta.ErrConflict, meta.ErrRejected))
	var e *meta.Error
	if !errors.As(err, &e) || !errors.Is(err, kind) || e.Tries != 9 {
		t.Fatalf("%v, want %v after 9 tries\n%s", err, kind, l.plan.Timeline())
	}
	if kind == meta.ErrConflict != (apierrors.IsConflict(err) && !open) {
		t.Fatalf("IsConflict is %v of %v", apierrors.IsConflict(err), err)
	}
	if len(l.updates()) > 9 || len(l.commits()) > 0 {
		t.Fatalf("%d updates, %d commits", len(l.updates()), len(l.commits()))
	}
}

// Beside a status writer that never rests, a call succeeds or is ErrConflict,
// at every pace of the two.
func TestT2BesideAFastStatusWriter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ms := rapid.IntRange(5, 40)
		network, pause := ms.Draw(t, "network"), ms.Draw(t, "pause")
		rapid.SyncTest(t, func(t *rapid.T) {
			slow := rapidtest.DelayRequest(time.Duration(network) * time.Millisecond)
			l := newLab(t, setup{
				rules:   []rapidtest.Rule{rapidtest.Each(rapidtest.Everything(), slow)},
				options: retry.Options{Backoff: wait.Backoff{Duration: time.Millisecond, Factor: 1.5}},
			})
			ctx, stop := context.WithCancel(context.Background())
			var writer sync.WaitGroup
			writer.Go(func() {
				for ctx.Err() == nil {
					l.touch()
					time.Sleep(time.Duration(pause) * time.Millisecond)
				}
			})
			res, err := l.do()
			stop()
			writer.Wait()
			successOrConflict(l, res, err)
		})
	})
}

// The same with real goroutines and as fast as the machine goes.
func TestT2BesideFastStatusWritersInRealTime(t *testing.T) {
	l := newLab(t, setup{options: retry.Options{Backoff: wait.Backoff{Duration: time.Microsecond, Factor: 2}}})
	ctx, stop := context.WithCancel(context.Background())
	var writers sync.WaitGroup
	writers.Go(func() {
		for ctx.Err() == nil {
			l.touch()
		}
	})
	res, err := l.do()
	stop()
	writers.Wait()
	successOrConflict(l, res, err)
}

func successOrConflict(l *lab, res retry.Result, err error) {
	l.Helper()
	if err == nil {
		l.succeeded(res, err, res.Tries, 1)
		return
	}
	l.failed(err, meta.ErrConflict, meta.FateNone)
	if !apierrors.IsConflict(err) || len(l.commits()) != 0 || len(l.updates()) != 9 {
		l.Errorf("%v with %d commits and %d updates", err, len(l.commits()), len(l.updates()))
	}
}

// T4: a 4xx other than 409 and 429 is not tried again, of a read or an update,
// and stays in the chain.
func TestT4RefusalsAreNotTriedAgain(t *testing.T) {
	for _, code := range []int{400, 401, 404, 405, 409, 413, 415, 422} {
		for _, verb := range []string{rapidtest.VerbGet, rapidtest.VerbUpdate} {
			if code == http.StatusConflict && verb == rapidtest.VerbUpdate {
				continue // T8
			}
			t.Run(fmt.Sprint(verb, code), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l := newLab(t, setup{rules: []rapidtest.Rule{rapidtest.Each(rapidtest.Verbs(verb), rapidtest.Answer(code))}})
					_, err := l.do()
					e := l.failed(err, meta.ErrRejected, meta.FateNone)
					if status := apierrors.APIStatus(nil); !errors.As(err, &status) || int(status.Status().Code) != code {
						t.Errorf("the API error is not in the chain of %v", err)
					}
					if errors.Is(err, meta.ErrUnsupported) || e.Tries != 1 {
						t.Errorf("%v, tries %d", err, e.Tries)
					}
					l.sends(1, lo.Ternary(verb == rapidtest.VerbGet, 0, 1))
				})
			})
		}
	}
}

// T4: a 429 was not executed, so the next try decides anew.
func TestT4TooManyRequestsIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, setup{rules: []rapidtest.Rule{rapidtest.Span(1, 3, rapidtest.Everything(), rapidtest.Answer(429))}})
		res, err := l.do()
		l.succeeded(res, err, 4, 1)
		l.sends(4, 1)

		l = newLab(t, setup{rules: []rapidtest.Rule{rapidtest.Span(1, 3, rapidtest.Writes(), rapidtest.Answer(429))}})
		l.before(rapidtest.VerbUpdate, 1, func() { l.write(newer) })
		_, err = l.do()
		l.failed(err, meta.ErrStaleHold, meta.FateNone)
		l.sends(2, 1)
	})
}

// T4: a 403 is ErrUnsupported as well if an access review says that this
// identity lacks the permission; a webhook's 403 is not.
func TestT4Forbidden(t *testing.T) {
	deny := func(verb string) func(rapidtest.Access) bool {
		no := rapidtest.Access{User: "engine", Verb: verb, GVR: widgets(), Namespace: "ns", Name: "w"}
		return func(a rapidtest.Access) bool { return a != no }
	}
	webhook := func(rapidtest.AdmissionRequest) error {
		return rapidtest.Denied("policy", 403, metav1.StatusReasonForbidden, "no")
	}
	for name, tc := range map[string]struct {
		set         func(*rapidtest.Server)
		rules       []rapidtest.Rule
		unsupported bool
	}{
		"MayNotRead":    {func(s *rapidtest.Server) { s.Authorize(deny("get")) }, nil, true},
		"MayNotUpdate":  {func(s *rapidtest.Server) { s.Authorize(deny("update")) }, nil, true},
		"Webhook":       {func(s *rapidtest.Server) { s.AdmitValidating(webhook) }, nil, false},
		"ReviewFails":   {func(s *rapidtest.Server) { s.Authorize(deny("update")) }, failing(rapidtest.Answer(500)), false},
		"ReviewIsEmpty": {func(s *rapidtest.Server) { s.Authorize(deny("update")) }, failing(emptyAnswer()), false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t, setup{rules: tc.rules})
				tc.set(l.server)
				_, err := l.do()
				l.failed(err, meta.ErrRejected, meta.FateNone)
				if got := errors.Is(err, meta.ErrUnsupported); got != tc.unsupported || !apierrors.IsForbidden(err) {
					t.Errorf("%v: ErrUnsupported is %v, IsForbidden is %v", err, got, apierrors.IsForbidden(err))
				}
				if n := len(l.sent(rapidtest.VerbCreate)); n != 1 {
					t.Errorf("%d access reviews", n)
				}
			})
		})
	}
}

// failing has the access reviews fail.
func failing(f rapidtest.Fault) []rapidtest.Rule {
	return []rapidtest.Rule{rapidtest.Each(rapidtest.Verbs(rapidtest.VerbCreate), f)}
}

func emptyAnswer() rapidtest.Fault {
	return rapidtest.Fault{Drop: true, Response: &rapidtest.Response{Code: 201, Object: &unstructured.Unstructured{
		Object: map[string]any{"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"},
	}}}
}

// A 404 of somebody who does not know the object, a proxy or a server that does
// not serve the resource, does not say that the object is missing.
func TestOnlyTheObjectsOwn404IsMissing(t *testing.T) {
	missing := apierrors.NewNotFound(widgets().GroupResource(), "w")
	for name, tc := range map[string]struct {
		fault rapidtest.Fault
		want  bool
	}{
		"Object": {rapidtest.AnswerError(missing), true},
		"Text":   {rapidtest.Fault{Drop: true, Response: &rapidtest.Response{Code: 404, Text: "404 page not found\n"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t, setup{rules: []rapidtest.Rule{rapidtest.Each(rapidtest.Reads(), tc.fault)}})
				_, err := l.do()
				l.failed(err, meta.ErrRejected, meta.FateNone)
				if got := errors.Is(err, meta.ErrMissing); got != tc.want {
					t.Errorf("ErrMissing is %v of %v", got, err)
				}
			})
		})
	}
}

// T5: by default the waits double and are jittered by up to half.
func TestT5TheDefaultWaitsGrowAndAreJittered(t *testing.T) {
	const calls = 30 // so many that some of their waits come close to either end
	for range calls {
		synctest.Test(t, func(t *testing.T) {
			l := newLab(t, setup{defaultBackoff: true, rules: []rapidtest.Rule{rapidtest.Each(rapidtest.Everything(), rapidtest.Answer(500))}})
			_, err := l.do()
			l.failed(err, meta.ErrRejected, meta.FateNone)
			exact := 0
			for i, wait := range l.waits() {
				least := 20 * time.Millisecond << i
				if wait < least || wait > least+least/2 {
					t.Errorf("wait %d was %v, want %v to %v", i+1, wait, least, least+least/2)
				}
				if wait == least {
					exact++
				}
			}
			if exact > 1 {
				t.Errorf("%d waits were not jittered", exact)
			}
		})
	}
}

// waits are the times between the engine's requests.
func (l *lab) waits() []time.Duration {
	sent := l.sent("")
	return lo.Map(sent[1:], func(e rapidtest.Event, i int) time.Duration { return e.Sent - sent[i].Sent })
}

// T5: the Steps of a Backoff do not end its growth, and one call's waits do not
// wear on the next.
func TestT5TheBackoffIsEachCallsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, setup{
			options: retry.Options{Backoff: wait.Backoff{Duration: time.Second, Factor: 3, Cap: 20 * time.Second, Steps: 1}},
			rules:   []rapidtest.Rule{rapidtest.Each(rapidtest.Everything(), rapidtest.Answer(500))},
		})
		for range 2 {
			begin := time.Now()
			_, err := l.doWithin(time.Hour)
			l.failed(err, meta.ErrRejected, meta.FateNone)
			if got, want := time.Since(begin), (1+3+9+5*20)*time.Second; got != want {
				t.Errorf("it took %v, want %v", got, want)
			}
		}
	})
}

// T5: a Backoff that has a Duration is taken as it is, and one that has none is
// the default's.
func TestT5WhoseBackoffItIs(t *testing.T) {
	for name, tc := range map[string]struct {
		backoff     wait.Backoff
		least, most time.Duration // of the eight waits together
	}{
		"Constant":   {wait.Backoff{Duration: 5 * time.Millisecond}, 40 * time.Millisecond, 40 * time.Millisecond},
		"NoDuration": {wait.Backoff{Factor: 7}, 255 * 20 * time.Millisecond, 255 * 30 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t, setup{
					defaultBackoff: true, options: retry.Options{Backoff: tc.backoff},
					rules: []rapidtest.Rule{rapidtest.Each(rapidtest.Everything(), rapidtest.Answer(500))},
				})
				begin := time.Now()
				_, err := l.do()
				l.failed(err, meta.ErrRejected, meta.FateNone)
				if took := time.Since(begin); took < tc.least || took > tc.most {
					t.Errorf("it waited %v, want %v to %v", took, tc.least, tc.most)
				}
			})
		})
	}
}

// T5: a wait that would run past the deadline is refused at once: no time
// passes, and nothing more is sent.
func TestT5NoWaitRunsPastTheDeadline(t *testing.T) {
	for name, tc := range map[string]struct {
		rule    rapidtest.Rule
		within  time.Duration
		kind    meta.Sentinel
		fate    meta.Fate
		refused bool
	}{
		"RetryAfter": {
			rapidtest.Each(rapidtest.Reads(), rapidtest.Answer(503).WithRetryAfter(5)), 5 * time.Second, meta.ErrDeadline, meta.FateNone, true},
		"Backoff": {
			rapidtest.Each(rapidtest.Reads(), rapidtest.Answer(500)), 10 * time.Millisecond, meta.ErrDeadline, meta.FateNone, true},
		"JustInTime": {
			rapidtest.Nth(1, rapidtest.Reads(), rapidtest.Answer(500)), 10*time.Millisecond + 1, meta.ErrDeadline, meta.FateNone, false},
		"InDoubt": {
			rapidtest.Each(rapidtest.Writes(), rapidtest.Answer(503).WithRetryAfter(5)), 5 * time.Second, meta.ErrInDoubt, meta.FatePending, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t, setup{rules: []rapidtest.Rule{tc.rule}})
				begin := time.Now()
				res, err := l.doWithin(tc.within)
				if !tc.refused {
					l.succeeded(res, err, 2, 1)
					return
				}
				e := l.failed(err, tc.kind, tc.fate)
				if took := time.Since(begin); took != 0 || e.Tries != 1 {
					t.Errorf("it took %v and %d tries", took, e.Tries)
				}
				if tc.fate == meta.FateNone && !errors.Is(err, meta.ErrRejected) {
					t.Errorf("%v is not ErrRejected", err)
				}
				if status := apierrors.APIStatus(nil); !errors.As(err, &status) {
					t.Errorf("the last failure is not in the chain of %v", err)
				}
			})
		})
	}
}

// T5: a Retry-After that is longer than the engine's own wait is honoured,
// whether it stands in the header or in the status.
func TestT5RetryAfterIsHonoured(t *testing.T) {
	inHeader := rapidtest.Answer(429).WithRetryAfter(3)
	inStatus := rapidtest.AnswerError(apierrors.NewTooManyRequests("later", 3))
	for name, tc := range map[string]struct {
		face  face
		fault rapidtest.Fault
	}{
		"Header":          {overHTTP, inHeader},
		"Status":          {overHTTP, inStatus},
		"StatusInProcess": {inProcess, inStatus},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t, setup{face: tc.face, rules: []rapidtest.Rule{rapidtest.Nth(1, rapidtest.Reads(), tc.fault), rapidtest.Nth(1, rapidtest.Writes(), tc.fault)}})
				res, err := l.do()
				l.succeeded(res, err, 3, 1)
				want := []time.Duration{3 * time.Second, 0, 3 * time.Second, 0}
				if diff := cmp.Diff(want, l.waits()); diff != "" {
					t.Errorf("waits (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// T6: reads that fail in passing count as tries; after them the call goes on.
func TestT6ReadsThatFailInPassing(t *testing.T) {
	for name, fault := range map[string]rapidtest.Fault{
		"LostRequest": rapidtest.LoseRequest(),
		"LostAnswer":  rapidtest.LoseResponse(),
		"Reset":       rapidtest.ResetConnection(),
		"500":         rapidtest.Answer(500),
		"503":         rapidtest.Answer(503).WithRetryAfter(1),
		"504":         rapidtest.Answer(504),
		"429":         rapidtest.Answer(429),
		"Expired":     rapidtest.AnswerError(apierrors.NewResourceExpired("too old")),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t, setup{rules: []rapidtest.Rule{rapidtest.Span(1, 8, rapidtest.Reads(), fault)}})
				res, err := l.do()
				l.succeeded(res, err, 9, 1)
				l.sends(9, 1)

				l = newLab(t, setup{rules: []rapidtest.Rule{rapidtest.Span(1, 9, rapidtest.Reads(), fault)}})
				_, err = l.do()
				l.failed(err, meta.ErrRejected, meta.FateNone)
				l.sends(9, 0)
			})
		})
	}
}

// T6: so do the reads of a Check, after which the object is read anew.
func TestT6ChecksThatFailInPassing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lists := rapidtest.Verbs(rapidtest.VerbList)
		l := newLab(t, setup{rules: []rapidtest.Rule{rapidtest.Span(1, 2, lists, rapidtest.Answer(500))}})
		res, err := l.engine.Do(t.Context(), time.Now().Add(time.Minute), l.checked(nil))
		l.succeeded(res, err, 3, 1)
		l.sends(6, 1)
	})
}

// checked is the call with a Check that lists the Widgets and returns err.
func (l *lab) checked(err error) retry.Op {
	op := l.op()
	op.Decide = func(read *unstructured.Unstructured) (retry.Decision, error) {
		d, decided := decideMark(read)
		d.Check = func(ctx context.Context, r retry.Reader) error {
			listed := r.Each(ctx, widgets(), "ns", "", func(*unstructured.Unstructured) bool { return true })
			if listed != nil {
				return fmt.Errorf("listing: %w", listed)
			}
			return err
		}
		return d, decided
	}
	return op
}

// A Check that says no ends the call: nothing is written.
func TestCheckEndsTheCall(t *testing.T) {
	for name, mark := range map[string]string{"BeforeAnUpdate": "", "WithNothingToWrite": mine} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t, setup{})
				l.write(mark)
				no := meta.Errorf(meta.ErrPodsRemain, "some do")
				no.Pods = []string{"p"}
				_, err := l.engine.Do(t.Context(), time.Now().Add(time.Minute), l.checked(no))
				e := l.failed(err, meta.ErrPodsRemain, meta.FateNone)
				if diff := cmp.Diff([]string{"p"}, e.Pods); diff != "" || e.Op != "Mark" {
					t.Errorf("%+v", e)
				}
				l.sends(2, 0)
			})
		})
	}
}

// A field that cannot be written where it is refuses the call.
func TestEditsThatCannotBeMadeAreRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, setup{})
		op := l.op()
		op.Decide = func(*unstructured.Unstructured) (retry.Decision, error) {
			return retry.Decision{Edits: []retry.Edit{retry.Set(true, "spec", "size", "below")}}, nil
		}
		_, err := l.engine.Do(t.Context(), time.Now().Add(time.Minute), op)
		l.failed(err, meta.ErrRejected, meta.FateNone)
		if !errors.As(err, new(*retry.PathError)) {
			t.Errorf("no PathError in the chain of %v", err)
		}
		l.sends(1, 0)
	})
}

// E1, E2: one typed error carries everything, and any other error of a Decide
// or a Check is ErrRejected with that error in the chain.
func TestE2TheErrorCarriesEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, setup{})
		l.before(rapidtest.VerbUpdate, 9, l.touch)
		_, err := l.do()
		got := *l.failed(err, meta.ErrConflict, meta.FateNone)
		last := l.updates()[8].Request.Object
		want := meta.Error{
			Kind: meta.ErrConflict, Op: "Mark", Instance: 7, Tries: 9, Detail: "no try is left",
			Object:       meta.Object{Kind: "Widget", Ref: meta.Ref{Namespace: "ns", Name: "w"}},
			Held:         meta.Object{Kind: "Widget", Ref: meta.Ref{Namespace: "ns", Name: "w"}},
			UID:          last.GetUID(),
			Precondition: last.GetResourceVersion(),
		}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(meta.Error{}, "Err")); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}

		own := errors.New("a decision of its own")
		_, err = l.engine.Do(t.Context(), time.Now().Add(time.Minute), l.checked(own))
		l.failed(err, meta.ErrRejected, meta.FateNone)
		if !errors.Is(err, own) {
			t.Errorf("%v has lost its cause", err)
		}
	})
}

// A call that never wrote names no precondition.
func TestE2NoWriteNoPrecondition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, setup{rules: []rapidtest.Rule{rapidtest.Each(rapidtest.Reads(), rapidtest.Answer(422))}})
		_, err := l.do()
		if e := l.failed(err, meta.ErrRejected, meta.FateNone); e.Precondition != "" || e.UID != "" || e.Held.Name != "" {
			t.Errorf("%+v", e)
		}
	})
}

// An Observer is told of every request and of what came of it.
func TestObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, setup{rules: []rapidtest.Rule{
			rapidtest.Nth(1, rapidtest.Writes(), rapidtest.Answer(503)),
			rapidtest.Nth(2, rapidtest.Writes(), rapidtest.HoldRequest(2*time.Second)),
		}})
		base := l.stored()
		_, err := l.do()
		l.check(err)
		begin := l.events[0].Sent
		event := func(try int, verb string) retry.Event {
			call := l.op().Call
			return retry.Event{
				Op: call.Op, Object: call.Object, Try: try, Verb: verb, Resource: widgets(), Namespace: "ns", Name: "w",
				Sent: begin, Transmissions: 1,
			}
		}
		read, first, second := event(1, "get"), event(1, "update"), event(2, "update")
		read.ResourceVersion = base.GetResourceVersion()
		first.Precondition, second.Precondition = base.GetResourceVersion(), base.GetResourceVersion()
		first.Edits = []retry.Edit{retry.Set(mine, "spec", "mark")}
		second.Edits = first.Edits
		second.Sent, second.Took = begin.Add(10*time.Millisecond), 2*time.Second
		second.ResourceVersion = l.stored().GetResourceVersion()
		if diff := cmp.Diff([]retry.Event{read, first, second}, l.events, cmpopts.IgnoreFields(retry.Event{}, "Err")); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		failed := lo.Map(l.events, func(ev retry.Event, _ int) bool { return ev.Err != nil })
		if diff := cmp.Diff([]bool{false, true, false}, failed); diff != "" || !apierrors.IsServiceUnavailable(l.events[1].Err) {
			t.Errorf("which failed (-want +got):\n%s", diff)
		}
	})
}

// Without an Observer nobody is told, and nothing breaks.
func TestNoObserver(t *testing.T) {
	server := rapidtest.NewServer()
	engine, err := retry.New(server.RESTConfig("engine"), retry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := engine.Do(t.Context(), time.Now().Add(time.Minute), (&lab{}).op()); !errors.Is(err, meta.ErrRejected) {
		t.Errorf("got %v", err)
	}
}

// One engine serves many calls at once.
func TestAnEngineIsSafeForConcurrentUse(t *testing.T) {
	l := newLab(t, setup{options: retry.Options{Backoff: wait.Backoff{Duration: time.Millisecond, Factor: 2, Jitter: 1}}})
	var calls sync.WaitGroup
	for range 8 {
		calls.Go(func() {
			if res, err := l.do(); err == nil && res.Object.GetName() != "w" {
				t.Errorf("got %v", res.Object)
			} else if err != nil && !errors.Is(err, meta.ErrConflict) {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	if n := len(l.commits()); n != 1 || l.mark() != mine {
		t.Errorf("%d commits, mark %q", n, l.mark())
	}
}
