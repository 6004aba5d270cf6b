package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/samber/lo"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/kinds"
	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/probe"
	"github.com/kubehold/kubehold/rapidtest"
	"github.com/kubehold/kubehold/retry"
)

// manifests reads the objects of a manifest.
func manifests(t *testing.T, name string) []*unstructured.Unstructured {
	t.Helper()
	data, err := os.ReadFile("manifests/" + name)
	if err != nil {
		t.Fatal(err)
	}
	var all []*unstructured.Unstructured
	for document := range strings.SplitSeq(string(data), "\n---\n") {
		obj := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &obj.Object); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all = append(all, obj)
	}
	return all
}

func ofKind(t *testing.T, name, kind string) *unstructured.Unstructured {
	t.Helper()
	obj, ok := lo.Find(manifests(t, name), func(o *unstructured.Unstructured) bool { return o.GetKind() == kind })
	if !ok {
		t.Fatalf("%s has no %s", name, kind)
	}
	return obj
}

// A grant is one verb on one resource.
type grant struct{ Group, Resource, Verb string }

// granted is what the manifest lets the gate do.
func granted(t *testing.T) map[grant]bool {
	t.Helper()
	return grantsOf(t, ofKind(t, "rbac.yaml", "ClusterRole"))
}

func grantsOf(t *testing.T, role *unstructured.Unstructured) map[grant]bool {
	t.Helper()
	rules, _, err := unstructured.NestedSlice(role.Object, "rules")
	if err != nil {
		t.Fatal(err)
	}
	all := map[grant]bool{}
	for _, r := range rules {
		list := func(field string) []string {
			l, _, _ := unstructured.NestedStringSlice(r.(map[string]any), field)
			return l
		}
		for _, group := range list("apiGroups") {
			for _, resource := range list("resources") {
				for _, verb := range list("verbs") {
					all[grant{group, resource, verb}] = true
				}
			}
		}
	}
	return all
}

func grantOf(a rapidtest.Access) grant {
	resource := a.GVR.Resource
	if a.Subresource != "" {
		resource += "/" + a.Subresource
	}
	return grant{a.GVR.Group, resource, a.Verb}
}

// A world is a cluster with Kueue, Trainer and a kubelet that work on their own,
// in which the gate may do what its manifest says. It lives in a synctest bubble.
type world struct {
	*testing.T
	server *rapidtest.Server
	holder holdable.Holder
	check  *unstructured.Unstructured

	mu   sync.Mutex
	used map[grant]bool
	// behind are the users who may do nothing for now.
	behind map[string]bool
	// double names the pods that were made beside pods of an earlier execution.
	double []string
}

const namespace = "team-a"

// newWorld has its others work until the test ends.
func newWorld(t *testing.T, checks ...string) *world {
	t.Helper()
	w := &world{T: t, used: map[grant]bool{}, behind: map[string]bool{}}
	w.server = rapidtest.NewServer(rapidtest.TrainJobs(), rapidtest.JobSets(), rapidtest.Jobs(),
		rapidtest.Workloads(), rapidtest.AdmissionChecks(), rapidtest.Pods())
	may := granted(t)
	w.server.Authorize(func(a rapidtest.Access) bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		if a.User != "gate" {
			return !w.behind[a.User]
		}
		w.used[grantOf(a)] = true
		return may[grantOf(a)]
	})
	w.server.OnCommit(w.watchPods)
	var err error
	w.holder, err = holdable.NewForClient(kinds.OnKueue(kinds.TrainJob()), w.server.Dynamic("supervisor"), retry.Options{}, holdable.Options{})
	w.must(err)
	w.check = w.create(rapidtest.AdmissionChecks(), ofKind(t, "queue.yaml", "AdmissionCheck"))
	others := w.server.Dynamic("others")
	for _, actor := range []rapidtest.Actor{
		&rapidtest.Kueue{Client: others, AdmissionChecks: checks},
		&rapidtest.Relay{Client: w.server.Dynamic("trainer"), From: rapidtest.TrainJobs(), To: rapidtest.JobSets()},
		&rapidtest.Relay{Client: w.server.Dynamic("jobset"), From: rapidtest.JobSets(), To: rapidtest.Jobs()},
		&rapidtest.Trainer{Client: w.server.Dynamic("jobs"), Jobs: rapidtest.Jobs(), Nodes: []string{"node-1", "node-2"}, Grace: 3 * time.Second},
		&rapidtest.Kubelet{Client: others},
	} {
		go rapidtest.Run(t.Context(), 100*time.Millisecond, actor)
	}
	return w
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatalf("not what is tested: %v", err)
	}
}

// isBehind says whether a controller does nothing for now.
func (w *world) isBehind(user string, behind bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.behind[user] = behind
}

func (w *world) watchPods(c rapidtest.Commit) {
	if c.GVR != rapidtest.Pods().GVR || c.Previous != nil {
		return
	}
	for _, other := range w.server.StoredAll(c.GVR) {
		of := func(label string) bool { return other.GetLabels()[label] == c.Object.GetLabels()[label] }
		if of(rapidtest.JobSetNameLabel) && !of(rapidtest.ExecutionLabel) && holdable.PodRemains(other) {
			w.mu.Lock()
			w.double = append(w.double, c.Object.GetName()+" beside "+other.GetName())
			w.mu.Unlock()
		}
	}
}

func (w *world) create(r rapidtest.Resource, obj *unstructured.Unstructured) *unstructured.Unstructured {
	w.Helper()
	made, err := w.server.Dynamic("person").Resource(r.GVR).Namespace(obj.GetNamespace()).Create(w.Context(), obj, metav1.CreateOptions{})
	w.must(err)
	return made
}

func (w *world) createJob(name string) meta.Ref {
	w.Helper()
	obj := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob",
		"spec": map[string]any{"runtimeRef": map[string]any{"name": "torch"}, "suspend": true}, // as Kueue's webhook makes it
	}}
	obj.SetNamespace(namespace)
	obj.SetName(name)
	obj.SetLabels(map[string]string{rapidtest.QueueNameLabel: "main"})
	w.create(rapidtest.TrainJobs(), obj)
	return meta.Ref{Namespace: namespace, Name: name}
}

// startGate runs a controller, and returns what stops it and waits for its end.
func (w *world) startGate() (c *controller, stop func()) {
	w.Helper()
	client := w.server.Dynamic("gate")
	engine, err := retry.NewForClient(client, retry.Options{})
	w.must(err)
	c = newController(client, engine, []holdable.Holdable[bool]{kinds.OnKueue(kinds.TrainJob())}, options{workers: 2}, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := c.run(ctx); err != nil {
			w.Error(err)
		}
	}()
	return c, func() {
		cancel()
		<-done
	}
}

// runs waits until a job runs its n-th execution.
func (w *world) runs(job meta.Ref, n int64) {
	w.Helper()
	var in holdable.Inspection
	for range 600 {
		var err error
		in, err = w.holder.Inspect(w.Context(), job)
		if err == nil && in.Executions == n && in.Drained == holdable.NotDrained && in.Gate == "Ready" {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	w.Fatalf("%s does not run execution %d: %+v", job.Name, n, in)
}

func (w *world) call(instance int64) meta.Call {
	return meta.Call{Instance: instance, Deadline: time.Now().Add(time.Minute), Holder: "test", Reason: "to see"}
}

// holdAndRelease holds a job until Kueue has stopped it, and releases it while its
// pods still end.
func (w *world) holdAndRelease(job meta.Ref, instance int64) {
	w.Helper()
	_, err := w.holder.Hold(w.Context(), job, w.call(instance))
	w.must(err)
	time.Sleep(time.Second)
	_, err = w.holder.Release(w.Context(), job, w.call(instance))
	w.must(err)
}

// G1, G3, I5, I6: two replicas, of which one is restarted in every round, let
// every job run again, each time with a number of its own, and never beside its
// earlier pods.
func TestTheGateAtWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, holdable.DefaultGateCheck)
		_, stopFirst := w.startGate()
		_, stopSecond := w.startGate()
		var jobs []meta.Ref
		for i := range 5 {
			jobs = append(jobs, w.createJob(fmt.Sprint("job-", i)))
		}
		for round := int64(1); round <= 4; round++ {
			for _, job := range jobs {
				w.runs(job, round)
			}
			for _, job := range jobs {
				w.holdAndRelease(job, round)
			}
			stopFirst()
			_, stopFirst = w.startGate()
		}
		for _, job := range jobs {
			w.runs(job, 5)
		}
		stopFirst()
		stopSecond()
		if len(w.double) > 0 {
			t.Errorf("two executions side by side: %v", w.double)
		}
		condition, _ := lo.Find(holdable.Conditions(w.server.Stored(checks(), "", holdable.DefaultGateCheck)), func(c holdable.Condition) bool { return c.Type == "Active" })
		if condition.Status != "True" {
			t.Errorf("the check is not active: %+v", condition)
		}
		w.permissions()
	})
}

// permissions compares what the gate has asked for with what its manifest grants:
// all of the one is in the other, and little is left over.
func (w *world) permissions() {
	w.Helper()
	may := granted(w.T)
	review := grant{"authorization.k8s.io", "selfsubjectaccessreviews", "create"} // everybody may
	for _, g := range slices.Collect(maps.Keys(w.used)) {
		if !may[g] && g != review {
			w.Errorf("it asked for %v, which its manifest does not grant", g)
		}
	}
	spare := map[grant]bool{
		{"kueue.x-k8s.io", "workloads", "get"}: true, // after a conflict on one that was replaced
		{"batch", "jobs", "get"}:               true, {"batch", "jobs", "update"}: true,
		{"jobset.x-k8s.io", "jobsets", "update"}: true,
	}
	for g := range may {
		if !w.used[g] && !spare[g] {
			w.Errorf("its manifest grants %v, which it never asks for", g)
		}
	}
}

// Without its premise rule I5 does not hold: Kueue readmits beside pods that end.
func TestI5WithoutTheGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		job := w.createJob("job")
		time.Sleep(5 * time.Second)
		w.holdAndRelease(job, 1)
		time.Sleep(5 * time.Second)
		if len(w.double) == 0 {
			t.Error("no two executions ran side by side")
		}
	})
}

// G1: what should have been paused with the job keeps the gate shut, though the
// job has no pods, and it is looked at again as soon as that is paused.
func TestTheGateWaitsForWhatMakesPods(t *testing.T) {
	for behind, tc := range map[string]struct{ next, why string }{
		"trainer": {"jobset", "JobSet job is not paused"},
		"jobset":  {"jobs", "Job job is not paused"},
	} {
		t.Run(behind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, holdable.DefaultGateCheck)
				_, stop := w.startGate()
				defer stop()
				w.isBehind(tc.next, true) // so that there are no pods to hear of
				job := w.createJob("job")
				time.Sleep(5 * time.Second)
				w.isBehind(behind, true)
				w.holdAndRelease(job, 1)
				time.Sleep(2*lookAgain + lookAgain/2)
				in, err := w.holder.Inspect(t.Context(), job)
				if w.must(err); in.Gate != "Pending" || in.GateWhy != tc.why || in.Executions != 1 {
					t.Errorf("while it runs on: %+v", in)
				}
				w.isBehind(behind, false)
				time.Sleep(time.Second)
				if in, err = w.holder.Inspect(t.Context(), job); in.Gate != "Ready" || in.Executions != 2 {
					t.Errorf("a second after it was paused: %+v, %v", in, err)
				}
			})
		})
	}
}

// G1: what the gate is refused stands in the check, though the refusal reads
// otherwise each time; it asks again, but not all the time, and goes on when it is
// refused no more.
func TestTheGateIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, holdable.DefaultGateCheck)
		asked, refuses := 0, true
		w.server.AdmitValidating(func(r rapidtest.AdmissionRequest) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			if r.Request.User != "gate" || r.Request.GVR != rapidtest.TrainJobs().GVR || !refuses {
				return nil
			}
			asked++
			return rapidtest.Denied("policy.example.com", http.StatusForbidden, metav1.StatusReasonForbidden, fmt.Sprintf("refusal %d", asked))
		})
		_, stop := w.startGate()
		defer stop()
		job := w.createJob("job")
		time.Sleep(2 * time.Minute)
		in, err := w.holder.Inspect(t.Context(), job)
		if w.must(err); in.Gate != "Pending" || !strings.Contains(in.GateWhy, "403 Forbidden") || in.Executions != 0 {
			t.Errorf("while it is refused: %+v", in)
		}
		w.mu.Lock()
		if asked < 3 || asked > 60 {
			t.Errorf("it asked %d times", asked)
		}
		refuses = false
		w.mu.Unlock()
		w.runs(job, 1)
	})
}

// A gate that is started late answers what has waited for it; a check that comes
// late is answered too; the check of somebody else is not.
func TestTheGateComesLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "later")
		job := w.createJob("job")
		time.Sleep(10 * time.Second)
		c, stop := w.startGate()
		if c.ready() {
			t.Error("it is ready before it has seen anything")
		}
		time.Sleep(time.Minute)
		in, err := w.holder.Inspect(t.Context(), job)
		w.must(err)
		if !c.ready() || in.Executions != 0 {
			t.Errorf("ready: %t, A %d for a check that is not the gate's", c.ready(), in.Executions)
		}
		later := w.check.DeepCopy()
		later.SetName("later")
		later.SetResourceVersion("")
		w.create(rapidtest.AdmissionChecks(), later)
		time.Sleep(time.Minute)
		in, err = w.holder.Inspect(t.Context(), job)
		w.must(err)
		if in.Executions != 1 || in.Drained != holdable.NotDrained {
			t.Errorf("%+v", in)
		}
		stop()
	})
}

// Told to stop while nothing can be seen yet, it stops.
func TestStopBeforeTheCachesAreFilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.server.Authorize(func(a rapidtest.Access) bool { return a.User != "gate" })
		c, stop := w.startGate()
		time.Sleep(time.Minute)
		if c.ready() {
			t.Error("it is ready, and may not see anything")
		}
		stop()
	})
}

func TestActivated(t *testing.T) {
	now := metav1.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)
	check := func(conditions ...any) *unstructured.Unstructured {
		obj := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "gate", "generation": int64(3)}}}
		if conditions != nil {
			obj.Object["status"] = map[string]any{"conditions": conditions}
		}
		return obj
	}
	other := map[string]any{"type": "Other", "status": "False"}
	active := map[string]any{
		"type": "Active", "status": "True", "reason": "Active", "message": "the readmission gate answers",
		"observedGeneration": int64(3), "lastTransitionTime": "2026-05-06T07:08:09Z",
	}
	for name, tc := range map[string]struct {
		check, want *unstructured.Unstructured // want nil: nothing to do
	}{
		"New":      {check(), check(active)},
		"Other":    {check(other), check(other, active)},
		"Inactive": {check(map[string]any{"type": "Active", "status": "False"}, other), check(active, other)},
		"Active":   {check(other, map[string]any{"type": "Active", "status": "True"}), nil},
		"Odd":      {&unstructured.Unstructured{Object: map[string]any{"status": "text"}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			before := tc.check.DeepCopy()
			got, ok := activated(tc.check, now)
			if ok != (tc.want != nil) {
				t.Fatalf("got %v, %t", got, ok)
			}
			if diff := cmp.Diff(before.Object, tc.check.Object); diff != "" {
				t.Errorf("the cached object was changed: %s", diff)
			}
			if ok && cmp.Diff(tc.want.Object, got.Object) != "" {
				t.Error(cmp.Diff(tc.want.Object, got.Object))
			}
		})
	}
}

// What is below a job is the job's by the selector of the kind, or by its name,
// and may be where that cannot be told.
func TestMayOwn(t *testing.T) {
	ref := meta.Ref{Namespace: namespace, Name: "job", UID: "u"}
	unsure := kinds.OnKueue(kinds.TrainJob())
	unsure.Pods = func(*unstructured.Unstructured) (string, error) { return "", io.ErrUnexpectedEOF }
	trainJob, batchJob := kinds.OnKueue(kinds.TrainJob()), kinds.OnKueue(kinds.Job())
	for name, tc := range map[string]struct {
		kind        holdable.Holdable[bool]
		below       string
		name, label string
		value       string
		want        bool
	}{
		"Pod":           {trainJob, "Pod", "", "jobset.sigs.k8s.io/jobset-name", "job", true},
		"OtherPod":      {trainJob, "Pod", "job", "jobset.sigs.k8s.io/jobset-name", "job2", false},
		"PodOfJob":      {batchJob, "Pod", "", "batch.kubernetes.io/controller-uid", "u", true},
		"PodOfOtherJob": {batchJob, "Pod", "job", "batch.kubernetes.io/controller-uid", "v", false},
		"JobSet":        {trainJob, "JobSet", "job", "", "", true},
		"OtherJobSet":   {trainJob, "JobSet", "job2", "jobset.sigs.k8s.io/jobset-name", "job", false},
		"Job":           {trainJob, "Job", "job-node-0", "jobset.sigs.k8s.io/jobset-name", "job", true},
		"OtherJob":      {trainJob, "Job", "job", "jobset.sigs.k8s.io/jobset-name", "job2", false},
		"Unsure":        {unsure, "Pod", "", "", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			made, ok := lo.Find(below(tc.kind), func(m holdable.Made) bool { return m.Kind == tc.below })
			obj := &unstructured.Unstructured{}
			obj.SetName(tc.name)
			obj.SetLabels(map[string]string{tc.label: tc.value})
			if got := mayOwn(ref, made, obj); !ok || got != tc.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

func TestParse(t *testing.T) {
	for name, tc := range map[string]struct {
		args  []string
		kinds []string // nil: refused
	}{
		"Default": {nil, []string{"TrainJob"}},
		"Several": {[]string{"-kinds", "Job, JobSet"}, []string{"Job", "JobSet"}},
		"Unknown": {[]string{"-kinds", "Pod"}, nil},
		"Empty":   {[]string{"-kinds", ""}, nil},
		"Words":   {[]string{"now"}, nil},
		"Flag":    {[]string{"-now"}, nil},
		"Workers": {[]string{"-workers", "0"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := parse(tc.args, io.Discard)
			if (err != nil) != (tc.kinds == nil) {
				t.Fatalf("got %+v, %v", r, err)
			}
			got := lo.Map(r.kinds, func(k holdable.Holdable[bool], _ int) string { return k.GroupVersionKind().Kind })
			if diff := cmp.Diff(tc.kinds, got); err == nil && diff != "" {
				t.Error(diff)
			}
		})
	}
}

// What cannot be reached or listened on is said, and nothing stays.
func TestRunRefuses(t *testing.T) {
	if err := run(t.Context(), []string{"-kubeconfig", "no such file"}, io.Discard); err == nil {
		t.Error("without a kubeconfig")
	}
	if err := run(t.Context(), []string{"-kinds", "Pod"}, io.Discard); err == nil {
		t.Error("with a kind that is not known")
	}
}

func TestHealth(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ready := false
	stop := serveHealth(listener, func() bool { return ready })
	status := func(path string) int {
		t.Helper()
		resp, err := http.Get("http://" + listener.Addr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	if got := []int{status("/healthz"), status("/readyz")}; !slices.Equal(got, []int{200, 503}) {
		t.Errorf("before it is ready: %v", got)
	}
	ready = true
	if got := []int{status("/healthz"), status("/readyz"), status("/")}; !slices.Equal(got, []int{200, 200, 404}) {
		t.Errorf("when it is ready: %v", got)
	}
	http.DefaultClient.CloseIdleConnections()
	stop()
	if _, err := net.Dial("tcp", listener.Addr().String()); err == nil {
		t.Error("somebody still listens")
	}
}

// A probe for the gate asks for what the manifest grants.
func TestTheProbeAsksForTheSame(t *testing.T) {
	want := granted(t)
	got := map[grant]bool{}
	for _, kind := range []holdable.Holdable[bool]{kinds.TrainJob(), kinds.Job(), kinds.JobSet()} {
		text, err := probe.Manifest(kinds.OnKueue(kind), probe.Options{Namespaces: []string{namespace}, AsGate: true}, "gate")
		if err != nil {
			t.Fatal(err)
		}
		for document := range strings.SplitSeq(string(text), "---\n") {
			obj := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(document), &obj.Object); err != nil {
				t.Fatal(err)
			}
			if obj.GetKind() == "ClusterRole" && strings.Contains(obj.GetName(), "-gate-") {
				maps.Copy(got, grantsOf(t, obj))
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// The manifests name what the code goes by.
func TestManifests(t *testing.T) {
	check := ofKind(t, "queue.yaml", "AdmissionCheck")
	if check.GetName() != holdable.DefaultGateCheck || !isOurs(check) {
		t.Errorf("the AdmissionCheck is %v", check)
	}
	queue := ofKind(t, "queue.yaml", "ClusterQueue")
	rules, _, err := unstructured.NestedSlice(queue.Object, "spec", "admissionChecksStrategy", "admissionChecks")
	if diff := cmp.Diff([]any{map[string]any{"name": holdable.DefaultGateCheck}}, rules); err != nil || diff != "" {
		t.Errorf("%v: %s", err, diff)
	}
	containers, _, err := unstructured.NestedSlice(ofKind(t, "deployment.yaml", "Deployment").Object, "spec", "template", "spec", "containers")
	if err != nil || len(containers) != 1 {
		t.Fatalf("%v, %v", containers, err)
	}
	args, _, err := unstructured.NestedStringSlice(containers[0].(map[string]any), "args")
	if _, bad := parse(args, io.Discard); err != nil || bad != nil {
		t.Errorf("the Deployment's arguments: %v, %v", err, bad)
	}
}
