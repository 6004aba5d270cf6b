package retry_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/rapidtest"
	"github.com/kubehold/kubehold/retry"
)

// T3, T4, T6: which status codes are an answer, and which say nothing.
func TestT4WhereRefusalsBeginAndEnd(t *testing.T) {
	for code, refuses := range map[int]bool{399: false, 400: true, 499: true, 500: false} {
		for _, f := range []face{overHTTP, inProcess} {
			t.Run(fmt.Sprintf("Update/%d/%s", code, f), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l := newLab(t, setup{face: f, rules: []rapidtest.Rule{first(rapidtest.Answer(code))}})
					res, err := l.do()
					if refuses {
						l.failed(err, meta.ErrRejected, meta.FateNone)
						l.sends(1, 1)
						return
					}
					l.succeeded(res, err, 2, 1)
					l.sameBytes()
					l.sends(1, 2)
				})
			})
			t.Run(fmt.Sprintf("Read/%d/%s", code, f), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l := newLab(t, setup{face: f, rules: []rapidtest.Rule{rapidtest.Nth(1, rapidtest.Reads(), rapidtest.Answer(code))}})
					res, err := l.do()
					if refuses {
						l.failed(err, meta.ErrRejected, meta.FateNone)
						l.sends(1, 0)
						return
					}
					l.succeeded(res, err, 2, 1)
				})
			})
		}
	}
}

// T3: a refusal names the object that it is about, as a 404 does, and does not say
// for that that the object is gone: what became of the transmission before is
// as open as ever.
func TestT3ARefusalThatNamesTheObjectClosesNothing(t *testing.T) {
	named := widgets().GroupResource()
	for name, refusal := range map[string]apierrors.APIStatus{
		"Forbidden": apierrors.NewForbidden(named, "w", errors.New("no more")),
		"Gone":      apierrors.NewConflict(named, "w", errors.New("moved")), // a conflict is looked into, and then there is none
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t, setup{rules: []rapidtest.Rule{
					first(rapidtest.CommitLater(10 * time.Second)),
					then(rapidtest.AnswerError(refusal)),
				}})
				_, err := l.do()
				e := l.failed(err, meta.ErrInDoubt, meta.FatePending)
				land()
				if last := l.commits()[len(l.commits())-1]; last.Time.After(e.PendingUntil) {
					t.Errorf("it committed at %v, after %v", last.Time, e.PendingUntil)
				}
			})
		})
	}
}

// T3: where the read itself says that the object is gone, nobody looks again.
func TestT3AnObjectThatIsGoneIsNotLookedForTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, setup{rules: []rapidtest.Rule{first(rapidtest.LoseResponse())}})
		reads := 0
		l.before(rapidtest.VerbGet, 2, func() {
			if reads++; reads == 2 {
				l.remove()
			}
		})
		_, err := l.do()
		l.failed(err, meta.ErrMissing, meta.FateSettled)
		l.sends(2, 2)
	})
}

// C7, T5: a 500 is the first of those that client-go would answer by sending the
// request again, after a Retry-After of more than one digit too.
func TestC7A500IsNotAnsweredByClientGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, setup{rules: []rapidtest.Rule{first(rapidtest.Answer(500).WithRetryAfter(12))}})
		begin := time.Now()
		res, err := l.do()
		l.succeeded(res, err, 2, 1)
		if took := time.Since(begin); took != 12*time.Second {
			t.Errorf("it took %v", took)
		}
		for _, ev := range l.events {
			var failed *retry.RequestError
			if errors.As(ev.Err, &failed) && failed.RetryAfter != 12*time.Second || ev.Transmissions != 1 {
				t.Errorf("%s: %d transmissions, %v", ev.Verb, ev.Transmissions, ev.Err)
			}
		}
	})
}
