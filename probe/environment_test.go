package probe_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/kinds"
	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/probe"
	"github.com/kubehold/kubehold/rapidtest"
	"github.com/kubehold/kubehold/retry"
)

// The rate limit of the real client, in the holds that it lets through.
func TestP3Pace(t *testing.T) {
	for _, tt := range []struct {
		name  string
		kind  holdable.Kind
		set   func(*rest.Config)
		state probe.State
		says  string
	}{
		{"ClientGosDefault", kinds.Job(), func(c *rest.Config) { c.QPS = 0 }, probe.Unavailable, "5 requests a second, bursts of 10: 2.5 holds a second"},
		{"ClientGosDefaultInKueueMode", kinds.OnKueue(kinds.Job()), func(c *rest.Config) { c.QPS = 0 }, probe.Unavailable, "1.67 holds a second"},
		{"Enough", kinds.Job(), func(c *rest.Config) { c.QPS, c.Burst = 100, 200 }, probe.Available, "50 holds a second"},
		{"NoLimit", kinds.Job(), func(c *rest.Config) { c.QPS = -1 }, probe.Available, "no limit"},
		{"ALimiterOfItsOwn", kinds.Job(), func(c *rest.Config) { c.RateLimiter = flowcontrol.NewFakeAlwaysRateLimiter() }, probe.Unknown, "of its own"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := newServer(t).RESTConfig("probe")
				tt.set(cfg)
				begin := time.Now()
				r := mustRun(t, cfg, tt.kind, optionsFor(tt.kind))
				mustSay(t, r, probe.Environment, "calls do not wait in the client", tt.state, tt.says)
				if took := time.Since(begin); took > probe.DefaultSettle {
					t.Errorf("the probe itself waited for the limit: it took %v", took)
				}
				if r.State(meta.OpHold) != probe.Available {
					t.Errorf("advice holds Hold back:\n%s", r)
				}
			})
		})
	}
}

// The apiserver's clock beside the deadlines and the margin of CallBound.
func TestP3Clock(t *testing.T) {
	for _, tt := range []struct {
		name  string
		ahead time.Duration
		opts  probe.Options
		state probe.State
		says  string
	}{
		{"Agrees", 0, probe.Options{}, probe.Available, "deadlines lie 10s ahead, the margin of CallBound is 5s"},
		{"WithinTheMargin", 3 * time.Second, probe.Options{}, probe.Available, "between 3s and 4s ahead"},
		{"BeyondTheMargin", 8 * time.Second, probe.Options{}, probe.Unavailable, "between 8s and 9s ahead"},
		{"Behind", -8 * time.Second, probe.Options{}, probe.Unavailable, "between -8s and -7s ahead"},
		{"BeyondTheDeadlines", 3 * time.Second, probe.Options{Deadline: 4 * time.Second}, probe.Unavailable, "deadlines lie 4s ahead"},
		{"WithinALargerMargin", 8 * time.Second, probe.Options{Deadline: time.Minute, Engine: retry.Options{CallBound: 90 * time.Second}}, probe.Available, "the margin of CallBound is 30s"},
		{"OfAShorterTimeout", 3 * time.Second, probe.Options{Engine: retry.Options{RequestTimeout: 5 * time.Second, CallBound: 6 * time.Second}}, probe.Unavailable, "the margin of CallBound is 1s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tt.opts.Namespaces = []string{namespace}
				r := mustRun(t, dated(newServer(t).RESTConfig("probe"), tt.ahead), kinds.Job(), tt.opts)
				mustSay(t, r, probe.Environment, "clocks agree", tt.state, tt.says)
			})
		})
	}
	t.Run("NoDate", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			cfg := withTransport(newServer(t).RESTConfig("probe"), func(next http.RoundTripper) http.RoundTripper {
				return roundTripper(func(req *http.Request) (*http.Response, error) {
					resp, err := next.RoundTrip(req)
					if err == nil {
						resp.Header.Del("Date")
					}
					return resp, err
				})
			})
			mustSay(t, mustRun(t, cfg, kinds.Job(), optionsFor(kinds.Job())), probe.Environment, "clocks agree", probe.Unknown, "no answer had a Date")
		})
	})
}

// The apiserver's latency beside the deadlines and CallBound.
func TestP3Latency(t *testing.T) {
	for _, tt := range []struct {
		name  string
		takes time.Duration
		state probe.State
		says  string
	}{
		{"Fast", 20 * time.Millisecond, probe.Available, "20ms in the middle and 20ms at most"},
		{"Slow", 6 * time.Second, probe.Unavailable, "a hold takes 2, deadlines lie 10s ahead, CallBound is 1m5s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := withTransport(newServer(t).RESTConfig("probe"), func(next http.RoundTripper) http.RoundTripper {
					return roundTripper(func(req *http.Request) (*http.Response, error) {
						time.Sleep(tt.takes)
						return next.RoundTrip(req)
					})
				})
				opts := optionsFor(kinds.Job())
				opts.Timeout = time.Hour
				mustSay(t, mustRun(t, cfg, kinds.Job(), opts), probe.Environment, "the apiserver answers in time", tt.state, tt.says)
			})
		})
	}
}

// The readmission gate, by the AdmissionChecks of ClusterQueues.
func TestP3Gate(t *testing.T) {
	const other = "example.com/quota"
	check := func(name, controller, active string) map[string]any {
		return map[string]any{"metadata": map[string]any{"name": name}, "spec": map[string]any{"controllerName": controller},
			"status": map[string]any{"conditions": []any{map[string]any{"type": "Active", "status": active}}}}
	}
	rules := func(rules ...any) map[string]any {
		return map[string]any{"admissionChecksStrategy": map[string]any{"admissionChecks": rules}}
	}
	rule := func(name string, flavors ...any) map[string]any {
		return map[string]any{"name": name, "onFlavors": flavors}
	}
	queue := func(name string, spec map[string]any) map[string]any {
		return map[string]any{"metadata": map[string]any{"name": name}, "spec": spec}
	}
	gate := check("gate", probe.DefaultGate, "True")
	for _, tt := range []struct {
		name   string
		checks []any
		queues []any
		state  probe.State
		says   string
	}{
		{"None", nil, nil, probe.Unavailable, "no AdmissionCheck has the controller " + probe.DefaultGate},
		{"AnotherController", []any{check("quota", other, "True")}, nil, probe.Unavailable, "no AdmissionCheck"},
		{"NotActive", []any{check("gate", probe.DefaultGate, "False")}, []any{queue("a", rules(rule("gate")))}, probe.Unavailable, "not Active"},
		{"NoQueue", []any{gate}, nil, probe.Unknown, "no ClusterQueue"},
		{"InOne", []any{gate}, []any{queue("a", rules(rule("gate")))}, probe.Available, "in every ClusterQueue"},
		{"InTheOldField", []any{gate}, []any{queue("a", map[string]any{"admissionChecks": []any{"gate"}})}, probe.Available, ""},
		{"BesideOthers", []any{gate, check("quota", other, "True")}, []any{queue("a", rules(rule("quota"), rule("gate")))}, probe.Available, ""},
		{"OneWithout", []any{gate}, []any{queue("a", rules(rule("gate"))), queue("b", rules(rule("quota"))), queue("c", nil)}, probe.Unavailable, "ClusterQueues without it: b, c"},
		{"ForSomeFlavors", []any{gate}, []any{queue("a", rules(rule("gate", "spot")))}, probe.Unavailable, "ClusterQueues without it: a"},
		{"ManyWithout", []any{gate}, []any{queue("a", nil), queue("b", nil), queue("c", nil), queue("d", nil), queue("e", nil)}, probe.Unavailable, "a, b, c and 2 more"},
		{"OutOfShape", []any{gate, map[string]any{"metadata": map[string]any{"name": "x"}, "spec": "no"}}, []any{queue("a", rules("gate", rule("gate")))}, probe.Available, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				kind := kinds.OnKueue(kinds.TrainJob())
				cfg := answering(newServer(t).RESTConfig("probe"), map[string]string{
					"/apis/kueue.x-k8s.io/v1beta2/admissionchecks": listOf(t, "AdmissionCheck", tt.checks),
					"/apis/kueue.x-k8s.io/v1beta2/clusterqueues":   listOf(t, "ClusterQueue", tt.queues),
				})
				r := mustRun(t, cfg, kind, optionsFor(kind))
				mustSay(t, r, probe.Environment, "readmission gate", tt.state, tt.says)
				mustAllow(t, r) // it is advice
				opts := optionsFor(kind)
				opts.Gate = "example.com/nobody"
				if l := find(t, mustRun(t, cfg, kind, opts), probe.Environment, "readmission gate"); l.State == probe.Available {
					t.Errorf("of another controller: %+v", l)
				}
			})
		})
	}
}

func listOf(t *testing.T, kind string, items []any) string {
	t.Helper()
	list := &unstructured.Unstructured{Object: map[string]any{"items": []any{}}}
	for _, item := range items {
		object := item.(map[string]any)
		object["kind"], object["apiVersion"] = kind, "kueue.x-k8s.io/v1beta2"
		list.Object["items"] = append(list.Object["items"].([]any), object)
	}
	list.SetKind(kind + "List")
	list.SetAPIVersion("kueue.x-k8s.io/v1beta2")
	text, err := list.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// What may not be listed is unknown, and the remedy says what to allow.
func TestP3GateThatCannotBeSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, hidden := range []string{"admissionchecks", "clusterqueues"} {
			server := newServer(t)
			forbid("list", hidden)(server)
			kind := kinds.Workload()
			r := mustRun(t, server.RESTConfig("probe"), kind, optionsFor(kind))
			mustSay(t, r, probe.Environment, "readmission gate", probe.Unknown, hidden+" could not be listed")
		}
	})
}

// Kueue beside plain mode.
func TestP3KueueBesidePlainMode(t *testing.T) {
	const capability = "no Kueue beside plain mode"
	synctest.Test(t, func(t *testing.T) {
		with := newServer(t)
		mustSay(t, mustRun(t, with.RESTConfig("probe"), kinds.Job(), optionsFor(kinds.Job())), probe.Environment, capability, probe.Unavailable, "Kueue is installed")
		without := rapidtest.NewServer(rapidtest.Jobs(), rapidtest.Pods())
		mustSay(t, mustRun(t, without.RESTConfig("probe"), kinds.Job(), optionsFor(kinds.Job())), probe.Environment, capability, probe.Available)
		down := answering(with.RESTConfig("probe"), map[string]string{"/apis/kueue.x-k8s.io": "no JSON"})
		mustSay(t, mustRun(t, down, kinds.Job(), optionsFor(kinds.Job())), probe.Environment, capability, probe.Unknown, "discovery failed")
		for _, l := range mustRun(t, with.RESTConfig("probe"), pipeline(), optionsFor(pipeline())).Lines {
			if l.Capability == capability {
				t.Error("a kind that Kueue does not know is warned of it")
			}
		}
	})
}

// Kueue and Trainer, by their Deployments or by the schema of TrainJob.
func TestP3Versions(t *testing.T) {
	deployment := func(project, label, image string) map[string]any {
		return map[string]any{
			"metadata": map[string]any{"name": project, "namespace": project, "labels": map[string]any{
				"app.kubernetes.io/name": project, "app.kubernetes.io/version": label,
			}},
			"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"image": image}}}}},
		}
	}
	for _, tt := range []struct {
		name        string
		deployments []any
		schema      string
		state       probe.State
		says        string
	}{
		{"Good", []any{deployment("kueue", "v0.17.0", ""), deployment("trainer", "2.2.0", "")}, "", probe.Available, "Kueue 0.17.0 with Trainer 2.2.0"},
		{"Bad", []any{deployment("kueue", "v0.17.1", ""), deployment("trainer", "v2.1.0", "")}, "", probe.Unavailable, "never starts"},
		{"Older", []any{deployment("kueue", "v0.16.2", ""), deployment("trainer", "v2.1.0", "")}, "", probe.Available, "Kueue 0.16.2"},
		{"ByImage", []any{deployment("kueue", "", "registry.example.com:5000/kueue:v0.18.0@sha256:00"), deployment("trainer", "", "trainer:v2.0.1")}, "", probe.Unavailable, "Kueue 0.18.0 with Trainer 2.0.1"},
		{"ImagesWithoutVersions", []any{deployment("kueue", "", "registry.example.com:5000/kueue"), deployment("trainer", "", "trainer:latest")}, "", probe.Unknown, "cannot be told"},
		{"None", nil, "", probe.Unknown, "cannot be told"},
		{"NewEnoughBySchema", nil, `{"runtimePatches": {"type": "array"}}`, probe.Available, "by the schema of TrainJob"},
		{"TooOldBySchema", nil, `{"podTemplateOverrides": {"type": "array"}}`, probe.Unknown, "cannot be told"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				documents := map[string]string{"/apis/apps/v1/deployments": listOf(t, "Deployment", tt.deployments)}
				if tt.schema != "" {
					documents["/openapi/v3/apis/trainer.kubeflow.org/v1alpha1"] = `{"components": {"schemas": {"TrainJob": {
						"x-kubernetes-group-version-kind": [{"group": "trainer.kubeflow.org", "version": "v1alpha1", "kind": "TrainJob"}],
						"properties": {"spec": {"type": "object", "properties": ` + tt.schema + `}}}}}}`
				}
				kind := kinds.OnKueue(kinds.TrainJob())
				r := mustRun(t, answering(newServer(t).RESTConfig("probe"), documents), kind, optionsFor(kind))
				mustSay(t, r, probe.Environment, "Kueue and Trainer go together", tt.state, tt.says)
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		server := newServer(t)
		forbid("list", "deployments")(server)
		kind := kinds.OnKueue(kinds.TrainJob())
		r := mustRun(t, server.RESTConfig("probe"), kind, optionsFor(kind))
		mustSay(t, r, probe.Environment, "Kueue and Trainer go together", probe.Unknown, "their versions cannot be read")
	})
}
