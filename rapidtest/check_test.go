package rapidtest

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/kinds"
)

func TestCheckPlain(t *testing.T) { Check(t, kinds.WithStartGate(kinds.TrainJob())) }

func TestCheckKueue(t *testing.T) { Check(t, kinds.OnKueue(kinds.TrainJob())) }

// Every kind of package kinds, in every mode, and one that is not there.
func TestEveryKindKeepsTheRules(t *testing.T) {
	for name, check := range map[string]func(*testing.T){
		"TrainJob":        func(t *testing.T) { Check(t, kinds.TrainJob()) },
		"JobSet":          func(t *testing.T) { Check(t, kinds.JobSet()) },
		"GatedJobSet":     func(t *testing.T) { Check(t, kinds.WithStartGate(kinds.JobSet())) },
		"JobSetOnKueue":   func(t *testing.T) { Check(t, kinds.OnKueue(kinds.JobSet())) },
		"Job":             func(t *testing.T) { Check(t, kinds.Job()) },
		"JobOnKueue":      func(t *testing.T) { Check(t, kinds.OnKueue(kinds.Job())) },
		"Workload":        func(t *testing.T) { Check(t, kinds.Workload()) },
		"Pipeline":        func(t *testing.T) { Check(t, pipelines(), pipelineOptions()...) },
		"PipelineRestore": func(t *testing.T) { Check(t, restoring(), pipelineOptions()...) },
		"PipelineRemove":  func(t *testing.T) { Check(t, removing(), pipelineOptions()...) },
		"GatedPipeline":   func(t *testing.T) { Check(t, kinds.WithStartGate(pipelines()), pipelineOptions()...) },
		"ByAnnotation":    func(t *testing.T) { Check(t, annotatedKind()) },
		"ByReplicas":      func(t *testing.T) { Check(t, replicas()) },
		"ClusterScoped":   func(t *testing.T) { Check(t, clusterScoped()) },
	} {
		t.Run(name, check)
	}
}

func restoring() holdable.Holdable[string] {
	kind := pipelines()
	kind.Pause.Resume = holdable.RestoreFound
	return kind
}

func removing() holdable.Holdable[string] {
	kind := pipelines()
	kind.Pause.Resume = holdable.RemoveField
	return kind
}

// annotatedKind is paused by an annotation.
func annotatedKind() holdable.Holdable[string] {
	return holdable.Holdable[string]{
		Kind:     "Cluster",
		Resource: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "clusters"},
		Pause: holdable.Pause[string]{
			Path: holdable.Annotation("example.com/hibernation"), Held: "on", Running: "off", Resume: holdable.RemoveField,
		},
	}
}

// replicas is paused by having none, and gets back what it had.
func replicas() holdable.Holdable[int64] {
	return holdable.Holdable[int64]{
		Kind:     "Server",
		Resource: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "servers"},
		Pause:    holdable.Pause[int64]{Path: holdable.Field("spec", "replicas"), Held: 0, Running: 3, Absent: 1, Resume: holdable.RestoreFound},
	}
}

func clusterScoped() holdable.Holdable[bool] {
	return holdable.Holdable[bool]{
		Kind:          "Migration",
		Resource:      schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "migrations"},
		ClusterScoped: true,
		Pause:         holdable.Pause[bool]{Path: holdable.Field("spec", "paused"), Held: true},
		Ended:         holdable.ConditionTrue("Complete"),
	}
}
