package retry

import (
	"fmt"
	"maps"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// An Edit changes one field of an object. An update is what was read with a
// few edits made to it, so that it cannot differ from what was read in anything
// else: fields that nobody here has heard of included.
type Edit struct {
	// Path leads to the field through nested maps, e.g. spec, suspend, or
	// metadata, annotations, example.com/key. Maps that are missing on the way
	// to a value that is set are made.
	Path []string
	// Value is a JSON scalar: string, bool, int64 or float64. Nil removes the
	// field.
	Value any
}

// Set returns the edit that sets the field at path to value.
func Set(value any, path ...string) Edit { return Edit{Path: path, Value: value} }

// Remove returns the edit that removes the field at path.
func Remove(path ...string) Edit { return Edit{Path: path} }

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
		case strings.ContainsAny(p, "./"):
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
// no map, or it has no path.
type PathError struct {
	Path []string
	// At is the part of Path that holds Value instead of a map.
	At    []string
	Value any
}

func (e *PathError) Error() string {
	if len(e.Path) == 0 {
		return "an edit without a path"
	}
	return fmt.Sprintf("%s: %s is a %T, not an object", PathString(e.Path), PathString(e.At), e.Value)
}

// Apply returns obj with edits made to it, or a *PathError. Neither obj nor
// anything it holds is changed: what lies beside the edited paths is shared, and
// only the maps along them are copied, which for a large object is much cheaper
// than a deep copy.
func Apply(obj *unstructured.Unstructured, edits []Edit) (*unstructured.Unstructured, error) {
	root := copied(obj.Object)
	for _, e := range edits {
		if err := apply(root, e); err != nil {
			return nil, err
		}
	}
	return &unstructured.Unstructured{Object: root}, nil
}

// apply makes one edit in m, which is a copy already, and in copies of the maps
// below.
func apply(m map[string]any, e Edit) error {
	if len(e.Path) == 0 {
		return &PathError{Value: e.Value}
	}
	parents, field := e.Path[:len(e.Path)-1], e.Path[len(e.Path)-1]
	for i, step := range parents {
		next, err := child(m, e.Path, i)
		if err != nil {
			return err
		}
		if next == nil && e.Value == nil {
			return nil
		}
		next = copied(next)
		m[step] = next
		m = next
	}
	if e.Value == nil {
		delete(m, field)
	} else {
		m[field] = e.Value
	}
	return nil
}

// copied returns a copy of m that can be written to.
func copied(m map[string]any) map[string]any {
	if m == nil {
		return map[string]any{}
	}
	return maps.Clone(m)
}

// child returns the map at path[i] in m, nil if there is none.
func child(m map[string]any, path []string, i int) (map[string]any, error) {
	v, ok := m[path[i]]
	if !ok || v == nil {
		return nil, nil
	}
	next, ok := v.(map[string]any)
	if !ok {
		return nil, &PathError{Path: path, At: path[:i+1], Value: v}
	}
	return next, nil
}

// Lookup returns the value at path in obj, nil if there is none, or a
// *PathError. Without a path it is all of obj. The value is obj's own and must
// not be changed.
func Lookup(obj *unstructured.Unstructured, path ...string) (any, error) {
	m := obj.Object
	if len(path) == 0 {
		return m, nil
	}
	for i := range path[:len(path)-1] {
		next, err := child(m, path, i)
		if err != nil || next == nil {
			return nil, err
		}
		m = next
	}
	return m[path[len(path)-1]], nil
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
