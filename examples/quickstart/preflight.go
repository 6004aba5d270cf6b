package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/samber/lo"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kubehold/kubehold/kinds"
)

// A preflight finds out, without changing anything, whether the story can take
// place.
type preflight struct {
	config    *rest.Config
	client    dynamic.Interface
	namespace string // "" for one that is to be made
	signs     signs  // set by check
}

// signs are the controllers that are known to run.
type signs struct{ kueue, trainer bool }

// check returns, as one sentence, what keeps the story from taking place.
func (p *preflight) check(ctx context.Context) error {
	for _, gvr := range []schema.GroupVersionResource{trainJobs(), ofTrainer("trainingruntimes"), workloads(), podsOf()} {
		if err := p.isServed(ctx, gvr); err != nil {
			return err
		}
	}
	if err := p.namespaceExists(ctx); err != nil {
		return err
	}
	p.signs = p.webhooks(ctx)
	for _, n := range p.needs() {
		if err := p.isAllowed(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// isServed asks for the resources of a group. That is open to everyone.
func (p *preflight) isServed(ctx context.Context, gvr schema.GroupVersionResource) error {
	list := metav1.APIResourceList{}
	code, err := p.get(ctx, &list, lo.Ternary(gvr.Group == "", "api", "apis"), gvr.Group, gvr.Version)
	switch {
	case err != nil:
		return fmt.Errorf("the cluster cannot be asked what it serves: %w", err)
	case code == http.StatusOK && lo.ContainsBy(list.APIResources, func(r metav1.APIResource) bool { return r.Name == gvr.Resource }):
		return nil
	case code == http.StatusOK || code == http.StatusNotFound:
		return fmt.Errorf("the cluster does not serve %s in version %s, which the story needs; the CRDs of Kueue and Trainer have to be there",
			gvr.GroupResource(), gvr.Version)
	}
	return fmt.Errorf("the cluster cannot be asked what it serves: it answers %d", code)
}

// get reads a JSON document from below the apiserver's root.
func (p *preflight) get(ctx context.Context, into any, path ...string) (code int, err error) {
	client, err := rest.HTTPClientFor(p.config)
	if err != nil {
		return 0, err
	}
	base, _, err := rest.DefaultServerUrlFor(p.config)
	if err != nil {
		return 0, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base.JoinPath(path...).String(), nil)
	if err != nil {
		return 0, err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode == http.StatusOK {
		err = json.Unmarshal(body, into)
	}
	return resp.StatusCode, err
}

// namespaceExists refuses a namespace that is not there. Who may not look may
// still make objects in it.
func (p *preflight) namespaceExists(ctx context.Context) error {
	if p.namespace == "" {
		return nil
	}
	_, err := p.client.Resource(namespaces()).Get(ctx, p.namespace, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("there is no namespace %q", p.namespace)
	}
	return nil
}

// webhooks looks for the webhooks that Kueue and Trainer come with. That there
// are none, or that this identity may not look, says nothing.
func (p *preflight) webhooks(ctx context.Context) signs {
	gvr := schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingwebhookconfigurations"}
	list, err := p.client.Resource(gvr).List(ctx, metav1.ListOptions{})
	if err != nil {
		return signs{}
	}
	return signs{
		kueue:   lo.ContainsBy(list.Items, watchesOver("kueue.x-k8s.io", "workloads")),
		trainer: lo.ContainsBy(list.Items, watchesOver("trainer.kubeflow.org", "trainingruntimes")),
	}
}

// watchesOver reports whether a webhook configuration has a rule for a resource.
func watchesOver(group, resource string) func(unstructured.Unstructured) bool {
	return func(c unstructured.Unstructured) bool {
		hooks, _, _ := unstructured.NestedSlice(c.Object, "webhooks") // anything else has no rules
		return lo.ContainsBy(objects(hooks), func(hook map[string]any) bool {
			rules, _, _ := unstructured.NestedSlice(hook, "rules")
			return lo.ContainsBy(objects(rules), func(rule map[string]any) bool {
				groups, _, _ := unstructured.NestedStringSlice(rule, "apiGroups")
				resources, _, _ := unstructured.NestedStringSlice(rule, "resources")
				return lo.Contains(groups, group) && lo.Contains(resources, resource)
			})
		})
	}
}

func objects(list []any) []map[string]any {
	return lo.FilterMap(list, func(v any, _ int) (map[string]any, bool) {
		m, ok := v.(map[string]any)
		return m, ok
	})
}

// A need is something that this identity must be allowed to do.
type need struct {
	gvr           schema.GroupVersionResource
	subresource   string
	verbs         string // divided by spaces
	clusterScoped bool
}

// needs lists what the story does itself, and what the parts take that it may
// have to play.
func (p *preflight) needs() []need {
	list := []need{
		{gvr: trainJobs(), verbs: "create get list update delete"},
		{gvr: ofTrainer("trainingruntimes"), verbs: "create get delete"},
		{gvr: workloads(), verbs: "get list update patch"},
		{gvr: podsOf(), verbs: "create get list patch delete"},
	}
	if p.namespace == "" {
		list = append(list, need{gvr: namespaces(), verbs: "create get delete", clusterScoped: true})
	}
	if p.signs.kueue {
		list = append(list, needsOfQueue()...)
	} else {
		list = append(list,
			need{gvr: workloads(), verbs: "create delete"},
			need{gvr: workloads(), subresource: "status", verbs: "update"})
	}
	if p.signs.trainer {
		return append(list, need{gvr: podsOf(), subresource: "status", verbs: "patch"})
	}
	return append(list,
		need{gvr: trainJobs(), subresource: "status", verbs: "update"},
		need{gvr: podsOf(), subresource: "status", verbs: "update"})
}

func needsOfQueue() []need {
	return []need{
		{gvr: ofKueue("localqueues"), verbs: "create get delete"},
		{gvr: ofKueue("clusterqueues"), verbs: "create get delete", clusterScoped: true},
		{gvr: ofKueue("resourceflavors"), verbs: "create get delete", clusterScoped: true},
	}
}

// isAllowed asks for each verb of a need whether this identity may do it.
func (p *preflight) isAllowed(ctx context.Context, n need) error {
	for _, verb := range strings.Fields(n.verbs) {
		attributes := map[string]any{
			"verb": verb, "group": n.gvr.Group, "version": n.gvr.Version, "resource": n.gvr.Resource, "subresource": n.subresource,
		}
		if !n.clusterScoped {
			attributes["namespace"] = p.namespace
		}
		allowed, err := p.review(ctx, attributes)
		if err != nil {
			return fmt.Errorf("the cluster cannot be asked what is allowed here: %w", err)
		}
		if !allowed {
			return notAllowed(n, verb, p.namespace)
		}
	}
	return nil
}

func notAllowed(n need, verb, namespace string) error {
	what := strings.Trim(n.gvr.GroupResource().String()+"/"+n.subresource, "/")
	where := "in namespace " + namespace
	if n.clusterScoped || namespace == "" {
		where = "in the whole cluster"
	}
	return fmt.Errorf("this identity may not %s %s %s, which the story needs", verb, what, where)
}

// review asks whether this identity may do something. A review is not stored.
func (p *preflight) review(ctx context.Context, attributes map[string]any) (bool, error) {
	gvr := schema.GroupVersionResource{Group: "authorization.k8s.io", Version: "v1", Resource: "selfsubjectaccessreviews"}
	review := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": gvr.GroupVersion().String(), "kind": "SelfSubjectAccessReview",
		"spec": map[string]any{"resourceAttributes": attributes},
	}}
	answer, err := p.client.Resource(gvr).Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	allowed, found, err := unstructured.NestedBool(answer.Object, "status", "allowed")
	if err == nil && !found {
		err = errors.New("the access review has no answer")
	}
	return allowed, err
}

// reactionTime is how long a controller may take to react to a job.
const reactionTime = 4 * time.Second

// whoRuns finds out which controllers run. Of whom there is no sign is put to
// the test: does anybody react to a job?
func (w *world) whoRuns(ctx context.Context, s signs) (signs, error) {
	if s.kueue && s.trainer {
		return s, nil
	}
	if err := w.createJob(ctx, probeJob, map[string]string{kinds.QueueNameLabel: w.queue}); err != nil {
		return s, err
	}
	began := time.Now()
	for !(s.kueue && s.trainer) && time.Since(began) < reactionTime && pause(ctx, w.pace) {
		job, err := w.in(trainJobs()).Get(ctx, w.job(probeJob), metav1.GetOptions{})
		if err != nil {
			return s, err
		}
		_, reported := job.Object["status"]
		s.trainer = s.trainer || reported
		_, err = w.workload(ctx, probeJob)
		s.kueue = s.kueue || err == nil
	}
	return s, w.deleteJob(ctx, w.job(probeJob))
}
