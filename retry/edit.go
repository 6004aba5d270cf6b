package retry

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// An Edit changes one field of an object. An update is what was read with a
// few edits made to it, so that it cannot differ from what was read in anything
// else: fields that nobody here has heard of included.
type Edit struct {
	// Path leads to the field through nested maps, e.g. spec, suspend, or
	// metadata, annotations, example.com/key. Maps that are missing on the way
	// to a value that is set are made. Through a list leads a step that Item
	// makes, to an element that has to be there.
	Path []string
	// Value is a JSON scalar: string, bool, int64 or float64. Nil removes the
	// field.
	Value any
}

// Set returns the edit that sets the field at path to value.
func Set(value any, path ...string) Edit { return Edit{Path: path, Value: value} }

// Remove returns the edit that removes the field at path.
func Remove(path ...string) Edit { return Edit{Path: path} }

// Item returns the step of a path that leads to an element of a list: the first
// whose field key reads value, as in
//
//	retry.Set("Ready", "status", "admissionChecks", retry.Item("name", "gate"), "state")
func Item(key, value string) string { return key + "=" + value }

// String returns, for example, "spec.suspend=true" or "spec.suspend removed".
func (e Edit) String() string {
	if e.Value == nil {
		return PathString(e.Path) + " removed"
	}
	return fmt.Sprintf("%s=%v", PathString(e.Path), e.Value)
}

// PathString writes a path as people write one: spec.suspend, or
// metadata.annotations[example.com/key].
func PathString(path []string) string {
	var b strings.Builder
	for i, p := range path {
		switch {
		case strings.ContainsAny(p, "./="):
			fmt.Fprintf(&b, "[%s]", p)
		case i > 0:
			b.WriteString("." + p)
		default:
			b.WriteString(p)
		}
	}
	return b.String()
}

// A PathError is a field that cannot be reached: something on the way to it is
// no map and no list that has the element, or it has no path.
type PathError struct {
	Path []string
	// At is the part of Path that holds Value instead.
	At    []string
	Value any
}

// Error names the place, and what lies there.
func (e *PathError) Error() string {
	if len(e.Path) == 0 {
		return "an edit without a path"
	}
	if _, list := e.Value.([]any); list {
		return fmt.Sprintf("%s: %s is a list and has no such element", PathString(e.Path), PathString(e.At))
	}
	return fmt.Sprintf("%s: %s is a %T, not an object", PathString(e.Path), PathString(e.At), e.Value)
}

// Apply returns obj with edits made to it, or a *PathError. Neither obj nor
// anything it holds is changed: what lies beside the edited paths is shared, and
// only the maps and lists along them are copied, which for a large object is
// much cheaper than a deep copy.
func Apply(obj *unstructured.Unstructured, edits []Edit) (*unstructured.Unstructured, error) {
	root := copied(obj.Object)
	for _, e := range edits {
		if len(e.Path) == 0 {
			return nil, &PathError{Value: e.Value}
		}
		if err := e.in(root, 0); err != nil {
			return nil, err
		}
	}
	return &unstructured.Unstructured{Object: root}, nil
}

// in makes the edit in m, which is a copy already and lies at Path[:i], and in
// copies of what lies below.
func (e Edit) in(m map[string]any, i int) error {
	step := e.Path[i]
	if i == len(e.Path)-1 {
		if e.Value == nil {
			delete(m, step)
		} else {
			m[step] = e.Value
		}
		return nil
	}
	switch below := m[step].(type) {
	case nil:
		if e.Value == nil {
			return nil
		}
		next := map[string]any{}
		m[step] = next
		return e.in(next, i+1)
	case map[string]any:
		next := copied(below)
		m[step] = next
		return e.in(next, i+1)
	case []any:
		next := slices.Clone(below)
		m[step] = next
		return e.inList(next, i+1)
	default:
		return &PathError{Path: e.Path, At: e.Path[:i+1], Value: below}
	}
}

// inList makes the edit in list, which is a copy already and lies at Path[:i].
func (e Edit) inList(list []any, i int) error {
	at, element := find(list, e.Path[i])
	switch {
	case i == len(e.Path)-1 || element == nil && (e.Value != nil || !selects(e.Path[i])):
		return &PathError{Path: e.Path, At: e.Path[:i], Value: list}
	case element == nil:
		return nil
	}
	element = copied(element)
	list[at] = element
	return e.in(element, i+1)
}

// copied returns a copy of m that can be written to.
func copied(m map[string]any) map[string]any {
	if m == nil {
		return map[string]any{}
	}
	return maps.Clone(m)
}

// selects reports whether Item may have made the step.
func selects(step string) bool { return strings.Contains(step, "=") }

// find returns the element of list to which a step of Item leads, and its index,
// nil if there is none.
func find(list []any, step string) (int, map[string]any) {
	key, value, ok := strings.Cut(step, "=")
	for i, element := range list {
		if m, is := element.(map[string]any); ok && is && m[key] == any(value) {
			return i, m
		}
	}
	return 0, nil
}

// Lookup returns the value at path in obj, nil if there is none, or a
// *PathError. Without a path it is all of obj. The value is obj's own and must
// not be changed.
func Lookup(obj *unstructured.Unstructured, path ...string) (any, error) {
	var value any = obj.Object
	for i, step := range path {
		switch v := value.(type) {
		case nil:
			return nil, nil
		case map[string]any:
			value = v[step]
		case []any:
			_, element := find(v, step)
			if !selects(step) {
				return nil, &PathError{Path: path, At: path[:i], Value: v}
			}
			if element == nil {
				return nil, nil
			}
			value = element
		default:
			return nil, &PathError{Path: path, At: path[:i], Value: v}
		}
	}
	return value, nil
}

// Missing returns the edits that are not there in obj.
func Missing(obj *unstructured.Unstructured, edits []Edit) []Edit {
	var missing []Edit
	for _, e := range edits {
		v, err := Lookup(obj, e.Path...)
		if err != nil || !reflect.DeepEqual(v, e.Value) {
			missing = append(missing, e)
		}
	}
	return missing
}
