package rapidtest

import (
	"context"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubehold/kubehold/meta"
)

// Each of the rules I1 to I11, and what I8 rests on, can be seen to be broken: something between a
// client and the network spoils what it sends or hears, and the same history breaks no rule without
// that. Rules I4 and I5 have tests of their own, for it takes more than one call to break them.
func TestEachRuleCanBeSeenBroken(t *testing.T) {
	var k meta.Keys
	held := func(op meta.Op, instance int64) script {
		return script{begins{op: op, instance: instance, within: time.Minute}}
	}
	for name, c := range map[string]struct {
		mode, start string
		script      script
		spoil       Middleware
		rule        string
	}{
		"I1PartOfAHold": {"Plain", "free", held(meta.OpHold, 2), updates(func(obj *unstructured.Unstructured) {
			unstructured.RemoveNestedField(obj.Object, "metadata", "annotations", k.Reason())
		}), "I1"},
		"I2RunningUnderAHold": {"Plain", "held by 2", held(meta.OpHold, 3), updates(func(obj *unstructured.Unstructured) {
			_ = unstructured.SetNestedField(obj.Object, false, "spec", "suspend")
		}), "I2"},
		"I3ANewerHoldOverwritten": {"Plain", "held by 3", held(meta.OpHold, 2), reads(func(obj *unstructured.Unstructured) {
			annotate(obj, k.Instance(), "1")
		}), "I3"},
		"I3ANewerHoldLifted": {"Kueue", "held by 3", held(meta.OpRelease, 2), reads(func(obj *unstructured.Unstructured) {
			annotate(obj, k.Instance(), "2")
		}), "I3"},
		"I6AFalls": {"Plain", "held by 2", held(meta.OpRelease, 2), updates(func(obj *unstructured.Unstructured) {
			annotate(obj, k.Executions(), k.ExecutionsValue(obj.GetUID(), 0))
		}), "I6"},
		"I6AnExecutionNotCounted": {"Plain", "held by 2", held(meta.OpRelease, 2), updates(func(obj *unstructured.Unstructured) {
			annotate(obj, k.Executions(), k.ExecutionsValue(obj.GetUID(), 1))
		}), "I6"},
		"I7ARequestAfterTheDeadline": {"Plain", "free", held(meta.OpHold, 2), func(next RoundTrip) RoundTrip {
			return func(ctx context.Context, req *Request) (*Response, error) {
				time.Sleep(2 * time.Minute)
				return next(context.WithoutCancel(ctx), req)
			}
		}, "I7"},
		"I7TenUpdates": {"Plain", "free", held(meta.OpHold, 2), func(next RoundTrip) RoundTrip {
			return func(ctx context.Context, req *Request) (*Response, error) {
				for range 9 {
					if req.Write() {
						_, _ = next(ctx, req)
					}
				}
				return next(ctx, req)
			}
		}, "I7"},
		"I8NoneIsALie": {"Kueue", "free", held(meta.OpHold, 2), func(next RoundTrip) RoundTrip {
			return func(ctx context.Context, req *Request) (*Response, error) {
				resp, err := next(ctx, req)
				if req.Write() {
					resp = answerOf(http.StatusUnprocessableEntity)
				}
				return resp, err
			}
		}, "I8"},
		"E3NoneWhileAnUpdateIsInDoubt": {"Plain", "free", script{
			begins{op: meta.OpHold, instance: 2, within: time.Minute}, proceeds{}, proceeds{fault: trouble{kind: late, after: time.Second}},
		}, func(next RoundTrip) RoundTrip {
			return func(ctx context.Context, req *Request) (*Response, error) {
				resp, err := next(ctx, req)
				if err == nil && resp.Code == http.StatusGatewayTimeout {
					resp = answerOf(http.StatusUnprocessableEntity)
				}
				return resp, err
			}
		}, "E3"},
		"I9TheNamedObjectWritten": {"Kueue", "free", held(meta.OpHold, 2), func(next RoundTrip) RoundTrip {
			return func(ctx context.Context, req *Request) (*Response, error) {
				if req.Write() {
					req = req.With(func(r *Request) { r.GVR, r.Name = TrainJobs().GVR, worldName })
				}
				return next(ctx, req)
			}
		}, "I9"},
		"I10OpenedUnderAHold": {"Plain", "held by 2 at its start gate", held(meta.OpOpen, 0), updates(runs), "I10"},
		"I10RunBehindItsGate": {"Plain", "held by 2 at its start gate", held(meta.OpRelease, 2), updates(runs), "I10"},
		"I11ForeignLabelDropped": {"Plain", "free", held(meta.OpHold, 2), updates(func(obj *unstructured.Unstructured) {
			obj.SetLabels(nil)
		}), "I11"},
		"I11UnheardOfFieldDropped": {"Kueue", "free", held(meta.OpHold, 2), updates(func(obj *unstructured.Unstructured) {
			unstructured.RemoveNestedField(obj.Object, "spec", "unheardOf", "deep")
		}), "I11"},
	} {
		t.Run(name, func(t *testing.T) {
			s := modes()[c.mode].subject
			st, ok := lo.Find(s.starts(), func(st start) bool { return st.name == c.start })
			if !ok {
				t.Fatalf("there is no start %q", c.start)
			}
			for spoil, want := range map[*Middleware]string{nil: "", &c.spoil: c.rule} {
				p := &play{subject: s, start: st}
				if spoil != nil {
					p.between = *spoil
				}
				h, err := p.perform(t, c.script)
				if err != nil {
					t.Fatal(err)
				}
				if got := ruleOf(h.violated()); got != want || len(h.calls) != 1 {
					t.Errorf("rule %q is broken, want %q:\n%s", got, want, h.timeline())
				}
			}
		})
	}
}

// updates has a change made to every update on its way.
func updates(change func(*unstructured.Unstructured)) Middleware {
	return func(next RoundTrip) RoundTrip {
		return func(ctx context.Context, req *Request) (*Response, error) {
			if req.Verb == VerbUpdate {
				obj := req.Object.DeepCopy()
				change(obj)
				req = req.With(func(r *Request) { r.Object = obj })
			}
			return next(ctx, req)
		}
	}
}

// reads has a change made to every object that is read.
func reads(change func(*unstructured.Unstructured)) Middleware {
	return func(next RoundTrip) RoundTrip {
		return func(ctx context.Context, req *Request) (*Response, error) {
			resp, err := next(ctx, req)
			if err != nil || req.Write() {
				return resp, err
			}
			seen := *resp
			if resp.Object != nil {
				seen.Object = resp.Object.DeepCopy()
				change(seen.Object)
			}
			if resp.List != nil {
				seen.List = resp.List.DeepCopy()
				for i := range seen.List.Items {
					change(&seen.List.Items[i])
				}
			}
			return &seen, nil
		}
	}
}

// annotate sets an annotation of an object that has annotations.
func annotate(obj *unstructured.Unstructured, key, value string) {
	if annotations := obj.GetAnnotations(); annotations != nil {
		annotations[key] = value
		obj.SetAnnotations(annotations)
	}
}

// runs lets the object run and counts an execution for it.
func runs(obj *unstructured.Unstructured) {
	var k meta.Keys
	_ = unstructured.SetNestedField(obj.Object, false, "spec", "suspend")
	a, _ := strconv.Atoi(obj.GetAnnotations()[k.Executions()])
	annotate(obj, k.Executions(), k.ExecutionsValue(obj.GetUID(), int64(a+1)))
}
