// Package newkind is the whole of a kind that this library does not have, with its proof: a Pipeline is paused by the word in spec.state.
package newkind

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/rapidtest"
)

func pipelines() holdable.Holdable[string] {
	return holdable.Holdable[string]{
		Kind:     "Pipeline",
		Resource: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "pipelines"},
		Pause:    holdable.Pause[string]{Path: holdable.Field("spec", "state"), Held: "Paused", Running: "Active", Absent: "Active"},
		Ended:    holdable.ConditionTrue("Complete"),
	}
}

func crd() rapidtest.Option { return rapidtest.Schema("spec.state", "spec.steps[].*", "status.*") }

func TestPipelines(t *testing.T) { rapidtest.Check(t, pipelines(), crd()) }

// A mistake, to see what that looks like: rapidtest.Check would fail the test with this sentence.
func TestAMistakeIsNamed(t *testing.T) {
	wrong := pipelines()
	wrong.Pause.Path = holdable.Field("spec", "paused")
	const want = "the schema of a Pipeline has no spec.paused, so that an apiserver refuses the field, or drops it"
	if err := rapidtest.Counterexample(t, wrong, crd()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}
