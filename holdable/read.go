package holdable

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// What follows are the pieces that descriptors are made of.

// ConditionTrue returns an Ended for kinds that say so by one of these
// conditions being True.
func ConditionTrue(types ...string) func(*unstructured.Unstructured) string {
	return func(obj *unstructured.Unstructured) string {
		for _, c := range Conditions(obj) {
			if c.Status == "True" && slices.Contains(types, c.Type) {
				return "condition " + c.Type
			}
		}
		return ""
	}
}

// A Condition is one of status.conditions.
type Condition struct{ Type, Status, Reason, Message string }

// Conditions returns the status.conditions of obj.
func Conditions(obj *unstructured.Unstructured) []Condition {
	var conditions []Condition
	for _, c := range items(obj, "status", "conditions") {
		str := func(key string) string { s, _ := c[key].(string); return s }
		conditions = append(conditions, Condition{str("type"), str("status"), str("reason"), str("message")})
	}
	return conditions
}

// PodsNamed returns a Pods for kinds whose pods carry the object's name in a
// label.
func PodsNamed(label string) func(*unstructured.Unstructured) (string, error) {
	return func(obj *unstructured.Unstructured) (string, error) {
		return labels.Set{label: obj.GetName()}.String(), nil
	}
}

// PodsOfUID returns a Pods for kinds whose pods carry the object's UID in a
// label.
func PodsOfUID(label string) func(*unstructured.Unstructured) (string, error) {
	return func(obj *unstructured.Unstructured) (string, error) {
		return labels.Set{label: string(obj.GetUID())}.String(), nil
	}
}

// OwnedByLabel returns an Owner for a controller that owns the objects which
// carry a label. advice says what to do instead.
func OwnedByLabel(controller, label, advice string) Owner {
	return func(obj *unstructured.Unstructured) string {
		v := text(obj, "metadata", "labels", label)
		if v == "" {
			return ""
		}
		return controller + " owns it (label " + label + "=" + v + "); " + advice
	}
}

// OwnedByController returns an Owner for the parents that write the pause
// fields of the objects they control. kinds are written as Kind.group, e.g.
// JobSet.jobset.x-k8s.io, or as Kind alone for the core group.
func OwnedByController(kinds ...string) Owner {
	return func(obj *unstructured.Unstructured) string {
		ref := controller(obj)
		kind := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind()
		if !slices.Contains(kinds, kind.String()) {
			return ""
		}
		return ref.Kind + " " + ref.Name + " owns it (controller ownerReference); hold that instead"
	}
}
