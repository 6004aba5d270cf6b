package meta_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"pgregory.net/rapid"

	"github.com/kubehold/kubehold/meta"
)

func sentinels() []meta.Sentinel {
	return []meta.Sentinel{
		meta.ErrInvalid, meta.ErrRejected, meta.ErrStaleHold, meta.ErrDeadline, meta.ErrMissing, meta.ErrReplaced,
		meta.ErrForbidden, meta.ErrPodsRemain, meta.ErrConflict, meta.ErrUnsupported, meta.ErrInDoubt,
	}
}

// Rule E1: which kind of failure is found under which.
func TestSentinels(t *testing.T) {
	wider := map[meta.Sentinel][]meta.Sentinel{
		meta.ErrStaleHold: {meta.ErrRejected},
		meta.ErrDeadline:  {meta.ErrRejected},
		meta.ErrMissing:   {meta.ErrRejected},
		meta.ErrReplaced:  {meta.ErrRejected},
		meta.ErrForbidden: {meta.ErrRejected, meta.ErrUnsupported},
	}
	for _, kind := range sentinels() {
		for _, target := range sentinels() {
			want := kind == target || slices.Contains(wider[kind], target)
			for how, err := range map[string]error{
				"bare":      kind,
				"in Error":  &meta.Error{Kind: kind},
				"with more": fmt.Errorf("more: %w", meta.Errorf(kind, "detail").Because(context.Canceled)),
			} {
				if got := errors.Is(err, target); got != want {
					t.Errorf("%s: %q is %q: got %t, want %t", how, kind, target, got, want)
				}
			}
		}
	}
}

func TestSentinelsAreDistinct(t *testing.T) {
	texts := map[string]bool{}
	for _, s := range sentinels() {
		texts[s.Error()] = true
	}
	if texts[""] || len(texts) != len(sentinels()) {
		t.Errorf("got %v", texts)
	}
}

// Rules E1, E2 and T4: the cause stays in the chain, for everyone who looks for
// it in his own way.
func TestErrorKeepsItsCause(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "jobs"}, "llm", errors.New("moved"))
	err := fmt.Errorf("supervisor: %w", meta.Errorf(meta.ErrConflict, "no try is left").Because(fmt.Errorf("update: %w", conflict)))
	if !apierrors.IsConflict(err) {
		t.Error("not a conflict to apierrors")
	}
	if status := apierrors.APIStatus(nil); !errors.As(err, &status) || status.Status().Code != 409 {
		t.Errorf("no status in %v", err)
	}
	var e *meta.Error
	if !errors.As(err, &e) || !errors.Is(e, meta.ErrConflict) || errors.Is(e, meta.ErrRejected) {
		t.Errorf("got %v", e)
	}
	if canceled := meta.Errorf(meta.ErrDeadline, "ended").Because(context.Canceled); !errors.Is(canceled, context.Canceled) || !errors.Is(canceled, meta.ErrRejected) {
		t.Errorf("got %v", canceled)
	}
	if bare := meta.Invalidf("no name"); len(bare.Unwrap()) != 1 || !errors.Is(bare, meta.ErrInvalid) {
		t.Errorf("got %v", bare.Unwrap())
	}
}

// Rules E2 and E3: whatever an error knows can be read in its text.
func TestErrorText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[a-z]{1,9}`)
		e := &meta.Error{
			Kind:         rapid.SampledFrom(sentinels()).Draw(t, "kind"),
			Op:           rapid.SampledFrom([]meta.Op{meta.OpHold, meta.OpRelease, meta.OpOpen, meta.OpInspect}).Draw(t, "op"),
			Object:       meta.Object{Kind: "TrainJob", Ref: meta.Ref{Namespace: name.Draw(t, "namespace"), Name: name.Draw(t, "name")}},
			Instance:     rapid.Int64Min(0).Draw(t, "instance"),
			Tries:        rapid.IntRange(0, 9).Draw(t, "tries"),
			Pods:         rapid.SliceOfN(name, 0, 2).Draw(t, "pods"),
			Detail:       name.Draw(t, "detail"),
			Fate:         meta.Fate(rapid.IntRange(0, 2).Draw(t, "fate")),
			Held:         meta.Object{Kind: "Workload", Ref: meta.Ref{Namespace: "ns", Name: name.Draw(t, "held")}},
			Precondition: "4711",
			PendingUntil: time.Date(2030, 1, 2, 5, 4, 5, 0, time.FixedZone("x", 2*3600)),
			Err:          errors.New(name.Draw(t, "cause")),
		}
		want := append([]string{string(e.Op), e.Object.String(), string(e.Kind), e.Detail, e.Err.Error()}, e.Pods...)
		if e.Instance != 0 {
			want = append(want, fmt.Sprintf("%s(%d)", e.Op, e.Instance))
		}
		if e.Tries > 0 {
			want = append(want, "tries: "+strconv.Itoa(e.Tries))
			want = append(want, map[meta.Fate][]string{
				meta.FateNone:    {"writes: none"},
				meta.FateSettled: {"writes: may have landed, nothing more can"},
				meta.FatePending: {e.Held.String(), e.Precondition, "2030-01-02T03:04:05Z"},
			}[e.Fate]...)
		}
		for _, part := range want {
			if !strings.Contains(e.Error(), part) {
				t.Fatalf("%q lacks %q", e.Error(), part)
			}
		}
		if e.Fate != meta.FatePending && strings.Contains(e.Error(), "2030") {
			t.Fatalf("%q is pending", e.Error())
		}
	})
}

func TestErrorTextOfTheZeroValue(t *testing.T) {
	if got := meta.Errorf(meta.ErrUnsupported, "").Error(); got != "unsupported" {
		t.Errorf("got %q", got)
	}
	if got := new(meta.Error).Error(); got != "" {
		t.Errorf("got %q", got)
	}
}

// Rule E3: a fate has a word, and the zero value claims nothing else than none.
func TestFateString(t *testing.T) {
	cases := map[string]struct {
		fate meta.Fate
		want string
	}{
		"None":    {meta.FateNone, "none"},
		"Zero":    {0, "none"},
		"Settled": {meta.FateSettled, "settled"},
		"Pending": {meta.FatePending, "pending"},
		"Below":   {-1, "none"},
		"Above":   {99, "pending"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := tc.fate.String(); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
