// Dispatch shows how a job supervisor uses holds: when a node is lost it holds
// the job, waits until nothing of it runs, and lets it run again. It follows the
// supervisors' protocol (rule I4), in supervisor.go; here is the model on which
//
//	go run ./examples/dispatch
//
// shows it at work. The network plays a trick: the first Hold is answered by
// timeouts, while its updates arrive later.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/kinds"
	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/rapidtest"
	"github.com/kubehold/kubehold/retry"
)

func main() {
	if err := run(context.Background(), rapidtest.NewServer(rapidtest.TrainJobs(), rapidtest.Pods()), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "dispatch:", err)
		os.Exit(1)
	}
}

// run loses a node of a job and has a supervisor recover the job.
func run(ctx context.Context, server *rapidtest.Server, out io.Writer) error {
	const requestTimeout = time.Second // the model's; a real apiserver has a minute
	server.RequestTimeout = requestTimeout
	holds := rapidtest.Match(func(r *rapidtest.Request) bool {
		return r.Object != nil && r.Object.GetAnnotations()[meta.Keys{}.Instance()] != ""
	})
	plan := rapidtest.NewPlan(rapidtest.Span(1, 3, rapidtest.Verbs("update").And(holds), rapidtest.CommitLater(requestTimeout/2)))
	holder, err := holdable.New(kinds.WithStartGate(kinds.TrainJob()), server.RESTConfig("dispatch", plan.Middleware),
		retry.Options{RequestTimeout: requestTimeout, CallBound: 3 * requestTimeout / 2}, holdable.Options{})
	if err != nil {
		return err
	}
	s := &supervisor{
		holder: holder, name: "dispatch", patience: 100 * time.Millisecond, pause: 50 * time.Millisecond,
		say: func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) },
	}

	client := server.Dynamic("others")
	trainer := &rapidtest.Trainer{Client: client, Nodes: []string{"node-1"}, Grace: time.Second}
	kubelet := &rapidtest.Kubelet{Client: client}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go rapidtest.Run(ctx, 20*time.Millisecond, trainer)
	go rapidtest.Run(ctx, 20*time.Millisecond, kubelet)

	job := meta.Ref{Namespace: "team-a", Name: "llm"}
	obj := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob",
		"metadata": map[string]any{"name": job.Name}, "spec": map[string]any{"suspend": true},
	}}
	if _, err := client.Resource(rapidtest.TrainJobs().GVR).Namespace(job.Namespace).Create(ctx, obj, metav1.CreateOptions{}); err != nil {
		return err
	}
	if _, err := s.call(ctx, job, meta.Call{Holder: s.name}, holder.Open); err != nil {
		return err
	}
	if err := wait(ctx, 100*time.Millisecond); err != nil { // for its pod
		return err
	}
	s.say("the job runs, and its node is lost")
	kubelet.Lose("node-1")
	time.AfterFunc(requestTimeout, func() { // somebody restarts it
		kubelet.Gone("node-1")
		time.AfterFunc(100*time.Millisecond, func() { kubelet.Return("node-1") })
	})
	if err := s.recover(ctx, job, "node-1 is lost"); err != nil {
		return err
	}
	in, err := holder.Inspect(ctx, job)
	if err != nil {
		return err
	}
	s.say("the job is %s, as execution %d", in.State, in.Executions)
	return nil
}
