package rapidtest

import (
	"encoding/json"
	"iter"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// coerceMetadata gives an object's metadata the form that a trip through ObjectMeta gives it, and
// refuses what does not decode. Most metadata has that form already, and is spared the trip.
func coerceMetadata(content map[string]any) error {
	metadata, found := content["metadata"]
	if !found || metadata == nil {
		content["metadata"] = map[string]any{}
		return nil
	}
	meta, ok := metadata.(map[string]any)
	if !ok || !isWellFormed(meta) {
		decoded, err := throughObjectMeta(metadata)
		if err != nil {
			return err
		}
		content["metadata"], meta = decoded, decoded
	}
	delete(meta, "managedFields")
	maps.DeleteFunc(meta, func(_ string, v any) bool { return isEmpty(v) })
	return nil
}

func throughObjectMeta(metadata any) (map[string]any, error) {
	data, err := json.Marshal(metadata)
	if err != nil {
		return nil, err
	}
	var typed metav1.ObjectMeta
	if err := utiljson.Unmarshal(data, &typed); err != nil {
		return nil, err
	}
	return runtime.DefaultUnstructuredConverter.ToUnstructured(&typed)
}

// isWellFormed says whether every field that ObjectMeta has is of its type and in the form in which
// ObjectMeta would write it, empty ones and those that are dropped aside.
func isWellFormed(meta map[string]any) bool {
	for k, v := range meta {
		if !isWellFormedField(k, v) {
			return false
		}
	}
	return true
}

func isWellFormedField(field string, v any) bool {
	switch field {
	case "name", "generateName", "namespace", "selfLink", "uid", "resourceVersion":
		_, ok := v.(string)
		return ok
	case "generation":
		n, ok := v.(int64)
		return ok && n != 0
	case "deletionGracePeriodSeconds":
		_, ok := v.(int64)
		return ok
	case "creationTimestamp", "deletionTimestamp":
		text, ok := v.(string)
		return ok && isTimestamp(text)
	case "labels", "annotations":
		values, ok := v.(map[string]any)
		return ok && allStrings(maps.Values(values))
	case "finalizers":
		values, ok := v.([]any)
		return ok && allStrings(slices.Values(values))
	case "ownerReferences":
		owners, ok := v.([]any)
		for _, o := range owners {
			ok = ok && isWellFormedOwner(o)
		}
		return ok
	case "managedFields":
		return v == nil
	}
	return true // no field of ObjectMeta, which is pruned elsewhere
}

func allStrings(values iter.Seq[any]) bool {
	for v := range values {
		if _, ok := v.(string); !ok {
			return false
		}
	}
	return true
}

// isTimestamp says whether a text is a time in the form in which the server writes it.
func isTimestamp(text string) bool {
	t, err := time.Parse(time.RFC3339, text)
	return err == nil && timestamp(t) == text
}

func isWellFormedOwner(v any) bool {
	owner, ok := v.(map[string]any)
	if !ok {
		return false
	}
	for _, k := range []string{"apiVersion", "kind", "name", "uid"} {
		if _, ok := owner[k].(string); !ok {
			return false
		}
	}
	for k, v := range owner {
		switch k {
		case "apiVersion", "kind", "name", "uid":
		case "controller", "blockOwnerDeletion":
			if _, ok := v.(bool); !ok {
				return false
			}
		default: // the trip leaves it behind
			return false
		}
	}
	return true
}

func isEmpty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return false
}
