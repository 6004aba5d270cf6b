package retry_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"

	"github.com/kubehold/kubehold/retry"
)

// drawStep draws a step of a path, from few enough that paths meet.
func drawStep() *rapid.Generator[string] {
	return rapid.SampledFrom([]string{"spec", "suspend", "metadata", "annotations", "example.com/key", "", "a", "a\x00b", "b"})
}

func drawScalar() *rapid.Generator[any] {
	return rapid.OneOf(
		rapid.Map(rapid.Bool(), func(v bool) any { return v }),
		rapid.Map(rapid.Int64(), func(v int64) any { return v }),
		rapid.Map(rapid.String(), func(v string) any { return v }),
	)
}

// drawMap draws what JSON can hold, down to depth maps.
func drawMap(depth int) *rapid.Generator[map[string]any] {
	values := []*rapid.Generator[any]{
		drawScalar(),
		rapid.Just[any](nil),
		rapid.Map(rapid.SliceOfN(drawScalar(), 0, 2), func(v []any) any { return v }),
	}
	if depth > 0 {
		nested := rapid.Map(drawMap(depth-1), func(v map[string]any) any { return v })
		values = append(values, nested, nested, nested)
	}
	return rapid.MapOfN(drawStep(), rapid.OneOf(values...), 0, 4)
}

func drawObject(t *rapid.T) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: drawMap(3).Draw(t, "object")}
}

func drawEdit() *rapid.Generator[retry.Edit] {
	return rapid.Custom(func(t *rapid.T) retry.Edit {
		path := rapid.SliceOfN(drawStep(), 1, 3).Draw(t, "path")
		if rapid.Bool().Draw(t, "remove") {
			return retry.Remove(path...)
		}
		return retry.Set(drawScalar().Draw(t, "value"), path...)
	})
}

// touch reports whether two edits deal with the same field, or one with a field
// of the other.
func touch(a, b []string) bool {
	n := min(len(a), len(b))
	return slices.Equal(a[:n], b[:n])
}

// leaves returns, by path, all that an object holds except maps.
func leaves(obj map[string]any) map[string]any {
	all := map[string]any{}
	var walk func(path []string, v any)
	walk = func(path []string, v any) {
		m, ok := v.(map[string]any)
		if !ok {
			all[fmt.Sprintf("%q", path)] = v
			return
		}
		for key, v := range m {
			walk(append(slices.Clone(path), key), v)
		}
	}
	walk(nil, obj)
	return all
}

// Rule H1: what edits make of an object differs from it in their fields and in
// nothing else, and the object itself stays as it was.
func TestApply(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		obj := drawObject(t)
		edits := rapid.SliceOfN(drawEdit(), 0, 4).Draw(t, "edits")
		before := obj.DeepCopy()

		got, err := retry.Apply(obj, edits)
		if diff := cmp.Diff(before.Object, obj.Object); diff != "" {
			t.Fatalf("the object was changed: %s", diff)
		}
		if err != nil {
			var bad *retry.PathError
			if got != nil || !errors.As(err, &bad) {
				t.Fatalf("got %v, %v", got, err)
			}
			if _, isMap := bad.Value.(map[string]any); isMap || bad.Value == nil {
				t.Fatalf("%v can be passed", bad)
			}
			return
		}

		want, have := leaves(before.Object), leaves(got.Object)
		edited := func(path string, _ any) bool {
			return slices.ContainsFunc(edits, func(e retry.Edit) bool {
				steps := strings.TrimSuffix(fmt.Sprintf("%q", e.Path), "]")
				// Below an edited field, or null where a map was made.
				return strings.HasPrefix(path, steps) || want[path] == nil && strings.HasPrefix(steps, strings.TrimSuffix(path, "]"))
			})
		}
		maps.DeleteFunc(have, edited)
		maps.DeleteFunc(want, edited)
		if diff := cmp.Diff(want, have); diff != "" {
			t.Fatalf("something beside the edits differs: %s", diff)
		}
	})
}

// Rule T7: after Apply nothing is missing, and Missing finds each edit that was
// not made.
func TestMissing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		obj := drawObject(t)
		var edits []retry.Edit
		for _, e := range rapid.SliceOfN(drawEdit(), 0, 4).Draw(t, "edits") {
			if !slices.ContainsFunc(edits, func(other retry.Edit) bool { return touch(e.Path, other.Path) }) {
				edits = append(edits, e)
			}
		}
		got, err := retry.Apply(obj, edits)
		if err != nil {
			return
		}
		if missing := retry.Missing(got, edits); len(missing) > 0 {
			t.Fatalf("missing %v in %v", missing, got)
		}
		var want []retry.Edit
		for _, e := range edits {
			if v, _ := retry.Lookup(obj, e.Path...); !cmp.Equal(v, e.Value) {
				want = append(want, e)
			}
		}
		// A removal behind something that is no map was refused above.
		if diff := cmp.Diff(want, retry.Missing(obj, edits)); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestMissingIsPickyAboutTypes(t *testing.T) {
	obj := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"text": "true", "float": 3.0, "null": nil, "list": []any{"x"}, "map": map[string]any{},
	}}}
	cases := map[string]struct {
		edit    retry.Edit
		missing bool
	}{
		"TextForBool":       {retry.Set(true, "spec", "text"), true},
		"FloatForInt":       {retry.Set(int64(3), "spec", "float"), true},
		"MapForText":        {retry.Set("", "spec", "map"), true},
		"ListForText":       {retry.Set("x", "spec", "list"), true},
		"NullIsRemoved":     {retry.Remove("spec", "null"), false},
		"NoParentIsRemoved": {retry.Remove("status", "phase"), false},
		"MapIsNotRemoved":   {retry.Remove("spec", "map"), true},
		"BehindText":        {retry.Remove("spec", "text", "deeper"), true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := len(retry.Missing(obj, []retry.Edit{tc.edit})) > 0; got != tc.missing {
				t.Errorf("got %t, want %t", got, tc.missing)
			}
		})
	}
}

func TestApplyAlongPaths(t *testing.T) {
	obj := func(spec any) map[string]any { return map[string]any{"kind": "Job", "spec": spec} }
	cases := map[string]struct {
		object map[string]any
		edits  []retry.Edit
		want   map[string]any // nil: a *PathError
	}{
		"NoEdits":       {obj(nil), nil, obj(nil)},
		"Set":           {obj(map[string]any{"b": "x"}), []retry.Edit{retry.Set(true, "spec", "a")}, obj(map[string]any{"a": true, "b": "x"})},
		"Replace":       {obj(map[string]any{"a": "x"}), []retry.Edit{retry.Set(true, "spec", "a")}, obj(map[string]any{"a": true})},
		"Remove":        {obj(map[string]any{"a": "x"}), []retry.Edit{retry.Remove("spec", "a")}, obj(map[string]any{})},
		"RemoveNothing": {obj(map[string]any{}), []retry.Edit{retry.Remove("spec", "a")}, obj(map[string]any{})},
		"NullParent":    {obj(nil), []retry.Edit{retry.Set(true, "spec", "a")}, obj(map[string]any{"a": true})},
		"RemoveInNull":  {obj(nil), []retry.Edit{retry.Remove("spec", "a")}, obj(nil)},
		"NoParents": {
			map[string]any{}, []retry.Edit{retry.Set("v", "metadata", "annotations", "k"), retry.Set("w", "metadata", "annotations", "l")},
			map[string]any{"metadata": map[string]any{"annotations": map[string]any{"k": "v", "l": "w"}}},
		},
		"RemoveMakesNoParents": {map[string]any{}, []retry.Edit{retry.Remove("metadata", "annotations", "k")}, map[string]any{}},
		"NilObject":            {nil, []retry.Edit{retry.Set(true, "spec", "a")}, map[string]any{"spec": map[string]any{"a": true}}},
		"StepsThatLookAlike": {
			map[string]any{"a": map[string]any{}, "a\x00b": map[string]any{}},
			[]retry.Edit{retry.Set("1", "a\x00b", "c"), retry.Set("2", "a", "b", "c")},
			map[string]any{"a": map[string]any{"b": map[string]any{"c": "2"}}, "a\x00b": map[string]any{"c": "1"}},
		},
		"TextOnTheWay":    {obj("text"), []retry.Edit{retry.Set(true, "spec", "a")}, nil},
		"ListOnTheWay":    {obj([]any{}), []retry.Edit{retry.Set(true, "spec", "a")}, nil},
		"RemoveInText":    {obj("text"), []retry.Edit{retry.Remove("spec", "a")}, nil},
		"BelowOwnValue":   {obj(nil), []retry.Edit{retry.Set("x", "spec"), retry.Set("y", "spec", "a")}, nil},
		"SecondEditFails": {obj("text"), []retry.Edit{retry.Set("Pod", "kind"), retry.Set(true, "spec", "a")}, nil},
		"NoPath":          {obj(nil), []retry.Edit{{Value: true}}, nil},
		"ZeroEdit":        {obj(nil), []retry.Edit{{}}, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			before := (&unstructured.Unstructured{Object: tc.object}).DeepCopy()
			got, err := retry.Apply(&unstructured.Unstructured{Object: tc.object}, tc.edits)
			if diff := cmp.Diff(before.Object, tc.object); diff != "" {
				t.Fatalf("the object was changed: %s", diff)
			}
			if tc.want == nil {
				if got != nil || !errors.As(err, new(*retry.PathError)) {
					t.Fatalf("got %v, %v", got, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got.Object); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestPathErrorNamesThePlace(t *testing.T) {
	obj := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"annotations": "text"}}}
	_, err := retry.Apply(obj, []retry.Edit{retry.Set("v", "metadata", "annotations", "k")})
	var bad *retry.PathError
	if !errors.As(err, &bad) {
		t.Fatalf("got %v", err)
	}
	want := &retry.PathError{Path: []string{"metadata", "annotations", "k"}, At: []string{"metadata", "annotations"}, Value: "text"}
	if diff := cmp.Diff(want, bad); diff != "" {
		t.Error(diff)
	}
	if text := err.Error(); !strings.Contains(text, "metadata.annotations.k") || !strings.Contains(text, "metadata.annotations is") {
		t.Errorf("%q does not name the field and the place", text)
	}
}

func TestLookup(t *testing.T) {
	obj := &unstructured.Unstructured{Object: map[string]any{
		"kind": "Job",
		"spec": map[string]any{"suspend": false, "null": nil, "list": []any{"x"}},
	}}
	cases := map[string]struct {
		path []string
		want any
		bad  bool
	}{
		"Root":         {[]string{"kind"}, "Job", false},
		"Nested":       {[]string{"spec", "suspend"}, false, false},
		"Map":          {[]string{"spec"}, obj.Object["spec"], false},
		"WholeObject":  {nil, obj.Object, false},
		"Absent":       {[]string{"spec", "active"}, nil, false},
		"AbsentParent": {[]string{"status", "phase", "x"}, nil, false},
		"BehindNull":   {[]string{"spec", "null", "x"}, nil, false},
		"BehindBool":   {[]string{"spec", "suspend", "x"}, nil, true},
		"BehindList":   {[]string{"spec", "list", "0"}, nil, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := retry.Lookup(obj, tc.path...)
			if tc.bad != errors.As(err, new(*retry.PathError)) || !tc.bad && err != nil {
				t.Fatalf("got %v, %v", got, err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestEditString(t *testing.T) {
	cases := map[string]struct {
		edit retry.Edit
		want string
	}{
		"Set":        {retry.Set(true, "spec", "suspend"), "spec.suspend=true"},
		"Remove":     {retry.Remove("spec", "suspend"), "spec.suspend removed"},
		"Annotation": {retry.Set("7", "metadata", "annotations", "example.com/key"), "metadata.annotations[example.com/key]=7"},
		"AtTheRoot":  {retry.Set("x", "a.b", "c"), "[a.b].c=x"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := tc.edit.String(); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
