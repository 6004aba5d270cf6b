package retry_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubehold/kubehold/retry"
)

// H1, I11: whatever an object looks like and wherever an edit leads, the edit is
// made or refused, nothing else is changed, and what was given is left as it
// was.
func FuzzApply(f *testing.F) {
	for _, seed := range []struct{ object, path, value string }{
		{`{"spec":{"suspend":false,"more":[1,{"a":null}]}}`, "spec/suspend", `true`},
		{`{"spec":{"suspend":false}}`, "spec/suspend", `null`},
		{`{"metadata":{"annotations":{"a/b":"c"}}}`, "metadata/annotations/x", `"y"`},
		{`{"metadata":{"annotations":null}}`, "metadata/annotations/x", `"y"`},
		{`{"spec":[]}`, "spec/suspend", `true`},
		{`{"spec":"text"}`, "spec/suspend", `null`},
		{`{}`, "a/b/c/d", `7`},
		{`{}`, "a/b/c/d", `null`},
		{`{"a":{}}`, "", `1`},
		{`{"status":{"checks":[{"name":"other"},{"name":"gate","state":"Pending"}]}}`, "status/checks/name=gate/state", `"Ready"`},
		{`{"status":{"checks":[{"name":"other"},7]}}`, "status/checks/name=gate/state", `"Ready"`},
		{`{"status":{"checks":[{"name":"gate"}]}}`, "status/checks/name=gate", `"Ready"`},
		{`{"":{"=":[{"":""}]}}`, "/=/=/x", `false`},
	} {
		f.Add(seed.object, seed.path, seed.value)
	}
	f.Fuzz(func(t *testing.T, object, path, value string) {
		var root map[string]any
		e := retry.Edit{}
		if json.Unmarshal([]byte(object), &root) != nil || json.Unmarshal([]byte(value), &e.Value) != nil || !isScalar(e.Value) {
			return
		}
		if path != "" {
			e.Path = strings.Split(path, "/")
		}
		obj := &unstructured.Unstructured{Object: root}
		before := runtime.DeepCopyJSON(root)
		after, err := retry.Apply(obj, []retry.Edit{e})
		if !reflect.DeepEqual(before, obj.Object) {
			t.Fatalf("%v changed what it was given: %v, before that %v", e, obj.Object, before)
		}
		if err != nil {
			if pathError := (*retry.PathError)(nil); !errors.As(err, &pathError) || !slices.Equal(pathError.Path, e.Path) || after != nil {
				t.Fatalf("%v: got %v and %v", e, after, err)
			}
			return
		}
		place := placeOf(before, e.Path)
		for leaf := range maps.Keys(leavesOf(before, after.Object)) {
			if !within(leaf, place) && !reflect.DeepEqual(leavesOf(before)[leaf], leavesOf(after.Object)[leaf]) {
				t.Fatalf("%v changed %q: %v became %v", e, leaf, before, after.Object)
			}
		}
		if got, err := retry.Lookup(after, e.Path...); (err != nil || got != e.Value) && !selectsItself(e.Path) {
			t.Fatalf("%v: got %v, %v", e, got, err)
		}
		if missing := retry.Missing(after, []retry.Edit{e}); len(missing) > 0 && !selectsItself(e.Path) {
			t.Fatalf("%v is missing", missing)
		}
		again, err := retry.Apply(after, []retry.Edit{e})
		if (err != nil || !reflect.DeepEqual(again.Object, after.Object)) && !selectsItself(e.Path) {
			t.Fatalf("%v, made twice: %v, %v", e, again, err)
		}
	})
}

func isScalar(v any) bool {
	switch v.(type) {
	case map[string]any, []any:
		return false
	}
	return true
}

// selectsItself reports whether a path may lead to the field by which one of its
// own steps selects an element.
func selectsItself(path []string) bool {
	return len(path) > 1 && strings.HasPrefix(path[len(path)-2], path[len(path)-1]+"=")
}

// leavesOf is what lies at the ends of objects, by the path to it.
func leavesOf(objects ...map[string]any) map[string]any {
	leaves := map[string]any{}
	var walk func(at string, v any)
	walk = func(at string, v any) {
		children := map[string]any{}
		switch v := v.(type) {
		case map[string]any:
			children = v
		case []any:
			for i, element := range v {
				children[fmt.Sprint(i)] = element
			}
		}
		if len(children) == 0 {
			leaves[at] = v
		}
		for key, child := range children {
			walk(at+"/"+key, child)
		}
	}
	for _, obj := range objects {
		walk("", obj)
	}
	return leaves
}

// placeOf is the path to a field as leavesOf writes it.
func placeOf(obj map[string]any, path []string) string {
	place := ""
	var here any = obj
	for _, step := range path {
		switch v := here.(type) {
		case map[string]any:
			here = v[step]
		case []any:
			key, value, _ := strings.Cut(step, "=")
			i := slices.IndexFunc(v, func(element any) bool {
				m, ok := element.(map[string]any)
				return ok && m[key] == any(value)
			})
			if i < 0 {
				return place
			}
			here, step = v[i], fmt.Sprint(i)
		default:
			here = nil
		}
		place += "/" + step
	}
	return place
}

// within reports whether a leaf lies at a place, below it, or was the end of the
// way to it.
func within(leaf, place string) bool {
	return strings.HasPrefix(leaf+"/", place+"/") || strings.HasPrefix(place+"/", leaf+"/")
}
