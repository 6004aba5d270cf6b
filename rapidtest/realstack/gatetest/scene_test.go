//go:build e2e

package gatetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/kinds"
	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/rapidtest/realstack/cluster"
	"github.com/kubehold/kubehold/retry"
)

// A scene is a test with a namespace, a queue and a watcher of its own.
type scene struct {
	*testing.T
	*cluster.Cluster
	name    string
	holder  holdable.Holder
	watcher *watcher
}

func newScene(t *testing.T) *scene {
	t.Helper()
	name := strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))
	s := &scene{T: t, Cluster: shared.cluster, name: name[:min(len(name), 50)]}
	space := &cluster.Object{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace"}}
	space.SetName(s.name)
	_, err := s.Client().Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).Create(t.Context(), space, metav1.CreateOptions{})
	must(t, err)
	s.watcher, err = watchNamespace(t.Context(), s.Client(), s.name)
	must(t, err)
	config := shared.stack.RESTConfig()
	config.QPS = -1
	s.holder, err = holdable.New(kinds.OnKueue(kinds.TrainJob()), config, retry.Options{}, holdable.Options{})
	must(t, err)
	t.Cleanup(s.clear)
	return s
}

// clear removes the jobs of the scene.
func (s *scene) clear() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	jobs := s.Client().Resource(cluster.TrainJobs()).Namespace(s.name)
	if err := jobs.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		s.Error(err)
	}
}

func (s *scene) soon() context.Context {
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	s.Cleanup(cancel)
	return ctx
}

// makeQueue makes the queue of the scene, with room for so many jobs at a time.
func (s *scene) makeQueue(room int, checks ...string) {
	s.Helper()
	must(s.T, s.CreateQueue(s.soon(), cluster.Queue{Name: s.name, Namespace: s.name, CPU: fmt.Sprint(room), AdmissionChecks: checks}))
}

func (s *scene) makeJob(name string, labels map[string]string) *cluster.Object {
	s.Helper()
	job := &cluster.Object{Object: map[string]any{
		"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob",
		"spec": map[string]any{"runtimeRef": map[string]any{"name": runtimeName}},
	}}
	job.SetName(name)
	all := map[string]string{cluster.QueueLabel: s.name}
	for key, value := range labels {
		all[key] = value
	}
	job.SetLabels(all)
	job, err := s.Client().Resource(cluster.TrainJobs()).Namespace(s.name).Create(s.soon(), job, metav1.CreateOptions{})
	must(s.T, err)
	return job
}

// until waits, and returns what kept it from being true if it takes too long.
func until(ctx context.Context, what string, holds func() bool) error {
	for !holds() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting until %s: %w", what, context.Cause(ctx))
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil
}

// within waits for so long.
func (s *scene) within(limit time.Duration, what string, holds func() bool) error {
	ctx, cancel := context.WithTimeout(s.Context(), limit)
	defer cancel()
	return until(ctx, what, holds)
}

// counted waits until the TrainJob counts its pod: see [cluster.Cluster.WaitPods].
func (s *scene) counted(ctx context.Context, job *cluster.Object) error {
	return until(ctx, job.GetName()+" counts its pod", func() bool {
		return cluster.CountedJobs(s.watcher.current(job), "active") == 1
	})
}

// runs waits until a pod of the job runs that is not before, and returns its UID.
func (s *scene) runs(job *cluster.Object, before types.UID) types.UID {
	s.Helper()
	uid, err := s.waitRuns(s.soon(), job, before)
	must(s.T, err)
	return uid
}

func (s *scene) waitRuns(ctx context.Context, job *cluster.Object, before types.UID) (types.UID, error) {
	var uid types.UID
	err := until(ctx, job.GetName()+" runs", func() bool {
		pod := s.watcher.newest(job)
		if pod == nil || pod.GetUID() == before || pod.GetDeletionTimestamp() != nil {
			return false
		}
		phase, _, _ := unstructured.NestedString(pod.Object, "status", "phase")
		uid = pod.GetUID()
		return phase == "Running"
	})
	if err == nil {
		err = s.counted(ctx, job)
	}
	if err != nil {
		err = fmt.Errorf("%w:\n%s", err, strings.Join(s.watcher.story(job.GetName()), "\n"))
	}
	return uid, err
}

func suspended(job *cluster.Object) bool {
	value, _, _ := unstructured.NestedBool(job.Object, "spec", "suspend")
	return value
}

// executions is A, as it was seen last.
func (s *scene) executions(job *cluster.Object) int64 {
	seen := s.watcher.current(job)
	a, err := meta.Keys{}.ReadExecutions(seen.GetUID(), seen.GetAnnotations())
	if err != nil {
		s.Error(err)
	}
	return a
}

func call(n int64) meta.Call {
	return meta.Call{Instance: n, Deadline: time.Now().Add(patience), Holder: "gatetest", Reason: "to see what happens"}
}

func ref(job *cluster.Object) meta.Ref {
	return meta.Ref{Namespace: job.GetNamespace(), Name: job.GetName()}
}

// hold holds a job and waits until Kueue has stopped it. Its pods end later.
func (s *scene) hold(ctx context.Context, job *cluster.Object, n int64) error {
	if _, err := s.holder.Hold(ctx, ref(job), call(n)); err != nil {
		return err
	}
	return until(ctx, job.GetName()+" is suspended", func() bool { return suspended(s.watcher.current(job)) })
}

func (s *scene) release(ctx context.Context, job *cluster.Object, n int64) error {
	_, err := s.holder.Release(ctx, ref(job), call(n))
	return err
}

// inParallel does something with every job at the same time.
func (s *scene) inParallel(jobs []*cluster.Object, do func(*cluster.Object) error) {
	s.Helper()
	errs := make([]error, len(jobs))
	var all sync.WaitGroup
	for i, job := range jobs {
		all.Go(func() { errs[i] = do(job) })
	}
	all.Wait()
	must(s.T, errors.Join(errs...))
}

func (s *scene) makeJobs(n int) []*cluster.Object {
	s.Helper()
	var jobs []*cluster.Object
	for i := range n {
		jobs = append(jobs, s.makeJob(fmt.Sprintf("job-%02d", i), nil))
	}
	return jobs
}

// neverTwice fails if two executions of a job were there at the same time, and
// tells the story of that job.
func (s *scene) neverTwice() {
	s.Helper()
	all, _ := s.watcher.doubles()
	for _, d := range all {
		s.Errorf("two executions side by side, %s beside %s:\n%s", d.pod, d.beside, strings.Join(s.watcher.story(d.job), "\n"))
	}
}
