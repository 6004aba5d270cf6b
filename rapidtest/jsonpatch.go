package rapidtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// maxPatchOperations is how many operations the real server takes in one JSON patch.
const maxPatchOperations = 10000

// The errors of JSON patches, in the real server's words.
var (
	errPatchMissing = errors.New("missing value")
	errPatchIndex   = errors.New("invalid index detected")
	errPatchTest    = errors.New("test failed")
)

// patchOperation is one operation of RFC 6902.
type patchOperation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	From  string `json:"from"`
	Value any    `json:"value"`
}

// operation is a patchOperation that knows which of its fields are there.
type operation struct {
	patchOperation
	has map[string]json.RawMessage
}

func decodeJSONPatch(patch []byte) ([]operation, error) {
	var typed []patchOperation
	if err := utiljson.Unmarshal(patch, &typed); err != nil {
		text := strings.ReplaceAll(err.Error(), "rapidtest.patchOperation", "handlers.jsonPatchOp")
		return nil, apierrors.NewBadRequest("error decoding patch: " + strings.ReplaceAll(text, "patchOperation", "jsonPatchOp"))
	}
	var present []map[string]json.RawMessage
	if err := json.Unmarshal(patch, &present); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	out := make([]operation, len(typed))
	for i := range typed {
		out[i] = operation{typed[i], present[i]}
	}
	return out, nil
}

func applyJSONPatch(patch []byte, content map[string]any) (map[string]any, error) {
	ops, err := decodeJSONPatch(patch)
	if err != nil {
		return nil, err
	}
	if len(ops) > maxPatchOperations {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf(
			"The allowed maximum operations in a JSON patch is %d, got %d", maxPatchOperations, len(ops)))
	}
	doc := any(content)
	for _, op := range ops {
		if doc, err = op.apply(doc); err != nil {
			return nil, apierrors.NewGenericServerResponse(422, "", schema.GroupResource{}, "", err.Error(), 0, false)
		}
	}
	out, ok := doc.(map[string]any)
	if !ok {
		return nil, errPatched(jsonText(doc), "json: cannot unmarshal array into Go value of type map[string]interface {}")
	}
	return out, nil
}

// jsonText is a value in JSON, for texts.
func jsonText(doc any) string {
	data, err := json.Marshal(doc)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

func (op operation) apply(doc any) (any, error) {
	switch op.Op {
	case "add":
		return op.add(doc)
	case "remove":
		return op.remove(doc)
	case "replace":
		return op.replace(doc)
	case "test":
		return doc, op.test(doc)
	case "move", "copy":
		return op.moveOrCopy(doc)
	}
	kind := op.Op
	if _, ok := op.has["op"]; !ok {
		kind = "unknown"
	}
	//lint:ignore ST1005 the real server's words
	return nil, fmt.Errorf("Unexpected kind: %s", kind)
}

// hasPath says whether the operation has the field that names a place.
func (op operation) hasPath(field string) bool {
	raw, ok := op.has[field]
	return ok && string(raw) != "null"
}

func (op operation) add(doc any) (any, error) {
	if !op.hasPath("path") {
		return nil, fmt.Errorf("add operation failed to decode path: %w", errPatchMissing)
	}
	at, ok := place(doc, op.Path)
	if !ok {
		return nil, fmt.Errorf("add operation does not apply: doc is missing path: %q: %w", op.Path, errPatchMissing)
	}
	if err := at.add(op.Value); err != nil {
		return nil, fmt.Errorf("error in add for path: '%s': %w", op.Path, err)
	}
	return at.root, nil
}

func (op operation) remove(doc any) (any, error) {
	if !op.hasPath("path") {
		return nil, fmt.Errorf("remove operation failed to decode path: %w", errPatchMissing)
	}
	at, ok := place(doc, op.Path)
	if !ok {
		return nil, fmt.Errorf("remove operation does not apply: doc is missing path: %q: %w", op.Path, errPatchMissing)
	}
	if err := at.remove(); err != nil {
		return nil, fmt.Errorf("error in remove for path: '%s': %w", op.Path, err)
	}
	return at.root, nil
}

// errNoPath is the error of an operation without a path.
func errNoPath(op string) error {
	return fmt.Errorf("%s operation failed to decode path: operation missing path field: %w", op, errPatchMissing)
}

func (op operation) replace(doc any) (any, error) {
	if !op.hasPath("path") {
		return nil, errNoPath("replace")
	}
	if op.Path == "" {
		switch op.Value.(type) {
		case map[string]any, []any:
			return op.Value, nil
		}
		return nil, errors.New("replace operation value must be object or array: %!w(<nil>)")
	}
	at, ok := place(doc, op.Path)
	if !ok {
		return nil, fmt.Errorf("replace operation does not apply: doc is missing path: %s: %w", op.Path, errPatchMissing)
	}
	if _, err := at.get(); err != nil {
		return nil, fmt.Errorf("replace operation does not apply: doc is missing key: %s: %w", op.Path, errPatchMissing)
	}
	at.set(op.Value)
	return at.root, nil
}

func (op operation) test(doc any) error {
	if !op.hasPath("path") {
		return errNoPath("test")
	}
	found := doc
	if op.Path != "" {
		at, ok := place(doc, op.Path)
		if !ok {
			return fmt.Errorf("test operation does not apply: is missing path: %s: %w", op.Path, errPatchMissing)
		}
		var err error
		if found, err = at.get(); err != nil {
			return fmt.Errorf("error in test for path: '%s': %w", op.Path, err)
		}
	}
	if !sameValue(found, op.Value) {
		return fmt.Errorf("testing value %s failed: %w", op.Path, errPatchTest)
	}
	return nil
}

func (op operation) moveOrCopy(doc any) (any, error) {
	if !op.hasPath("from") {
		return nil, fmt.Errorf("%s operation failed to decode from: operation, missing from field: %w", op.Op, errPatchMissing)
	}
	from, ok := place(doc, op.From)
	if !ok {
		return nil, fmt.Errorf("%s operation does not apply: doc is missing from path: %s: %w", op.Op, op.From, errPatchMissing)
	}
	value, err := from.get()
	if op.Op == "move" {
		if err == nil {
			err = from.remove()
		}
		if err != nil {
			return nil, fmt.Errorf("error in move for path: '%s': %w", from.key, err)
		}
		if !op.hasPath("path") {
			return nil, errNoPath("move")
		}
	} else {
		if err != nil {
			return nil, fmt.Errorf("error in copy for from: '%s': %w", op.From, err)
		}
		if !op.hasPath("path") {
			return nil, fmt.Errorf("copy operation failed to decode path: %w", errPatchMissing)
		}
	}
	to, ok := place(from.root, op.Path)
	if !ok {
		return nil, fmt.Errorf("%s operation does not apply: doc is missing destination path: %s: %w", op.Op, op.Path, errPatchMissing)
	}
	if value, _, err = wireCopy(value); err != nil {
		return nil, err
	}
	if err := to.add(value); err != nil {
		if op.Op == "move" {
			return nil, fmt.Errorf("error in move for path: '%s': %w", op.Path, err)
		}
		return nil, fmt.Errorf("error while adding value during copy: %w", err)
	}
	return to.root, nil
}

// patchPlace is a place in a document: a key of a map or an index of a list.
type patchPlace struct {
	root   any
	holder any       // the map or list
	put    func(any) // puts another list in the place of the holder
	key    string
}

// place finds what holds the place that an RFC 6901 pointer names. It need not be there itself.
func place(doc any, path string) (*patchPlace, bool) {
	unescape := strings.NewReplacer("~1", "/", "~0", "~")
	parts := strings.Split(path, "/")
	if len(parts) < 2 {
		return nil, false
	}
	at := &patchPlace{root: doc, holder: doc}
	at.put = func(list any) { at.root = list }
	for _, part := range parts[1 : len(parts)-1] {
		at.key = unescape.Replace(part)
		value, err := at.get()
		if err != nil {
			return nil, false
		}
		switch value.(type) {
		case map[string]any, []any:
		default:
			return nil, false
		}
		above := *at
		at.holder = value
		at.put = func(list any) { above.set(list) }
	}
	at.key = unescape.Replace(parts[len(parts)-1])
	return at, true
}

// index reads a key of a list of which last is the last index that may be named; -1 names that.
func (p *patchPlace) index(last int) (int, error) {
	i, err := strconv.Atoi(p.key)
	if err != nil {
		return 0, err
	}
	if i > last || i < -last-1 {
		//lint:ignore ST1005 the real server's words
		return 0, fmt.Errorf("Unable to access invalid index: %d: %w", i, errPatchIndex)
	}
	if i < 0 {
		i += last + 1
	}
	return i, nil
}

// get reads the place; a key that a map does not have is null.
func (p *patchPlace) get() (any, error) {
	list, ok := p.holder.([]any)
	if !ok {
		m, _ := p.holder.(map[string]any)
		return m[p.key], nil
	}
	i, err := p.index(len(list) - 1)
	if err != nil {
		return nil, err
	}
	return list[i], nil
}

// set writes to a place that get has found.
func (p *patchPlace) set(value any) {
	switch holder := p.holder.(type) {
	case map[string]any:
		holder[p.key] = value
	case []any:
		if i, err := p.index(len(holder) - 1); err == nil {
			holder[i] = value
		}
	}
}

func (p *patchPlace) add(value any) error {
	list, ok := p.holder.([]any)
	if !ok {
		p.set(value)
		return nil
	}
	if p.key == "-" {
		p.put(append(list, value))
		return nil
	}
	if _, err := strconv.Atoi(p.key); err != nil {
		return fmt.Errorf("value was not a proper array index: '%s': %w", p.key, err)
	}
	i, err := p.index(len(list))
	if err != nil {
		return err
	}
	p.put(slices.Insert(list, i, value))
	return nil
}

func (p *patchPlace) remove() error {
	list, ok := p.holder.([]any)
	if ok {
		i, err := p.index(len(list) - 1)
		if err == nil {
			p.put(slices.Delete(list, i, i+1))
		}
		return err
	}
	m, _ := p.holder.(map[string]any)
	if _, ok := m[p.key]; !ok {
		//lint:ignore ST1005 the real server's words
		return fmt.Errorf("Unable to remove nonexistent key: %s: %w", p.key, errPatchMissing)
	}
	delete(m, p.key)
	return nil
}
