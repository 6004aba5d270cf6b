package probe_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/kinds"
	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/probe"
	"github.com/kubehold/kubehold/rapidtest"
)

const namespace = "team-a"

// A mode is a kind as it is held.
type mode struct {
	name string
	kind holdable.Kind
}

func modes() []mode {
	return []mode{
		{"KueueTrainJob", kinds.OnKueue(kinds.TrainJob())},
		{"GatedTrainJob", kinds.WithStartGate(kinds.TrainJob())},
		{"Job", kinds.Job()},
		{"JobSet", kinds.JobSet()},
		{"Workload", kinds.Workload()},
		{"ReplicasOfTheCluster", fleet()},
		{"Policy", pipeline()},
		{"Annotation", annotated()},
	}
}

// fleet is a cluster-scoped kind that is paused by a number.
func fleet() holdable.Holdable[int64] {
	return holdable.Holdable[int64]{
		Kind: "Fleet", Resource: resource("example.com", "v1", "fleets"), ClusterScoped: true,
		Pause: holdable.Pause[int64]{Path: holdable.Field("spec", "replicas"), Held: 0, Running: 1, Absent: 1, Resume: holdable.RestoreFound},
	}
}

// pipeline is a kind that is paused by a word.
func pipeline() holdable.Holdable[string] {
	return holdable.Holdable[string]{
		Kind: "Pipeline", Resource: resource("example.com", "v1", "pipelines"),
		Pause: holdable.Pause[string]{Path: holdable.Field("spec", "run", "policy"), Held: "Stop", Running: "Go"},
	}
}

// annotated is a kind that is paused by an annotation.
func annotated() holdable.Holdable[string] {
	return holdable.Holdable[string]{
		Kind: "Scaler", Resource: resource("example.com", "v1", "scalers"),
		Pause: holdable.Pause[string]{Path: holdable.Annotation("example.com/paused"), Held: "true", Resume: holdable.RemoveField},
	}
}

func resource(group, version, resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: version, Resource: resource}
}

// served are the resources of all modes.
func served() []rapidtest.Resource {
	return []rapidtest.Resource{
		rapidtest.TrainJobs(), rapidtest.Workloads(), rapidtest.JobSets(), rapidtest.Jobs(), rapidtest.Pods(), rapidtest.AdmissionChecks(),
		{GVR: resource("example.com", "v1", "fleets"), Kind: "Fleet"},
		{GVR: resource("example.com", "v1", "pipelines"), Kind: "Pipeline", Namespaced: true, StatusSubresource: true, Fields: []string{"spec.run.policy", "spec.copies"}},
		{GVR: resource("example.com", "v1", "scalers"), Kind: "Scaler", Namespaced: true, Fields: []string{"spec.target"}},
		{GVR: resource("kueue.x-k8s.io", "v1beta2", "clusterqueues"), Kind: "ClusterQueue"},
		{GVR: resource("apps", "v1", "deployments"), Kind: "Deployment", Namespaced: true},
	}
}

// newServer is a model with somebody's object of every kind in it.
func newServer(t testing.TB) *rapidtest.Server {
	t.Helper()
	server := rapidtest.NewServer(served()...)
	for _, m := range modes() {
		d := m.kind.Describe()
		obj := object(d.Resource, d.Kind, "somebody", map[string]any{"spec": map[string]any{}})
		if !d.ClusterScoped {
			obj.SetNamespace(namespace)
		}
		create(t, server, d.Resource, obj)
	}
	return server
}

func object(r schema.GroupVersionResource, kind, name string, content map[string]any) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: content}
	obj.SetAPIVersion(r.GroupVersion().String())
	obj.SetKind(kind)
	obj.SetName(name)
	return obj
}

// create makes an object, unless it is there.
func create(t testing.TB, server *rapidtest.Server, r schema.GroupVersionResource, obj *unstructured.Unstructured) {
	t.Helper()
	at := server.Dynamic("admin").Resource(r).Namespace(obj.GetNamespace())
	if _, err := at.Get(context.Background(), obj.GetName(), metav1.GetOptions{}); err == nil {
		return
	}
	if _, err := at.Create(context.Background(), obj, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// snapshot is every object that the model has, byte by byte.
func snapshot(t testing.TB, server *rapidtest.Server) string {
	t.Helper()
	var all []any
	for _, r := range served() {
		list, err := server.Dynamic("admin").Resource(r.GVR).List(context.Background(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, obj := range list.Items {
			all = append(all, obj.Object)
		}
	}
	text, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// optionsFor probes the one namespace of these tests.
func optionsFor(kind holdable.Kind) probe.Options {
	if kind.Describe().ClusterScoped {
		return probe.Options{}
	}
	return probe.Options{Namespaces: []string{namespace}}
}

func mustRun(t testing.TB, cfg *rest.Config, kind holdable.Kind, opts probe.Options) probe.Report {
	t.Helper()
	report, err := probe.Run(context.Background(), cfg, kind, opts)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// find returns the line of a capability.
func find(t testing.TB, r probe.Report, theme probe.Theme, capability string) probe.Line {
	t.Helper()
	for _, l := range r.Lines {
		if l.Theme == theme && strings.HasPrefix(l.Capability, capability) {
			return l
		}
	}
	t.Fatalf("no line %q under %s in\n%s", capability, theme, r)
	return probe.Line{}
}

// mustSay fails unless a line has a state and words, and a remedy where
// something is wrong.
func mustSay(t testing.TB, r probe.Report, theme probe.Theme, capability string, state probe.State, words ...string) {
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
	if l.State == probe.Unavailable && l.Theme != probe.Calls && l.Remedy == "" {
		t.Errorf("%s is unavailable, and nothing says what to do", capability)
	}
}

// mustAllow fails unless a report holds nothing against any call.
func mustAllow(t testing.TB, r probe.Report) {
	t.Helper()
	for _, op := range []meta.Op{meta.OpHold, meta.OpRelease, meta.OpInspect} {
		if r.State(op) != probe.Available {
			t.Errorf("%s is %s in\n%s", op, r.State(op), r)
		}
	}
}

// withTransport returns cfg with something in front of its transport.
func withTransport(cfg *rest.Config, wrap func(http.RoundTripper) http.RoundTripper) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.Transport = wrap(cfg.Transport)
	return cfg
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// answering answers the paths of documents with them, instead of the model.
func answering(cfg *rest.Config, documents map[string]string) *rest.Config {
	return withTransport(cfg, func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			document, ok := documents[req.URL.Path]
			if !ok {
				return next.RoundTrip(req)
			}
			return answer(req, http.StatusOK, document), nil
		})
	})
}

func answer(req *http.Request, code int, body string) *http.Response {
	return &http.Response{
		StatusCode: code, Status: http.StatusText(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: req,
		Header: http.Header{"Content-Type": {"application/json"}, "Date": {time.Now().UTC().Format(http.TimeFormat)}},
		Body:   io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)),
	}
}
