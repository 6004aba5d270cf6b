// Package cluster makes the objects that a test against the real systems
// begins with, and waits for what becomes of them: nodes, a queue, a training
// runtime, TrainJobs and their pods.
//
//	c, err := cluster.New(s.RESTConfig())
//	...
//	err = c.CreateNodes(ctx, 1)
//	err = c.CreateQueue(ctx, cluster.Queue{Name: "main"})
//	err = c.CreateRuntime(ctx, cluster.Runtime{Name: "sleep"})
//	job, err := c.CreateTrainJob(ctx, cluster.TrainJob{Name: "one", Runtime: "sleep", Queue: "main"})
//	err = c.WaitPods(ctx, job, 1)
//
// Every wait ends with the context, and its error then says what was last seen.
package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// An Object is any object of the cluster.
type Object = unstructured.Unstructured

// Namespace is the namespace of objects that name none.
const Namespace = "default"

const pollInterval = 50 * time.Millisecond

// The resources that this package works with.
func nodes() schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
}
func pods() schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: "pods"}
}
func kueue(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "kueue.x-k8s.io", Version: "v1beta2", Resource: resource}
}
func trainer(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "trainer.kubeflow.org", Version: "v1alpha1", Resource: resource}
}

// Workloads is the resource of Kueue's Workloads.
func Workloads() schema.GroupVersionResource { return kueue("workloads") }

// TrainJobs is the resource of Trainer's TrainJobs.
func TrainJobs() schema.GroupVersionResource { return trainer("trainjobs") }

// A Cluster makes and reads objects. It is safe for concurrent use.
type Cluster struct{ client dynamic.Interface }

// New returns a Cluster that works as the user of config, without client-side
// rate limits.
func New(config *rest.Config) (*Cluster, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &Cluster{client: client}, nil
}

// Client is the client that the Cluster works with.
func (c *Cluster) Client() dynamic.Interface { return c.client }

// in is a resource in a namespace, or in none.
func (c *Cluster) in(resource schema.GroupVersionResource, namespace string) dynamic.ResourceInterface {
	if namespace == "" {
		return c.client.Resource(resource)
	}
	return c.client.Resource(resource).Namespace(namespace)
}

// create makes an object, whose resource and kind say what it is.
func (c *Cluster) create(ctx context.Context, resource schema.GroupVersionResource, kind string, object *Object) (*Object, error) {
	object.SetAPIVersion(resource.GroupVersion().String())
	object.SetKind(kind)
	made, err := c.in(resource, object.GetNamespace()).Create(ctx, object, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	if err != nil {
		return nil, fmt.Errorf("creating %s %s: %w", kind, object.GetName(), err)
	}
	return made, nil
}

// Get reads an object again.
func (c *Cluster) Get(ctx context.Context, resource schema.GroupVersionResource, object *Object) (*Object, error) {
	return c.in(resource, object.GetNamespace()).Get(ctx, object.GetName(), metav1.GetOptions{})
}

// Patch merges content into an object, or into a subresource of it.
func (c *Cluster) Patch(ctx context.Context, resource schema.GroupVersionResource, object *Object, content map[string]any, subresources ...string) (*Object, error) {
	data, err := json.Marshal(content)
	if err != nil {
		return nil, err
	}
	options := metav1.PatchOptions{FieldValidation: metav1.FieldValidationStrict}
	return c.in(resource, object.GetNamespace()).Patch(ctx, object.GetName(), types.MergePatchType, data, options, subresources...)
}

// WaitFor reads an object until holds is true of it, and returns it as it was then.
func (c *Cluster) WaitFor(ctx context.Context, resource schema.GroupVersionResource, object *Object, what string, holds func(*Object) bool) (*Object, error) {
	var seen *Object
	err := Wait(ctx, what, func(ctx context.Context) (bool, any, error) {
		var err error
		seen, err = c.Get(ctx, resource, object)
		if err != nil {
			return false, nil, err
		}
		return holds(seen), seen.Object, nil
	})
	return seen, err
}

// Wait asks until done is true. An error of ask does not end the wait, because
// a component that is down for a moment is part of many tests; it is the last
// thing seen when the context ends. An error that came after that says no more
// than that, and does not take the place of what was seen before.
func Wait(ctx context.Context, what string, ask func(ctx context.Context) (done bool, seen any, err error)) error {
	last := ""
	for {
		done, seen, err := ask(ctx)
		if err == nil && done {
			return nil
		}
		if err == nil || ctx.Err() == nil || last == "" {
			last = describe(seen, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting until %s: %w (last seen: %s)", what, context.Cause(ctx), last)
		case <-time.After(pollInterval):
		}
	}
}

func describe(seen any, err error) string {
	if err != nil {
		return err.Error()
	}
	text, err := json.Marshal(seen)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Condition returns the status and the reason of a condition, or nothing where
// the object does not have it.
func Condition(object *Object, kind string) (status, reason string) {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, c := range conditions {
		condition, _ := c.(map[string]any)
		if condition["type"] == kind {
			status, _ = condition["status"].(string)
			reason, _ = condition["reason"].(string)
		}
	}
	return status, reason
}

// isTrue returns a function that says whether a condition is True.
func isTrue(kind string) func(*Object) bool {
	return func(object *Object) bool {
		status, _ := Condition(object, kind)
		return status == "True"
	}
}
