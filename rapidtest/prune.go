package rapidtest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/samber/lo"
)

// prune drops from an object's content every field beside the metadata that the resource does not
// know, and returns their paths in order.
func (r *servedResource) prune(content map[string]any) []string {
	if r.schema == nil {
		return nil
	}
	unknown := r.schema.pruneMap(content, "", isTypeOrMeta)
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

func pruneMetadata(content map[string]any) {
	if meta, ok := content["metadata"].(map[string]any); ok {
		maps.DeleteFunc(meta, func(k string, _ any) bool { return !isMetadataField(k) })
	}
}

// unknownMetadata returns the paths of the fields of metadata that ObjectMeta does not have, in order.
func unknownMetadata(metadata any) []string {
	meta, _ := metadata.(map[string]any)
	var unknown []string
	for k := range meta {
		if !isMetadataField(k) {
			unknown = append(unknown, "metadata."+k)
		}
	}
	owners, _ := meta["ownerReferences"].([]any)
	for i, o := range owners {
		owner, _ := o.(map[string]any)
		for k := range owner {
			if !isOwnerField(k) {
				unknown = append(unknown, fmt.Sprintf("metadata.ownerReferences[%d].%s", i, k))
			}
		}
	}
	slices.Sort(unknown)
	return unknown
}

func isOwnerField(key string) bool {
	switch key {
	case "apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion":
		return true
	}
	return false
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
