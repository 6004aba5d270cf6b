package rapidtest

import (
	"context"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// A Runner is the controller of any kind whose objects run in pods: it makes a pod for each object
// that runs, and deletes it when the object does not run any more. Like most controllers it waits
// for none that still ends. The pods run and end by [Kubelet].
type Runner struct {
	// Client is what it works with.
	Client dynamic.Interface
	// Resource is the resource of the objects.
	Resource schema.GroupVersionResource
	// Runs says whether an object is to run.
	Runs func(obj *unstructured.Unstructured) bool
	// Labels are what it labels the pods of an object with.
	Labels func(obj *unstructured.Unstructured) map[string]string
}

func (r *Runner) hand() hand { return hand{client: r.Client, manager: "runner"} }

// Step implements [Actor].
func (r *Runner) Step(ctx context.Context) (bool, error) {
	objects, err := r.hand().list(ctx, r.Resource, "")
	if err != nil {
		return false, err
	}
	pods, err := r.hand().list(ctx, Pods().GVR, "")
	if err != nil {
		return false, err
	}
	for i := range objects {
		if did, err := r.reconcile(ctx, &objects[i], pods); did || err != nil {
			return did, err
		}
	}
	return false, nil
}

func (r *Runner) reconcile(ctx context.Context, obj *unstructured.Unstructured, pods []unstructured.Unstructured) (bool, error) {
	if obj.GetDeletionTimestamp() != nil {
		return false, nil
	}
	alive := (*unstructured.Unstructured)(nil)
	for i := range pods {
		if ownedBy(&pods[i], obj) && isAlive(&pods[i]) {
			alive = &pods[i]
		}
	}
	switch runs := r.Runs(obj); {
	case runs && alive == nil:
		return r.hand().create(ctx, Pods().GVR, r.newPod(obj))
	case !runs && alive != nil:
		return r.hand().delete(ctx, Pods().GVR, alive, metav1.DeleteOptions{})
	}
	return false, nil
}

func (r *Runner) newPod(obj *unstructured.Unstructured) *unstructured.Unstructured {
	controls := true
	pod := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"spec": map[string]any{"nodeName": "node", "containers": []any{map[string]any{"name": "main", "image": "main"}}},
	}}
	pod.SetGenerateName(obj.GetName() + "-")
	pod.SetNamespace(obj.GetNamespace())
	if obj.GetNamespace() == "" {
		pod.SetNamespace(metav1.NamespaceDefault)
	}
	labels := map[string]string{ExecutionLabel: strconv.FormatInt(obj.GetGeneration(), 10)}
	for k, v := range r.Labels(obj) {
		labels[k] = v
	}
	pod.SetLabels(labels)
	pod.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: obj.GetAPIVersion(), Kind: obj.GetKind(), Name: obj.GetName(), UID: obj.GetUID(), Controller: &controls,
	}})
	return pod
}
