package rapidtest

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// A Resource tells a [Server] of one resource that it serves: what a CustomResourceDefinition would
// say, as far as code that reads and writes objects can tell. The zero value of every optional
// field means what a CRD without it means.
type Resource struct {
	// GVR names the resource, for example trainer.kubeflow.org/v1alpha1 trainjobs.
	GVR schema.GroupVersionResource
	// Kind is the kind of its objects, for example TrainJob.
	Kind string
	// ListKind is the kind of its lists; Kind + "List" where it is empty.
	ListKind string
	// Namespaced objects live in a namespace. Namespaces themselves are not modelled: any name will do.
	Namespaced bool
	// StatusSubresource: a PUT of the object keeps the old status, and a PUT of its /status changes
	// only the status and never the generation. Without it status is an ordinary field.
	StatusSubresource bool
	// Unconditional updates carry no resourceVersion and overwrite whatever is there. Custom
	// resources refuse them (422); many built-in kinds, Job and Pod among them, do not.
	Unconditional bool
	// Fields lists the known fields as dotted paths below the object, metadata aside:
	// "spec.suspend", "status.conditions[].type". A path's last element stands for everything below
	// it where it is "*", as in "spec.template.*". Unknown fields are pruned with a warning, and
	// refused under fieldValidation=Strict. With no Fields at all every field is known.
	Fields []string
	// Default fills in defaults, on every create and update, after pruning. It may change obj in place.
	Default func(obj *unstructured.Unstructured)
	// Validate stands for the schema's and CEL's rules: what it finds makes the request a 422. old
	// is nil on a create. It must not change either object. With a status subresource it runs for
	// writes of the status as well.
	Validate func(obj, old *unstructured.Unstructured) field.ErrorList
	// Rules says that the schema has CEL rules. The texts of some refusals differ for such kinds:
	// the rules are not looked at once something more basic is wrong, and the server says so.
	Rules bool
	// GracefulDelete gives kinds that end gracefully, pods, their grace period in seconds:
	// requested is what the delete asked for, nil where it did not. The object then stays, with a
	// deletionTimestamp that far ahead, until someone deletes it with 0 seconds of grace. Nil, as
	// for every custom resource, means that a delete with no finalizer left removes the object at
	// once.
	GracefulDelete func(obj *unstructured.Unstructured, requested *int64) int64
}

func (r Resource) groupResource() schema.GroupResource { return r.GVR.GroupResource() }

func (r Resource) groupKind() schema.GroupKind {
	return schema.GroupKind{Group: r.GVR.Group, Kind: r.Kind}
}

func (r Resource) apiVersion() string { return r.GVR.GroupVersion().String() }

func (r Resource) listKind() string {
	if r.ListKind != "" {
		return r.ListKind
	}
	return r.Kind + "List"
}

// servedResource is a Resource with its known fields made into a tree.
type servedResource struct {
	Resource
	schema *knownFields
}

// knownFields is a node of the tree of known fields. Nil knows no field below it.
type knownFields struct {
	any   bool
	props map[string]*knownFields
	items *knownFields
}

func newKnownFields(paths []string) *knownFields {
	if len(paths) == 0 {
		return nil
	}
	root := &knownFields{}
	for _, p := range paths {
		root.add(strings.Split(p, "."))
	}
	return root
}

func (k *knownFields) add(path []string) {
	if len(path) == 0 {
		return
	}
	if path[0] == "*" {
		k.any = true
		return
	}
	name, lists := path[0], 0
	for strings.HasSuffix(name, "[]") {
		name, lists = strings.TrimSuffix(name, "[]"), lists+1
	}
	child := k.props[name]
	if child == nil {
		child = &knownFields{}
		if k.props == nil {
			k.props = map[string]*knownFields{}
		}
		k.props[name] = child
	}
	for range lists {
		if child.items == nil {
			child.items = &knownFields{}
		}
		child = child.items
	}
	child.add(path[1:])
}
