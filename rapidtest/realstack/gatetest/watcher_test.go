//go:build e2e

package gatetest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/kubehold/kubehold/holdable"
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
	// double says which pods were made beside which, and sinceDouble when: what
	// remained then, and how long it still did, adds up to beside.
	double  []string
	overlap map[types.UID]time.Time
	beside  time.Duration
}

// watch sees what happens until ctx ends.
func watchNamespace(ctx context.Context, client dynamic.Interface, namespace string) (*watcher, error) {
	w := &watcher{pods: map[types.UID]*cluster.Object{}, made: map[string]int{}, overlap: map[types.UID]time.Time{}}
	w.jobs = informer(client, cluster.TrainJobs(), namespace)
	pods := informer(client, schema.GroupVersionResource{Version: "v1", Resource: "pods"}, namespace)
	_, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { w.saw(o) },
		UpdateFunc: func(_, o any) { w.saw(o) },
		DeleteFunc: w.gone,
	})
	if err != nil {
		return nil, err
	}
	go w.jobs.RunWithContext(ctx)
	go pods.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), w.jobs.HasSynced, pods.HasSynced) {
		return nil, context.Cause(ctx)
	}
	return w, nil
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
				w.double = append(w.double, fmt.Sprintf("%s beside %s", pod.GetName(), other.GetName()))
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
func (w *watcher) doubles() ([]string, time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.double), w.beside
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
