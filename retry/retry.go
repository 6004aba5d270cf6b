package retry

import (
	"cmp"
	"context"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kubehold/kubehold/meta"
)

const (
	// MaxRetries is how often a call tries again, whatever the cause (rule T2).
	MaxRetries = 8
	// FieldManager is the manager that every write names (rule C8).
	FieldManager = "kubehold"
)

// Options configure an Engine. The zero value is ready for use.
type Options struct {
	// RequestTimeout is the apiserver's --request-timeout, 60 s if zero. One
	// that is set lower than the real one makes CallBound too small.
	RequestTimeout time.Duration
	// CallBound is how long after its deadline a call may still have an effect:
	// RequestTimeout plus a margin, 5 s if zero. It must be above
	// RequestTimeout (rule C4).
	CallBound time.Duration
	// Backoff paces the tries of a call: 20 ms and doubling, plus up to half as
	// much again at random, if Duration is zero. Its Steps do not matter: how
	// many tries there are is fixed. A Retry-After that is longer wins (rule T5).
	Backoff wait.Backoff
	// Retries is how often a call tries again: MaxRetries if zero, and never
	// more.
	Retries int
	// Observer, if set, is told of every request once its answer is in. It is
	// called from the goroutine of the call, and holds that call up.
	Observer func(Event)
}

// An Event is one request and its outcome, as told to an Observer.
type Event struct {
	// Op and Object are those of the call that sent the request.
	Op     meta.Op
	Object meta.Object
	// Try counts from 1.
	Try int
	// Verb is get, list, update or create (of an access review).
	Verb     string
	Resource schema.GroupVersionResource
	// Subresource is, for example, status; empty for the object itself.
	Subresource string
	Namespace   string
	Name        string
	// Precondition and Edits are set for an update: the resourceVersion that
	// it is bound to, and what it changes.
	Precondition string
	Edits        []Edit
	// Sent is when the request was handed to the client, Took how long its
	// answer took, a wait in the client's rate limiter included.
	Sent time.Time
	Took time.Duration
	// Transmissions is how often the request went out, 0 if it did not or the
	// client does not count (rule C7).
	Transmissions int
	// ResourceVersion is the answer's.
	ResourceVersion string
	Err             error
}

// An Engine runs calls against one apiserver. It is safe for concurrent use.
type Engine struct {
	client dynamic.Interface
	// counts says that a transmission that was not counted did not take place.
	counts  bool
	bound   time.Duration
	retries int
	backoff wait.Backoff
	observe func(Event)
}

// New returns an engine that talks to the apiserver of cfg through client-go's
// dynamic client and the transport of WithTransport. cfg is not changed. What is
// wrong with cfg or opts is ErrInvalid.
//
// client-go limits a client to 5 requests a second unless cfg.QPS says
// otherwise, which is two holds a second. A request that waits for the limiter
// spends its call's time.
func New(cfg *rest.Config, opts Options) (*Engine, error) {
	if cfg == nil {
		return nil, meta.Invalidf("no rest.Config")
	}
	client, err := dynamic.NewForConfig(WithTransport(cfg))
	if err != nil {
		return nil, meta.Invalidf("rest.Config").Because(err)
	}
	e, err := NewForClient(client, opts)
	if err != nil {
		return nil, err
	}
	e.counts = true
	return e, nil
}

// NewForClient returns an engine on a client that was made elsewhere. Unless
// whatever transmits its requests calls CountTransmission, the engine cannot
// tell whether the client sent a request again on its own, and so what is lost
// is certainty: an update that was refused may yet have been committed by an
// earlier transmission, and a call that fails then says so (rule C7). Prefer
// New. What is wrong with opts is ErrInvalid.
func NewForClient(client dynamic.Interface, opts Options) (*Engine, error) {
	if client == nil {
		return nil, meta.Invalidf("no client")
	}
	bound, err := meta.CallBound(opts.RequestTimeout, opts.CallBound)
	if err != nil {
		return nil, err
	}
	if opts.Retries < 0 || opts.Retries > MaxRetries {
		return nil, meta.Invalidf("%d retries: at most %d are allowed", opts.Retries, MaxRetries)
	}
	return &Engine{
		client:  client,
		bound:   bound,
		retries: cmp.Or(opts.Retries, MaxRetries),
		backoff: backoff(opts.Backoff),
		observe: opts.Observer,
	}, nil
}

func backoff(b wait.Backoff) wait.Backoff {
	if b.Duration == 0 {
		b = wait.Backoff{Duration: 20 * time.Millisecond, Factor: 2, Jitter: 0.5}
	}
	b.Steps = math.MaxInt // it is the tries that run out
	return b
}

// CallBound returns how long after its deadline a call may still have an
// effect (rule C4).
func (e *Engine) CallBound() time.Duration { return e.bound }

// An Op is what a call does on each try: read one object, and decide on the
// edits to make to it.
type Op struct {
	// Call begins every error of the call: its Op, Object and Instance.
	Call meta.Error
	// Resource is the resource of the object that Read returns.
	Resource schema.GroupVersionResource
	// Subresource is the part of the object that the update is sent to, such as
	// status; empty for the object itself. The edits must lie in that part.
	Subresource string
	// Read returns the object that is to be updated, live: what it returns is
	// the precondition of the update. It may send several requests. The error
	// of a request is returned as it is, or wrapped.
	Read func(ctx context.Context, r Reader) (*unstructured.Unstructured, error)
	// Decide returns what to make of the object that was read. It must not
	// change it. Its errors end the call; a *meta.Error has the rest of its
	// fields filled in.
	Decide func(read *unstructured.Unstructured) (Decision, error)
}

// A Decision is what to do with an object that was read.
type Decision struct {
	// Edits are made in one update. With none, nothing is written, and the
	// call has succeeded.
	Edits []Edit
	// Check, if set, is what must hold besides, asked after the read and before
	// the update. Its requests fail and are tried again like those of Read; any
	// other error ends the call.
	Check func(ctx context.Context, r Reader) error
}

// A Result is a call that succeeded.
type Result struct {
	// Object is the object as the call left it: the answer to the update, or
	// what was read where nothing was written. It must not be changed.
	Object *unstructured.Unstructured
	// Tries is how many tries were begun.
	Tries int
}
