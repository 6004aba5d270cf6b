//go:build e2e

package probetest

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubehold/kubehold/kinds"
	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/probe"
	"github.com/kubehold/kubehold/rapidtest/realstack/cluster"
	"github.com/kubehold/kubehold/rapidtest/realstack/stack"
)

// With all controllers and their webhooks, the canary of every kind is accepted,
// never runs, and is gone with everything that was made for it.
func TestP2OnTheWholeStack(t *testing.T) {
	s, err := stack.Start(t.Context(), stack.Options{Users: []string{"whole"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	w := newWorldOn(t, s, "whole")
	if err := w.admin.CreateNodes(w.bounded(), 1); err != nil {
		t.Fatal(err)
	}
	for _, m := range modes() {
		w.grant(m.kind, w.options(), "")
	}
	trainJob := kinds.WithStartGate(kinds.TrainJob())
	r := w.probeUntil(trainJob, w.options(), lacksOnly())
	mustSay(t, r, probe.RoundTrip, "a hold and its release", probe.Unknown, "the canary was refused", "runtime")

	if err := w.admin.CreateRuntime(w.bounded(), cluster.Runtime{Name: "sleep", Namespace: w.namespace}); err != nil {
		t.Fatal(err)
	}
	w.mayRead("trainer.kubeflow.org", "trainingruntimes")
	w.mayRead("kueue.x-k8s.io", "clusterqueues")
	w.mayRead("kueue.x-k8s.io", "admissionchecks")
	for _, m := range modes() {
		r := w.probeUntil(m.kind, w.options(), func(r probe.Report) string {
			if r.State(meta.OpHold) != probe.Available || r.State(meta.OpRelease) != probe.Available {
				return "not everything is available"
			}
			return ""
		})
		t.Logf("%s\n%s", m.name, r)
	}
	w.mustBecomeEmpty()
	w.gates()
	w.capture()
}

// mayRead lets the user list a resource everywhere.
func (w *world) mayRead(group, resource string) {
	const version = "rbac.authorization.k8s.io/v1"
	rbac := gvr("rbac.authorization.k8s.io", "v1", "clusterroles")
	w.create(rbac, object(version, "ClusterRole", "", resource, map[string]any{"rules": []any{
		map[string]any{"apiGroups": []any{group}, "resources": []any{resource}, "verbs": []any{"get", "list"}},
	}}))
	rbac.Resource = "clusterrolebindings"
	w.create(rbac, object(version, "ClusterRoleBinding", "", resource, map[string]any{
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": resource},
		"subjects": []any{map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": w.user}},
	}))
}

// mustBecomeEmpty waits until the namespace has none of the objects that a
// controller may have made for a canary.
func (w *world) mustBecomeEmpty() {
	w.Helper()
	for _, resource := range []schema.GroupVersionResource{
		cluster.TrainJobs(), cluster.Workloads(), gvr("jobset.x-k8s.io", "v1alpha2", "jobsets"), gvr("batch", "v1", "jobs"), gvr("", "v1", "pods"),
	} {
		err := cluster.Wait(w.bounded(), "the "+resource.Resource+" are gone", func(ctx context.Context) (bool, any, error) {
			list, err := w.admin.Client().Resource(resource).Namespace(w.namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				return false, nil, err
			}
			return len(list.Items) == 0, fmt.Sprintf("%d are left", len(list.Items)), nil
		})
		if err != nil {
			w.Errorf("P2: %v", err)
		}
	}
}

// gates looks for the readmission gate while it is being installed.
func (w *world) gates() {
	kind := kinds.OnKueue(kinds.TrainJob())
	gate := func(state probe.State, words ...string) {
		w.Helper()
		mustSay(w.T, w.probe(kind, w.options()), probe.Environment, "readmission gate", state, words...)
	}
	gate(probe.Unavailable, "no AdmissionCheck has the controller "+probe.DefaultGate)
	ctx := w.bounded()
	if err := w.admin.CreateAdmissionCheck(ctx, "gate", probe.DefaultGate); err != nil {
		w.Fatal(err)
	}
	gate(probe.Unknown, "no ClusterQueue yet")
	if err := w.admin.CreateQueue(ctx, cluster.Queue{Name: "gated", Namespace: w.namespace, AdmissionChecks: []string{"gate"}}); err != nil {
		w.Fatal(err)
	}
	gate(probe.Available)
	if err := w.admin.CreateQueue(ctx, cluster.Queue{Name: "default", Namespace: w.namespace}); err != nil {
		w.Fatal(err)
	}
	gate(probe.Unavailable, "ClusterQueues without it: default")
}

// capture probes in plain mode where Kueue puts every job into the queue named
// default: no canary is made, for it would run.
func (w *world) capture() {
	r := w.probe(kinds.Job(), w.options())
	mustSay(w.T, r, probe.RoundTrip, "a hold and its release", probe.Unavailable, "no canary was made", "Kueue owns it")
	mustSay(w.T, r, probe.Environment, "no Kueue beside plain mode", probe.Unavailable)
	w.mustRefuse(kinds.Job(), r, meta.OpHold, "Kueue owns it")
	w.mustBecomeEmpty()
}
