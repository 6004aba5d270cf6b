package probe

import (
	"cmp"
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"

	"github.com/samber/lo"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/retry"
)

const (
	// DefaultTimeout is how long a probe takes at the most.
	DefaultTimeout = time.Minute
	// DefaultDeadline is how far ahead the deadlines of calls are taken to be.
	DefaultDeadline = 10 * time.Second
	// DefaultSettle is how long a hold on the canary is left alone.
	DefaultSettle = time.Second
	// DefaultGate is the controller name of the readmission gate.
	DefaultGate = holdable.GateController
)

// Options say what is to be relied on. The zero value probes nothing of a
// namespaced kind, since it names no namespace, and is refused.
type Options struct {
	// Namespaces are where objects are to be held: each is probed by itself.
	// For a cluster-scoped kind there are none.
	Namespaces []string
	// Client and Engine are the options that the real clients will be made
	// with. The prefix, the pod check and CallBound are looked at.
	Client holdable.Options
	Engine retry.Options
	// Deadline is how far ahead the deadlines of the real calls will be,
	// DefaultDeadline if zero.
	Deadline time.Duration
	// Timeout is how long the probe may take, DefaultTimeout if zero. A deadline
	// of the context that comes sooner wins.
	Timeout time.Duration

	// DryRun makes a probe that creates nothing. It asks the apiserver what it
	// would do (dryRun=All), and cannot show all that a canary shows.
	DryRun bool
	// Canary is the object to hold on the round trip, for kinds whose smallest
	// object the probe does not know. Its name, namespace and pause field are
	// the probe's to set. It must be one that cannot run.
	Canary *unstructured.Unstructured
	// Settle is how long the canary's hold is left alone, to see whether some
	// controller undoes it: DefaultSettle if zero, not at all if negative.
	Settle time.Duration

	// Gate is the controller name of the readmission gate, DefaultGate if empty.
	// It is looked for in Kueue mode.
	Gate string
	// AsGate asks as well for what the readmission gate itself sends.
	AsGate bool
}

// withDefaults returns o with its zero values filled in.
func (o Options) withDefaults() Options {
	o.Deadline = cmp.Or(o.Deadline, DefaultDeadline)
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	o.Settle = max(cmp.Or(o.Settle, DefaultSettle), 0)
	o.Gate = cmp.Or(o.Gate, DefaultGate)
	o.Namespaces = lo.Uniq(o.Namespaces)
	return o
}

// check returns an ErrInvalid that names the first mistake in o.
func (o Options) check(d holdable.Description) error {
	switch {
	case d.ClusterScoped && len(o.Namespaces) > 0:
		return meta.Invalidf("namespaces %v for %s, which is cluster-scoped", o.Namespaces, d.Kind)
	case !d.ClusterScoped && (len(o.Namespaces) == 0 || slices.Contains(o.Namespaces, "")):
		return meta.Invalidf("no namespace to probe, or an empty one, for %s, which is namespaced", d.Kind)
	case o.Deadline < 0 || o.Timeout < 0:
		return meta.Invalidf("a negative deadline or timeout: %v, %v", o.Deadline, o.Timeout)
	case o.AsGate && !onKueue(d):
		return meta.Invalidf("the readmission gate is Kueue mode's, and %s is not held by its Workload", d.Kind)
	}
	return nil
}

func checkKind(kind holdable.Kind) error {
	if kind == nil {
		return meta.Invalidf("no kind")
	}
	return kind.Check()
}

// places are the namespaces to probe, the one of no name for a cluster-scoped
// kind.
func places(d holdable.Description, namespaces []string) []string {
	if d.ClusterScoped {
		return []string{""}
	}
	return namespaces
}

// Run probes the apiserver of cfg as the identity of cfg, and returns what it
// has found. All that stands in its way is in the report: a probe fails only on
// a mistake of its caller's, with ErrInvalid.
//
// It takes no longer than ctx and Options.Timeout allow, and everything it
// sends has a deadline. It leaves nothing behind; what it could not remove,
// because it was cut off, the next probe removes once that has expired.
func Run(ctx context.Context, cfg *rest.Config, kind holdable.Kind, opts Options) (Report, error) {
	p, err := newProber(cfg, kind, opts)
	if err != nil {
		return Report{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, p.opts.Timeout)
	defer cancel()
	p.until, _ = ctx.Deadline() // it has one now
	return p.run(ctx), nil
}

// A prober is one run.
type prober struct {
	*wire
	cfg  *rest.Config
	opts Options
	kind holdable.Kind
	what holdable.Description
	keys meta.Keys
	// until is when the probe ends at the latest.
	until time.Time
}

func newProber(cfg *rest.Config, kind holdable.Kind, opts Options) (*prober, error) {
	if cfg == nil {
		return nil, meta.Invalidf("no rest.Config")
	}
	if err := checkKind(kind); err != nil {
		return nil, err
	}
	opts = opts.withDefaults()
	p := &prober{cfg: cfg, opts: opts, kind: kind, what: kind.Describe()}
	err := opts.check(p.what)
	if err != nil {
		return nil, err
	}
	if p.opts.Canary, err = asJSON(opts.Canary); err != nil {
		return nil, err
	}
	if p.keys, err = meta.NewKeys(opts.Client.Prefix); err != nil {
		return nil, err
	}
	if p.wire, err = newWire(cfg, opts.Engine); err != nil {
		return nil, meta.Invalidf("rest.Config").Because(err)
	}
	return p, nil
}

func (p *prober) run(ctx context.Context) Report {
	r := Report{
		Kind:     p.kind.GroupVersionKind().Kind,
		Held:     p.what.Kind,
		Identity: p.whoAmI(ctx),
		Time:     time.Now().UTC().Truncate(time.Second),
	}
	var v version.Info
	if p.get(ctx, "/version", &v) == nil {
		r.Server = v.GitVersion
	}
	r.Lines = p.lines(ctx)
	r.Lines = append(conclude(p.ops(), places(p.what, p.opts.Namespaces), r.Lines), r.Lines...)
	if slices.ContainsFunc(r.Lines, func(l Line) bool { return l.Theme == Access && l.State == Unavailable }) {
		if manifest, err := Manifest(p.kind, p.opts, r.Identity); err == nil {
			r.Manifest = string(manifest)
		}
	}
	return r
}

// lines are all but the verdicts.
func (p *prober) lines(ctx context.Context) []Line {
	access := p.access(ctx)
	served := p.served(ctx)
	lines := slices.Concat(access, served)
	for _, namespace := range places(p.what, p.opts.Namespaces) {
		lines = append(lines, p.roundTrip(ctx, namespace, lines)...)
	}
	return append(lines, p.environment(ctx)...)
}

// ops are the calls that the kind has.
func (p *prober) ops() []meta.Op {
	ops := []meta.Op{meta.OpHold, meta.OpRelease}
	if p.what.StartGate {
		ops = append(ops, meta.OpOpen)
	}
	return append(ops, meta.OpInspect)
}

// writes are the calls that update the held object.
func (p *prober) writes() []meta.Op {
	return slices.DeleteFunc(p.ops(), func(op meta.Op) bool { return op == meta.OpInspect })
}
