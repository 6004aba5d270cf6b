package probe

import (
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/samber/lo"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/retry"
)

// notShown is what a dry run leaves open.
const notShown = "a dry run does not show that stale calls are refused, that a release lifts the hold, or that no controller undoes it"

// dryRun asks what would become of the update that a hold makes, on an object
// that is there. why says why there is no canary; empty where none was wanted.
func (p *prober) dryRun(ctx context.Context, l Line, why string) Line {
	l.Capability = holdAndRelease + " (dry run)"
	obj, err := p.anyObject(ctx, l.Namespace)
	switch {
	case err != nil:
		l.State, l.Why = Unknown, joined("; ", why, fmt.Sprintf("no object to try it on: %v", err))
	case obj == nil:
		l.State, l.Why = Unknown, joined("; ", why, "no object to try it on")
	default:
		l.State, l.Why, l.Remedy = p.dryHold(ctx, obj)
		l.Why = joined("; ", why, l.Why)
	}
	if l.State == Unknown && l.Remedy == "" {
		l.Remedy = "probe again when there is a " + p.what.Kind + ", or with a canary: apply the manifest of a probe without Options.DryRun"
	}
	return l
}

// anyObject returns an object of a namespace that is not being deleted, nil if
// there is none.
func (p *prober) anyObject(ctx context.Context, namespace string) (*unstructured.Unstructured, error) {
	list, err := p.list(ctx, namespace, metav1.ListOptions{Limit: 20})
	if err != nil {
		return nil, fmt.Errorf("%s", plain(err))
	}
	for i := range list.Items {
		if obj := &list.Items[i]; obj.GetDeletionTimestamp() == nil && p.what.Owner(obj) == "" {
			return obj, nil
		}
	}
	return nil, nil
}

// dryHold has the apiserver rehearse the update that holds obj.
func (p *prober) dryHold(ctx context.Context, obj *unstructured.Unstructured) (state State, why, remedy string) {
	edits := p.holdEdits(obj)
	want, err := retry.Apply(obj, edits)
	if err != nil {
		return Unavailable, fmt.Sprintf("%s has another shape than its kind: %v", obj.GetName(), err), "name the right path in the descriptor"
	}
	ctx, cancel := step(ctx)
	defer cancel()
	answer, err := p.in(p.what.Resource, obj.GetNamespace()).Update(ctx, want, metav1.UpdateOptions{
		FieldManager: retry.FieldManager, FieldValidation: metav1.FieldValidationStrict, DryRun: []string{metav1.DryRunAll},
	})
	switch {
	case err != nil && refused(err) && !strings.Contains(plain(err), "dry run"):
		return Unavailable, fmt.Sprintf("the update of %s was refused: %s", obj.GetName(), plain(err)), p.policyRemedy()
	case err != nil:
		return Unknown, fmt.Sprintf("the update of %s could not be rehearsed: %s", obj.GetName(), plain(err)), "probe again, or with a canary"
	}
	if missing := retry.Missing(answer, edits); len(missing) > 0 {
		names := lo.Map(missing, func(e retry.Edit, _ int) string { return retry.PathString(e.Path) })
		f := p.takenOut("the update of "+obj.GetName(), names)
		return f.state, f.why, f.remedy
	}
	return Available, fmt.Sprintf("the update of %s would be made as it was sent; %s", obj.GetName(), notShown), ""
}

// holdEdits are a hold on obj.
func (p *prober) holdEdits(obj *unstructured.Unstructured) []retry.Edit {
	values := p.keys.Annotations(meta.Hold{
		Instance: freshInstance, Holder: "kubehold probe", Reason: "a dry run", Since: time.Now(), Found: meta.FoundRunning, UID: obj.GetUID(),
	})
	return append([]retry.Edit{p.paused()}, lo.Map(p.keys.OfHold(), func(key string, _ int) retry.Edit {
		return retry.Set(values[key], holdable.Annotation(key)...)
	})...)
}

// isAdmission reports whether a refusal is one of a policy or a webhook, or of
// validation, rather than one of the request's form.
func isAdmission(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) }
