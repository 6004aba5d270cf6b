package rapidtest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/rapidtest"
)

// A write whose answer is lost was made all the same, and the same write again is a conflict.
func Example() {
	server := rapidtest.NewServer(rapidtest.TrainJobs())
	plan := rapidtest.NewPlan(rapidtest.Nth(2, rapidtest.Writes(), rapidtest.LoseResponse()))
	jobs := server.Dynamic("alice", plan.Middleware).Resource(rapidtest.TrainJobs().GVR).Namespace("default")

	ctx := context.Background()
	job, _ := jobs.Create(ctx, trainJob("train"), metav1.CreateOptions{})
	_ = unstructured.SetNestedField(job.Object, true, "spec", "suspend")
	_, err := jobs.Update(ctx, job, metav1.UpdateOptions{})
	fmt.Println("connection broken:", errors.Is(err, io.ErrUnexpectedEOF))
	_, err = jobs.Update(ctx, job, metav1.UpdateOptions{})
	fmt.Println("conflict:", apierrors.IsConflict(err))
	for _, commit := range server.History() {
		fmt.Println(commit)
	}
	// Output:
	// connection broken: true
	// conflict: true
	// rv=9 ADDED trainjobs default/train (#1 create trainjobs default/train by alice)
	// rv=10 MODIFIED trainjobs default/train (#2 update trainjobs default/train by alice)
}

// A resource of your own takes a few lines.
func ExampleNewServer() {
	widgets := rapidtest.Resource{
		GVR:  schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"},
		Kind: "Widget", Namespaced: true, StatusSubresource: true,
		Fields: []string{"spec.paused", "status.*"},
	}
	server := rapidtest.NewServer(widgets)
	c := server.Dynamic("alice").Resource(widgets.GVR).Namespace("default")
	_, err := c.Create(context.Background(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": "w"},
		"spec": map[string]any{"suspend": true},
	}}, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	fmt.Println(err)
	// Output: Widget in version "v1" cannot be handled as a Widget: strict decoding error: unknown field "spec.suspend"
}

// client-go's own dynamic client works against a server, with all that it does by itself.
func ExampleServer_RESTConfig() {
	server := rapidtest.NewServer(rapidtest.TrainJobs())
	client, err := dynamic.NewForConfig(server.RESTConfig("alice"))
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = client.Resource(rapidtest.TrainJobs().GVR).Namespace("default").Get(context.Background(), "none", metav1.GetOptions{})
	fmt.Println(err)
	// Output: trainjobs.trainer.kubeflow.org "none" not found
}

// Any HTTP client works too.
func ExampleServer_Transport() {
	server := rapidtest.NewServer(rapidtest.TrainJobs())
	client := http.Client{Transport: server.Transport("alice")}
	resp, err := client.Get("http://model.invalid/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs/none")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	fmt.Println(resp.Status)
	fmt.Print(string(body))
	// Output:
	// 404 Not Found
	// {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"trainjobs.trainer.kubeflow.org \"none\" not found","reason":"NotFound","details":{"name":"none","group":"trainer.kubeflow.org","kind":"trainjobs"},"code":404}
}

// Who may do what is a function; reviews are answered by it too.
func ExampleServer_Authorize() {
	server := rapidtest.NewServer(rapidtest.TrainJobs())
	server.Authorize(func(a rapidtest.Access) bool { return a.User == "admin" || a.Verb == rapidtest.VerbGet })
	for _, user := range []string{"admin", "viewer"} {
		_, err := server.Dynamic(user).Resource(rapidtest.TrainJobs().GVR).Namespace("default").
			Create(context.Background(), trainJob("train"), metav1.CreateOptions{})
		fmt.Println(user, apierrors.IsForbidden(err))
	}
	// Output:
	// admin false
	// viewer true
}

// A plan remembers what passed, for the message of a test that fails.
func ExamplePlan() {
	server := rapidtest.NewServer(rapidtest.TrainJobs())
	plan := rapidtest.NewPlan(
		rapidtest.Nth(1, rapidtest.Verbs(rapidtest.VerbUpdate), rapidtest.Answer(409)),
		rapidtest.Nth(2, rapidtest.Verbs(rapidtest.VerbUpdate), rapidtest.LoseRequest()),
	)
	jobs := server.Dynamic("alice", plan.Middleware).Resource(rapidtest.TrainJobs().GVR).Namespace("default")
	ctx := context.Background()
	job, _ := jobs.Create(ctx, trainJob("train"), metav1.CreateOptions{})
	for range 3 {
		_, _ = jobs.Update(ctx, job, metav1.UpdateOptions{})
	}
	for _, e := range plan.Events() {
		fmt.Printf("%s [%s]\n", e.Request, e.Fault.Name)
	}
	// Output:
	// #1 create trainjobs default/train by alice []
	// #2 update trainjobs default/train by alice [answered 409]
	// #3 update trainjobs default/train by alice [request lost]
	// #4 update trainjobs default/train by alice []
}

// An invariant is checked on every version as it is committed.
func ExampleServer_OnCommit() {
	server := rapidtest.NewServer(rapidtest.TrainJobs())
	server.OnCommit(func(c rapidtest.Commit) {
		suspended, _, _ := unstructured.NestedBool(c.Object.Object, "spec", "suspend")
		fmt.Println(c.Request.User, c.Type, "suspended:", suspended)
	})
	var c dynamic.Interface = server.Dynamic("alice")
	ctx := context.Background()
	_, _ = c.Resource(rapidtest.TrainJobs().GVR).Namespace("default").Create(ctx, trainJob("train"), metav1.CreateOptions{})
	_ = rapidtest.Human{Client: server.Dynamic("bob")}.Suspend(ctx, rapidtest.TrainJobs().GVR, "default", "train")
	// Output:
	// alice ADDED suspended: false
	// bob MODIFIED suspended: true
}

// The actors take turns until nobody has anything left to do.
func ExampleSettle() {
	server := rapidtest.NewServer(rapidtest.TrainJobs(), rapidtest.Workloads(), rapidtest.Pods())
	kueue := &rapidtest.Kueue{Client: server.Dynamic("kueue")}
	trainer := &rapidtest.Trainer{Client: server.Dynamic("trainer"), Nodes: []string{"n1"}, Grace: 12 * time.Second}
	kubelet := &rapidtest.Kubelet{Client: server.Dynamic("kubelet")}

	ctx := context.Background()
	job := trainJob("train")
	job.SetLabels(map[string]string{rapidtest.QueueNameLabel: "queue"})
	_, _ = server.Dynamic("alice").Resource(rapidtest.TrainJobs().GVR).Namespace("default").Create(ctx, job, metav1.CreateOptions{})
	if err := rapidtest.Settle(ctx, kueue, trainer, kubelet); err != nil {
		fmt.Println(err)
	}
	for _, pod := range server.StoredAll(rapidtest.Pods().GVR) {
		phase, _, _ := unstructured.NestedString(pod.Object, "status", "phase")
		fmt.Println(pod.GetLabels()[rapidtest.JobSetNameLabel], phase)
	}
	// Output: train Running
}

// The controller of a kind of your own takes two functions.
func ExampleRunner() {
	pipelines := rapidtest.Resource{
		GVR:  schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "pipelines"},
		Kind: "Pipeline", Namespaced: true, StatusSubresource: true,
	}
	server := rapidtest.NewServer(pipelines, rapidtest.Pods())
	controller := &rapidtest.Runner{
		Client:   server.Dynamic("pipeline-controller"),
		Resource: pipelines.GVR,
		Runs: func(obj *unstructured.Unstructured) bool {
			state, _, _ := unstructured.NestedString(obj.Object, "spec", "state")
			return state == "Active"
		},
		Labels: func(obj *unstructured.Unstructured) map[string]string {
			return map[string]string{"example.com/pipeline": obj.GetName()}
		},
	}
	ctx, client := context.Background(), server.Dynamic("alice").Resource(pipelines.GVR).Namespace("default")
	for name, state := range map[string]string{"a": "Active", "b": "Paused"} {
		_, _ = client.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.com/v1", "kind": "Pipeline", "metadata": map[string]any{"name": name},
			"spec": map[string]any{"state": state},
		}}, metav1.CreateOptions{})
	}
	if err := rapidtest.Settle(ctx, controller); err != nil {
		fmt.Println(err)
	}
	for _, pod := range server.StoredAll(rapidtest.Pods().GVR) {
		fmt.Println(pod.GetLabels()["example.com/pipeline"], "has a pod")
	}
	// Output: a has a pod
}

func backups() holdable.Holdable[bool] {
	return holdable.Holdable[bool]{
		Kind:     "Backup",
		Resource: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "backups"},
		Pause:    holdable.Pause[bool]{Path: holdable.Field("spec", "suspend"), Held: true},
	}
}

// The test of a kind of your own is one line; the second shows that a mistake would be found.
func ExampleCheck() {
	testBackups := func(t *testing.T) { rapidtest.Check(t, backups(), rapidtest.Schema("spec.suspend", "status.*")) }
	testMistake := func(t *testing.T) {
		wrong := backups()
		wrong.Pause.Running = true
		if err := rapidtest.Counterexample(t, wrong, rapidtest.Schema("spec.suspend", "status.*")); err == nil {
			t.Error("nothing is wrong with a field of which both values hold")
		}
	}
	_, _ = testBackups, testMistake // by the names of TestXxx in a _test.go file
}

// Who goes next is for the test to choose: here both read, and then alice's update is executed before bob's.
func ExampleScheduler() {
	server := rapidtest.NewServer(rapidtest.TrainJobs())
	sched := rapidtest.NewScheduler(rapidtest.BeforeExecution)
	ctx := context.Background()
	jobs := func(user string, mws ...rapidtest.Middleware) dynamic.ResourceInterface {
		return server.Dynamic(user, mws...).Resource(rapidtest.TrainJobs().GVR).Namespace("default")
	}
	_, _ = jobs("setup").Create(ctx, trainJob("train"), metav1.CreateOptions{})
	done := make(chan error)
	for _, user := range []string{"alice", "bob"} {
		go func() {
			mine := jobs(user, sched.Middleware(user))
			job, _ := mine.Get(ctx, "train", metav1.GetOptions{})
			job.SetLabels(map[string]string{"by": user})
			_, err := mine.Update(ctx, job, metav1.UpdateOptions{})
			done <- err
		}()
	}
	_ = sched.Wait(ctx, 2)
	for _, read := range sched.Parked() {
		read.Proceed()
	}
	_ = sched.Wait(ctx, 2)
	for _, update := range sched.Parked() {
		update.Proceed()
		fmt.Printf("%s of %s, conflict: %v\n", update.Request.Verb, update.Actor, apierrors.IsConflict(<-done))
	}
	// Output:
	// update of alice, conflict: false
	// update of bob, conflict: true
}

// The kind of ExampleCheck keeps the rules.
func TestTheKindOfTheExample(t *testing.T) {
	rapidtest.Check(t, backups(), rapidtest.Schema("spec.suspend", "status.*"))
}
