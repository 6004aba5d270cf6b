package probe

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/samber/lo"

	"github.com/kubehold/kubehold/holdable"
)

// requirements are the requests that something needs, in words.
type requirements struct {
	name  string
	needs []holdable.Need
	// clusterWide says that they go to no namespace, and so take a ClusterRole.
	clusterWide bool
}

// required returns what a probe with these options asks for: what the calls of
// the kind send, what the canary takes beyond that, and what the readmission
// gate does.
func required(d holdable.Description, opts Options) []requirements {
	calls := d.Needs(opts.Client)
	all := []requirements{{needs: calls, clusterWide: d.ClusterScoped}}
	if !opts.DryRun {
		canary := lo.Reject(canaryNeeds(d.Resource), func(n holdable.Need, _ int) bool {
			return lo.ContainsBy(calls, func(c holdable.Need) bool { return needText(c) == needText(n) })
		})
		all = append(all, requirements{name: "probe", needs: canary, clusterWide: d.ClusterScoped})
	}
	if opts.AsGate {
		all = append(all, gateNeeds(d))
	}
	return all
}

// canaryNeeds are what it takes to make a canary, find an old one and remove it.
func canaryNeeds(held schema.GroupVersionResource) []holdable.Need {
	return []holdable.Need{
		{Verb: "create", Resource: held},
		{Verb: "list", Resource: held},
		{Verb: "delete", Resource: held},
	}
}

// access asks for every request that is needed whether this identity may send
// it (rule P1).
func (p *prober) access(ctx context.Context) []Line {
	var lines []Line
	for _, set := range required(p.what, p.opts) {
		namespaces := p.opts.Namespaces
		if set.clusterWide {
			namespaces = []string{""}
		}
		for _, namespace := range namespaces {
			for _, need := range set.needs {
				l := Line{Theme: Access, Capability: needText(need), Namespace: namespace, Ops: need.Ops}
				lines = append(lines, judge(l, set.name, p.mayI(ctx, namespace, need)))
			}
		}
	}
	return lines
}

// needText is, for example, "update workloads.kueue.x-k8s.io".
func needText(n holdable.Need) string {
	r := n.Resource.GroupResource()
	if n.Subresource != "" {
		r.Resource += "/" + n.Subresource
	}
	return n.Verb + " " + r.String()
}

// A review is the answer to an access review.
type review struct {
	allowed bool
	reason  string
	err     error
}

// judge completes a line by a review.
func judge(l Line, whom string, r review) Line {
	switch {
	case r.err != nil:
		l.State, l.Why = Unknown, fmt.Sprintf("the access review failed: %v", r.err)
		l.Remedy = "let this identity create selfsubjectaccessreviews.authorization.k8s.io"
	case r.allowed:
		l.State = Available
	default:
		l.State, l.Why = Unavailable, joined(": ", "this identity may not do it", r.reason)
		l.Remedy = "apply the report's manifest"
	}
	if whom != "" && l.State != Available {
		l.Why += fmt.Sprintf(" (only the %s needs it)", whom)
	}
	return l
}

// mayI asks the apiserver for one request.
func (p *prober) mayI(ctx context.Context, namespace string, n holdable.Need) review {
	answer, err := p.ask(ctx, schema.GroupVersionResource{Group: "authorization.k8s.io", Version: "v1", Resource: "selfsubjectaccessreviews"},
		"SelfSubjectAccessReview", map[string]any{"resourceAttributes": map[string]any{
			"verb": n.Verb, "group": n.Resource.Group, "version": n.Resource.Version,
			"resource": n.Resource.Resource, "subresource": n.Subresource, "namespace": namespace,
		}})
	if err != nil {
		return review{err: err}
	}
	allowed, found, _ := unstructured.NestedBool(answer.Object, "status", "allowed")
	reason, _, _ := unstructured.NestedString(answer.Object, "status", "reason")
	problem, _, _ := unstructured.NestedString(answer.Object, "status", "evaluationError")
	if !found {
		return review{err: fmt.Errorf("the answer says neither yes nor no")}
	}
	return review{allowed: allowed, reason: joined("; ", reason, problem)}
}

// whoAmI returns the name under which the apiserver knows this identity, "" if
// it does not tell.
func (p *prober) whoAmI(ctx context.Context) string {
	answer, err := p.ask(ctx, schema.GroupVersionResource{Group: "authentication.k8s.io", Version: "v1", Resource: "selfsubjectreviews"},
		"SelfSubjectReview", nil)
	if err != nil {
		return ""
	}
	name, _, _ := unstructured.NestedString(answer.Object, "status", "userInfo", "username")
	return name
}

// ask creates one of the reviews that the apiserver answers and does not keep.
func (p *prober) ask(ctx context.Context, resource schema.GroupVersionResource, kind string, spec map[string]any) (*unstructured.Unstructured, error) {
	ctx, cancel := step(ctx)
	defer cancel()
	question := map[string]any{"apiVersion": resource.GroupVersion().String(), "kind": kind}
	if spec != nil {
		question["spec"] = spec
	}
	return p.objects.Resource(resource).Create(ctx, &unstructured.Unstructured{Object: question}, metav1.CreateOptions{})
}

// lacking returns the needs that the lines do not say may be sent in a
// namespace.
func lacking(lines []Line, namespace string, needs []holdable.Need) []string {
	return lo.FilterMap(needs, func(n holdable.Need, _ int) (string, bool) {
		text := needText(n)
		return text, !lo.ContainsBy(lines, func(l Line) bool {
			return l.Theme == Access && l.Capability == text && l.Namespace == namespace && l.State == Available
		})
	})
}
