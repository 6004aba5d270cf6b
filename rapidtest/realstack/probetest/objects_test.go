//go:build e2e

package probetest

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubehold/kubehold/holdable"
)

// workload is somebody's Workload.
func workload(namespace, name string) *unstructured.Unstructured {
	return object("kueue.x-k8s.io/v1beta2", "Workload", namespace, name, map[string]any{"spec": map[string]any{
		"active":    true,
		"queueName": "main",
		"podSets": []any{map[string]any{"name": "main", "count": int64(1), "template": map[string]any{"spec": map[string]any{
			"containers": []any{map[string]any{"name": "main", "image": "main"}},
		}}}},
	}})
}

// snapshot is everything of the held kind in the namespace, byte by byte.
func (w *world) snapshot(kind holdable.Kind) string {
	w.Helper()
	list, err := w.admin.Client().Resource(kind.Describe().Resource).Namespace(w.namespace).List(w.Context(), metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	text, err := json.MarshalIndent(list.Items, "", " ")
	if err != nil {
		w.Fatal(err)
	}
	return string(text)
}
