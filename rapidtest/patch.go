package rapidtest

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// applyPatch returns the content with the patch applied. It may change content.
func applyPatch(kind types.PatchType, patch []byte, content map[string]any) (map[string]any, error) {
	switch kind {
	case types.MergePatchType:
		return applyMergePatch(patch, content)
	case types.JSONPatchType:
		return applyJSONPatch(patch, content)
	}
	return nil, errPatchType()
}

func applyMergePatch(patch []byte, content map[string]any) (map[string]any, error) {
	var change map[string]any
	if err := utiljson.Unmarshal(patch, &change); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
	}
	if change == nil { // the patch is null
		return nil, apierrors.NewBadRequest("Invalid JSON Patch")
	}
	return mergeMap(content, change), nil
}

// mergeMap is RFC 7396 on two JSON objects.
func mergeMap(into, change map[string]any) map[string]any {
	if into == nil {
		into = map[string]any{}
	}
	for k, v := range change {
		switch v := v.(type) {
		case nil:
			delete(into, k)
		case map[string]any:
			old, _ := into[k].(map[string]any)
			into[k] = mergeMap(old, v)
		default:
			into[k] = v
		}
	}
	return into
}
