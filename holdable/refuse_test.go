package holdable

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/retry"
)

// silent is a dynamic client that must not be asked for anything: the call of a
// nil interface fails the test.
type silent struct{ dynamic.Interface }

func silentClient[T Value](t *testing.T, kind Holdable[T]) *Client[T] {
	t.Helper()
	c, err := NewForClient(kind, silent{}, retry.Options{}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// missing are capabilities that a probe has found unavailable.
type missing map[meta.Op]string

func (m missing) Unavailable(object meta.Object, op meta.Op) string {
	if object.Kind != "Machine" || object.Namespace != "ns" {
		return "asked about " + object.String()
	}
	return m[op]
}

// Rules C1, C2, C5 and O4: what can be refused without the apiserver is refused
// without it, with all that the error can tell.
func TestNothingIsSent(t *testing.T) {
	ref := meta.Ref{Namespace: "ns", Name: "m"}
	now := time.Now()
	valid := meta.Call{Instance: 7, Deadline: now.Add(time.Hour)}
	noInstance, noDeadline, late, talkative := valid, valid, valid, valid
	noInstance.Instance, noDeadline.Deadline, late.Deadline, talkative.Reason = 0, time.Time{}, now, strings.Repeat("r", 4097)
	lost := missing{meta.OpHold: "workloads may not be updated", meta.OpRelease: "the round trip failed", meta.OpInspect: "workloads are not served"}

	cases := map[string]struct {
		holder Holder
		ref    meta.Ref
		call   meta.Call
		ops    []meta.Op
		kind   meta.Sentinel
		says   string
	}{
		"NoInstance":    {silentClient(t, machine()), ref, noInstance, []meta.Op{meta.OpHold, meta.OpRelease}, meta.ErrInvalid, "instance 0"},
		"NoDeadline":    {silentClient(t, gated()), ref, noDeadline, []meta.Op{meta.OpHold, meta.OpRelease, meta.OpOpen}, meta.ErrInvalid, "deadline"},
		"LongReason":    {silentClient(t, gated()), ref, talkative, []meta.Op{meta.OpHold, meta.OpRelease, meta.OpOpen}, meta.ErrInvalid, "4097"},
		"Late":          {silentClient(t, gated()), ref, late, []meta.Op{meta.OpHold, meta.OpRelease, meta.OpOpen}, meta.ErrDeadline, "deadline"},
		"NoName":        {silentClient(t, gated()), meta.Ref{Namespace: "ns"}, valid, []meta.Op{meta.OpHold, meta.OpRelease, meta.OpOpen, meta.OpInspect}, meta.ErrInvalid, "name"},
		"NoNamespace":   {silentClient(t, gated()), meta.Ref{Name: "m"}, valid, []meta.Op{meta.OpHold, meta.OpRelease, meta.OpOpen, meta.OpInspect}, meta.ErrInvalid, "namespace"},
		"NoStartGate":   {silentClient(t, machine()), ref, valid, []meta.Op{meta.OpOpen}, meta.ErrUnsupported, "start gate"},
		"OpenATicket":   {silentClient(t, ticketed()), ref, valid, []meta.Op{meta.OpOpen}, meta.ErrUnsupported, "start gate"},
		"NotToHold":     {silentClient(t, machine()).Use(lost), ref, valid, []meta.Op{meta.OpHold}, meta.ErrUnsupported, "may not be updated"},
		"NotToRelease":  {silentClient(t, ticketed()).Use(lost), ref, valid, []meta.Op{meta.OpRelease}, meta.ErrUnsupported, "round trip failed"},
		"NotToInspect":  {silentClient(t, machine()).Use(lost), ref, valid, []meta.Op{meta.OpInspect}, meta.ErrUnsupported, "not served"},
		"InvalidBefore": {silentClient(t, machine()).Use(lost), ref, noInstance, []meta.Op{meta.OpHold}, meta.ErrInvalid, "instance 0"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for _, op := range tc.ops {
				err := call(t.Context(), tc.holder, op, tc.ref, tc.call)
				var e *meta.Error
				if !errors.As(err, &e) || !errors.Is(err, tc.kind) || !strings.Contains(err.Error(), tc.says) {
					t.Fatalf("%s: got %v, want %s: %s", op, err, tc.kind, tc.says)
				}
				// Rules E2 and E3
				if e.Op != op || e.Object.Ref != tc.ref || e.Object.Kind != "Machine" || e.Tries != 0 || e.Fate != meta.FateNone {
					t.Errorf("%s: got %+v", op, e)
				}
				if op != meta.OpInspect && e.Instance != tc.call.Instance {
					t.Errorf("%s: instance %d, want %d", op, e.Instance, tc.call.Instance)
				}
			}
		})
	}
}

// call makes one call of any sort.
func call(ctx context.Context, h Holder, op meta.Op, ref meta.Ref, c meta.Call) error {
	var err error
	switch op {
	case meta.OpHold:
		_, err = h.Hold(ctx, ref, c)
	case meta.OpRelease:
		_, err = h.Release(ctx, ref, c)
	case meta.OpOpen:
		_, err = h.Open(ctx, ref, c)
	case meta.OpInspect:
		_, err = h.Inspect(ctx, ref)
	}
	return err
}

// Rule C3: a caller's context that has ended comes first, and is in the chain
// (rule E1).
func TestNothingIsSentForACallerWhoHasLeft(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, op := range []meta.Op{meta.OpHold, meta.OpRelease, meta.OpOpen, meta.OpInspect} {
		err := call(ctx, silentClient(t, gated()), op, meta.Ref{Namespace: "ns", Name: "m"}, meta.Call{Instance: 7, Deadline: time.Now().Add(time.Hour)})
		if !errors.Is(err, context.Canceled) || !errors.Is(err, meta.ErrRejected) {
			t.Errorf("%s: got %v", op, err)
		}
	}
}

// Rule C5: Use makes another client and leaves the one it was called on.
func TestUseLeavesTheClient(t *testing.T) {
	c := silentClient(t, machine())
	if used := c.Use(missing{meta.OpHold: "x"}); used == c || c.can != nil || used.can == nil {
		t.Errorf("got %+v of %+v", used, c)
	}
}

// Rule C4: the bound is the engine's, and one that is no bound makes no client.
func TestClientCallBound(t *testing.T) {
	c, err := NewForClient(machine(), silent{}, retry.Options{RequestTimeout: 10 * time.Second}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := c.CallBound(); got != 15*time.Second {
		t.Errorf("got %v", got)
	}
	if _, err := NewForClient(machine(), silent{}, retry.Options{CallBound: time.Second}, Options{}); !errors.Is(err, meta.ErrInvalid) {
		t.Errorf("got %v", err)
	}
}

func TestClientsThatCannotBe(t *testing.T) {
	bad := machine()
	bad.Pause.Path = nil
	cfg := &rest.Config{Host: "https://127.0.0.1:1"}
	cases := map[string]func() error{
		"NoClient":      func() error { _, err := NewForClient(machine(), nil, retry.Options{}, Options{}); return err },
		"NoConfig":      func() error { _, err := New(machine(), nil, retry.Options{}, Options{}); return err },
		"BadDescriptor": func() error { _, err := New(bad, cfg, retry.Options{}, Options{}); return err },
		"BadPrefix":     func() error { _, err := New(machine(), cfg, retry.Options{}, Options{Prefix: "No"}); return err },
		"NoEngine":      func() error { _, err := machine().Connect(nil, Options{}); return err },
	}
	for name, build := range cases {
		t.Run(name, func(t *testing.T) {
			if err := build(); !errors.Is(err, meta.ErrInvalid) {
				t.Errorf("got %v", err)
			}
		})
	}
	if _, err := New(machine(), cfg, retry.Options{}, Options{}); err != nil {
		t.Errorf("one that can be: %v", err)
	}
}
