package main

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/rapidtest"
)

func TestRecoverOnTheModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := rapidtest.NewServer(rapidtest.TrainJobs(), rapidtest.Pods())
		var instances []string
		var lastLate, released time.Time // when the last of Hold(1)'s updates could land, and when it was released
		server.OnCommit(func(c rapidtest.Commit) {
			if e := server.Executions("team-a", "llm"); len(e) > 1 {
				t.Errorf("%s: two executions side by side: %v", c, e)
			}
			if c.GVR != rapidtest.TrainJobs().GVR {
				return
			}
			instance := c.Object.GetAnnotations()[meta.Keys{}.Instance()]
			if n := len(instances); n == 0 || instances[n-1] != instance {
				instances = append(instances, instance)
			}
			if instance == "" && slices.Contains(instances, "1") {
				released = c.Time
			} else if instance == "1" && lastLate.IsZero() {
				lastLate = c.Time
			}
		})
		var out bytes.Buffer
		if err := run(t.Context(), server, &out); err != nil {
			t.Fatal(err)
		}
		want := `the job runs, and its node is lost
Hold(1): in doubt; once more
Hold(1): placed
the job is drained
an earlier call may land yet: waiting
Release(1): lifted
the job is running, as execution 2
`
		if diff := cmp.Diff(want, out.String()); diff != "" {
			t.Errorf("told was, other than wanted:\n%s", diff)
		}
		if diff := cmp.Diff([]string{"", "1", ""}, instances); diff != "" {
			t.Errorf("instances in force, one after the other:\n%s", diff)
		}
		if released.Sub(lastLate) < time.Second {
			t.Errorf("released %v after the hold, with calls in doubt", released.Sub(lastLate))
		}
	})
}

// A scripted Holder answers each method with the next of its errors, and then
// with success.
type scripted struct {
	hold, release []error
	inspect       []holdable.Inspection
	calls         []string
}

func next[T any](list *[]T) (first T) {
	if len(*list) > 0 {
		first, *list = (*list)[0], (*list)[1:]
	}
	return first
}

func (s *scripted) Hold(context.Context, meta.Ref, meta.Call) (holdable.Receipt, error) {
	s.calls = append(s.calls, "Hold")
	return holdable.Receipt{Did: holdable.Placed}, next(&s.hold)
}

func (s *scripted) Release(context.Context, meta.Ref, meta.Call) (holdable.Receipt, error) {
	s.calls = append(s.calls, "Release")
	return holdable.Receipt{Did: holdable.Lifted}, next(&s.release)
}

func (s *scripted) Open(context.Context, meta.Ref, meta.Call) (holdable.Receipt, error) {
	return holdable.Receipt{}, nil
}

func (s *scripted) Inspect(context.Context, meta.Ref) (holdable.Inspection, error) {
	s.calls = append(s.calls, "Inspect")
	if len(s.inspect) == 0 {
		return held(holdable.Held, holdable.IsDrained), nil
	}
	return next(&s.inspect), nil
}

func (s *scripted) CallBound() time.Duration { return time.Minute }

func held(state holdable.State, drained holdable.Drained) holdable.Inspection {
	return holdable.Inspection{State: state, Drained: drained, Hold: &meta.Hold{Instance: 1}}
}

func failed(kind meta.Sentinel, seen int64, fate meta.Fate) error {
	return &meta.Error{Kind: kind, Seen: seen, Fate: fate, PendingUntil: time.Now().Add(time.Minute)}
}

func TestRecoverWhenCallsFail(t *testing.T) {
	for name, c := range map[string]struct {
		script func() *scripted
		calls  string
		err    error
		least  time.Duration // how long it takes at least
	}{
		"AllIsWell": {
			script: func() *scripted { return &scripted{} },
			calls:  "Hold Inspect Release",
		},
		"HoldConflicts": {
			script: func() *scripted { return &scripted{hold: []error{failed(meta.ErrConflict, 0, meta.FateNone)}} },
			calls:  "Hold Hold Inspect Release",
		},
		"HoldIsInDoubt": {
			script: func() *scripted { return &scripted{hold: []error{failed(meta.ErrInDoubt, 0, meta.FatePending)}} },
			calls:  "Hold Hold Inspect Release",
			least:  time.Minute,
		},
		"HoldIsOvertakenByAnOlderOne": {
			script: func() *scripted { return &scripted{hold: []error{failed(meta.ErrStaleHold, 0, meta.FateNone)}} },
			calls:  "Hold Hold Inspect Release",
		},
		"HoldIsOvertakenByANewerOne": {
			script: func() *scripted { return &scripted{hold: []error{failed(meta.ErrStaleHold, 2, meta.FateNone)}} },
			calls:  "Hold",
			err:    meta.ErrStaleHold,
		},
		"HoldIsRejected": {
			script: func() *scripted { return &scripted{hold: []error{failed(meta.ErrMissing, 0, meta.FateNone)}} },
			calls:  "Hold",
			err:    meta.ErrMissing,
		},
		"PodsTakeTheirTime": {
			script: func() *scripted {
				return &scripted{inspect: []holdable.Inspection{held(holdable.Held, holdable.NotDrained), held(holdable.Held, holdable.NotDrained)}}
			},
			calls: "Hold Inspect Inspect Inspect Release",
		},
		"HoldIsUndone": {
			script: func() *scripted {
				return &scripted{inspect: []holdable.Inspection{held(holdable.Undone, holdable.IsDrained)}}
			},
			calls: "Hold Inspect Hold Inspect Release",
		},
		"HoldIsGone": {
			script: func() *scripted { return &scripted{inspect: []holdable.Inspection{{Drained: holdable.IsDrained}}} },
			calls:  "Hold Inspect Hold Inspect Release",
		},
		"PodsRemain": {
			script: func() *scripted { return &scripted{release: []error{failed(meta.ErrPodsRemain, 1, meta.FateNone)}} },
			calls:  "Hold Inspect Release Release",
		},
		"ReleaseHasLanded": {
			script: func() *scripted {
				return &scripted{release: []error{failed(meta.ErrInDoubt, 1, meta.FatePending), failed(meta.ErrStaleHold, 0, meta.FateNone)}}
			},
			calls: "Hold Inspect Release Release",
		},
		"ReleaseIsOvertaken": {
			script: func() *scripted { return &scripted{release: []error{failed(meta.ErrStaleHold, 2, meta.FateNone)}} },
			calls:  "Hold Inspect Release",
			err:    meta.ErrStaleHold,
		},
		"NothingWasThereToRelease": {
			script: func() *scripted { return &scripted{release: []error{failed(meta.ErrStaleHold, 0, meta.FateNone)}} },
			calls:  "Hold Inspect Release",
			err:    meta.ErrStaleHold,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				holder, began := c.script(), time.Now()
				s := &supervisor{holder: holder, patience: time.Second, pause: time.Second, say: t.Logf}
				err := s.recover(t.Context(), meta.Ref{Namespace: "team-a", Name: "llm"}, "its node is lost")
				if !errors.Is(err, c.err) {
					t.Errorf("error %v, want %v", err, c.err)
				}
				if got := strings.Join(holder.calls, " "); got != c.calls {
					t.Errorf("calls %q, want %q", got, c.calls)
				}
				if took := time.Since(began); took < c.least {
					t.Errorf("took %v, want %v at least", took, c.least)
				}
			})
		})
	}
}

// A supervisor that is told to stop while it waits does so.
func TestRecoverEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		s := &supervisor{holder: forever{&scripted{}}, patience: time.Second, pause: time.Second, say: t.Logf}
		if err := s.recover(ctx, meta.Ref{Namespace: "team-a", Name: "llm"}, ""); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v, want the context's", err)
		}
	})
}

// forever is a Holder whose job is never drained.
type forever struct{ *scripted }

func (forever) Inspect(context.Context, meta.Ref) (holdable.Inspection, error) {
	return held(holdable.Held, holdable.NotDrained), nil
}

// A job that cannot be opened is an error.
func TestRunFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := rapidtest.NewServer(rapidtest.TrainJobs(), rapidtest.Pods())
		server.Admit(func(a rapidtest.AdmissionRequest) (*unstructured.Unstructured, error) {
			if a.Operation == "UPDATE" && a.Object.GetKind() == "TrainJob" {
				return nil, rapidtest.Denied("deny.example.com", 403, "", "not today")
			}
			return a.Object, nil
		})
		if err := run(t.Context(), server, new(bytes.Buffer)); !errors.Is(err, meta.ErrRejected) {
			t.Errorf("error %v, want %v", err, meta.ErrRejected)
		}
	})
}
