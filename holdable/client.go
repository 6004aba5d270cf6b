package holdable

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/retry"
)

// A Holder places and lifts the holds of one kind. It is what a supervisor
// imports: it hides the kind, the mode and the type of the pause field.
//
// Every error is a *meta.Error, and the object that a Ref names is never
// changed except as the call says.
type Holder interface {
	// Hold stops the object until Release of the same instance. Success means
	// that the hold is in force, not that anything has stopped: only
	// Inspection.Drained means that (rule H12).
	Hold(context.Context, meta.Ref, meta.Call) (Receipt, error)
	// Release lifts hold call.Instance, and no other.
	//
	// It must be issued only after Hold of that instance has succeeded and
	// every earlier Hold and Open of the object has returned with a fate other
	// than pending, or has settled: its deadline plus CallBound has passed
	// (rule I4). Release erases the instance, so that nothing on the object can
	// refuse a Hold which was delayed until after it.
	Release(context.Context, meta.Ref, meta.Call) (Receipt, error)
	// Open lets an object past its start gate. Kinds without one answer
	// ErrUnsupported.
	Open(context.Context, meta.Ref, meta.Call) (Receipt, error)
	// Inspect says how the object stands. It writes nothing. Where ctx has no
	// deadline, it takes CallBound at the most.
	Inspect(context.Context, meta.Ref) (Inspection, error)
	// CallBound is how long after its deadline a call may still have an effect
	// (rule C4).
	CallBound() time.Duration
}

// A Receipt is what a call that succeeded has done.
type Receipt struct {
	Op meta.Op
	// Object is what the caller named, with its UID where it was read.
	Object meta.Object
	// Held is the object that the hold lies on, and ResourceVersion its version
	// after the call.
	Held            meta.Object
	ResourceVersion string
	// Did says what was done, Why adds what there is to say about it.
	Did Did
	Why string
	// Executions is A, for kinds with a start gate.
	Executions int64
	// Tries is how many tries it took.
	Tries int
}

// Capabilities is what a probe has found out about an installation. A
// probe.Report is one.
type Capabilities interface {
	// Unavailable returns why op cannot work on an object, of which the kind and
	// the namespace matter, "" if nothing is known against it.
	Unavailable(object meta.Object, op meta.Op) string
}

// Options configure a Client. The zero value is ready for use.
type Options struct {
	// Prefix is the prefix of the annotation keys, a DNS subdomain,
	// meta.DefaultPrefix if empty. All clients of an object must agree on it.
	Prefix string
	// CheckPods makes a Release wait for the pods of the earlier execution,
	// with ErrPodsRemain, where the kind leaves that to something else: in
	// Kueue mode, for clusters without the readmission gate. It costs the read
	// of the named object and a list of its pods. An eviction that is no hold's
	// it does not cover.
	CheckPods bool
	// Gate is the name of the AdmissionCheck that the readmission gate answers,
	// DefaultGateCheck if empty. Inspect looks for it in Kueue mode.
	Gate string
}

// A Client places and lifts the holds of one kind. It satisfies Holder, and is
// safe for concurrent use.
type Client[T Value] struct {
	kind      Holdable[T]
	engine    *retry.Engine
	keys      meta.Keys
	checkPods bool
	gate      string
	can       Capabilities
}

// New returns a client that talks to the apiserver of cfg with the engine's own
// transport (rule C7). What is wrong with any of its arguments is ErrInvalid.
func New[T Value](kind Holdable[T], cfg *rest.Config, engine retry.Options, opts Options) (*Client[T], error) {
	e, err := retry.New(cfg, engine)
	if err != nil {
		return nil, err
	}
	return connect(kind, e, opts)
}

// NewForClient returns a client on a dynamic client that was made elsewhere.
// What that loses is said at retry.NewForClient. What is wrong with any of its
// arguments is ErrInvalid.
func NewForClient[T Value](kind Holdable[T], client dynamic.Interface, engine retry.Options, opts Options) (*Client[T], error) {
	e, err := retry.NewForClient(client, engine)
	if err != nil {
		return nil, err
	}
	return connect(kind, e, opts)
}

func connect[T Value](kind Holdable[T], engine *retry.Engine, opts Options) (*Client[T], error) {
	if engine == nil {
		return nil, meta.Invalidf("no engine")
	}
	if err := kind.Check(); err != nil {
		return nil, err
	}
	keys, err := meta.NewKeys(opts.Prefix)
	if err != nil {
		return nil, err
	}
	return &Client[T]{kind: kind, engine: engine, keys: keys, checkPods: opts.CheckPods, gate: opts.Gate}, nil
}

// Use returns a client that answers ErrUnsupported, before anything is sent, to
// what a probe has found unavailable (rule C5).
func (c *Client[T]) Use(found Capabilities) *Client[T] {
	copied := *c
	copied.can = found
	return &copied
}

// CallBound implements Holder.
func (c *Client[T]) CallBound() time.Duration { return c.engine.CallBound() }

// Hold implements Holder.
func (c *Client[T]) Hold(ctx context.Context, ref meta.Ref, call meta.Call) (Receipt, error) {
	return c.do(ctx, meta.OpHold, ref, call, c.kind.hold)
}

// Release implements Holder.
func (c *Client[T]) Release(ctx context.Context, ref meta.Ref, call meta.Call) (Receipt, error) {
	return c.do(ctx, meta.OpRelease, ref, call, c.kind.release)
}

// Open implements Holder.
func (c *Client[T]) Open(ctx context.Context, ref meta.Ref, call meta.Call) (Receipt, error) {
	return c.do(ctx, meta.OpOpen, ref, call, c.kind.open)
}

// named is the object that ref names.
func (c *Client[T]) named(ref meta.Ref) meta.Object {
	return meta.Object{Kind: c.kind.GroupVersionKind().Kind, Ref: ref}
}

// check refuses what must not be sent (rules C1, C5, O4).
func (c *Client[T]) check(op meta.Op, ref meta.Ref) error {
	if err := ref.Check(c.kind.ClusterScoped); err != nil {
		return err
	}
	if op == meta.OpOpen && !c.kind.StartGate {
		return meta.Errorf(meta.ErrUnsupported, "the kind has no start gate")
	}
	if c.can == nil {
		return nil
	}
	if why := c.can.Unavailable(c.named(ref), op); why != "" {
		return meta.Errorf(meta.ErrUnsupported, "%s", why)
	}
	return nil
}

// do runs one decision through the engine.
func (c *Client[T]) do(ctx context.Context, op meta.Op, ref meta.Ref, call meta.Call, decide func(view[T], request) (verdict, error)) (Receipt, error) {
	begin := meta.Error{Op: op, Object: c.named(ref), Instance: call.Instance}
	err := call.Check(op)
	if err == nil {
		err = c.check(op, ref)
	}
	if err != nil {
		return Receipt{}, refuse(begin, err)
	}
	find := &finder[T]{kind: &c.kind, ref: ref, wantNamed: c.checkPods || ref.UID == ""}
	req := request{Call: call, keys: c.keys, now: time.Now()}
	var made verdict
	var v view[T]
	var now *seen // by the last read, also where its try got no further
	res, err := c.engine.Do(ctx, call.Deadline, retry.Op{
		Call:     begin,
		Resource: c.kind.Resource,
		Read: func(ctx context.Context, r retry.Reader) (*unstructured.Unstructured, error) {
			held, err := find.read(ctx, r)
			if err == nil {
				v = c.kind.view(c.keys, held)
				if s := (seen{uid: v.uid, instance: v.instance()}); now == nil || *now != s {
					req.last, now = now, &s
				}
			}
			return held, err
		},
		Decide: func(*unstructured.Unstructured) (retry.Decision, error) {
			var err error
			made, err = decide(v, req)
			return retry.Decision{Edits: made.edits, Check: c.podsGone(made, find)}, err
		},
	})
	if err != nil {
		return Receipt{}, err
	}
	return Receipt{
		Op:              op,
		Object:          find.object(),
		Held:            objectOf(c.kind.Kind, res.Object),
		ResourceVersion: res.Object.GetResourceVersion(),
		Did:             made.did,
		Why:             made.why,
		Executions:      c.executions(res.Object),
		Tries:           res.Tries,
	}, nil
}

// podsGone is the check of rule R4 for what resumes the object, nil for
// anything else.
func (c *Client[T]) podsGone(made verdict, find *finder[T]) func(context.Context, retry.Reader) error {
	if !made.resumes || c.kind.Pods == nil || c.kind.GatedElsewhere && !c.checkPods {
		return nil
	}
	return func(ctx context.Context, r retry.Reader) error {
		pod, err := remaining(ctx, r, c.kind.Pods, find.namedRead)
		if err != nil || pod == "" {
			return err
		}
		e := meta.Errorf(meta.ErrPodsRemain, "a pod of the earlier execution remains")
		e.Pods = []string{pod}
		return e
	}
}

// refuse completes the error of a call that sends nothing.
func refuse(begin meta.Error, err error) error {
	begin.Kind, begin.Err = meta.ErrInvalid, err
	if own, ok := err.(*meta.Error); ok {
		begin.Kind, begin.Detail, begin.Err = own.Kind, own.Detail, own.Err
	}
	return &begin
}

func objectOf(kind string, obj *unstructured.Unstructured) meta.Object {
	return meta.Object{Kind: kind, Ref: meta.Ref{Namespace: obj.GetNamespace(), Name: obj.GetName(), UID: obj.GetUID()}}
}
