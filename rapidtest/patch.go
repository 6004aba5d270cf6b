package rapidtest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// maxPatchOperations is how many operations the real server takes in one JSON patch.
const maxPatchOperations = 10000

// applyPatch returns the content with the patch applied. It may change content.
func applyPatch(kind types.PatchType, patch []byte, content map[string]any) (map[string]any, error) {
	if !json.Valid(patch) {
		return nil, apierrors.NewBadRequest("invalid JSON patch")
	}
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

// patchOperation is one operation of RFC 6902.
type patchOperation struct {
	Op    string          `json:"op"`
	Path  string          `json:"path"`
	From  string          `json:"from"`
	Value json.RawMessage `json:"value"`
}

func applyJSONPatch(patch []byte, content map[string]any) (map[string]any, error) {
	var ops []patchOperation
	if err := json.Unmarshal(patch, &ops); err != nil {
		text := strings.ReplaceAll(err.Error(), "rapidtest.patchOperation", "handlers.jsonPatchOp")
		return nil, apierrors.NewBadRequest("error decoding patch: " + text)
	}
	if len(ops) > maxPatchOperations {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf(
			"The allowed maximum operations in a JSON patch is %d, got %d", maxPatchOperations, len(ops)))
	}
	var doc any = content
	for _, op := range ops {
		next, err := op.apply(doc)
		if err != nil {
			return nil, apierrors.NewGenericServerResponse(422, "", schema.GroupResource{}, "", err.Error(), 0, false)
		}
		doc = next
	}
	out, ok := doc.(map[string]any)
	if !ok {
		return nil, apierrors.NewGenericServerResponse(422, "", schema.GroupResource{}, "", "the patch leaves no object", 0, false)
	}
	return out, nil
}

func (op patchOperation) apply(doc any) (any, error) {
	switch op.Op {
	case "add", "replace", "test":
		var value any
		if err := utiljson.Unmarshal(op.Value, &value); err != nil {
			return nil, fmt.Errorf("value of %s %q: %w", op.Op, op.Path, err)
		}
		return op.applyValue(doc, value)
	case "remove":
		return edit(doc, pointer(op.Path), editRemove, nil)
	case "move", "copy":
		value, err := lookUp(doc, pointer(op.From))
		if err != nil {
			return nil, err
		}
		if value, _, err = wireCopy(value); err != nil {
			return nil, err
		}
		if op.Op == "move" {
			if doc, err = edit(doc, pointer(op.From), editRemove, nil); err != nil {
				return nil, err
			}
		}
		return edit(doc, pointer(op.Path), editAdd, value)
	}
	return nil, fmt.Errorf("unexpected kind: %s", op.Op)
}

func (op patchOperation) applyValue(doc, value any) (any, error) {
	switch op.Op {
	case "add":
		return edit(doc, pointer(op.Path), editAdd, value)
	case "replace":
		return edit(doc, pointer(op.Path), editReplace, value)
	}
	found, err := lookUp(doc, pointer(op.Path))
	if err != nil && value != nil {
		return nil, fmt.Errorf("testing value %s failed: %w", op.Path, err)
	}
	if !sameValue(found, value) {
		return nil, fmt.Errorf("testing value %s failed: test failed", op.Path)
	}
	return doc, nil
}

// pointer takes an RFC 6901 pointer apart.
func pointer(path string) []string {
	if path == "" {
		return nil
	}
	unescape := strings.NewReplacer("~1", "/", "~0", "~")
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	for i := range parts {
		parts[i] = unescape.Replace(parts[i])
	}
	return parts
}

func lookUp(doc any, path []string) (any, error) {
	for _, p := range path {
		switch d := doc.(type) {
		case map[string]any:
			v, ok := d[p]
			if !ok {
				return nil, fmt.Errorf("missing path: %s", p)
			}
			doc = v
		case []any:
			i, err := index(p, len(d)-1)
			if err != nil {
				return nil, err
			}
			doc = d[i]
		default:
			return nil, fmt.Errorf("missing path: %s", p)
		}
	}
	return doc, nil
}

func index(text string, last int) (int, error) {
	i, err := strconv.Atoi(text)
	if err != nil || i < 0 || i > last {
		return 0, fmt.Errorf("invalid array index: %s", text)
	}
	return i, nil
}

type editKind int

const (
	editAdd editKind = iota
	editReplace
	editRemove
)

// edit returns doc with one place changed; it may change doc.
func edit(doc any, path []string, kind editKind, value any) (any, error) {
	if len(path) == 0 {
		return value, nil
	}
	switch d := doc.(type) {
	case map[string]any:
		return editMap(d, path, kind, value)
	case []any:
		return editSlice(d, path, kind, value)
	}
	return nil, fmt.Errorf("missing path: %s", path[0])
}

func editMap(m map[string]any, path []string, kind editKind, value any) (any, error) {
	key := path[0]
	child, ok := m[key]
	if len(path) > 1 {
		if !ok {
			return nil, fmt.Errorf("missing path: %s", key)
		}
		changed, err := edit(child, path[1:], kind, value)
		if err != nil {
			return nil, err
		}
		m[key] = changed
		return m, nil
	}
	switch {
	case kind != editAdd && !ok:
		return nil, fmt.Errorf("missing key: %s", key)
	case kind == editRemove:
		delete(m, key)
	default:
		m[key] = value
	}
	return m, nil
}

func editSlice(s []any, path []string, kind editKind, value any) (any, error) {
	last := len(s) - 1
	if kind == editAdd && len(path) == 1 {
		last = len(s)
	}
	var at int
	if path[0] == "-" && kind == editAdd && len(path) == 1 {
		at = len(s)
	} else {
		var err error
		if at, err = index(path[0], last); err != nil {
			return nil, err
		}
	}
	if len(path) > 1 {
		changed, err := edit(s[at], path[1:], kind, value)
		if err != nil {
			return nil, err
		}
		s[at] = changed
		return s, nil
	}
	switch kind {
	case editAdd:
		return slices.Insert(s, at, value), nil
	case editRemove:
		return slices.Delete(s, at, at+1), nil
	}
	s[at] = value
	return s, nil
}
