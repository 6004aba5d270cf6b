package kinds

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/samber/lo"

	"github.com/kubehold/kubehold/holdable"
)

// All returns the descriptor of every kind of this package, uncomposed.
func All() []holdable.Kind {
	return []holdable.Kind{Job(), JobSet(), TrainJob(), Workload()}
}

// For returns the descriptor of a kind, if this package has one.
func For(gvk schema.GroupVersionKind) (holdable.Kind, bool) {
	return lo.Find(All(), func(k holdable.Kind) bool { return k.GroupVersionKind() == gvk })
}
