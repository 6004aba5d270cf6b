package holdable

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubehold/kubehold/meta"
)

// A Description is a descriptor without its type parameter, for code that looks
// at kinds of every pause field, as package probe does.
type Description struct {
	// Kind and Resource name the held object.
	Kind          string
	Resource      schema.GroupVersionResource
	ClusterScoped bool
	// Named is the object that callers name where it is another one.
	Named *Named
	// Makes are what stands between that and its pods.
	Makes []Made
	// PausePath leads to the pause field, and Held is the bool, int64 or string
	// that stops the object.
	PausePath []string
	Held      any
	StartGate bool
	// Owner says who else owns the pause field of an object, "" if nobody does.
	Owner Owner

	hasPods, gatedElsewhere bool
}

// A Need is a request that calls send, as authorization sees it.
type Need struct {
	Verb     string
	Resource schema.GroupVersionResource
	// Subresource is, for example, status; empty for the object itself.
	Subresource string
	// Ops are the calls that send it.
	Ops []meta.Op
}

// Describe implements Kind.
func (h Holdable[T]) Describe() Description {
	return Description{
		Kind:           h.Kind,
		Resource:       h.Resource,
		ClusterScoped:  h.ClusterScoped,
		Named:          h.Of,
		Makes:          slices.Clone(h.Makes),
		PausePath:      slices.Clone(h.Pause.Path),
		Held:           h.Pause.Held,
		StartGate:      h.StartGate,
		Owner:          h.ownerOf,
		hasPods:        h.Pods != nil,
		gatedElsewhere: h.GatedElsewhere,
	}
}

// Direct implements Kind. The pods of an object that is named by itself are not
// known where they are found from another object, nor is what makes them.
func (h Holdable[T]) Direct() Kind {
	if h.Of != nil {
		h.Of, h.Pods, h.Makes = nil, nil, nil
	}
	return h
}

// Needs returns every request that the calls on a client with these options
// send to objects, each verb and resource once.
func (d Description) Needs(opts Options) []Need {
	calls := []meta.Op{meta.OpHold, meta.OpRelease, meta.OpInspect}
	writes := []meta.Op{meta.OpHold, meta.OpRelease}
	podChecks := []meta.Op{meta.OpInspect}
	if !d.gatedElsewhere || opts.CheckPods {
		podChecks = append(podChecks, meta.OpRelease)
	}
	if d.StartGate {
		calls, writes, podChecks = append(calls, meta.OpOpen), append(writes, meta.OpOpen), append(podChecks, meta.OpOpen)
	}
	var needs []Need
	if d.Named != nil {
		needs = append(needs,
			Need{Verb: "get", Resource: d.Named.Resource, Ops: calls},
			Need{Verb: "list", Resource: d.Resource, Ops: calls},
			// After a conflict on an object that another one has replaced.
			Need{Verb: "get", Resource: d.Resource, Ops: writes})
	} else {
		needs = append(needs, Need{Verb: "get", Resource: d.Resource, Ops: calls})
	}
	needs = append(needs, Need{Verb: "update", Resource: d.Resource, Ops: writes})
	if d.hasPods {
		needs = append(needs, Need{Verb: "list", Resource: pods(), Ops: podChecks})
	}
	return needs
}

// ownerOf returns what the first owner of the pause field of obj says.
func (h Holdable[T]) ownerOf(obj *unstructured.Unstructured) string {
	for _, owner := range h.Owners {
		if says := owner(obj); says != "" {
			return says
		}
	}
	return ""
}
