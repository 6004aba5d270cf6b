package rapidtest

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"pgregory.net/rapid"
)

func parse(t interface{ Fatal(...any) }, text string) map[string]any {
	var out map[string]any
	if err := utiljson.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestJSONPatch(t *testing.T) {
	cases := map[string]struct{ doc, patch, want string }{
		"Add":             {`{"a":{}}`, `[{"op":"add","path":"/a/b","value":1}]`, `{"a":{"b":1}}`},
		"AddOver":         {`{"a":1}`, `[{"op":"add","path":"/a","value":2}]`, `{"a":2}`},
		"AddToArray":      {`{"a":[1,3]}`, `[{"op":"add","path":"/a/1","value":2}]`, `{"a":[1,2,3]}`},
		"AppendToArray":   {`{"a":[1]}`, `[{"op":"add","path":"/a/-","value":2}]`, `{"a":[1,2]}`},
		"AddAtEnd":        {`{"a":[1]}`, `[{"op":"add","path":"/a/1","value":2}]`, `{"a":[1,2]}`},
		"Replace":         {`{"a":[1,2]}`, `[{"op":"replace","path":"/a/1","value":{"x":null}}]`, `{"a":[1,{"x":null}]}`},
		"ReplaceAll":      {`{"a":1}`, `[{"op":"replace","path":"","value":{"b":2}}]`, `{"b":2}`},
		"Remove":          {`{"a":1,"b":2}`, `[{"op":"remove","path":"/a"}]`, `{"b":2}`},
		"RemoveFromArray": {`{"a":[1,2,3]}`, `[{"op":"remove","path":"/a/1"}]`, `{"a":[1,3]}`},
		"Below":           {`{"a":[{"b":1}]}`, `[{"op":"replace","path":"/a/0/b","value":2}]`, `{"a":[{"b":2}]}`},
		"Escapes":         {`{"a/b":1,"c~d":2}`, `[{"op":"remove","path":"/a~1b"},{"op":"remove","path":"/c~0d"}]`, `{}`},
		"Move":            {`{"a":{"b":1},"c":{}}`, `[{"op":"move","from":"/a/b","path":"/c/d"}]`, `{"a":{},"c":{"d":1}}`},
		"Copy":            {`{"a":{"b":[1]}}`, `[{"op":"copy","from":"/a","path":"/c"},{"op":"add","path":"/c/b/-","value":2}]`, `{"a":{"b":[1]},"c":{"b":[1,2]}}`},
		"Test":            {`{"a":{"b":[1,"x",true,null]}}`, `[{"op":"test","path":"/a","value":{"b":[1,"x",true,null]}}]`, `{"a":{"b":[1,"x",true,null]}}`},
		"TestOfAbsence":   {`{}`, `[{"op":"test","path":"/a","value":null}]`, `{}`},
		"FailingTest":     {`{"a":1}`, `[{"op":"test","path":"/a","value":2}]`, ``},
		"TestOfNothing":   {`{}`, `[{"op":"test","path":"/a","value":2}]`, ``},
		"MissingPath":     {`{}`, `[{"op":"add","path":"/a/b","value":1}]`, ``},
		"MissingKey":      {`{}`, `[{"op":"remove","path":"/a"}]`, ``},
		"NoSuchIndex":     {`{"a":[1]}`, `[{"op":"replace","path":"/a/1","value":2}]`, ``},
		"NoIndex":         {`{"a":[1]}`, `[{"op":"remove","path":"/a/x"}]`, ``},
		"LookUpInArray":   {`{"a":[1]}`, `[{"op":"copy","from":"/a/0","path":"/b"}]`, `{"a":[1],"b":1}`},
		"LookUpOutside":   {`{"a":[1]}`, `[{"op":"copy","from":"/a/9","path":"/b"}]`, ``},
		"LookUpInText":    {`{"a":"x"}`, `[{"op":"copy","from":"/a/b","path":"/b"}]`, ``},
		"EditOfText":      {`{"a":"x"}`, `[{"op":"add","path":"/a/b","value":1}]`, ``},
		"UnknownOp":       {`{}`, `[{"op":"mangle","path":"/a"}]`, ``},
		"NoObjectLeft":    {`{}`, `[{"op":"replace","path":"","value":1}]`, ``},
		"NoValue":         {`{}`, `[{"op":"add","path":"/a"}]`, `{"a":null}`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := applyPatch(types.JSONPatchType, []byte(tc.patch), parse(t, tc.doc))
			if tc.want == "" {
				if err == nil {
					t.Fatalf("got %v, want an error", got)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(parse(t, tc.want), got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestMergePatch(t *testing.T) {
	cases := map[string]struct{ doc, patch, want string }{
		"Set":            {`{"a":1}`, `{"b":{"c":2}}`, `{"a":1,"b":{"c":2}}`},
		"Remove":         {`{"a":1,"b":2}`, `{"a":null}`, `{"b":2}`},
		"RemoveBelow":    {`{"a":{"b":1,"c":2}}`, `{"a":{"b":null}}`, `{"a":{"c":2}}`},
		"ReplaceArray":   {`{"a":[1,2]}`, `{"a":[3]}`, `{"a":[3]}`},
		"ObjectOverText": {`{"a":"x"}`, `{"a":{"b":1,"c":null}}`, `{"a":{"b":1}}`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := applyPatch(types.MergePatchType, []byte(tc.patch), parse(t, tc.doc))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(parse(t, tc.want), got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// drawValue draws a JSON tree of the given depth.
func drawValue(t *rapid.T, depth int) any {
	kinds := 5
	if depth > 0 {
		kinds = 7
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return nil
	case 1:
		return rapid.Bool().Draw(t, "bool")
	case 2:
		return rapid.StringMatching(`[a-c]{0,2}`).Draw(t, "text")
	case 3:
		return rapid.Int64Range(-3, 3).Draw(t, "number")
	case 4:
		return 0.5
	case 5:
		out := []any{}
		for range rapid.IntRange(0, 3).Draw(t, "length") {
			out = append(out, drawValue(t, depth-1))
		}
		return out
	}
	return drawMap(t, depth-1)
}

func drawMap(t *rapid.T, depth int) map[string]any {
	out := map[string]any{}
	for range rapid.IntRange(0, 3).Draw(t, "size") {
		out[rapid.StringMatching(`[a-c]`).Draw(t, "key")] = drawValue(t, depth)
	}
	return out
}

// A copy is equal and shares nothing, equality is that of JSON text, and equal values have equal hashes.
func TestWireCopyAndEquality(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawMap(t, 3), drawMap(t, 3)
		text := func(v any) string {
			data, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			return string(data)
		}
		before := text(a)
		dup, _, err := wireCopyObject(a)
		if err != nil || !sameMap(a, dup) {
			t.Fatalf("the copy differs: %v, %v", dup, err)
		}
		if same := text(a) == text(b); same != sameMap(a, b) {
			t.Fatalf("equal: %v, by text: %v\n%v\n%v", !same, same, a, b)
		}
		sum := func(m map[string]any) uint64 {
			h := &hasher{}
			h.value(m)
			return h.sum()
		}
		if same := text(a) == text(b); same != (sum(a) == sum(b)) {
			t.Fatalf("hashes of\n%v\n%v", a, b)
		}
		_ = mergeMap(dup, map[string]any{"a": nil, "b": map[string]any{"a": int64(9)}, "c": []any{}})
		if text(a) != before {
			t.Fatal("the copy shares something")
		}
	})
}

func TestWireCopyReadsGoValuesAsJSONWould(t *testing.T) {
	type pair struct {
		A int `json:"a"`
	}
	in := map[string]any{
		"int": 7, "int32": int32(7), "whole": 3.0, "half": 0.5, "texts": []string{"x"}, "map": map[string]string{"k": "v"}, "struct": pair{1},
		"nilmap": map[string]any(nil), "nilslice": []any(nil), "big": 1e300,
	}
	want := map[string]any{
		"int": int64(7), "int32": int64(7), "whole": int64(3), "half": 0.5, "texts": []any{"x"}, "map": map[string]any{"k": "v"},
		"struct": map[string]any{"a": int64(1)}, "nilmap": nil, "nilslice": nil, "big": 1e300,
	}
	got, _, err := wireCopyObject(in)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for name, bad := range map[string]any{
		"InMap": map[string]any{"f": func() {}}, "InSlice": map[string]any{"s": []any{make(chan int)}},
	} {
		if _, _, err := wireCopyObject(bad.(map[string]any)); err == nil {
			t.Errorf("%s: what is no JSON must be refused", name)
		}
	}
	if got, _, err := wireCopyObject(nil); err != nil || got == nil {
		t.Errorf("no content must become empty content: %v, %v", got, err)
	}
}

func TestKnownFields(t *testing.T) {
	r := &servedResource{schema: newKnownFields([]string{"spec.a", "spec.list[].b", "spec.grid[][].c", "spec.any.*", "status.*"})}
	obj := parse(t, `{"apiVersion":"v1","kind":"K","metadata":{"name":"n"},
		"spec":{"a":{"x":1},"list":[{"b":1,"x":1},"text"],"grid":[[{"c":1,"x":1}]],"any":{"x":{"y":1}},"none":1,"list2":null},
		"status":{"x":1},"more":1}`)
	unknown := r.prune(obj)
	want := []string{"more", "spec.a.x", "spec.grid[0][0].x", "spec.list2", "spec.list[0].x", "spec.none"}
	if diff := cmp.Diff(want, unknown); diff != "" {
		t.Error(diff)
	}
	left := parse(t, `{"apiVersion":"v1","kind":"K","metadata":{"name":"n"},
		"spec":{"a":{},"list":[{"b":1},"text"],"grid":[[{"c":1}]],"any":{"x":{"y":1}}},"status":{"x":1}}`)
	if diff := cmp.Diff(left, obj); diff != "" {
		t.Error(diff)
	}
}
