package rapidtest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/samber/lo"
)

// prune drops from an object's content every field that the resource does not know, and returns
// their paths in order.
func (r *servedResource) prune(content map[string]any) []string {
	unknown := pruneMetadata(content)
	if r.schema != nil {
		unknown = append(unknown, r.schema.pruneMap(content, "", isTypeOrMeta)...)
	}
	slices.Sort(unknown)
	return unknown
}

func isTypeOrMeta(key string) bool {
	return key == "apiVersion" || key == "kind" || key == "metadata"
}

// isMetadataField says whether a name is a field of ObjectMeta.
func isMetadataField(key string) bool {
	switch key {
	case "name", "generateName", "namespace", "selfLink", "uid", "resourceVersion", "generation", "creationTimestamp",
		"deletionTimestamp", "deletionGracePeriodSeconds", "labels", "annotations", "ownerReferences", "finalizers", "managedFields":
		return true
	}
	return false
}

func pruneMetadata(content map[string]any) []string {
	meta, ok := content["metadata"].(map[string]any)
	if !ok {
		return nil
	}
	unknown := lo.Filter(lo.Keys(meta), func(k string, _ int) bool { return !isMetadataField(k) })
	for _, k := range unknown {
		delete(meta, k)
	}
	return lo.Map(unknown, func(k string, _ int) string { return "metadata." + k })
}

func (k *knownFields) pruneMap(m map[string]any, path string, keep func(string) bool) []string {
	var unknown []string
	for name, v := range m {
		if keep != nil && keep(name) {
			continue
		}
		at := name
		if path != "" {
			at = path + "." + name
		}
		child, known := k.props[name]
		switch {
		case known && v == nil: // a null in a field that is not nullable counts as absent
			delete(m, name)
		case known:
			unknown = append(unknown, child.prune(v, at)...)
		case !k.any:
			unknown = append(unknown, at)
			delete(m, name)
		}
	}
	return unknown
}

func (k *knownFields) prune(v any, path string) []string {
	switch v := v.(type) {
	case map[string]any:
		return k.pruneMap(v, path, nil)
	case []any:
		if k.items == nil {
			return nil
		}
		return lo.FlatMap(v, func(e any, i int) []string { return k.items.prune(e, fmt.Sprintf("%s[%d]", path, i)) })
	}
	return nil
}

// strictMessage is what fieldValidation=Strict answers for unknown fields.
func strictMessage(unknown []string) string {
	return "strict decoding error: " + strings.Join(unknownFieldTexts(unknown), ", ")
}

func unknownFieldTexts(unknown []string) []string {
	return lo.Map(unknown, func(p string, _ int) string { return fmt.Sprintf("unknown field %q", p) })
}
