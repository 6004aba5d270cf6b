package holdable

import (
	"cmp"
	"context"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/retry"
)

const (
	// GateController is the spec.controllerName of the AdmissionChecks that the
	// readmission gate answers.
	GateController = "kubehold.dev/readmission-gate"
	// DefaultGateCheck is the name of the AdmissionCheck where none is
	// configured.
	DefaultGateCheck = "readmission-gate"
)

// A Gate is the readmission gate of Kueue mode: the one who answers an admission
// check of Kueue. It lets a job run again, after an eviction of whatever cause,
// only when no pod of its earlier execution remains, and not while a hold is in
// force; and it counts the executions of the job (rules G1 to G3).
//
// Kueue readmits a job while pods of its last execution still end, so that
// without a gate two executions can run side by side. It asks the check anew
// for every admission after an eviction. A Gate has no state: restart it at any
// time, and run as many as you like. The example readmission-gate is a
// controller around one.
//
// What is on its way shows in no list of pods: where a controller is behind, the
// job reads paused while a pod of its earlier execution has yet to be made. So it
// also waits until all that stands between the job and its pods, as
// Holdable.Makes says, reads paused itself.
//
// What it does not cover: a controller that acts on a version of its object from
// before the pause after the gate has looked, be it that it makes a pod or that it
// resumes what others then make pods for; a Workload slice of an elastic job, which
// runs beside the pods of the slice it replaces by design; and the manager cluster
// of MultiKueue, where no pods are. It is safe for concurrent use.
type Gate struct {
	kind   Holdable[bool]
	engine *retry.Engine
	keys   meta.Keys
	check  string
}

// NewGate returns a gate for a kind that kinds.OnKueue composed. Of the options
// it goes by Prefix and Gate. A kind of which pods cannot be found is
// ErrUnsupported: its gate could not keep what it is for.
func NewGate(kind Holdable[bool], engine *retry.Engine, opts Options) (*Gate, error) {
	if engine == nil {
		return nil, meta.Invalidf("no engine")
	}
	if err := kind.Check(); err != nil {
		return nil, err
	}
	switch {
	case kind.Of == nil:
		return nil, meta.Invalidf("a gate is for a kind that is held by its Workload, and %s is held by itself", kind.Kind)
	case kind.Pods == nil:
		return nil, meta.Errorf(meta.ErrUnsupported, "the pods of a %s cannot be found", kind.Of.Kind)
	}
	keys, err := meta.NewKeys(opts.Prefix)
	if err != nil {
		return nil, err
	}
	return &Gate{kind: kind, engine: engine, keys: keys, check: cmp.Or(opts.Gate, DefaultGateCheck)}, nil
}

// GateState is how a gate has answered.
type GateState string

const (
	// GateIdle: it is not the gate's turn. Kueue does not ask for the check, has
	// no quota for the Workload yet, is evicting it, or has the answer.
	GateIdle GateState = "idle"
	// GateShut: the check is Pending.
	GateShut GateState = "shut"
	// GateOpened: this call has made the check Ready.
	GateOpened GateState = "opened"
)

// A GateAnswer is what the gate has made of one job.
type GateAnswer struct {
	// Object is the job, Workload its Workload, and ResourceVersion the version
	// of the Workload after the call.
	Object          meta.Object
	Workload        meta.Object
	ResourceVersion string
	State           GateState
	// Why says what the gate waits for, or why it is not its turn. It is what
	// the check says, though that may be shortened.
	Why string
	// Maker is something that makes pods of the job and is not paused, by kind and
	// name, where it waits for that.
	Maker string
	// Pod is one that remains, where it waits for pods.
	Pod string
	// Refused is what the API server refuses the gate for good, where it waits for
	// that: a *meta.Error, like those of Answer.
	Refused error
	// Executions is A.
	Executions int64
}

// lookAgain bounds how often Answer begins from the start because what it wrote
// on the job has not led to an answer.
const lookAgain = 3

// Answer looks at a job, at its Workload, at what was made for it and its pods,
// and answers the check if it is the gate's turn. It is level-triggered: call it
// again whenever one of these has changed, or at any other time.
//
// Two objects are written, one after the other and each with the version of it
// that was read as precondition. First A is raised on the job, with the key of
// this admission beside it; a raise that is there already is not made again.
// Then Ready goes to the Workload's status. What is written is always read
// first, and all else after it: so the decision rests on what was true while the
// object was as it is when the update commits, whoever else writes meanwhile,
// another gate included. A Ready that comes late finds another version if Kueue
// has reset the check since, and is refused.
//
// What the API server refuses the gate for good, such as a list of pods that it may
// not see, keeps the check shut and stands in it: see GateAnswer.Refused.
//
// Its errors are those of a Hold: a *meta.Error that says what became of the
// writes, and ErrMissing where the job or its Workload is gone.
func (g *Gate) Answer(ctx context.Context, job meta.Ref, deadline time.Time) (GateAnswer, error) {
	c := g.call(job, deadline)
	if err := job.Check(g.kind.ClusterScoped); err != nil {
		return GateAnswer{}, refuse(c.begin, err)
	}
	for range lookAgain {
		answer, done, err := c.step(ctx)
		if done || err != nil {
			return answer, c.fail(err)
		}
	}
	return GateAnswer{}, c.fail(refuse(c.begin, meta.Errorf(meta.ErrRejected, "the job changes faster than it can be counted")))
}

// A gateCall is one Answer.
type gateCall struct {
	*Gate
	begin    meta.Error
	deadline time.Time
	now      time.Time
	// ref is the job, with the UID that the first read fixes (rule C6).
	ref meta.Ref
	// wrote says that something was written, or may have been, and refused what
	// the API server refuses for good.
	wrote   bool
	refused error
}

func (g *Gate) call(job meta.Ref, deadline time.Time) *gateCall {
	return &gateCall{
		Gate:     g,
		begin:    meta.Error{Op: meta.OpAnswer, Object: meta.Object{Kind: g.kind.Of.Kind, Ref: job}},
		deadline: deadline,
		now:      time.Now(),
		ref:      job,
	}
}

// fail makes err speak for all of the call: where something was written, an error
// after it does not say that nothing was (rule E3).
func (c *gateCall) fail(err error) error {
	if own, ok := err.(*meta.Error); ok && c.wrote && own.Fate == meta.FateNone {
		own.Fate = meta.FateSettled
	}
	return err
}

// step answers, or raises A and is not done. Where it is refused what it needs, it
// answers that.
func (c *gateCall) step(ctx context.Context) (answer GateAnswer, done bool, err error) {
	answer, done, err = c.answer(ctx)
	if err == nil && !done {
		err = c.count(ctx)
	}
	if refusal(err) == "" {
		return answer, done, err
	}
	own, ok := err.(*meta.Error)
	c.wrote = c.wrote || ok && own.Fate != meta.FateNone
	c.refused = err
	answer, _, err = c.answer(ctx) // which does not come to what was refused
	return answer, true, err
}

// answer tells Kueue what the gate says. It is not done if A is to be raised
// first.
func (c *gateCall) answer(ctx context.Context) (answer GateAnswer, done bool, err error) {
	var seen sight
	var ruled ruling
	find := c.finder(c.ref.UID == "")
	res, err := c.engine.Do(ctx, c.deadline, retry.Op{
		Call:        c.begin,
		Resource:    c.kind.Resource,
		Subresource: "status",
		Read: func(ctx context.Context, r retry.Reader) (*unstructured.Unstructured, error) {
			workload, err := find.read(ctx, r)
			if err != nil {
				return nil, err
			}
			job, err := find.readNamed(ctx, r)
			if err != nil {
				return nil, err
			}
			seen, err = c.look(ctx, r, workload, job)
			return workload, err
		},
		Decide: func(*unstructured.Unstructured) (retry.Decision, error) {
			ruled = judge(seen)
			return retry.Decision{Edits: reply(seen, ruled, c.now)}, nil
		},
	})
	if err != nil {
		return GateAnswer{}, false, err
	}
	c.ref = find.ref
	state := map[deed]GateState{leave: GateIdle, stayShut: GateShut, raise: GateShut, letPass: GateOpened}[ruled.do]
	return GateAnswer{
		Object:          find.object(),
		Workload:        objectOf(c.kind.Kind, res.Object),
		ResourceVersion: res.Object.GetResourceVersion(),
		State:           state,
		Why:             ruled.why,
		Maker:           seen.maker,
		Pod:             seen.pod,
		Refused:         c.refused,
		Executions:      ruled.executions,
	}, ruled.do != raise, nil
}

// count raises A, if that is still what is to be done.
func (c *gateCall) count(ctx context.Context) error {
	var seen sight
	find := c.finder(true)
	var tried bool
	_, err := c.engine.Do(ctx, c.deadline, retry.Op{
		Call:     c.begin,
		Resource: c.kind.Of.Resource,
		Read: func(ctx context.Context, r retry.Reader) (*unstructured.Unstructured, error) {
			workload, err := find.read(ctx, r) // the job first, then its Workload
			if err != nil {
				return nil, err
			}
			seen, err = c.look(ctx, r, workload, find.namedRead)
			return find.namedRead, err
		},
		Decide: func(job *unstructured.Unstructured) (retry.Decision, error) {
			ruled := judge(seen)
			if ruled.do != raise {
				return retry.Decision{}, nil
			}
			tried = true
			return retry.Decision{Edits: c.raiseEdits(job, seen, ruled)}, nil
		},
	})
	c.wrote = c.wrote || tried && err == nil // be it by the first of two that a proxy made of it
	return err
}

func (c *gateCall) finder(wantNamed bool) *finder[bool] {
	return &finder[bool]{kind: &c.kind, ref: c.ref, wantNamed: wantNamed}
}

// look puts together what was read, and adds what is below the job if it comes
// to that: from the top down, so that what is paused was so before the pods are
// listed, which is last (rule G3).
func (c *gateCall) look(ctx context.Context, r retry.Reader, workload, job *unstructured.Unstructured) (sight, error) {
	s := c.see(workload, job, c.check)
	s.refusal = refusal(c.refused)
	if do := judge(s).do; do != raise && do != letPass {
		return s, nil
	}
	var err error
	if s.maker, err = running(ctx, r, c.kind.Makes, job); s.maker != "" || err != nil {
		return s, err
	}
	s.pod, err = remaining(ctx, r, c.kind.Pods, job)
	return s, err
}
