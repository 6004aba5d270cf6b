package probe

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/samber/lo"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/retry"
)

const (
	// The capabilities that a round trip shows.
	holdAndRelease = "a hold and its release"
	nothingLeft    = "nothing left behind"
	// theHold is the first call of a round trip, in the words of a report.
	theHold = "the hold"
)

// The instances that a round trip uses: the hold, and one that it is newer than.
const (
	freshInstance = 2
	staleInstance = 1
)

// removals is how often a removal is tried, and firstPause how long it waits
// after the first that failed.
const (
	removals   = 4
	firstPause = 250 * time.Millisecond
)

// roundTrip tries a hold on a canary in a namespace (rule P2), or asks with a
// dry run where none may be made.
func (p *prober) roundTrip(ctx context.Context, namespace string, known []Line) []Line {
	l := Line{Theme: RoundTrip, Capability: holdAndRelease, Namespace: namespace, Ops: p.writes()}
	if l.Why = hopeless(namespace, known); l.Why != "" {
		l.State = Unknown
		return []Line{l}
	}
	if p.opts.DryRun {
		return []Line{p.dryRun(ctx, l, "")}
	}
	if missing := lacking(known, namespace, canaryNeeds(p.what.Resource)); len(missing) > 0 {
		return []Line{p.dryRun(ctx, l, "this identity may not "+strings.Join(missing, ", "))}
	}
	return p.withCanary(ctx, l)
}

// hopeless says why a round trip could not tell more than is known already.
func hopeless(namespace string, known []Line) string {
	reasons := lo.FilterMap(known, func(l Line, _ int) (string, bool) {
		return l.Capability, l.State == Unavailable && l.concerns(meta.OpHold, namespace)
	})
	if len(reasons) == 0 {
		return ""
	}
	return "not tried, for lack of: " + strings.Join(reasons, ", ")
}

// withCanary makes a canary, tries the hold, and removes it.
func (p *prober) withCanary(ctx context.Context, l Line) []Line {
	removed, left, err := p.sweep(ctx, l.Namespace)
	others := p.sweepLines(l, left, err)
	canary := p.canary(ctx, l.Namespace)
	rehearsed, err := p.rehearse(ctx, canary)
	if err != nil {
		return append([]Line{p.noCanary(ctx, l, err)}, others...)
	}
	if why := p.wouldRun(rehearsed); why != "" {
		l.State, l.Why = Unavailable, "no canary was made, for it would not stay stopped: "+why
		l.Remedy = "find what changes objects on their way in, or hold them the way their owner wants it"
		return append([]Line{l}, others...)
	}
	made, err := p.create(ctx, canary)
	if err == nil {
		canary = made
		l.State, l.Why, l.Remedy = p.try(ctx, canary)
	} else {
		l.State, l.Why, l.Remedy = Unknown, "the canary could not be made: "+plain(err), "probe again"
	}
	if l.State == Available && removed > 0 {
		l.Why += fmt.Sprintf("; canaries of earlier probes removed: %d", removed)
	}
	if err == nil || !refused(err) {
		others = append(others, p.removalLines(ctx, l, canary, err != nil)...)
	}
	return append([]Line{l}, others...)
}

// noCanary falls back to a dry run where the cluster refuses the canary itself.
func (p *prober) noCanary(ctx context.Context, l Line, err error) Line {
	l.State, l.Why = Unknown, "the canary was refused: "+plain(err)
	l.Remedy = "set Options.Canary to a " + p.what.Kind + " that is accepted here"
	if p.what.Resource.Group == trainerGroup && p.opts.Canary == nil {
		l.Remedy += ", or let this identity list trainingruntimes or clustertrainingruntimes, of which there must be one"
	}
	if isAdmission(err) {
		return p.dryRun(ctx, l, l.Why)
	}
	return l
}

// wouldRun says why a canary as the apiserver would store it is none, "" if it
// is fine.
func (p *prober) wouldRun(canary *unstructured.Unstructured) string {
	if len(retry.Missing(canary, []retry.Edit{p.paused()})) > 0 {
		return fmt.Sprintf("its %s would not read %v", retry.PathString(p.what.PausePath), p.what.Held)
	}
	return p.what.Owner(canary)
}

// sweepLines report what became of the canaries of earlier probes, if anything
// stood in the way.
func (p *prober) sweepLines(trip Line, left []string, err error) []Line {
	l := Line{Theme: RoundTrip, Capability: nothingLeft, Namespace: trip.Namespace, State: Unavailable}
	switch {
	case err != nil:
		l.State, l.Why = Unknown, fmt.Sprintf("the canaries of earlier probes could not be listed: %v", err)
	case len(left) > 0:
		l.Why = "canaries of earlier probes could not be removed: " + strings.Join(left, "; ")
		l.Remedy = "remove them: " + p.kubectlDelete(trip.Namespace, "-l "+p.expiryLabel())
	default:
		return nil
	}
	return []Line{l}
}

// removalLines remove the canary, and report it if that could not be seen to
// the end.
func (p *prober) removalLines(ctx context.Context, trip Line, canary *unstructured.Unstructured, inDoubt bool) []Line {
	l := Line{Theme: RoundTrip, Capability: nothingLeft, Namespace: trip.Namespace, State: Unavailable}
	expires := canary.GetLabels()[p.expiryLabel()]
	switch err := p.remove(ctx, canary); {
	case err != nil:
		l.Why = fmt.Sprintf("%s could not be removed: %v; a probe after %s will do it", canary.GetName(), err, expires)
		l.Remedy = "remove it: " + p.kubectlDelete(trip.Namespace, canary.GetName())
	case inDoubt:
		l.State, l.Why = Unknown, fmt.Sprintf("%s may yet appear, for the answer to its creation was lost; a probe after %s will remove it", canary.GetName(), expires)
	default:
		return nil
	}
	return []Line{l}
}

func (p *prober) kubectlDelete(namespace, what string) string {
	return joined(" ", "kubectl delete", p.what.Resource.GroupResource().String(), lo.Ternary(namespace == "", "", "-n "+namespace), what)
}

// remove deletes a canary, and returns nil once it is seen to be gone.
func (p *prober) remove(ctx context.Context, canary *unstructured.Unstructured) error {
	var err error
	for i := range removals {
		if i > 0 && !pause(ctx, firstPause<<(i-1)) {
			break
		}
		if err = p.removeOnce(ctx, canary); err == nil || refused(err) {
			break
		}
	}
	return err
}

// errStillThere says that an object was deleted and did not go.
var errStillThere = errors.New("it was deleted, and is still there")

func (p *prober) removeOnce(ctx context.Context, canary *unstructured.Unstructured) error {
	ctx, cancel := step(ctx)
	defer cancel()
	objects := p.in(p.what.Resource, canary.GetNamespace())
	opts := metav1.DeleteOptions{PropagationPolicy: lo.ToPtr(metav1.DeletePropagationBackground)}
	if uid := canary.GetUID(); uid != "" {
		opts.Preconditions = &metav1.Preconditions{UID: lo.ToPtr(uid)}
	}
	err := objects.Delete(ctx, canary.GetName(), opts)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return err
	}
	now, err := objects.Get(ctx, canary.GetName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), err == nil && !sameUID(canary.GetUID(), now.GetUID()):
		return nil
	case err != nil:
		return err
	case now.GetDeletionTimestamp() != nil && len(now.GetFinalizers()) > 0:
		return fmt.Errorf("it is being deleted, and waits for its finalizers: %s", strings.Join(now.GetFinalizers(), ", "))
	}
	return errStillThere
}

// sameUID compares two UIDs, of which the first may not be known.
func sameUID(want, is types.UID) bool { return want == "" || want == is }

// pause waits, and reports whether there is time left.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// A trip is a round trip on one canary.
type trip struct {
	*prober
	canary *unstructured.Unstructured
	holder holdable.Holder
}

// A failure is a step of a round trip that did not go as it must.
type failure struct {
	state  State
	why    string
	remedy string
}

// try holds the canary and lets it go again.
func (p *prober) try(ctx context.Context, canary *unstructured.Unstructured) (state State, why, remedy string) {
	if would := p.wouldRun(canary); would != "" {
		return Unavailable, "the canary did not stay stopped: " + would, "find what changes objects on their way in"
	}
	holder, err := p.kind.Direct().Connect(p.engine, holdable.Options{Prefix: p.opts.Client.Prefix})
	if err != nil {
		return Unknown, err.Error(), ""
	}
	t := trip{p, canary, holder}
	for _, next := range []func(context.Context) *failure{
		t.hold, t.inForce, t.settled, t.staleHold, t.staleRelease, t.inForce, t.release, t.lifted,
	} {
		if f := next(ctx); f != nil {
			return f.state, f.why, f.remedy
		}
	}
	return Available, "held, read back, stale calls refused, released, removed", ""
}

func (t trip) call(ctx context.Context, instance int64) (context.Context, context.CancelFunc, meta.Ref, meta.Call) {
	ctx, cancel := step(ctx)
	until, _ := ctx.Deadline() // step gives every context one
	return ctx, cancel, meta.Ref{Namespace: t.canary.GetNamespace(), Name: t.canary.GetName(), UID: t.canary.GetUID()},
		meta.Call{Instance: instance, Deadline: until, Holder: "kubehold probe", Reason: "to see whether holds work here"}
}

func (t trip) hold(ctx context.Context) *failure {
	ctx, cancel, ref, call := t.call(ctx, freshInstance)
	defer cancel()
	if _, err := t.holder.Hold(ctx, ref, call); err != nil {
		return t.explain(ctx, theHold, err)
	}
	return nil
}

func (t trip) release(ctx context.Context) *failure {
	ctx, cancel, ref, call := t.call(ctx, freshInstance)
	defer cancel()
	if _, err := t.holder.Release(ctx, ref, call); err != nil {
		return t.explain(ctx, "the release", err)
	}
	return nil
}

// settled looks again a while later, for a controller may have undone the hold.
func (t trip) settled(ctx context.Context) *failure {
	if t.opts.Settle == 0 {
		return nil
	}
	if !pause(ctx, min(t.opts.Settle, time.Until(t.until)/2)) {
		return &failure{Unknown, "there was no time to see whether the hold stays", "give the probe more time"}
	}
	if f := t.inForce(ctx); f != nil && f.state == Unavailable {
		return &failure{Unavailable, fmt.Sprintf("the hold was there, and was undone within %v: %s", t.opts.Settle, f.why),
			"find the controller that undoes it, and hold the objects that it takes its orders from"}
	}
	return nil
}

// inForce reads the canary back and looks for the hold.
func (t trip) inForce(ctx context.Context) *failure {
	now, f := t.read(ctx)
	if f != nil {
		return f
	}
	if missing := t.missing(now); len(missing) > 0 {
		return t.takenOut(theHold, missing)
	}
	return nil
}

// lifted reads the canary back, and looks for what a hold leaves.
func (t trip) lifted(ctx context.Context) *failure {
	now, f := t.read(ctx)
	if f != nil {
		return f
	}
	left := lo.Filter(t.keys.OfHold(), func(key string, _ int) bool { return now.GetAnnotations()[key] != "" })
	if len(left) > 0 {
		return &failure{Unavailable, "the release was accepted, and these annotations are still there: " + strings.Join(left, ", "),
			t.policyRemedy()}
	}
	return nil
}

func (t trip) staleHold(ctx context.Context) *failure {
	ctx, cancel, ref, call := t.call(ctx, staleInstance)
	defer cancel()
	_, err := t.holder.Hold(ctx, ref, call)
	return t.mustBeStale(ctx, "an older hold", err)
}

func (t trip) staleRelease(ctx context.Context) *failure {
	ctx, cancel, ref, call := t.call(ctx, staleInstance)
	defer cancel()
	_, err := t.holder.Release(ctx, ref, call)
	return t.mustBeStale(ctx, "the release of an older hold", err)
}

func (t trip) mustBeStale(ctx context.Context, what string, err error) *failure {
	switch {
	case errors.Is(err, meta.ErrStaleHold):
		return nil
	case err == nil:
		return &failure{Unavailable, what + " was not refused: what says which hold is newer was lost", t.policyRemedy()}
	}
	return t.explain(ctx, what, err)
}

// read reads the canary.
func (t trip) read(ctx context.Context) (*unstructured.Unstructured, *failure) {
	ctx, cancel := step(ctx)
	defer cancel()
	now, err := t.in(t.what.Resource, t.canary.GetNamespace()).Get(ctx, t.canary.GetName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) || err == nil && now.GetUID() != t.canary.GetUID():
		return nil, t.gone()
	case err != nil:
		return nil, &failure{Unknown, fmt.Sprintf("the canary could not be read back: %v", err), "probe again"}
	}
	return now, nil
}

// gone says that the canary was not there any more.
func (t trip) gone() *failure {
	return &failure{Unknown, "something removed or replaced the canary during the round trip",
		"probe again; if it stays, find what removes objects labelled " + t.expiryLabel()}
}

// missing names what a hold of the fresh instance has left on the canary and is
// not there.
func (t trip) missing(now *unstructured.Unstructured) []string {
	want := map[string]string{
		t.keys.Instance(): fmt.Sprint(freshInstance),
		t.keys.UID():      string(t.canary.GetUID()),
	}
	names := lo.Filter(t.keys.OfHold(), func(key string, _ int) bool {
		is, there := now.GetAnnotations()[key]
		value, fixed := want[key]
		return !there || fixed && is != value
	})
	if len(retry.Missing(now, []retry.Edit{t.paused()})) > 0 {
		names = append(names, retry.PathString(t.what.PausePath))
	}
	return names
}

// explain puts the error of a call into words. If an update was accepted and
// not made as it was sent, the canary is read to see what of a hold is not there.
func (t trip) explain(ctx context.Context, what string, err error) *failure {
	call := new(meta.Error)
	switch {
	case errors.Is(err, meta.ErrForbidden):
		return &failure{Unavailable, fmt.Sprintf("%s was refused: this identity may not do it: %s", what, plain(err)), "apply the report's manifest"}
	case errors.Is(err, meta.ErrMissing), errors.Is(err, meta.ErrReplaced):
		return t.gone()
	case errors.Is(err, meta.ErrInDoubt), errors.Is(err, meta.ErrDeadline), errors.Is(err, meta.ErrConflict):
		return &failure{Unknown, fmt.Sprintf("%s came to no end: %v", what, err), "probe again; if it stays, look at the apiserver and its webhooks"}
	case refused(err):
		return &failure{Unavailable, fmt.Sprintf("%s was refused: %s", what, plain(err)),
			"have the policy or webhook that says so let this identity update " + t.what.Resource.GroupResource().String()}
	case !errors.As(err, &call) || call.Kind != meta.ErrRejected || call.Precondition == "" || code(err) != 0:
		return &failure{Unknown, fmt.Sprintf("%s failed: %v", what, err), "probe again"}
	}
	if now, f := t.read(ctx); f == nil && what == theHold && len(t.missing(now)) > 0 {
		return t.takenOut(what, t.missing(now))
	}
	return &failure{Unavailable, fmt.Sprintf("%s was accepted, but not made as it was sent: %v", what, err), t.policyRemedy()}
}

// takenOut says what of an accepted write is not there.
func (p *prober) takenOut(what string, missing []string) *failure {
	return &failure{Unavailable, fmt.Sprintf("%s was accepted, and something took out or changed %s", what, strings.Join(missing, ", ")), p.policyRemedy()}
}

func (p *prober) policyRemedy() string {
	return fmt.Sprintf("find the webhook, policy or controller that changes %s, and have it keep %s and the annotations under %s/",
		p.what.Resource.Resource, retry.PathString(p.what.PausePath), p.prefix())
}

// plain returns the message of the API error in err, without what this module
// has put around it.
func plain(err error) string {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) && status.Status().Message != "" {
		return status.Status().Message
	}
	return err.Error()
}
