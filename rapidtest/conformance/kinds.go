package conformance

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A Kind is a kind of object for which the sequences are played.
type Kind struct {
	// GVR and Kind name it.
	GVR  schema.GroupVersionResource
	Kind string
	// Spec returns a valid spec, anew each time.
	Spec func() map[string]any
	// Field is a field of the spec that takes a bool and may change at any time.
	Field string
	// Running is the value that Field is created with.
	Running bool
	// Status returns a valid status, anew each time.
	Status func() map[string]any
	// number is where the spec takes a small number that may change at any time; nil where nowhere.
	number []string
}

// Kinds are the kinds for which [Run] plays the sequences: TrainJob, Workload and JobSet.
func Kinds() []Kind {
	return []Kind{
		{
			GVR:  schema.GroupVersionResource{Group: "trainer.kubeflow.org", Version: "v1alpha1", Resource: "trainjobs"},
			Kind: "TrainJob", Field: "suspend", Running: false, Status: status,
			Spec: func() map[string]any {
				return map[string]any{"runtimeRef": map[string]any{"name": "torch"}, "trainer": map[string]any{"numNodes": int64(1)}}
			},
		},
		{
			GVR:  schema.GroupVersionResource{Group: "kueue.x-k8s.io", Version: "v1beta2", Resource: "workloads"},
			Kind: "Workload", Field: "active", Running: true, Status: status, number: []string{"spec", "maximumExecutionTimeSeconds"},
			Spec: func() map[string]any {
				return map[string]any{"queueName": "queue", "podSets": []any{map[string]any{"template": podTemplate()}}}
			},
		},
		{
			GVR:  schema.GroupVersionResource{Group: "jobset.x-k8s.io", Version: "v1alpha2", Resource: "jobsets"},
			Kind: "JobSet", Field: "suspend", Running: false, Status: status, number: []string{"spec", "ttlSecondsAfterFinished"},
			Spec: func() map[string]any {
				job := map[string]any{"spec": map[string]any{"parallelism": int64(1), "template": podTemplate()}}
				return map[string]any{"replicatedJobs": []any{map[string]any{"name": "node", "template": job}}}
			},
		},
	}
}

func podTemplate() map[string]any {
	return map[string]any{"spec": map[string]any{
		"restartPolicy": "Never", "containers": []any{map[string]any{"name": "node", "image": "node"}},
	}}
}

func status() map[string]any {
	return map[string]any{"conditions": []any{map[string]any{
		"type": "Suspended", "status": "True", "reason": "Test", "message": "by the conformance sequences",
		"lastTransitionTime": "2026-01-02T03:04:05Z",
	}}}
}

// object returns a valid object of the kind.
func (k Kind) object(name string) map[string]any {
	spec := k.Spec()
	spec[k.Field] = k.Running
	return map[string]any{
		"apiVersion": k.GVR.GroupVersion().String(), "kind": k.Kind,
		"metadata": map[string]any{"name": name}, "spec": spec,
	}
}
