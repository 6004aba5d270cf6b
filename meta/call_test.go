package meta_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/kubehold/kubehold/meta"
)

// isInvalid reports whether err is an ErrInvalid and nothing wider or narrower.
func isInvalid(err error) bool {
	var e *meta.Error
	return errors.Is(err, meta.ErrInvalid) && !errors.Is(err, meta.ErrRejected) &&
		errors.As(err, &e) && e.Fate == meta.FateNone && e.Tries == 0
}

// Rule C1: what a call must carry, and how much of it.
func TestCallCheck(t *testing.T) {
	deadline := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	valid := meta.Call{Instance: 1, Deadline: deadline, Holder: "me", Reason: "maintenance"}
	with := func(change func(*meta.Call)) meta.Call {
		c := valid
		change(&c)
		return c
	}
	type ops map[meta.Op]bool
	everywhere := ops{meta.OpHold: true, meta.OpRelease: true, meta.OpOpen: true}
	nowhere := ops{meta.OpHold: false, meta.OpRelease: false, meta.OpOpen: false}
	onlyOpen := ops{meta.OpHold: false, meta.OpRelease: false, meta.OpOpen: true}

	cases := map[string]struct {
		call meta.Call
		ok   ops
	}{
		"Valid":                   {valid, everywhere},
		"Zero":                    {meta.Call{}, nowhere},
		"NoInstance":              {with(func(c *meta.Call) { c.Instance = 0 }), onlyOpen},
		"NegativeInstance":        {with(func(c *meta.Call) { c.Instance = -1 }), nowhere},
		"SmallestInstance":        {with(func(c *meta.Call) { c.Instance = math.MinInt64 }), nowhere},
		"LargestInstance":         {with(func(c *meta.Call) { c.Instance = math.MaxInt64 }), everywhere},
		"NoDeadline":              {with(func(c *meta.Call) { c.Deadline = time.Time{} }), nowhere},
		"NoDeadlineElsewhere":     {with(func(c *meta.Call) { c.Deadline = time.Time{}.In(time.FixedZone("x", 3600)) }), nowhere},
		"DeadlineLongPast":        {with(func(c *meta.Call) { c.Deadline = time.Unix(0, 0) }), everywhere},
		"NoHolderNoReason":        {with(func(c *meta.Call) { c.Holder, c.Reason = "", "" }), everywhere},
		"LongestHolder":           {with(func(c *meta.Call) { c.Holder = strings.Repeat("h", 253) }), everywhere},
		"HolderTooLong":           {with(func(c *meta.Call) { c.Holder = strings.Repeat("h", 254) }), nowhere},
		"HolderCountsBytes":       {with(func(c *meta.Call) { c.Holder = strings.Repeat("é", 127) }), nowhere},
		"LongestHolderOfTwoBytes": {with(func(c *meta.Call) { c.Holder = strings.Repeat("é", 126) }), everywhere},
		"LongestReason":           {with(func(c *meta.Call) { c.Reason = strings.Repeat("r", 4096) }), everywhere},
		"ReasonTooLong":           {with(func(c *meta.Call) { c.Reason = strings.Repeat("r", 4097) }), nowhere},
		"ReasonCountsBytes":       {with(func(c *meta.Call) { c.Reason = strings.Repeat("節", 1366) }), nowhere},
		"HolderNotUTF8":           {with(func(c *meta.Call) { c.Holder = "\xff" }), nowhere},
		"ReasonNotUTF8":           {with(func(c *meta.Call) { c.Reason = "cut short: \xe7\xaf" }), nowhere},
		"AnyText":                 {with(func(c *meta.Call) { c.Holder, c.Reason = "a=b\n\t\x00", "節約 \"quoted\" \u2028" }), everywhere},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for op, ok := range tc.ok {
				switch err := tc.call.Check(op); {
				case ok && err != nil:
					t.Errorf("%s: %v", op, err)
				case !ok && !isInvalid(err):
					t.Errorf("%s: got %v, want an ErrInvalid", op, err)
				}
			}
		})
	}
}

// Rule C1: what a call may carry can be written down in three lines.
func TestCallCheckAcceptsExactly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := func(label string, limit int) string {
			bytes := rapid.OneOf(rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }), rapid.String())
			s := bytes.Draw(t, label)
			if s == "" || rapid.Bool().Draw(t, label+" short") {
				return s
			}
			return strings.Repeat(s, 1+limit/len(s)+rapid.IntRange(-2, 0).Draw(t, label+" off"))
		}
		call := meta.Call{
			Instance: rapid.Int64().Draw(t, "instance"),
			Deadline: rapid.SampledFrom([]time.Time{{}, time.Unix(1, 0)}).Draw(t, "deadline"),
			Holder:   text("holder", meta.MaxHolderBytes),
			Reason:   text("reason", meta.MaxReasonBytes),
		}
		op := rapid.SampledFrom([]meta.Op{meta.OpHold, meta.OpRelease, meta.OpOpen}).Draw(t, "op")

		ok := (call.Instance >= 1 || call.Instance == 0 && op == meta.OpOpen) && !call.Deadline.IsZero() &&
			len(call.Holder) <= 253 && utf8.ValidString(call.Holder) &&
			len(call.Reason) <= 4096 && utf8.ValidString(call.Reason)
		if err := call.Check(op); ok != (err == nil) || !ok && !isInvalid(err) {
			t.Fatalf("valid: %t, got %v", ok, err)
		}
	})
}

// Rule C1: what cannot name an object is refused before anything is sent.
func TestRefCheck(t *testing.T) {
	cases := map[string]struct {
		ref                 meta.Ref
		namespaced, cluster bool
	}{
		"Namespaced":        {meta.Ref{Namespace: "team-a", Name: "llm"}, true, false},
		"ClusterScoped":     {meta.Ref{Name: "llm"}, false, true},
		"Pinned":            {meta.Ref{Namespace: "team-a", Name: "llm", UID: "u"}, true, false},
		"Zero":              {meta.Ref{}, false, false},
		"NoName":            {meta.Ref{Namespace: "team-a"}, false, false},
		"NameLeavesThePath": {meta.Ref{Namespace: "team-a", Name: ".."}, false, false},
		"NameHasASlash":     {meta.Ref{Namespace: "team-a", Name: "llm/status"}, false, false},
		"NameIsEscaped":     {meta.Ref{Namespace: "team-a", Name: "llm%2fstatus"}, false, false},
		"NamespaceIsADot":   {meta.Ref{Namespace: ".", Name: "llm"}, false, false},
		"NamespaceHasSlash": {meta.Ref{Namespace: "a/b", Name: "llm"}, false, false},
		"ClusterNameASlash": {meta.Ref{Name: "a/b"}, false, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for scope, ok := range map[bool]bool{false: tc.namespaced, true: tc.cluster} {
				if err := tc.ref.Check(scope); ok != (err == nil) || !ok && !isInvalid(err) {
					t.Errorf("cluster-scoped %t: got %v, want ok: %t", scope, err, ok)
				}
			}
		})
	}
}

func TestRefCheckSaysTheSameEachTime(t *testing.T) {
	bad := meta.Ref{Namespace: "a/b", Name: "c/d"}
	first := bad.Check(false).Error()
	for range 50 {
		if again := bad.Check(false).Error(); again != first {
			t.Fatalf("%q, and then %q", first, again)
		}
	}
}

func TestObjectString(t *testing.T) {
	cases := map[string]struct {
		object meta.Object
		want   string
	}{
		"Namespaced":    {meta.Object{Kind: "TrainJob", Ref: meta.Ref{Namespace: "team-a", Name: "llm", UID: "u"}}, "TrainJob team-a/llm"},
		"ClusterScoped": {meta.Object{Kind: "ClusterQueue", Ref: meta.Ref{Name: "gpus"}}, "ClusterQueue gpus"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := tc.object.String(); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// Rule C4: the bound is above the apiserver's request timeout, or refused.
func TestCallBound(t *testing.T) {
	cases := map[string]struct {
		timeout, bound, want time.Duration // want 0: refused
	}{
		"Defaults":             {0, 0, 65 * time.Second},
		"OwnTimeout":           {10 * time.Second, 0, 15 * time.Second},
		"OwnBound":             {0, 61 * time.Second, 61 * time.Second},
		"OwnBoth":              {time.Second, time.Second + 1, time.Second + 1},
		"BoundIsTheTimeout":    {time.Second, time.Second, 0},
		"BoundIsTheDefault":    {0, 60 * time.Second, 0},
		"BoundBelowTheTimeout": {time.Minute, time.Second, 0},
		"NegativeBound":        {0, -1, 0},
		"NegativeTimeout":      {-1, 0, 0},
		"NegativeTimeoutBound": {-2, -1, 0},
		"TimeoutWithoutEnd":    {math.MaxInt64, 0, 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := meta.CallBound(tc.timeout, tc.bound)
			if tc.want == 0 && !isInvalid(err) || tc.want != 0 && err != nil {
				t.Fatalf("got %v, %v", got, err)
			}
			if got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}
