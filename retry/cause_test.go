package retry_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/rapidtest"
	"github.com/kubehold/kubehold/retry"
)

// E1: a call that ran out of time says so, and never that somebody canceled it,
// also where a Read used a context of its own.
func TestE1OutOfTimeIsNotCanceled(t *testing.T) {
	for name, tc := range map[string]struct{ caller, deadline time.Duration }{
		"TheCallsDeadline":   {time.Hour, time.Minute},
		"TheCallersDeadline": {time.Second, time.Minute},
		"Both":               {time.Minute, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			for range 20 { // timers that end at one time fire in any order
				synctest.Test(t, func(t *testing.T) {
					l := newLab(t, setup{rules: []rapidtest.Rule{rapidtest.Each(rapidtest.Reads(), rapidtest.HangRequest())}})
					op := l.op()
					op.Read = func(_ context.Context, r retry.Reader) (*unstructured.Unstructured, error) {
						return getWidget(context.Background(), r)
					}
					ctx, cancel := context.WithTimeout(t.Context(), tc.caller)
					defer cancel()
					begin := time.Now()
					_, err := l.engine.Do(ctx, begin.Add(tc.deadline), op)
					l.failed(err, meta.ErrDeadline, meta.FateNone)
					if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
						t.Errorf("it ran out of time after %v, and says: %v", time.Since(begin), err)
					}
				})
			}
		})
	}
}
