//go:build e2e

package gatetest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/samber/lo"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/rapidtest/realstack/cluster"
)

// A watcher sees every pod and every TrainJob of a namespace. An execution of a
// job is one pod, so that a pod that is made while another one of its job
// remains is a second execution beside the first.
type watcher struct {
	jobs cache.SharedIndexInformer

	mu   sync.Mutex
	pods map[types.UID]*cluster.Object
	// made counts the pods that were made, by job.
	made map[string]int
	// double says which pods were made beside which, and overlap since when: how
	// long what remained then still did adds up to beside.
	double  []double
	overlap map[types.UID]time.Time
	beside  time.Duration
	// diary tells of every version of what belongs to a job, by job.
	diary map[string][]string
}

// A double is a pod that was made while one of another execution remained.
type double struct{ job, pod, beside string }

// watchNamespace sees what happens until ctx ends.
func watchNamespace(ctx context.Context, client dynamic.Interface, namespace string) (*watcher, error) {
	w := &watcher{
		jobs: informer(client, cluster.TrainJobs(), namespace),
		pods: map[types.UID]*cluster.Object{}, made: map[string]int{}, overlap: map[types.UID]time.Time{}, diary: map[string][]string{},
	}
	pods := informer(client, schema.GroupVersionResource{Version: "v1", Resource: "pods"}, namespace)
	_, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { w.saw(o) },
		UpdateFunc: func(_, o any) { w.saw(o) },
		DeleteFunc: w.gone,
	})
	if err != nil {
		return nil, err
	}
	all := []cache.SharedIndexInformer{w.jobs, pods}
	for _, resource := range []schema.GroupVersionResource{
		cluster.Workloads(),
		jobSets(),
		{Group: "batch", Version: "v1", Resource: "jobs"},
	} {
		all = append(all, informer(client, resource, namespace))
	}
	for _, informer := range all {
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { w.note("", o) },
			UpdateFunc: func(_, o any) { w.note("", o) },
			DeleteFunc: func(o any) { w.note("is gone: ", o) },
		}); err != nil {
			return nil, err
		}
		go informer.RunWithContext(ctx)
	}
	if !cache.WaitForCacheSync(ctx.Done(), lo.Map(all, func(i cache.SharedIndexInformer, _ int) cache.InformerSynced { return i.HasSynced })...) {
		return nil, context.Cause(ctx)
	}
	return w, nil
}

// note writes a version into the diary of its job.
func (w *watcher) note(what string, o any) {
	obj, ok := o.(*cluster.Object)
	if !ok {
		return
	}
	job := cmp.Or(jobOf(obj), obj.GetName())
	if owner, ok := lo.First(obj.GetOwnerReferences()); ok && obj.GetKind() == "Workload" {
		job = owner.Name
	}
	a := obj.GetAnnotations()[meta.Keys{}.Executions()]
	text := func(path ...string) string {
		value, _, _ := unstructured.NestedFieldNoCopy(obj.Object, path...)
		if value == nil {
			return "-"
		}
		return fmt.Sprint(value)
	}
	line := fmt.Sprintf("%s %s %s %s%s: suspend %s, active %s, node %s, phase %s, deleted %s, A %s, %s",
		time.Now().UTC().Format("05.000"), obj.GetKind(), obj.GetName(), what, obj.GetResourceVersion(),
		text("spec", "suspend"), text("spec", "active"), text("spec", "nodeName"), text("status", "phase"),
		text("metadata", "deletionTimestamp"), a, conditions(obj))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.diary[job] = append(w.diary[job], line)
}

// conditions are those that are True, and how the admission checks stand.
func conditions(obj *cluster.Object) string {
	var out []string
	for list, value := range map[string]string{"conditions": "status", "admissionChecks": "state"} {
		items, _, _ := unstructured.NestedSlice(obj.Object, "status", list)
		for _, item := range items {
			if c, ok := item.(map[string]any); ok && c[value] != "False" {
				out = append(out, strings.TrimSpace(fmt.Sprintf("%v%v %v %v", c["type"], c["name"], c[value], c["message"])))
			}
		}
	}
	return strings.Join(out, ", ")
}

func informer(client dynamic.Interface, resource schema.GroupVersionResource, namespace string) cache.SharedIndexInformer {
	objects := client.Resource(resource).Namespace(namespace)
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return objects.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return objects.Watch(ctx, options)
		},
	}
	return cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(lw, client), &cluster.Object{}, 0, cache.Indexers{})
}

func jobSets() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "jobset.x-k8s.io", Version: "v1alpha2", Resource: "jobsets"}
}

func jobOf(pod *cluster.Object) string { return pod.GetLabels()[cluster.JobSetLabel] }

func (w *watcher) saw(o any) {
	pod, ok := o.(*cluster.Object)
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, known := w.pods[pod.GetUID()]; !known {
		w.made[jobOf(pod)]++
		for _, other := range w.pods {
			if jobOf(other) == jobOf(pod) && holdable.PodRemains(other) {
				w.double = append(w.double, double{jobOf(pod), pod.GetName(), other.GetName()})
				w.overlap[other.GetUID()] = time.Now()
			}
		}
	}
	w.pods[pod.GetUID()] = pod
	w.settle(pod.GetUID(), holdable.PodRemains(pod))
}

func (w *watcher) gone(o any) {
	if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = last.Obj
	}
	if pod, ok := o.(*cluster.Object); ok {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.pods, pod.GetUID())
		w.settle(pod.GetUID(), false)
	}
}

// settle adds up how long a pod has remained beside another execution, once it
// remains no more.
func (w *watcher) settle(pod types.UID, remains bool) {
	if began, ok := w.overlap[pod]; ok && !remains {
		w.beside += time.Since(began)
		delete(w.overlap, pod)
	}
}

// doubles returns what was seen of executions side by side, and for how long they
// were there.
func (w *watcher) doubles() ([]double, time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.double), w.beside
}

// story is the diary of a job.
func (w *watcher) story(job string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.diary[job])
}

// waits counts the answers of the gate that say so, over all jobs.
func (w *watcher) waits(why string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return lo.SumBy(lo.Flatten(lo.Values(w.diary)), func(line string) int { return strings.Count(line, why) })
}

// newest returns a job's pod that was made last, nil if none is there.
func (w *watcher) newest(job *cluster.Object) *cluster.Object {
	w.mu.Lock()
	defer w.mu.Unlock()
	var newest *cluster.Object
	for _, pod := range w.pods {
		if jobOf(pod) == job.GetName() && (newest == nil || newest.GetCreationTimestamp().Time.Before(pod.GetCreationTimestamp().Time)) {
			newest = pod
		}
	}
	return newest
}

// current returns a TrainJob as it was seen last.
func (w *watcher) current(job *cluster.Object) *cluster.Object {
	o, _, _ := w.jobs.GetStore().GetByKey(job.GetNamespace() + "/" + job.GetName())
	seen, ok := o.(*cluster.Object)
	if !ok {
		return job
	}
	return seen
}
