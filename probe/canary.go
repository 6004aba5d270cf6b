package probe

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/retry"
)

// A canary is an object that is made only to be held. It is created with its
// pause field at held and belongs to no queue, and it is not created at all
// unless a dry run shows that it would stay that way. Its name and an annotation
// say what it is, and a label says when it expires: after that no request of its
// own probe can be on its way any more, and whoever finds it may remove it.

// expiryLayout is a time as it fits a label.
const expiryLayout = "20060102T150405Z"

// expiryLabel is the label that every canary has.
func (p *prober) expiryLabel() string { return p.prefix() + "/canary-expires" }

// aboutAnnotation tells people what a canary is.
func (p *prober) aboutAnnotation() string { return p.prefix() + "/canary" }

func (p *prober) prefix() string {
	if p.opts.Client.Prefix != "" {
		return p.opts.Client.Prefix
	}
	return meta.DefaultPrefix
}

// paused is the edit that stops an object of the kind.
func (p *prober) paused() retry.Edit { return retry.Set(p.what.Held, p.what.PausePath...) }

// canary returns a new canary for a namespace.
func (p *prober) canary(ctx context.Context, namespace string) *unstructured.Unstructured {
	obj := p.opts.Canary.DeepCopy()
	if obj == nil {
		obj = &unstructured.Unstructured{Object: map[string]any{}}
		if spec := p.smallest(ctx, namespace); spec != nil {
			obj.Object["spec"] = spec
		}
	}
	expires := p.expiry()
	obj.SetAPIVersion(p.what.Resource.GroupVersion().String())
	obj.SetKind(p.what.Kind)
	obj.SetName("kubehold-canary-" + rand.String(8))
	obj.SetNamespace(namespace)
	obj.SetLabels(with(obj.GetLabels(), p.expiryLabel(), expires.Format(expiryLayout)))
	obj.SetAnnotations(with(obj.GetAnnotations(), p.aboutAnnotation(),
		"made by a probe to try a hold on; it never runs, is removed at once, and may be removed by anyone after "+expires.Format(time.RFC3339)))
	stopped, err := retry.Apply(obj, []retry.Edit{p.paused()})
	if err != nil { // a canary of another shape than its kind: the apiserver will say so
		return obj
	}
	return stopped
}

// asJSON returns a copy of obj as it comes back from JSON, in which every number
// is one that can be copied again; ErrInvalid where something in it is no JSON.
func asJSON(obj *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if obj == nil {
		return nil, nil
	}
	content := map[string]any{}
	data, err := json.Marshal(obj.Object)
	if err == nil {
		err = utiljson.Unmarshal(data, &content)
	}
	if err != nil {
		return nil, meta.Invalidf("the canary cannot be sent").Because(err)
	}
	return &unstructured.Unstructured{Object: content}, nil
}

func with(m map[string]string, key, value string) map[string]string {
	if m == nil {
		m = map[string]string{}
	}
	m[key] = value
	return m
}

// expiry is when nothing of this probe can have an effect any more, by the
// apiserver's clock, which is the one that all probes share.
func (p *prober) expiry() time.Time {
	_, ahead, _ := p.seen.skew()
	return p.until.Add(p.engine.CallBound() + ahead + time.Second).UTC().Truncate(time.Second)
}

// hasExpired reports whether a canary may be removed, or why that cannot be
// told. What cannot be read has not expired.
func (p *prober) hasExpired(canary *unstructured.Unstructured) (bool, error) {
	written := canary.GetLabels()[p.expiryLabel()]
	expires, err := time.Parse(expiryLayout, written)
	if err != nil {
		return false, fmt.Errorf("its expiry %q cannot be read", written)
	}
	ahead, _, _ := p.seen.skew()
	return time.Now().Add(ahead).After(expires), nil
}

// smallest returns the spec of the smallest object of a kind that is known to
// be accepted, nil for other kinds. What makes pods is given none to make.
func (p *prober) smallest(ctx context.Context, namespace string) map[string]any {
	pod := map[string]any{"spec": map[string]any{
		"restartPolicy": "Never",
		"containers":    []any{map[string]any{"name": "canary", "image": "kubehold.dev/no-such-image"}},
	}}
	switch p.what.Resource.GroupResource() {
	case schema.GroupResource{Group: "batch", Resource: "jobs"}:
		return map[string]any{"parallelism": int64(0), "template": pod}
	case schema.GroupResource{Group: "jobset.x-k8s.io", Resource: "jobsets"}:
		return map[string]any{"replicatedJobs": []any{}}
	case schema.GroupResource{Group: kueueGroup, Resource: "workloads"}:
		return map[string]any{"podSets": []any{map[string]any{"name": "canary", "count": int64(0), "template": pod}}}
	case schema.GroupResource{Group: trainerGroup, Resource: "trainjobs"}:
		return map[string]any{"runtimeRef": p.runtime(ctx, namespace)}
	}
	return nil
}

const trainerGroup = "trainer.kubeflow.org"

// runtime names a training runtime that exists, for Trainer refuses TrainJobs
// of others. Where none can be seen, it names one that does not.
func (p *prober) runtime(ctx context.Context, namespace string) map[string]any {
	for _, r := range []struct{ kind, resource, namespace string }{
		{"ClusterTrainingRuntime", "clustertrainingruntimes", ""},
		{"TrainingRuntime", "trainingruntimes", namespace},
	} {
		ctx, cancel := step(ctx)
		list, err := p.in(p.what.Resource.GroupVersion().WithResource(r.resource), r.namespace).List(ctx, metav1.ListOptions{Limit: 1})
		cancel()
		if err == nil && len(list.Items) > 0 {
			return map[string]any{"apiGroup": trainerGroup, "kind": r.kind, "name": list.Items[0].GetName()}
		}
	}
	return map[string]any{"name": "no-such-runtime"}
}

// rehearse asks the apiserver what would become of an object if it were
// created.
func (p *prober) rehearse(ctx context.Context, obj *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	return p.create(ctx, obj, metav1.DryRunAll)
}

func (p *prober) create(ctx context.Context, obj *unstructured.Unstructured, dryRun ...string) (*unstructured.Unstructured, error) {
	ctx, cancel := step(ctx)
	defer cancel()
	made, err := p.in(p.what.Resource, obj.GetNamespace()).Create(ctx, obj, metav1.CreateOptions{
		FieldManager: retry.FieldManager, FieldValidation: metav1.FieldValidationStrict, DryRun: dryRun,
	})
	if err == nil && (made.GetKind() != obj.GetKind() || made.GetName() != obj.GetName()) {
		return nil, fmt.Errorf("the answer is another object: %s %q", made.GetKind(), made.GetName())
	}
	return made, err
}

// sweep removes the canaries of a namespace that have expired, and says what it
// found.
func (p *prober) sweep(ctx context.Context, namespace string) (removed int, left []string, err error) {
	opts := metav1.ListOptions{LabelSelector: p.expiryLabel(), Limit: 500}
	for {
		list, err := p.list(ctx, namespace, opts)
		if err != nil {
			return removed, left, err
		}
		for i := range list.Items {
			canary := &list.Items[i]
			expired, why := p.hasExpired(canary)
			if expired {
				why = p.remove(ctx, canary)
			}
			switch {
			case why != nil:
				left = append(left, fmt.Sprintf("%s: %v", canary.GetName(), why))
			case expired:
				removed++
			}
		}
		if opts.Continue = list.GetContinue(); opts.Continue == "" {
			return removed, left, nil
		}
	}
}

func (p *prober) list(ctx context.Context, namespace string, opts metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	ctx, cancel := step(ctx)
	defer cancel()
	return p.in(p.what.Resource, namespace).List(ctx, opts)
}
