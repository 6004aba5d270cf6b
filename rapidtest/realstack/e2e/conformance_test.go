//go:build e2e

package e2e

import (
	"compress/gzip"
	"encoding/json"
	"os"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kubehold/kubehold/rapidtest"
	"github.com/kubehold/kubehold/rapidtest/conformance"
	"github.com/kubehold/kubehold/rapidtest/realstack/stack"
)

// recordVariable is the environment variable that names a file for what the real apiserver was seen to do, gzipped JSON. What
// conformance/testdata has is made so.
const recordVariable = "KUBEHOLD_RECORD_CONFORMANCE"

// The model answers every request of every sequence as the real apiserver does, to the letter.
func TestModelConforms(t *testing.T) {
	s, err := stack.Start(t.Context(), stack.Options{APIServerOnly: true, Progress: testWriter{t}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	const namespace = "conformance-run"
	createNamespace(t, s.RESTConfig(), namespace)
	want, err := conformance.Run(t.Context(), s.RESTConfig(), namespace)
	if err != nil {
		t.Fatal(err)
	}
	if path := os.Getenv(recordVariable); path != "" {
		record(t, path, want)
	}
	model := rapidtest.NewServer(rapidtest.TrainJobs(), rapidtest.Workloads(), rapidtest.JobSets())
	got, err := conformance.Run(t.Context(), model.RESTConfig("admin"), namespace)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d observations", len(want))
	if diff := conformance.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func createNamespace(t *testing.T, cfg *rest.Config, name string) {
	t.Helper()
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).Create(t.Context(), &unstructured.Unstructured{
		Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func record(t *testing.T, path string, observations []conformance.Observation) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w, err := gzip.NewWriterLevel(f, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.NewEncoder(w).Encode(observations); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}
