//go:build e2e

package holdtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/kinds"
	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/rapidtest/realstack/cluster"
	"github.com/kubehold/kubehold/retry"
)

// A scene is a test with a namespace and a queue of its own.
type scene struct {
	*testing.T
	*world
	namespace string
	queues    []string
	// gate is the AdmissionCheck of the queue's readmission gate, "" without one.
	gate string
	// writes counts the updates that the scene's holders have transmitted.
	writes atomic.Int64
}

// newScene is a scene beside others.
func newScene(t *testing.T) *scene {
	t.Helper()
	t.Parallel()
	return newSceneOn(t, shared)
}

// alone is the scene of a test that stops or kills what all others need.
func alone(t *testing.T) *scene {
	t.Helper()
	return newSceneOn(t, shared)
}

func newSceneOn(t *testing.T, w *world) *scene {
	t.Helper()
	name := strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))
	s := &scene{T: t, world: w, namespace: name[:min(len(name), 60)]}
	space := &cluster.Object{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace"}}
	space.SetName(s.namespace)
	_, err := s.cluster.Client().Resource(gvr("", "v1", "namespaces")).Create(t.Context(), space, metav1.CreateOptions{})
	s.must(err)
	t.Cleanup(s.clear)
	return s
}

func gvr(group, version, resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: version, Resource: resource}
}

// clear removes the jobs of the scene and waits until nothing of them runs.
func (s *scene) clear() {
	ctx, cancel := context.WithTimeout(context.Background(), waits)
	defer cancel()
	jobs := s.cluster.Client().Resource(cluster.TrainJobs()).Namespace(s.namespace)
	pods := s.cluster.Client().Resource(gvr("", "v1", "pods")).Namespace(s.namespace)
	err := cluster.Wait(ctx, "the jobs and the pods of the test are gone", func(ctx context.Context) (bool, any, error) {
		if err := jobs.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			return false, nil, err
		}
		left, err := pods.List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			return false, nil, err
		}
		list, err := jobs.List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			return false, nil, err
		}
		return len(left.Items) == 0 && len(list.Items) == 0, fmt.Sprintf("some are left: %v %v", names(list.Items), names(left.Items)), nil
	})
	if err != nil {
		s.Error(err)
	}
	if err := s.removeQueues(ctx); err != nil {
		s.Error(err)
	}
}

func names(objects []cluster.Object) []string {
	var all []string
	for _, o := range objects {
		all = append(all, o.GetName())
	}
	return all
}

func (s *scene) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// soon bounds a wait.
func (s *scene) soon() context.Context {
	ctx, cancel := context.WithTimeout(s.Context(), waits)
	s.Cleanup(cancel)
	return ctx
}

// makeQueue makes the queue of the scene, which has the name of its namespace.
func (s *scene) makeQueue(cpu string, checks ...string) {
	s.makeQueueNamed(s.namespace, cpu, checks...)
}

func (s *scene) makeQueueNamed(name, cpu string, checks ...string) {
	s.Helper()
	s.queues = append(s.queues, name)
	s.must(s.cluster.CreateQueue(s.soon(), cluster.Queue{Name: name, Namespace: s.namespace, CPU: cpu, AdmissionChecks: checks}))
}

// removeQueues removes the queues of the scene. What still uses a part of one
// keeps that until it is gone.
func (s *scene) removeQueues(ctx context.Context) error {
	var failed []error
	client := s.cluster.Client()
	for _, queue := range s.queues {
		for resource, namespace := range map[string]string{"localqueues": s.namespace, "clusterqueues": "", "resourceflavors": ""} {
			err := client.Resource(gvr("kueue.x-k8s.io", "v1beta2", resource)).Namespace(namespace).Delete(ctx, queue, metav1.DeleteOptions{})
			if !isGone(err) {
				failed = append(failed, err)
			}
		}
	}
	return errors.Join(failed...)
}

// makeJob makes a TrainJob with these labels.
func (s *scene) makeJob(name string, suspend bool, labels map[string]string) *cluster.Object {
	s.Helper()
	job, err := s.tryJob(s.soon(), name, "ClusterTrainingRuntime/"+runtimeName, suspend, labels)
	s.must(err)
	return job
}

func (s *scene) tryJob(ctx context.Context, name, runtime string, suspend bool, labels map[string]string) (*cluster.Object, error) {
	kind, runtime, _ := strings.Cut(runtime, "/")
	job := &cluster.Object{Object: map[string]any{
		"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob",
		"spec": map[string]any{"runtimeRef": map[string]any{"kind": kind, "name": runtime}, "suspend": suspend},
	}}
	job.SetName(name)
	job.SetLabels(labels)
	return s.cluster.Client().Resource(cluster.TrainJobs()).Namespace(s.namespace).Create(ctx, job, metav1.CreateOptions{})
}

func (s *scene) queued(more ...string) map[string]string {
	labels := map[string]string{cluster.QueueLabel: s.namespace}
	for i := 0; i+1 < len(more); i += 2 {
		labels[more[i]] = more[i+1]
	}
	return labels
}

// A mode is one of the two ways to hold a TrainJob.
type mode struct {
	*scene
	name   string
	holder holdable.Holder
	// held is the resource of the object that a hold lies on, paused and
	// running the values of its pause field.
	held            schema.GroupVersionResource
	paused, running map[string]any
}

func (s *scene) options() retry.Options {
	return retry.Options{RequestTimeout: requestTimeout, Observer: func(e retry.Event) {
		if e.Verb == "update" {
			s.writes.Add(int64(e.Transmissions))
		}
	}}
}

func pauseField(name string, value bool) map[string]any {
	return map[string]any{"spec": map[string]any{name: value}}
}

// kueue is Kueue mode. Where the queue has no readmission gate, Release looks at
// the pods.
func (s *scene) kueue() mode {
	s.Helper()
	holder, err := holdable.New(kinds.OnKueue(kinds.TrainJob()), s.config(), s.options(),
		holdable.Options{Gate: s.gate, CheckPods: s.gate == ""})
	s.must(err)
	return mode{scene: s, name: "Kueue", holder: holder, held: cluster.Workloads(),
		paused: pauseField("active", false), running: pauseField("active", true)}
}

// plain is plain mode.
func (s *scene) plain() mode {
	s.Helper()
	holder, err := holdable.New(kinds.WithStartGate(kinds.TrainJob()), s.config(), s.options(), holdable.Options{})
	s.must(err)
	return mode{scene: s, name: "Plain", holder: holder, held: cluster.TrainJobs(),
		paused: pauseField("suspend", true), running: pauseField("suspend", false)}
}

// inBothModes runs a test in each mode, in Kueue mode with a readmission gate.
func inBothModes(t *testing.T, test func(mode)) {
	t.Parallel()
	inModes(t, newScene, true, test)
}

func inModes(t *testing.T, newScene func(*testing.T) *scene, gated bool, test func(mode)) {
	const room = "10"
	t.Run("Kueue", func(t *testing.T) {
		s := newScene(t)
		if gated {
			s.makeGatedQueue(room, s.config())
		} else {
			s.makeQueue(room)
		}
		test(s.kueue())
	})
	t.Run("Plain", func(t *testing.T) { test(newScene(t).plain()) })
}

// start makes a job and waits until it runs.
func (m mode) start(name string) *cluster.Object {
	m.Helper()
	var job *cluster.Object
	if m.held == cluster.Workloads() {
		job = m.makeJob(name, false, m.queued())
	} else {
		job = m.makeJob(name, true, nil)
		m.did(holdable.Opened)(m.holder.Open(m.Context(), ref(job), call(0)))
	}
	m.runs(job)
	return job
}

func (m mode) runs(job *cluster.Object) {
	m.Helper()
	m.must(m.cluster.WaitPods(m.soon(), job, 1))
}

func ref(job *cluster.Object) meta.Ref {
	return meta.Ref{Namespace: job.GetNamespace(), Name: job.GetName()}
}

// call is a call of instance n with plenty of time.
func call(n int64) meta.Call {
	return meta.Call{Instance: n, Holder: "holdtest", Reason: "to see what happens", Deadline: time.Now().Add(10 * time.Second)}
}

// did returns a check of what a call has done.
func (s *scene) did(want holdable.Did) func(holdable.Receipt, error) holdable.Receipt {
	return func(receipt holdable.Receipt, err error) holdable.Receipt {
		s.Helper()
		if err != nil {
			s.Fatalf("%v, want %q", err, want)
		}
		if receipt.Did != want {
			s.Fatalf("%s of %s has %s (%s), want %q", receipt.Op, receipt.Object, receipt.Did, receipt.Why, want)
		}
		return receipt
	}
}

func (m mode) hold(job *cluster.Object, n int64) holdable.Receipt {
	m.Helper()
	return m.did(holdable.Placed)(m.holder.Hold(m.Context(), ref(job), call(n)))
}

func (m mode) release(job *cluster.Object, n int64) holdable.Receipt {
	m.Helper()
	return m.did(holdable.Lifted)(m.holder.Release(m.Context(), ref(job), call(n)))
}

// A method is Hold, Release or Open of a holder.
type method func(context.Context, meta.Ref, meta.Call) (holdable.Receipt, error)

// refused makes a call that must fail like that, having written nothing and
// saying so.
func (m mode) refused(try method, job *cluster.Object, n int64, want meta.Sentinel) *meta.Error {
	m.Helper()
	before := m.writes.Load()
	receipt, err := try(m.Context(), ref(job), call(n))
	var e *meta.Error
	if !errors.Is(err, want) || !errors.As(err, &e) {
		m.Fatalf("%v (%s), want %q", err, receipt.Did, want)
	}
	if sent := m.writes.Load() - before; sent > 0 || e.Fate != meta.FateNone {
		m.Errorf("%d updates were sent for a call that was to be refused: %v", sent, err)
	}
	return e
}

// waitState waits until Inspect says so.
func (m mode) waitState(job *cluster.Object, what string, holds func(holdable.Inspection) bool) holdable.Inspection {
	m.Helper()
	var in holdable.Inspection
	m.must(cluster.Wait(m.soon(), what, func(ctx context.Context) (bool, any, error) {
		var err error
		in, err = m.holder.Inspect(ctx, ref(job))
		return err == nil && holds(in), in, err
	}))
	return in
}

func (m mode) drained(job *cluster.Object) {
	m.Helper()
	m.waitState(job, job.GetName()+" is drained", func(in holdable.Inspection) bool { return in.Drained == holdable.IsDrained })
}

func (m mode) inspect(job *cluster.Object) holdable.Inspection {
	m.Helper()
	in, err := m.holder.Inspect(m.soon(), ref(job))
	m.must(err)
	return in
}

func (m mode) wantState(job *cluster.Object, want holdable.State) holdable.Inspection {
	m.Helper()
	in := m.inspect(job)
	if in.State != want {
		m.Fatalf("%s is %s (%s), want %s: %+v", job.GetName(), in.State, in.Why, want, in)
	}
	return in
}

// heldObject reads the object that a hold of the job lies on.
func (m mode) heldObject(job *cluster.Object) *cluster.Object {
	m.Helper()
	var held *cluster.Object
	var err error
	if m.held == cluster.Workloads() {
		held, err = m.cluster.Workload(m.soon(), job)
	} else {
		held, err = m.cluster.Get(m.soon(), m.held, job)
	}
	m.must(err)
	return held
}

// humanResumes resumes a held job as kubectl and kueuectl do it: with a merge
// patch that has no precondition.
func (m mode) humanResumes(job *cluster.Object) {
	m.Helper()
	_, err := m.cluster.Patch(m.soon(), m.held, m.heldObject(job), m.running)
	m.must(err)
}

// trainJobSays waits until the TrainJob has a condition.
func (s *scene) trainJobSays(job *cluster.Object, condition string) {
	s.Helper()
	_, err := s.cluster.WaitFor(s.soon(), cluster.TrainJobs(), job, "the TrainJob says "+condition, says(condition, ""))
	s.must(err)
}

// says returns a function that says whether a condition is True for a reason,
// or for any where that is empty.
func says(condition, reason string) func(*cluster.Object) bool {
	return func(o *cluster.Object) bool {
		status, why := cluster.Condition(o, condition)
		return status == "True" && (reason == "" || why == reason)
	}
}

func nestedBool(o *cluster.Object, path ...string) (value, there bool, err error) {
	return unstructured.NestedBool(o.Object, path...)
}

// nestedString is a field of an object, "" where it is not there.
func nestedString(o *cluster.Object, path ...string) string {
	value, _, _ := unstructured.NestedString(o.Object, path...)
	return value
}

// isGone reports whether a deletion has nothing left to do.
func isGone(err error) bool { return err == nil || apierrors.IsNotFound(err) }

// holdAnnotations are the annotations of the library on an object.
func holdAnnotations(o *cluster.Object) map[string]string {
	ours := maps.Clone(o.GetAnnotations())
	maps.DeleteFunc(ours, func(key, _ string) bool { return !strings.HasPrefix(key, meta.DefaultPrefix+"/") })
	return ours
}

// neverTwice fails if two executions of a job ran side by side.
func (s *scene) neverTwice(job *cluster.Object) {
	s.Helper()
	s.must(s.recorder.catchUp(s.soon(), s.cluster))
	for _, o := range overlaps(s.recorder.under(podKeys+s.namespace+"/"), job.GetName()) {
		s.Errorf("two executions side by side: %s", o)
	}
}

// An overlap is a pod that was created while one of an earlier execution remained.
type overlap struct {
	job, pod, remained string
	at                 time.Time
}

func (o overlap) String() string {
	return fmt.Sprintf("pod %s of job %s was created while %s remained", o.pod, o.job, o.remained)
}

// overlaps returns the overlaps in the history of the pods of a namespace, of
// one job or, where that is empty, of all. Jobs have one pod per execution.
func overlaps(history []version, job string) []overlap {
	there := map[string]*cluster.Object{} // by key
	var found []overlap
	for _, v := range history {
		if v.object == nil {
			delete(there, v.key)
			continue
		}
		of := v.object.GetLabels()[cluster.JobSetLabel]
		if of == "" || job != "" && of != job {
			continue
		}
		before := there[v.key]
		there[v.key] = v.object
		if before != nil && before.GetUID() == v.object.GetUID() {
			continue
		}
		for key, other := range there {
			if key != v.key && other.GetLabels()[cluster.JobSetLabel] == of && holdable.PodRemains(other) {
				found = append(found, overlap{job: of, pod: v.object.GetName(), remained: other.GetName(), at: v.seen})
			}
		}
	}
	return found
}
