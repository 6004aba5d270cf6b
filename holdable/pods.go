package holdable

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubehold/kubehold/retry"
)

func pods() schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: "pods"}
}

// PodRemains reports whether a pod may still have processes (rule R5). It does
// not if it was never bound to a node, or if its phase is Succeeded or Failed
// and every container of its spec, init and ephemeral ones too, has a
// terminated status: a phase alone may have been written by a controller for a
// node that was lost, and proves nothing.
//
// A pod whose object is gone does not remain. Where somebody has deleted it by
// force, that proves nothing about its node: fence the node before you delete
// its pods.
func PodRemains(pod *unstructured.Unstructured) bool {
	if text(pod, "spec", "nodeName") == "" {
		return false
	}
	if phase := text(pod, "status", "phase"); phase != "Succeeded" && phase != "Failed" {
		return true
	}
	return !terminated(pod, "containers", "containerStatuses") ||
		!terminated(pod, "initContainers", "initContainerStatuses") ||
		!terminated(pod, "ephemeralContainers", "ephemeralContainerStatuses")
}

// terminated reports whether every container of the list in the spec has a
// terminated status in the list in the status.
func terminated(pod *unstructured.Unstructured, containers, statuses string) bool {
	done := map[string]bool{}
	for _, status := range items(pod, "status", statuses) {
		name, _ := status["name"].(string)
		state, _ := status["state"].(map[string]any)
		before, twice := done[name]
		done[name] = state["terminated"] != nil && (before || !twice)
	}
	for _, container := range items(pod, "spec", containers) {
		if name, ok := container["name"].(string); !ok || !done[name] {
			return false
		}
	}
	return true
}

func text(obj *unstructured.Unstructured, path ...string) string {
	v, _ := retry.Lookup(obj, path...)
	s, _ := v.(string)
	return s
}

// items returns the maps of a list, in order.
func items(obj *unstructured.Unstructured, path ...string) []map[string]any {
	v, _ := retry.Lookup(obj, path...)
	list, _ := v.([]any)
	var maps []map[string]any
	for _, item := range list {
		if m, ok := item.(map[string]any); ok {
			maps = append(maps, m)
		}
	}
	return maps
}

// remaining returns a pod of the named object that remains, "" if none does.
func remaining(ctx context.Context, r retry.Reader, podsOf func(*unstructured.Unstructured) (string, error), named *unstructured.Unstructured) (string, error) {
	return Made{Kind: "pod", Resource: pods(), Selector: podsOf}.first(ctx, r, named, PodRemains)
}
