package holdable

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/retry"
)

// State is how an object stands (rule K1).
type State string

const (
	// Held: a hold is in force and the pause field reads held.
	Held State = "held"
	// Undone: a hold is in force, but someone has resumed the object. Hold with
	// the same instance asserts it again.
	Undone State = "undone"
	// Deactivated: the kind's own controller has paused it, for the reason that
	// Inspection.Deactivated gives.
	Deactivated State = "deactivated"
	// Paused: someone else has paused it.
	Paused State = "paused"
	// Waiting: it waits at its start gate.
	Waiting State = "waiting at the start gate"
	// Running: nothing here stops it. Whether it has been admitted, or has
	// pods, is another question.
	Running State = "running"
	// Ended: it has run to its end, or failed.
	Ended State = "ended"
	// Unknown: it carries a hold of unknown instance (rule H10), or a pause
	// field that cannot be read; Inspection.Why says which.
	Unknown State = "unknown"
)

// Drained says whether the processes of an object are gone (rule K3).
type Drained string

const (
	// DrainedUnknown: the pods of the kind cannot be found.
	DrainedUnknown Drained = "unknown"
	// NotDrained: Inspection.Pod remains.
	NotDrained Drained = "no"
	// IsDrained: no pod of the object remains.
	IsDrained Drained = "yes"
)

// An Inspection is how an object stands, as of one read.
type Inspection struct {
	// Object is what the caller named, Held the object that a hold of it lies
	// on, and ResourceVersion the version of Held that was read.
	Object          meta.Object
	Held            meta.Object
	ResourceVersion string

	State State
	// Why says what there is to say about State, in words.
	Why string
	// Hold is the hold in force, nil if there is none. It is there beside every
	// State, so that one which lies on an ended object can be seen and lifted.
	Hold *meta.Hold
	// Void says that the object carries a hold that was placed on another
	// object, and that means nothing here (rule H13).
	Void bool
	// Deactivated is why the kind's own controller has paused the object, ""
	// if it has not. It may stand beside a hold (rule K2).
	Deactivated string
	// Opened is for kinds with a start gate. Executions is A, which a start gate
	// counts, or in Kueue mode the readmission gate.
	Opened     bool
	Executions int64
	// Drained says whether the processes of the object are gone, by its pods
	// alone: no condition is taken for proof (rule K3). Pod is one that remains.
	Drained Drained
	Pod     string
	// Gate is how the readmission gate's check stands on the Workload, in Kueue
	// mode: Pending, Ready, Retry or Rejected, or NoGate. It is empty for kinds
	// that need no gate. GateWhy is what the check says, for example what it
	// waits for.
	Gate    string
	GateWhy string
}

// NoGate is the Inspection.Gate of an object that nothing keeps from running
// beside pods of its earlier execution once it is readmitted: Kueue does not ask
// for a check of the name Options.Gate. See that option and CheckPods.
const NoGate = "none"

// Inspect implements Holder.
func (c *Client[T]) Inspect(ctx context.Context, ref meta.Ref) (Inspection, error) {
	begin := meta.Error{Op: meta.OpInspect, Object: c.named(ref)}
	if err := c.check(meta.OpInspect, ref); err != nil {
		return Inspection{}, refuse(begin, err)
	}
	find := &finder[T]{kind: &c.kind, ref: ref, wantNamed: true}
	var in Inspection
	_, err := c.engine.Do(ctx, c.inspectUntil(ctx), retry.Op{
		Call:     begin,
		Resource: c.kind.Resource,
		Read:     find.read,
		Decide: func(read *unstructured.Unstructured) (retry.Decision, error) {
			in = c.kind.inspect(c.kind.view(c.keys, read))
			in.Object, in.Held, in.ResourceVersion = find.object(), objectOf(c.kind.Kind, read), read.GetResourceVersion()
			in.Executions = c.executions(find.namedRead)
			in.Gate, in.GateWhy = c.gateOf(read)
			return retry.Decision{Check: c.drained(&in, find)}, nil
		},
	})
	return in, err
}

// inspectUntil is the deadline of an Inspect, which has no call to give one.
func (c *Client[T]) inspectUntil(ctx context.Context) time.Time {
	if d, ok := ctx.Deadline(); ok {
		return d
	}
	return time.Now().Add(c.CallBound())
}

// executions reads A off the named object, 0 where it cannot be read.
func (c *Client[T]) executions(named *unstructured.Unstructured) int64 {
	a, _ := c.keys.ReadExecutions(named.GetUID(), own(c.keys, named))
	return a
}

// gateOf says how the readmission gate's check stands on a Workload.
func (c *Client[T]) gateOf(held *unstructured.Unstructured) (state, why string) {
	if !c.kind.GatedElsewhere {
		return "", ""
	}
	entry := entryOf(held, cmp.Or(c.gate, DefaultGateCheck))
	if entry == nil {
		return NoGate, ""
	}
	return entry.state, entry.message
}

func (c *Client[T]) drained(in *Inspection, find *finder[T]) func(context.Context, retry.Reader) error {
	if c.kind.Pods == nil {
		return nil
	}
	return func(ctx context.Context, r retry.Reader) error {
		pod, err := remaining(ctx, r, c.kind.Pods, find.namedRead)
		if err != nil {
			return err
		}
		in.Pod, in.Drained = pod, IsDrained
		if pod != "" {
			in.Drained = NotDrained
		}
		return nil
	}
}

// inspect classifies what was read (rules K1, K2).
func (h *Holdable[T]) inspect(v view[T]) Inspection {
	in := Inspection{
		Hold:        v.hold,
		Void:        v.void,
		Deactivated: v.deactivated,
		Opened:      v.opened,
		Drained:     DrainedUnknown,
	}
	in.State, in.Why = h.classify(v)
	return in
}

func (h *Holdable[T]) classify(v view[T]) (State, string) {
	switch {
	case v.unknown != nil:
		return Unknown, v.unknown.Error()
	case v.ended != "":
		return Ended, v.ended
	case v.badType != nil:
		return Unknown, v.badType.Error()
	case v.hold != nil && v.paused:
		return Held, fmt.Sprintf("instance %d, by %s: %s", v.hold.Instance, v.hold.Holder, v.hold.Reason)
	case v.hold != nil:
		return Undone, fmt.Sprintf("instance %d is in force, but the object was resumed", v.hold.Instance)
	case v.deactivated != "":
		return Deactivated, v.deactivated
	case v.paused && h.StartGate && !v.opened:
		return Waiting, ""
	case v.paused && v.owner != "":
		return Paused, "by the owner of its pause field: " + v.owner
	case v.paused:
		return Paused, "by someone else"
	}
	return Running, ""
}
