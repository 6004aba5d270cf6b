package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/samber/lo"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/retry"
)

const (
	// answerWithin is the time of one look at a job. What has begun when the
	// controller is told to stop is finished, so it is also how long that takes
	// at the most.
	answerWithin = 10 * time.Second
	// lookAgain is when a job that waits is looked at again though nothing was
	// heard of it.
	lookAgain = 10 * time.Second
	// gather is how long the events of what is below a job are gathered.
	gather = 250 * time.Millisecond
)

// options configure a controller.
type options struct {
	prefix    string
	namespace string
	workers   int
}

// A controller calls the gate for every Workload that waits at it, whenever the
// Workload changes, or one of its job's pods, or what makes these.
type controller struct {
	client  dynamic.Interface
	engine  *retry.Engine
	kinds   map[schema.GroupKind]holdable.Holdable[bool]
	options options
	log     *slog.Logger

	workloads cache.SharedIndexInformer
	checks    cache.SharedIndexInformer
	// below see what is below the jobs, by resource.
	below  map[schema.GroupVersionResource]cache.SharedIndexInformer
	synced atomic.Bool
	// queue holds the names of Workloads, and of AdmissionChecks, which have no
	// namespace.
	queue workqueue.TypedRateLimitingInterface[types.NamespacedName]
}

func newController(client dynamic.Interface, engine *retry.Engine, kinds []holdable.Holdable[bool], o options, log *slog.Logger) *controller {
	c := &controller{
		client: client,
		engine: engine,
		kinds: lo.SliceToMap(kinds, func(k holdable.Holdable[bool]) (schema.GroupKind, holdable.Holdable[bool]) {
			return k.GroupVersionKind().GroupKind(), k
		}),
		options:   o,
		log:       log,
		workloads: newInformer(client, workloads(), o.namespace, cache.Indexers{waitingIndex: namespaceOfWaiting}),
		checks:    newInformer(client, checks(), metav1.NamespaceAll, cache.Indexers{}),
		below:     map[schema.GroupVersionResource]cache.SharedIndexInformer{},
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](100*time.Millisecond, 30*time.Second)),
	}
	for _, made := range lo.FlatMap(kinds, func(k holdable.Holdable[bool], _ int) []holdable.Made { return below(k) }) {
		c.below[made.Resource] = newInformer(client, made.Resource, o.namespace, cache.Indexers{})
	}
	return c
}

// ready reports whether the controller has seen the cluster. That it sees it no
// more is in its log.
func (c *controller) ready() bool { return c.synced.Load() }

// run works until ctx ends, and returns when nothing of it is under way any more.
func (c *controller) run(ctx context.Context) error {
	heard, err := c.listen()
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	defer all.Wait()
	defer c.queue.ShutDown()
	for _, informer := range append(lo.Values(c.below), c.workloads, c.checks) {
		all.Go(func() { informer.RunWithContext(ctx) })
	}
	if !cache.WaitForCacheSync(ctx.Done(), heard...) {
		return nil // told to stop before it saw anything
	}
	c.synced.Store(true)
	c.log.Info("the gate answers")
	for range c.options.workers {
		all.Go(func() {
			for c.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	c.log.Info("told to stop")
	return nil
}

// listen says what is to be looked at when, and returns what tells whether the
// first of it has been heard.
func (c *controller) listen() ([]cache.InformerSynced, error) {
	workloads, err1 := c.on(c.workloads, func(w *unstructured.Unstructured) { c.queue.Add(nameOf(w)) })
	checks, err2 := c.on(c.checks, c.onCheck)
	heard, err := []cache.InformerSynced{workloads, checks}, errors.Join(err1, err2)
	for resource, informer := range c.below {
		below, err3 := c.on(informer, func(obj *unstructured.Unstructured) { c.onBelow(resource, obj) })
		heard, err = append(heard, below), errors.Join(err, err3, informer.SetTransform(withoutContent))
	}
	return heard, err
}

// on calls do for every object that is new, has changed or is gone.
func (c *controller) on(informer cache.SharedIndexInformer, do func(*unstructured.Unstructured)) (cache.InformerSynced, error) {
	of := func(object any) {
		if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = gone.Obj
		}
		if obj, ok := object.(*unstructured.Unstructured); ok {
			do(obj)
		}
	}
	failed := func(_ context.Context, _ *cache.Reflector, err error) {
		if !errors.Is(err, io.EOF) { // a watch that has ended as watches do
			c.log.Warn("cannot see the cluster, and will look again", "error", err)
		}
	}
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    of,
		UpdateFunc: func(_, object any) { of(object) },
		DeleteFunc: of,
	})
	if err != nil {
		return nil, err
	}
	return registration.HasSynced, informer.SetWatchErrorHandlerWithContext(failed)
}

// onCheck looks at an AdmissionCheck, and at all Workloads, which may wait for it.
func (c *controller) onCheck(check *unstructured.Unstructured) {
	c.queue.Add(nameOf(check))
	for _, w := range c.stored(c.workloads) {
		c.queue.Add(nameOf(w))
	}
}

// onBelow looks at the Workloads whose jobs the object may belong to.
func (c *controller) onBelow(resource schema.GroupVersionResource, obj *unstructured.Unstructured) {
	waiting, err := c.workloads.GetIndexer().ByIndex(waitingIndex, obj.GetNamespace())
	if err != nil {
		c.log.Error("no index of what waits", "error", err)
	}
	for _, object := range waiting {
		if w, ok := object.(*unstructured.Unstructured); ok && len(c.toAnswer(w)) > 0 && c.mayBeBelow(w, resource, obj) {
			c.queue.AddAfter(nameOf(w), gather)
		}
	}
}

// mayBeBelow reports whether the object may belong to the job of a Workload.
func (c *controller) mayBeBelow(workload *unstructured.Unstructured, resource schema.GroupVersionResource, obj *unstructured.Unstructured) bool {
	owner, ok := jobOf(workload)
	return ok && c.guards(owner.kind) && slices.ContainsFunc(below(c.kinds[owner.kind]), func(made holdable.Made) bool {
		return made.Resource == resource && mayOwn(owner.ref, made, obj)
	})
}

func (c *controller) guards(kind schema.GroupKind) bool { return lo.HasKey(c.kinds, kind) }

// stored returns all objects of a cache.
func (c *controller) stored(informer cache.SharedIndexInformer) []*unstructured.Unstructured {
	return lo.FilterMap(informer.GetStore().List(), func(object any, _ int) (*unstructured.Unstructured, bool) {
		obj, ok := object.(*unstructured.Unstructured)
		return obj, ok
	})
}

// lookup returns an object of a cache, nil if it has none of that name.
func (c *controller) lookup(informer cache.SharedIndexInformer, name types.NamespacedName) *unstructured.Unstructured {
	key := cache.ObjectName{Namespace: name.Namespace, Name: name.Name}.String()
	object, _, err := informer.GetStore().GetByKey(key)
	obj, ok := object.(*unstructured.Unstructured)
	if err != nil || !ok {
		return nil
	}
	return obj
}

// toAnswer returns the checks of a Workload that wait for the gate.
func (c *controller) toAnswer(workload *unstructured.Unstructured) []string {
	if !hasQuota(workload) {
		return nil
	}
	return lo.Filter(pendingChecks(workload), func(name string, _ int) bool {
		check := c.lookup(c.checks, types.NamespacedName{Name: name})
		return check != nil && isOurs(check)
	})
}

// next takes one name off the queue. It is false when there will be no more.
func (c *controller) next(ctx context.Context) bool {
	name, over := c.queue.Get()
	if over || ctx.Err() != nil {
		return false
	}
	defer c.queue.Done(name)
	// What has begun is finished.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerWithin)
	defer cancel()
	again, err := c.reconcile(ctx, name)
	switch {
	case err != nil:
		c.log.Error("will look again", "name", name.String(), "error", err)
		c.queue.AddRateLimited(name)
		return true
	case again > 0:
		c.queue.AddAfter(name, again)
	}
	c.queue.Forget(name)
	return true
}

// reconcile looks at one object, and says when to look again if nothing is heard
// of it.
func (c *controller) reconcile(ctx context.Context, name types.NamespacedName) (again time.Duration, err error) {
	if name.Namespace == "" {
		return 0, c.activate(ctx, name)
	}
	workload := c.lookup(c.workloads, name)
	if workload == nil {
		return 0, nil
	}
	for _, check := range c.toAnswer(workload) {
		shut, err := c.answer(ctx, workload, check)
		if err != nil {
			return 0, err
		}
		if shut {
			again = lookAgain
		}
	}
	return again, nil
}

// answer has the gate answer one check of a Workload.
func (c *controller) answer(ctx context.Context, workload *unstructured.Unstructured, check string) (shut bool, err error) {
	owner, ok := jobOf(workload)
	if !ok || !c.guards(owner.kind) {
		c.log.Warn("nobody answers for a Workload of this kind", "workload", nameOf(workload).String(), "kind", owner.kind.String())
		return false, nil
	}
	gate, err := holdable.NewGate(c.kinds[owner.kind], c.engine, holdable.Options{Prefix: c.options.prefix, Gate: check})
	if err != nil {
		return false, err
	}
	answer, err := gate.Answer(ctx, owner.ref, time.Now().Add(answerWithin))
	switch {
	case errors.Is(err, meta.ErrMissing) || errors.Is(err, meta.ErrReplaced):
		return false, nil // its successor is heard of
	case err != nil:
		return false, err
	}
	if answer.Refused != nil { // nothing is heard when it is refused no more
		return false, answer.Refused
	}
	level := slog.LevelDebug
	if answer.State == holdable.GateOpened {
		level = slog.LevelInfo
	}
	c.log.Log(ctx, level, string(answer.State), "workload", answer.Workload.String(), "of", answer.Object.String(), "check", check, "why", answer.Why)
	return answer.State == holdable.GateShut, nil
}

// activate tells Kueue that an AdmissionCheck of the gate's is being answered.
func (c *controller) activate(ctx context.Context, name types.NamespacedName) error {
	check := c.lookup(c.checks, name)
	if check == nil || !isOurs(check) {
		return nil
	}
	changed, ok := activated(check, metav1.Now())
	if !ok {
		return nil
	}
	_, err := c.client.Resource(checks()).UpdateStatus(ctx, changed, metav1.UpdateOptions{FieldManager: retry.FieldManager})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // the version that was in the way is heard of
	}
	if err == nil {
		c.log.Info("active", "check", name.Name)
	}
	return err
}
