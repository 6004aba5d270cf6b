package main

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/samber/lo"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/meta"
)

// What follows is read off the caches, which may be behind. It only decides
// whether a job is worth a look: holdable.Gate reads everything anew.

func workloads() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "kueue.x-k8s.io", Version: "v1beta2", Resource: "workloads"}
}

func checks() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "kueue.x-k8s.io", Version: "v1beta2", Resource: "admissionchecks"}
}

func pods() schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: "pods"}
}

// isOurs reports whether an AdmissionCheck is for the gate to answer.
func isOurs(check *unstructured.Unstructured) bool {
	name, _, _ := unstructured.NestedString(check.Object, "spec", "controllerName")
	return name == holdable.GateController
}

// waitingIndex finds the Workloads of a namespace that have quota and wait for
// some check, without a look at all the others.
const waitingIndex = "waiting"

func namespaceOfWaiting(object any) ([]string, error) {
	w, ok := object.(*unstructured.Unstructured)
	if !ok || !hasQuota(w) || len(pendingChecks(w)) == 0 {
		return nil, nil
	}
	return []string{w.GetNamespace()}, nil
}

// pendingChecks returns the names of the checks that a Workload waits for.
func pendingChecks(workload *unstructured.Unstructured) []string {
	entries, _, _ := unstructured.NestedSlice(workload.Object, "status", "admissionChecks")
	return lo.FilterMap(entries, func(entry any, _ int) (string, bool) {
		e, _ := entry.(map[string]any)
		name, _ := e["name"].(string)
		return name, name != "" && e["state"] == "Pending"
	})
}

// hasQuota reports whether Kueue has come so far as to wait for the checks of a
// Workload.
func hasQuota(workload *unstructured.Unstructured) bool {
	return holdable.ConditionTrue("QuotaReserved")(workload) != ""
}

// A job is the owner of a Workload.
type job struct {
	kind schema.GroupKind
	ref  meta.Ref
}

// jobOf returns the job of a Workload, false if nothing controls it.
func jobOf(workload *unstructured.Unstructured) (job, bool) {
	owner := metav1.GetControllerOfNoCopy(workload)
	if owner == nil {
		return job{}, false
	}
	return job{
		kind: schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).GroupKind(),
		ref:  meta.Ref{Namespace: workload.GetNamespace(), Name: owner.Name, UID: owner.UID},
	}, true
}

// below returns the kinds of what is below a job of a kind, its pods last.
func below(kind holdable.Holdable[bool]) []holdable.Made {
	return append(slices.Clone(kind.Makes), holdable.Made{Kind: "Pod", Resource: pods(), Selector: kind.Pods})
}

// mayOwn reports whether an object of what is below a job may be one of the job's.
func mayOwn(ref meta.Ref, made holdable.Made, obj *unstructured.Unstructured) bool {
	if made.Selector == nil {
		return obj.GetName() == ref.Name
	}
	stub := &unstructured.Unstructured{}
	stub.SetNamespace(ref.Namespace)
	stub.SetName(ref.Name)
	stub.SetUID(ref.UID)
	text, err := made.Selector(stub)
	if err != nil {
		return true // its selector takes more than a name: look, to be sure
	}
	selector, err := labels.Parse(text)
	return err != nil || selector.Matches(labels.Set(obj.GetLabels()))
}

// withoutContent keeps of an object what mayOwn looks at. That something has
// changed shows by its resourceVersion, and what, Gate reads for itself.
func withoutContent(object any) (any, error) {
	obj, ok := object.(*unstructured.Unstructured)
	if !ok {
		return object, nil
	}
	kept := &unstructured.Unstructured{}
	kept.SetAPIVersion(obj.GetAPIVersion())
	kept.SetKind(obj.GetKind())
	kept.SetNamespace(obj.GetNamespace())
	kept.SetName(obj.GetName())
	kept.SetUID(obj.GetUID())
	kept.SetResourceVersion(obj.GetResourceVersion())
	kept.SetLabels(obj.GetLabels())
	return kept, nil
}

func nameOf(obj *unstructured.Unstructured) types.NamespacedName {
	return types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

// activated returns an AdmissionCheck that says it is being looked after, false
// if it says so already. Until it does, Kueue admits nothing through it.
func activated(check *unstructured.Unstructured, now metav1.Time) (*unstructured.Unstructured, bool) {
	const condition = "Active"
	want := map[string]any{
		"type": condition, "status": "True", "reason": "Active", "message": "the readmission gate answers",
		"observedGeneration": check.GetGeneration(), "lastTransitionTime": now.UTC().Format("2006-01-02T15:04:05Z"),
	}
	changed := check.DeepCopy()
	all, _, _ := unstructured.NestedSlice(changed.Object, "status", "conditions")
	for i, c := range all {
		is, _ := c.(map[string]any)
		if is["type"] != condition {
			continue
		}
		if is["status"] == "True" {
			return nil, false
		}
		all[i] = want
		want = nil
	}
	if want != nil {
		all = append(all, want)
	}
	err := unstructured.SetNestedSlice(changed.Object, all, "status", "conditions")
	return changed, err == nil // no list of conditions: it is none of ours to mend
}
