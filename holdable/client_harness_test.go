package holdable_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"pgregory.net/rapid"

	"github.com/samber/lo"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/kinds"
	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/rapidtest"
	"github.com/kubehold/kubehold/retry"
)

func trainJobs() schema.GroupVersionResource { return rapidtest.TrainJobs().GVR }
func workloads() schema.GroupVersionResource { return rapidtest.Workloads().GVR }
func jobs() schema.GroupVersionResource      { return rapidtest.Jobs().GVR }
func pods() schema.GroupVersionResource      { return rapidtest.Pods().GVR }

// The modes under test.
func plain() holdable.Holdable[bool] { return kinds.TrainJob() }
func gated() holdable.Holdable[bool] { return kinds.WithStartGate(kinds.TrainJob()) }
func kueue() holdable.Holdable[bool] { return kinds.OnKueue(kinds.TrainJob()) }

// A cluster is an apiserver with a TrainJob named job in the namespace ns, and
// clients for it over HTTP. It lives in a synctest bubble.
type cluster struct {
	rapid.TB
	server *rapidtest.Server
	plan   *rapidtest.Plan
	wire   *wire
	config *rest.Config
	// others is a client of somebody else, whom nothing bothers.
	others dynamic.Interface
	job    types.UID

	mu    sync.Mutex
	hooks []func(*rapidtest.Request)
}

func newCluster(t rapid.TB, rules ...rapidtest.Rule) *cluster {
	t.Helper()
	return newClusterOf(t, trainJob("job"), rules...)
}

func newClusterOf(t rapid.TB, job *unstructured.Unstructured, rules ...rapidtest.Rule) *cluster {
	t.Helper()
	c := &cluster{TB: t, plan: rapidtest.NewPlan(rules...)}
	c.server = rapidtest.NewServer(rapidtest.TrainJobs(), rapidtest.JobSets(), rapidtest.Jobs(), rapidtest.Workloads(), rapidtest.Pods())
	c.others = c.server.Dynamic("others")
	c.job = c.create(trainJobs(), job).GetUID()
	c.config = c.server.RESTConfig("us", c.runHooks, c.plan.Middleware)
	c.wire = &wire{next: c.config.Transport}
	c.config.Transport = c.wire
	return c
}

// newKueueCluster has a Workload for the TrainJob besides.
func newKueueCluster(t rapid.TB, rules ...rapidtest.Rule) *cluster {
	t.Helper()
	c := newCluster(t, rules...)
	c.create(workloads(), workload("wl", c.job))
	return c
}

// client is the client of a kind over HTTP, as a user makes it.
func (c *cluster) client(kind holdable.Holdable[bool]) *holdable.Client[bool] {
	c.Helper()
	return c.clientWith(kind, holdable.Options{})
}

func (c *cluster) clientWith(kind holdable.Holdable[bool], opts holdable.Options) *holdable.Client[bool] {
	c.Helper()
	client, err := holdable.New(kind, c.config, engineOptions(), opts)
	c.check(err)
	return client
}

// engineOptions has waits of 10 ms, 20 ms, 40 ms and so on, without jitter.
func engineOptions() retry.Options {
	return retry.Options{Backoff: wait.Backoff{Duration: 10 * time.Millisecond, Factor: 2}}
}

// check fails the test for what can only go wrong if the test itself is wrong.
func (c *cluster) check(err error) {
	c.Helper()
	if err != nil {
		c.Errorf("not what is tested: %v", err)
	}
}

func (c *cluster) runHooks(next rapidtest.RoundTrip) rapidtest.RoundTrip {
	return func(ctx context.Context, req *rapidtest.Request) (*rapidtest.Response, error) {
		c.mu.Lock()
		hooks := slices.Clone(c.hooks)
		c.mu.Unlock()
		for _, hook := range hooks {
			hook(req)
		}
		return next(ctx, req)
	}
}

// before has do run before our n-th request of a verb reaches the server.
func (c *cluster) before(verb string, n int, do func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := 0
	c.hooks = append(c.hooks, func(req *rapidtest.Request) {
		if req.Verb == verb {
			if seen++; seen == n {
				do()
			}
		}
	})
}

// What others do.

func (c *cluster) create(gvr schema.GroupVersionResource, obj *unstructured.Unstructured) *unstructured.Unstructured {
	c.Helper()
	status := obj.Object["status"]
	created, err := c.others.Resource(gvr).Namespace("ns").Create(context.Background(), obj, metav1.CreateOptions{})
	c.check(err)
	if status == nil {
		return created
	}
	created.Object["status"] = status
	created, err = c.others.Resource(gvr).Namespace("ns").UpdateStatus(context.Background(), created, metav1.UpdateOptions{})
	c.check(err)
	return created
}

func (c *cluster) remove(gvr schema.GroupVersionResource, name string) {
	c.Helper()
	c.check(c.others.Resource(gvr).Namespace("ns").Delete(context.Background(), name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
}

// patch has no precondition, so that it conflicts with nobody.
func (c *cluster) patch(gvr schema.GroupVersionResource, name, body string, subresource ...string) {
	c.Helper()
	_, err := c.others.Resource(gvr).Namespace("ns").Patch(
		context.Background(), name, types.MergePatchType, []byte(body), metav1.PatchOptions{}, subresource...)
	c.check(err)
}

// touch makes a commit that changes nothing which a hold looks at.
func (c *cluster) touch(gvr schema.GroupVersionResource, name string) {
	c.Helper()
	c.patch(gvr, name, fmt.Sprintf(`{"metadata":{"labels":{"touched":"v%d"}}}`, c.server.ResourceVersion()))
}

// condition sets the conditions of an object to one that is True.
func (c *cluster) condition(gvr schema.GroupVersionResource, name, condition string) {
	c.Helper()
	c.patch(gvr, name, fmt.Sprintf(`{"status":{"conditions":[{"type":%q,"status":"True"}]}}`, condition), "status")
}

// place has another supervisor hold an object of its own accord, without a
// client: what a hold is made of, in one patch.
func (c *cluster) place(gvr schema.GroupVersionResource, name string, instance int64) {
	c.Helper()
	hold := meta.Hold{Instance: instance, Holder: "others", Found: meta.FoundRunning, UID: c.stored(gvr, name).GetUID(), Since: time.Now()}
	annotations := lo.MapToSlice(meta.Keys{}.Annotations(hold), func(k, v string) string { return fmt.Sprintf("%q:%q", k, v) })
	field := lo.Ternary(gvr == workloads(), `"active":false`, `"suspend":true`)
	c.patch(gvr, name, fmt.Sprintf(`{"metadata":{"annotations":{%s}},"spec":{%s}}`, strings.Join(annotations, ","), field))
}

// lift takes the annotations of a hold off and leaves the object paused.
func (c *cluster) lift(gvr schema.GroupVersionResource, name string) {
	c.Helper()
	nulls := lo.Map(meta.Keys{}.OfHold(), func(key string, _ int) string { return fmt.Sprintf("%q:null", key) })
	c.patch(gvr, name, fmt.Sprintf(`{"metadata":{"annotations":{%s}}}`, strings.Join(nulls, ",")))
}

// stored returns a copy of an object as it is now.
func (c *cluster) stored(gvr schema.GroupVersionResource, name string) *unstructured.Unstructured {
	c.Helper()
	obj := c.server.Stored(gvr, "ns", name)
	if obj == nil {
		c.Fatalf("there is no %s %s", gvr.Resource, name)
	}
	return obj.DeepCopy()
}

// instance is what the annotation says, "" if there is none.
func (c *cluster) instance(gvr schema.GroupVersionResource, name string) string {
	c.Helper()
	return c.stored(gvr, name).GetAnnotations()[meta.Keys{}.Instance()]
}

// suspended is what spec.suspend reads.
func (c *cluster) suspended(gvr schema.GroupVersionResource, name string) bool {
	c.Helper()
	v, _, err := unstructured.NestedBool(c.stored(gvr, name).Object, "spec", "suspend")
	c.check(err)
	return v
}

// commits are our own.
func (c *cluster) commits() []rapidtest.Commit {
	return lo.Filter(c.server.History(), func(commit rapidtest.Commit, _ int) bool { return commit.Request.User == "us" })
}

// updates counts those that were transmitted.
func (c *cluster) updates() int {
	return lo.CountBy(c.plan.Events(), func(e rapidtest.Event) bool { return e.Request.Verb == rapidtest.VerbUpdate })
}

// failed returns the error of a call that failed as that kind, with that to say
// of its writes.
func (c *cluster) failed(err error, kind meta.Sentinel, fate meta.Fate) *meta.Error {
	c.Helper()
	var e *meta.Error
	if !errors.As(err, &e) {
		c.Fatalf("not a *meta.Error: %v\n%s", err, c.plan.Timeline())
	}
	if !errors.Is(err, kind) || e.Fate != fate {
		c.Fatalf("%v, fate %v: want %v, fate %v\n%s", err, e.Fate, kind, fate, c.plan.Timeline())
	}
	return e
}

// did is an error of the test unless the call has done that.
func (c *cluster) did(r holdable.Receipt, err error, want holdable.Did) holdable.Receipt {
	c.Helper()
	if err != nil {
		c.Fatalf("%v\n%s", err, c.plan.Timeline())
	}
	if r.Did != want {
		c.Errorf("it did %q (%s), want %q\n%s", r.Did, r.Why, want, c.plan.Timeline())
	}
	return r
}

// job is how the calls name the TrainJob.
func job() meta.Ref { return meta.Ref{Namespace: "ns", Name: "job"} }

// call is a call of an instance with a minute to its deadline.
func call(instance int64) meta.Call {
	return meta.Call{Instance: instance, Deadline: time.Now().Add(time.Minute), Holder: "tests", Reason: "to see"}
}

func trainJob(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "trainer.kubeflow.org/v1alpha1",
		"kind":       "TrainJob",
		"metadata":   map[string]any{"namespace": "ns", "name": name},
		"spec":       map[string]any{"runtimeRef": map[string]any{"name": "torch"}},
	}}
}

// stopped is a job as Kueue leaves it while it waits.
func stopped(job *unstructured.Unstructured) *unstructured.Unstructured {
	job.Object["spec"] = map[string]any{"suspend": true}
	return job
}

// workload is one that Kueue has made for the job with that UID.
func workload(name string, job types.UID) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "kueue.x-k8s.io/v1beta2",
		"kind":       "Workload",
		"metadata": map[string]any{
			"namespace": "ns", "name": name,
			"labels": map[string]any{"kueue.x-k8s.io/job-uid": string(job)},
			"ownerReferences": []any{map[string]any{
				"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "name": "job", "uid": string(job), "controller": true,
			}},
		},
		"spec": map[string]any{"queueName": "main"},
	}}
}

// pod is a running pod of the TrainJob of that name.
func pod(name, job string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1",
		"kind":       "Pod",
		"metadata": map[string]any{
			"namespace": "ns", "name": name,
			"labels": map[string]any{"jobset.sigs.k8s.io/jobset-name": job},
		},
		"spec":   map[string]any{"nodeName": "node", "containers": []any{map[string]any{"name": "main"}}},
		"status": map[string]any{"phase": "Running"},
	}}
}

// ended is the pod with its containers terminated.
func ended(pod *unstructured.Unstructured) *unstructured.Unstructured {
	pod.Object["status"] = map[string]any{
		"phase":             "Failed",
		"containerStatuses": []any{map[string]any{"name": "main", "state": map[string]any{"terminated": map[string]any{"exitCode": int64(143)}}}},
	}
	return pod
}

// A wire writes down what client-go transmits.
type wire struct {
	next http.RoundTripper
	mu   sync.Mutex
	sent []*http.Request
}

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	w.sent = append(w.sent, r)
	w.mu.Unlock()
	return w.next.RoundTrip(r)
}

// take returns what was transmitted since it was last called, as in "GET
// trainjobs/job" and "GET pods?labelSelector=...".
func (w *wire) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for _, r := range w.sent {
		_, what, _ := strings.Cut(r.URL.Path, "/namespaces/ns/")
		line := r.Method + " " + what
		if selector := r.URL.Query().Get("labelSelector"); selector != "" {
			line += "?" + selector
		}
		out = append(out, line)
	}
	w.sent = nil
	return out
}
