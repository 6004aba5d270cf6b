package rapidtest

import (
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/retry"
)

// A subject is a kind under test, with the type of its pause field taken away. It reads objects by itself, not through package
// holdable, so that the two can disagree.
type subject struct {
	kind holdable.Kind
	// held and named are the resources of the object that is written and of the one that callers name: one and the same, but for
	// kinds that are held through another object.
	held, named         schema.GroupVersionResource
	heldKind, namedKind string
	clusterScoped       bool
	uidLabel            string
	// pinned: callers name the object with its UID.
	pinned bool

	path                       []string
	heldValue, running, absent any
	resume                     holdable.Resume

	startGate    bool
	pods         func(*unstructured.Unstructured) (string, error)
	makes        []holdable.Made
	waitsForPods bool
	ended        func(*unstructured.Unstructured) string
	deactivated  func(*unstructured.Unstructured) string
}

func subjectOf[T holdable.Value](kind holdable.Holdable[T]) *subject {
	s := &subject{
		kind: kind,
		held: kind.Resource, heldKind: kind.Kind, named: kind.Resource, namedKind: kind.Kind,
		clusterScoped: kind.ClusterScoped,
		path:          kind.Pause.Path,
		heldValue:     kind.Pause.Held, running: kind.Pause.Running, absent: kind.Pause.Absent,
		resume:       kind.Pause.Resume,
		startGate:    kind.StartGate,
		pods:         kind.Pods,
		makes:        kind.Makes,
		waitsForPods: kind.Pods != nil && !kind.GatedElsewhere,
		ended:        orNever(kind.Ended),
		deactivated:  orNever(kind.Deactivated),
	}
	if kind.Of != nil {
		s.named, s.namedKind, s.uidLabel = kind.Of.Resource, kind.Of.Kind, kind.Of.UIDLabel
	}
	return s
}

// pin returns the subject with callers who name the object with its UID.
func (s *subject) pin() *subject {
	pinned := *s
	pinned.pinned = true
	return &pinned
}

func orNever(f func(*unstructured.Unstructured) string) func(*unstructured.Unstructured) string {
	if f == nil {
		return func(*unstructured.Unstructured) string { return "" }
	}
	return f
}

// indirect says that callers name another object than the one that is held.
func (s *subject) indirect() bool { return s.named != s.held }

// server returns an empty server of the subject's resources. Nothing is pruned from its objects, so that a write which loses a field of
// somebody else's shows.
func (s *subject) server() *Server {
	resources := []Resource{
		{GVR: s.held, Kind: s.heldKind, Namespaced: !s.clusterScoped, StatusSubresource: true},
		Pods(),
	}
	if s.indirect() {
		resources = append(resources, Resource{GVR: s.named, Kind: s.namedKind, Namespaced: !s.clusterScoped, StatusSubresource: true})
	}
	for _, made := range s.makes {
		resources = append(resources, Resource{GVR: made.Resource, Kind: made.Kind, Namespaced: true, StatusSubresource: true})
	}
	return NewServer(resources...)
}

// The one object of a world.
const (
	worldNamespace = "ns"
	worldName      = "job"
	heldName       = "job-held"
)

// heldObjectName is the name of the object that is written.
func (s *subject) heldObjectName() string {
	if s.indirect() {
		return heldName
	}
	return worldName
}

func (s *subject) namespace() string {
	if s.clusterScoped {
		return ""
	}
	return worldNamespace
}

// ref names the object of a world, with its UID if callers of the subject pin it.
func (s *subject) ref(server *Server) meta.Ref {
	ref := meta.Ref{Namespace: s.namespace(), Name: worldName}
	if s.pinned {
		ref.UID = server.Stored(s.named, s.namespace(), worldName).GetUID()
	}
	return ref
}

// holder connects the kind to a client, with waits that take next to no time and are the same in every run.
func (s *subject) holder(client dynamic.Interface, retries int) (holdable.Holder, error) {
	engine, err := retry.NewForClient(client, retry.Options{
		Retries: retries,
		Backoff: wait.Backoff{Duration: time.Nanosecond, Factor: 1},
	})
	if err != nil {
		return nil, err
	}
	return s.kind.Connect(engine, holdable.Options{})
}

// client returns a client for a resource of the world.
func (s *subject) client(d dynamic.Interface, gvr schema.GroupVersionResource) dynamic.ResourceInterface {
	if s.clusterScoped {
		return d.Resource(gvr)
	}
	return d.Resource(gvr).Namespace(worldNamespace)
}

// object is a new running object of the subject, with content that is nobody's business here.
func (s *subject) object(gvr schema.GroupVersionResource, kind, name string) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": gvr.GroupVersion().String(),
		"kind":       kind,
		"metadata": map[string]any{
			"name":        name,
			"annotations": map[string]any{"other.example/note": "not ours"},
			"labels":      map[string]any{"other.example/team": "a"},
		},
		"spec": map[string]any{"unheardOf": map[string]any{"deep": int64(7), "list": []any{"x", int64(1)}}},
	}}
	if !s.clusterScoped {
		obj.SetNamespace(worldNamespace)
	}
	return obj
}

// paused says whether the pause field of obj reads held.
func (s *subject) paused(obj *unstructured.Unstructured) bool {
	v, _, _ := unstructured.NestedFieldNoCopy(obj.Object, s.path...)
	if v == nil {
		v = s.absent
	}
	return v == s.heldValue
}

// resumes is what an update that resumes prev has to leave in the pause field, nil for no field. was is what the field had when the object last
// ran.
func (s *subject) resumes(prev *unstructured.Unstructured, was any) any {
	_, restore, found := strings.Cut(prev.GetAnnotations()[meta.Keys{}.Found()], "=")
	switch {
	case s.resume == holdable.RemoveField:
		return nil
	case s.resume == holdable.RestoreFound && found && restore != "":
		return was
	}
	return s.running
}

// setPause writes the pause field of an object that is ours to change.
func (s *subject) setPause(obj *unstructured.Unstructured, value any) error {
	return unstructured.SetNestedField(obj.Object, value, s.path...)
}

// create makes the object, and the one it is held through if there is one.
func (s *subject) create(d dynamic.Interface) error {
	ctx := context.Background()
	named := s.object(s.named, s.namedKind, worldName)
	if !s.indirect() {
		if err := s.setPause(named, s.running); err != nil {
			return err
		}
	}
	made, err := s.client(d, s.named).Create(ctx, named, metav1.CreateOptions{})
	if err != nil || !s.indirect() {
		return err
	}
	return s.createHeld(d, made)
}

// createHeld makes the held object of a named one.
func (s *subject) createHeld(d dynamic.Interface, named *unstructured.Unstructured) error {
	held := s.object(s.held, s.heldKind, heldName)
	controlled := true
	held.SetLabels(map[string]string{s.uidLabel: string(named.GetUID())})
	held.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: s.named.GroupVersion().String(), Kind: s.namedKind, Name: named.GetName(), UID: named.GetUID(), Controller: &controlled,
	}})
	if err := s.setPause(held, s.running); err != nil {
		return err
	}
	_, err := s.client(d, s.held).Create(context.Background(), held, metav1.CreateOptions{})
	return err
}

// remove deletes an object, finalizers or not.
func (s *subject) remove(d dynamic.Interface, gvr schema.GroupVersionResource, name string) error {
	err := s.change(d, gvr, name, func(obj *unstructured.Unstructured) error {
		obj.SetFinalizers(nil)
		return nil
	})
	if err != nil {
		return err
	}
	err = s.client(d, gvr).Delete(context.Background(), name, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) { // it was only waiting for its finalizer
		return nil
	}
	return err
}

// change reads an object, changes it and writes it.
func (s *subject) change(d dynamic.Interface, gvr schema.GroupVersionResource, name string, f func(*unstructured.Unstructured) error) error {
	obj, err := s.client(d, gvr).Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if err := f(obj); err != nil {
		return err
	}
	_, err = s.client(d, gvr).Update(context.Background(), obj, metav1.UpdateOptions{})
	return err
}

// changeStatus adds status conditions to the held object.
func (s *subject) changeStatus(d dynamic.Interface, conditions ...string) error {
	obj, err := s.client(d, s.held).Get(context.Background(), s.heldObjectName(), metav1.GetOptions{})
	if err != nil {
		return err
	}
	list, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
	for _, c := range conditions {
		list = append(list, map[string]any{"type": c, "status": "True", "reason": "Test", "message": ""})
	}
	if err := unstructured.SetNestedSlice(obj.Object, list, "status", "conditions"); err != nil {
		return err
	}
	_, err = s.client(d, s.held).UpdateStatus(context.Background(), obj, metav1.UpdateOptions{})
	return err
}

// A start is a state of the world in which calls begin.
type start struct {
	name string
	make func(*subject, dynamic.Interface) error
}

// holdOn returns the change that puts a hold on an object, as a supervisor would have.
func (s *subject) holdOn(instance int64, found meta.Found) func(*unstructured.Unstructured) error {
	return func(obj *unstructured.Unstructured) error {
		hold := meta.Hold{
			Instance: instance, Holder: "earlier", Reason: "before", Since: time.Now(), Found: found, UID: obj.GetUID(),
		}
		annotations := obj.GetAnnotations()
		for k, v := range (meta.Keys{}).Annotations(hold) {
			annotations[k] = v
		}
		obj.SetAnnotations(annotations)
		return s.setPause(obj, s.heldValue)
	}
}

// markOpened returns the change that opens the start gate and counts an execution.
func (s *subject) markOpened(obj *unstructured.Unstructured) error {
	annotations := obj.GetAnnotations()
	annotations[meta.Keys{}.Opened()] = string(obj.GetUID())
	annotations[meta.Keys{}.Executions()] = meta.Keys{}.ExecutionsValue(obj.GetUID(), 1)
	obj.SetAnnotations(annotations)
	return nil
}

// onHeld is a start that makes changes to the held object, one after the other.
func onHeld(name string, changes ...func(*subject, *unstructured.Unstructured) error) start {
	return start{name, func(s *subject, d dynamic.Interface) error {
		return s.change(d, s.held, s.heldObjectName(), func(obj *unstructured.Unstructured) error {
			for _, c := range changes {
				if err := c(s, obj); err != nil {
					return err
				}
			}
			return nil
		})
	}}
}

// and is one start after another.
func (st start) and(other start) start {
	return start{st.name + ", " + other.name, func(s *subject, d dynamic.Interface) error {
		if err := st.make(s, d); err != nil {
			return err
		}
		return other.make(s, d)
	}}
}

func isHeld(instance int64, found meta.Found) func(*subject, *unstructured.Unstructured) error {
	return func(s *subject, obj *unstructured.Unstructured) error { return s.holdOn(instance, found)(obj) }
}

func isPaused(s *subject, obj *unstructured.Unstructured) error { return s.setPause(obj, s.heldValue) }

func isOpened(s *subject, obj *unstructured.Unstructured) error { return s.markOpened(obj) }

func isRunning(s *subject, obj *unstructured.Unstructured) error { return s.setPause(obj, s.running) }

// starts are the states that an exploration begins in. Instances 2 and 3 are those that calls ask for.
func (s *subject) starts() []start {
	opened := func(*subject, *unstructured.Unstructured) error { return nil }
	if s.startGate {
		opened = isOpened
	}
	list := []start{
		onHeld("free", opened),
		onHeld("held by an older one", opened, isHeld(1, meta.FoundRunning)),
		onHeld("held by 2", opened, isHeld(2, meta.FoundRunning)),
		onHeld("held by 3", opened, isHeld(3, meta.FoundRunning)),
		onHeld("held by a newer one", opened, isHeld(4, meta.FoundRunning)),
		onHeld("held by 2, resumed by hand", opened, isHeld(2, meta.FoundRunning), isRunning),
		onHeld("paused by its owner", opened, isPaused),
		onHeld("held by 2, found paused", opened, isHeld(2, meta.FoundPaused)),
		onHeld("held by 2", opened, isHeld(2, meta.FoundRunning)).and(start{"ended", func(s *subject, d dynamic.Interface) error {
			return s.changeStatus(d, "Complete", "Completed", "Finished")
		}}),
		onHeld("held by 2", opened, isHeld(2, meta.FoundRunning)).and(start{"being deleted", func(s *subject, d dynamic.Interface) error {
			return s.beginDeletion(d)
		}}),
		onHeld("hold of unknown instance", opened, isHeld(2, meta.FoundRunning), func(_ *subject, obj *unstructured.Unstructured) error {
			annotations := obj.GetAnnotations()
			annotations[meta.Keys{}.Instance()] = "two"
			obj.SetAnnotations(annotations)
			return nil
		}),
	}
	if s.startGate {
		list = append(list,
			onHeld("at its start gate", isPaused),
			onHeld("held by 2 at its start gate", isHeld(2, meta.FoundGate)),
		)
	}
	if s.waitsForPods {
		list = append(list, onHeld("held by 2", opened, isHeld(2, meta.FoundRunning)).and(start{"a pod remains", func(s *subject, d dynamic.Interface) error {
			return s.createPod(d)
		}}))
	}
	return list
}

// beginDeletion leaves the held object waiting for a finalizer.
func (s *subject) beginDeletion(d dynamic.Interface) error {
	err := s.change(d, s.held, s.heldObjectName(), func(obj *unstructured.Unstructured) error {
		obj.SetFinalizers([]string{"other.example/wait"})
		return nil
	})
	if err != nil {
		return err
	}
	return s.client(d, s.held).Delete(context.Background(), s.heldObjectName(), metav1.DeleteOptions{})
}

// createPod makes a running pod of the object.
func (s *subject) createPod(d dynamic.Interface) error {
	named, err := s.client(d, s.named).Get(context.Background(), worldName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	selector, err := s.pods(named)
	if err != nil {
		return err
	}
	labels, err := metav1.ParseToLabelSelector(selector)
	if err != nil {
		return fmt.Errorf("the selector %q of the pods: %w", selector, err)
	}
	pod := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": worldName + "-0", "namespace": worldNamespace},
		"spec":     map[string]any{"nodeName": "node", "containers": []any{map[string]any{"name": "main"}}},
	}}
	pod.SetLabels(labels.MatchLabels)
	_, err = d.Resource(Pods().GVR).Namespace(worldNamespace).Create(context.Background(), pod, metav1.CreateOptions{})
	return err
}
