//go:build e2e

package probetest

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/rest"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/kinds"
	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/probe"
	"github.com/kubehold/kubehold/rapidtest/realstack/cluster"
	"github.com/kubehold/kubehold/rapidtest/realstack/stack"
	"github.com/kubehold/kubehold/retry"
)

// waits bounds everything that a test waits for.
const waits = time.Minute

// apiserver is the one that all tests of the package use; each has a namespace
// and a user of its own.
var apiserver *stack.Stack

func TestMain(m *testing.M) { os.Exit(withAPIServer(m.Run)) }

func withAPIServer(run func() int) int {
	var err error
	apiserver, err = stack.Start(context.Background(), stack.Options{APIServerOnly: true, Users: users()})
	if err != nil {
		log.Print(err)
		return 1
	}
	status := run()
	if err := apiserver.Stop(); err != nil {
		log.Print(err)
		return 1
	}
	return status
}

// users are the names of those who have no rights to begin with.
func users() []string {
	names := []string{
		"everything", "no-update", "no-pods", "nothing", "stripped", "refused", "lacking", "versions", "definitions", "dry-run", "no-trace", "killed",
	}
	for _, m := range modes() {
		names = append(names, m.name)
	}
	return names
}

// A mode is a kind as it is held.
type mode struct {
	name string
	kind holdable.Kind
}

func modes() []mode {
	return []mode{
		{"kueue-trainjob", kinds.OnKueue(kinds.TrainJob())},
		{"plain-trainjob", kinds.WithStartGate(kinds.TrainJob())},
		{"plain-job", kinds.Job()},
		{"plain-jobset", kinds.JobSet()},
		{"workload", kinds.Workload()},
	}
}

// A world is a namespace with a user in it.
type world struct {
	*testing.T
	stack     *stack.Stack
	admin     *cluster.Cluster
	namespace string
	user      string
}

func newWorld(t *testing.T, user string) *world { return newWorldOn(t, apiserver, user) }

func newWorldOn(t *testing.T, s *stack.Stack, user string) *world {
	t.Helper()
	admin, err := cluster.New(s.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	w := &world{T: t, stack: s, admin: admin, namespace: "of-" + user + "-" + rand.String(5), user: user}
	w.create(gvr("", "v1", "namespaces"), object("v1", "Namespace", "", w.namespace, nil))
	return w
}

// bounded is the context of one wait.
func (w *world) bounded() context.Context {
	ctx, cancel := context.WithTimeout(w.Context(), waits)
	w.Cleanup(cancel)
	return ctx
}

func gvr(group, version, resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: version, Resource: resource}
}

func object(apiVersion, kind, namespace, name string, content map[string]any) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: map[string]any{}}
	for k, v := range content {
		obj.Object[k] = v
	}
	obj.SetAPIVersion(apiVersion)
	obj.SetKind(kind)
	obj.SetName(name)
	if namespace != "" {
		obj.SetNamespace(namespace)
	}
	return obj
}

// create makes an object as the administrator, and removes it after the test.
func (w *world) create(resource schema.GroupVersionResource, obj *unstructured.Unstructured) {
	w.Helper()
	at := w.admin.Client().Resource(resource).Namespace(obj.GetNamespace())
	if _, err := at.Create(w.Context(), obj, metav1.CreateOptions{}); err != nil {
		w.Fatalf("creating %s %s: %v", obj.GetKind(), obj.GetName(), err)
	}
	w.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), waits)
		defer cancel()
		_ = at.Delete(ctx, obj.GetName(), metav1.DeleteOptions{}) // it may be gone
	})
}

func (w *world) config() *rest.Config {
	w.Helper()
	cfg, err := w.stack.RESTConfigFor(w.user)
	if err != nil {
		w.Fatal(err)
	}
	cfg.QPS = -1
	return cfg
}

func (w *world) options() probe.Options {
	return probe.Options{Namespaces: []string{w.namespace}, Settle: 50 * time.Millisecond}
}

func (w *world) probe(kind holdable.Kind, opts probe.Options) probe.Report {
	w.Helper()
	report, err := probe.Run(w.bounded(), w.config(), kind, opts)
	if err != nil {
		w.Fatal(err)
	}
	return report
}

// grant applies the manifest of a mode, with drop taken out: "verb resource".
func (w *world) grant(kind holdable.Kind, opts probe.Options, drop string) {
	w.Helper()
	manifest, err := probe.Manifest(kind, opts, w.user)
	if err != nil {
		w.Fatal(err)
	}
	for _, obj := range documents(w.T, manifest) {
		without(obj, drop)
		resource := gvr("rbac.authorization.k8s.io", "v1", strings.ToLower(obj.GetKind())+"s")
		at := w.admin.Client().Resource(resource).Namespace(obj.GetNamespace())
		if _, err := at.Apply(w.Context(), obj.GetName(), obj, metav1.ApplyOptions{FieldManager: "test", Force: true}); err != nil {
			w.Fatalf("applying %s %s: %v", obj.GetKind(), obj.GetName(), err)
		}
	}
}

// probeUntil probes again until the report is as it should be: the authorizer
// learns of a change a little later.
func (w *world) probeUntil(kind holdable.Kind, opts probe.Options, right func(probe.Report) string) probe.Report {
	w.Helper()
	var report probe.Report
	err := cluster.Wait(w.bounded(), "the report is right", func(context.Context) (bool, any, error) {
		report = w.probe(kind, opts)
		wrong := right(report)
		return wrong == "", wrong, nil
	})
	if err != nil {
		w.Fatalf("%v\n%s", err, report)
	}
	return report
}

// unavailable are the capabilities of a theme that a report says are not there.
func unavailable(r probe.Report, theme probe.Theme) []string {
	var names []string
	for _, l := range r.Lines {
		if l.Theme == theme && l.State == probe.Unavailable {
			names = append(names, l.Capability)
		}
	}
	return names
}

// lacksOnly says whether a report names these as missing and no others.
func lacksOnly(names ...string) func(probe.Report) string {
	return func(r probe.Report) string {
		if got := unavailable(r, probe.Access); !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(names))) {
			return fmt.Sprintf("missing are %q, not %q", got, names)
		}
		return ""
	}
}

func find(t *testing.T, r probe.Report, theme probe.Theme, capability string) probe.Line {
	t.Helper()
	for _, l := range r.Lines {
		if l.Theme == theme && strings.HasPrefix(l.Capability, capability) {
			return l
		}
	}
	t.Fatalf("no line %q under %s in\n%s", capability, theme, r)
	return probe.Line{}
}

// mustSay fails unless a line has a state and words.
func mustSay(t *testing.T, r probe.Report, theme probe.Theme, capability string, state probe.State, words ...string) {
	t.Helper()
	l := find(t, r, theme, capability)
	if l.State != state {
		t.Errorf("%s is %s, not %s, in\n%s", capability, l.State, state, r)
	}
	for _, word := range words {
		if !strings.Contains(l.Why, word) {
			t.Errorf("%s says %q, without %q", capability, l.Why, word)
		}
	}
}

// mustRefuse fails unless a client that uses the report refuses a call before
// anything is sent, with the reason (rule C5).
func (w *world) mustRefuse(kind holdable.Holdable[bool], r probe.Report, op meta.Op, reason string) {
	w.Helper()
	client, err := holdable.New(kind, w.config(), retry.Options{}, holdable.Options{})
	if err != nil {
		w.Fatal(err)
	}
	ref := meta.Ref{Namespace: w.namespace, Name: "any"}
	call := meta.Call{Instance: 1, Deadline: time.Now().Add(10 * time.Second)}
	holder := client.Use(r)
	switch op {
	case meta.OpHold:
		_, err = holder.Hold(w.Context(), ref, call)
	case meta.OpRelease:
		_, err = holder.Release(w.Context(), ref, call)
	case meta.OpInspect:
		_, err = holder.Inspect(w.Context(), ref)
	}
	failed := new(meta.Error)
	if !errors.Is(err, meta.ErrUnsupported) || !errors.As(err, &failed) || failed.Tries != 0 {
		w.Errorf("C5: %s is %v", op, err)
	}
	if err == nil || !strings.Contains(err.Error(), reason) {
		w.Errorf("C5: %s does not say %q: %v", op, reason, err)
	}
}

// Four identities, of which each report is right and each refusal has its
// reason.
func TestP1P3C5ReportsOfIdentities(t *testing.T) {
	onKueue, plain := kinds.OnKueue(kinds.TrainJob()), kinds.TrainJob()
	t.Run("everything", func(t *testing.T) {
		w := newWorld(t, "everything")
		w.grant(onKueue, w.options(), "")
		r := w.probeUntil(onKueue, w.options(), lacksOnly())
		for _, op := range []meta.Op{meta.OpHold, meta.OpRelease, meta.OpInspect} {
			if r.State(op) != probe.Available || r.Unavailable(meta.Object{Kind: "TrainJob", Ref: meta.Ref{Namespace: w.namespace}}, op) != "" {
				t.Errorf("%s is %s in\n%s", op, r.State(op), r)
			}
		}
		if r.Identity != w.user || r.Manifest != "" {
			t.Errorf("asked as %q, with manifest %q", r.Identity, r.Manifest)
		}
		t.Logf("the report of one who may do everything:\n%s", r)
	})
	t.Run("no update on workloads", func(t *testing.T) {
		w := newWorld(t, "no-update")
		const missing = "update workloads.kueue.x-k8s.io"
		w.grant(onKueue, w.options(), missing)
		r := w.probeUntil(onKueue, w.options(), lacksOnly(missing))
		w.mustRefuse(onKueue, r, meta.OpHold, missing)
		w.mustRefuse(onKueue, r, meta.OpRelease, missing)
		if r.State(meta.OpInspect) != probe.Available {
			t.Errorf("Inspect is %s in\n%s", r.State(meta.OpInspect), r)
		}
	})
	t.Run("no list on pods", func(t *testing.T) {
		w := newWorld(t, "no-pods")
		w.grant(plain, w.options(), "list pods")
		r := w.probeUntil(plain, w.options(), lacksOnly("list pods"))
		w.mustRefuse(plain, r, meta.OpRelease, "list pods")
		w.mustRefuse(plain, r, meta.OpInspect, "list pods")
		if find(t, r, probe.Calls, "Hold").State == probe.Unavailable {
			t.Errorf("a hold lists no pods, and is unavailable in\n%s", r)
		}
	})
	t.Run("nothing", func(t *testing.T) {
		w := newWorld(t, "nothing")
		r := w.probe(onKueue, w.options())
		if wrong := lacksOnly("get trainjobs.trainer.kubeflow.org", "get workloads.kueue.x-k8s.io", "list workloads.kueue.x-k8s.io",
			"update workloads.kueue.x-k8s.io", "list pods", "create workloads.kueue.x-k8s.io", "delete workloads.kueue.x-k8s.io")(r); wrong != "" {
			t.Errorf("%s in\n%s", wrong, r)
		}
		for _, op := range []meta.Op{meta.OpHold, meta.OpRelease, meta.OpInspect} {
			w.mustRefuse(onKueue, r, op, "get trainjobs.trainer.kubeflow.org")
		}
		if r.Manifest == "" {
			t.Error("no manifest to apply")
		}
		t.Logf("the report of one who may nothing:\n%s", r)
	})
}

// The generated Roles are enough for a fresh identity, and without any one verb
// of any one rule the probe names exactly what is missing.
func TestP1TheGeneratedRoleIsMinimal(t *testing.T) {
	for _, m := range modes() {
		t.Run(m.name, func(t *testing.T) {
			w := newWorld(t, m.name)
			w.grant(m.kind, w.options(), "")
			r := w.probeUntil(m.kind, w.options(), lacksOnly())
			if r.State(meta.OpHold) != probe.Available || r.State(meta.OpRelease) != probe.Available {
				t.Fatalf("not enough:\n%s", r)
			}
			w.mustLeaveNothing(m.kind)
			for _, missing := range granted(t, m.kind, w.options()) {
				w.grant(m.kind, w.options(), missing)
				w.probeUntil(m.kind, w.options(), lacksOnly(missing))
			}
			// Applied as it is, the manifest puts it right.
			w.grant(m.kind, w.options(), "")
			w.probeUntil(m.kind, w.options(), lacksOnly())
		})
	}
}

// mustLeaveNothing fails if an object of the held kind is in the namespace.
func (w *world) mustLeaveNothing(kind holdable.Kind) {
	w.Helper()
	list, err := w.admin.Client().Resource(kind.Describe().Resource).Namespace(w.namespace).List(w.Context(), metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	for _, obj := range list.Items {
		w.Errorf("P2: %s %s was left behind", obj.GetKind(), obj.GetName())
	}
}
