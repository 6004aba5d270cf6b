package probe

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// parse reads the schema of a kind, with the schemas that it refers to.
func parse(t interface{ Fatal(...any) }, root string, named map[string]string) shape {
	read := func(text string) *node {
		n := new(node)
		if err := json.Unmarshal([]byte(text), n); err != nil {
			t.Fatal(text, err)
		}
		return n
	}
	s := shape{root: read(root), named: map[string]*node{}}
	for name, text := range named {
		s.named[name] = read(text)
	}
	return s
}

// What an update through one schema loses of another.
func TestP1LostFields(t *testing.T) {
	object := func(properties string) string { return `{"type": "object", "properties": {` + properties + `}}` }
	const text = `{"type": "string"}`
	named := map[string]string{
		"Tree": `{"type": "object", "properties": {"name": {"type": "string"}, "children": {"type": "array", "items": {"allOf": [{"$ref": "#/components/schemas/Tree"}]}},
			"byName": {"type": "object", "additionalProperties": {"$ref": "#/components/schemas/Tree"}}}}`,
		"Loop": `{"$ref": "#/components/schemas/Loop"}`,
	}
	const tree = `{"$ref": "#/components/schemas/Tree"}`
	for _, tt := range []struct {
		name         string
		mine, stored string
		lost         []string
	}{
		{"Same", object(`"a": ` + text), object(`"a": ` + text), nil},
		{"More", object(`"a": ` + text + `, "b": ` + text), object(`"a": ` + text), nil},
		{"OneLess", object(`"a": ` + text), object(`"a": ` + text + `, "b": ` + text), []string{"b"}},
		{"DeepLess", object(`"spec": ` + object(``)), object(`"spec": ` + object(`"b": `+text+`, "c": `+text)), []string{"spec.b", "spec.c"}},
		{"OnlyTheTopmost", object(``), object(`"spec": ` + object(`"b": `+text)), []string{"spec"}},
		{"InLists", object(`"l": {"type": "array", "items": ` + object(``) + `}`), object(`"l": {"type": "array", "items": ` + object(`"b": `+text) + `}`), []string{"l[].b"}},
		{"InMaps", object(`"m": {"type": "object", "additionalProperties": ` + object(``) + `}`), object(`"m": {"type": "object", "additionalProperties": ` + object(`"b": `+text) + `}`), []string{"m[].b"}},
		{"KeptByAMap", object(`"m": {"type": "object", "additionalProperties": true}`), object(`"m": ` + object(`"b": `+object(`"c": `+text))), nil},
		{"NotKeptByAClosedMap", object(`"m": {"type": "object", "additionalProperties": false}`), object(`"m": ` + object(`"b": `+text)), []string{"m.b"}},
		{"KeptUnknown", object(`"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}`), object(`"spec": ` + object(`"b": `+text)), nil},
		{"Anything", object(`"spec": {}`), object(`"spec": ` + object(`"b": `+text)), nil},
		{"EveryObjectHasThese", object(``), object(`"apiVersion": ` + text + `, "kind": ` + text + `, "metadata": ` + object(`"x": `+text)), nil},
		{"ATreeInItself", tree, tree, nil},
		{"LessThanATree", object(`"name": ` + text), tree, []string{"byName", "children"}},
		{"ALoop", `{"$ref": "#/components/schemas/Loop"}`, tree, nil},
		{"MergedAndKept", `{"allOf": [` + object(`"a": `+text) + `, {"type": "object", "x-kubernetes-preserve-unknown-fields": true}]}`, object(`"b": ` + text), nil},
		{"Merged", `{"allOf": [` + object(`"a": `+text) + `, ` + object(`"b": `+text) + `]}`, object(`"a": ` + text + `, "b": ` + text), nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := parse(t, tt.mine, named).lost(parse(t, tt.stored, named))
			if diff := cmp.Diff(tt.lost, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Whatever schemas say, they are walked to an end; one loses nothing of itself,
// and a field that one has lost is one that it does not keep.
func TestP1AnySchema(t *testing.T) {
	names := []string{"a", "b", "c"}
	var schemas func(depth int) *rapid.Generator[map[string]any]
	schemas = func(depth int) *rapid.Generator[map[string]any] {
		return rapid.Custom(func(t *rapid.T) map[string]any {
			n := map[string]any{}
			if rapid.Bool().Draw(t, "ref") || depth == 0 {
				n["$ref"] = "#/components/schemas/" + rapid.SampledFrom(append(names, "none")).Draw(t, "to")
				return n
			}
			if rapid.Bool().Draw(t, "typed") {
				n["type"] = rapid.SampledFrom([]string{"object", "array", "string", "boolean"}).Draw(t, "type")
			}
			if rapid.Bool().Draw(t, "open") {
				n["x-kubernetes-preserve-unknown-fields"] = true
			}
			if rapid.Bool().Draw(t, "items") {
				n["items"] = schemas(depth-1).Draw(t, "item")
			}
			if rapid.Bool().Draw(t, "values") {
				n["additionalProperties"] = rapid.SampledFrom([]any{true, false, schemas(depth-1).Draw(t, "value")}).Draw(t, "values")
			}
			if rapid.Bool().Draw(t, "all") {
				n["allOf"] = []any{schemas(depth-1).Draw(t, "one"), schemas(depth-1).Draw(t, "other")}
			}
			n["properties"] = rapid.MapOfN(rapid.SampledFrom(names), schemas(depth-1), 0, 3).Draw(t, "properties")
			return n
		})
	}
	rapid.Check(t, func(t *rapid.T) {
		draw := func(label string) shape {
			text, err := json.Marshal(map[string]any{"components": map[string]any{"schemas": map[string]any{
				"a": schemas(3).Draw(t, label+" a"), "b": schemas(3).Draw(t, label+" b"), "c": schemas(3).Draw(t, label+" c"),
			}}})
			if err != nil {
				t.Fatal(err)
			}
			var d document
			if err := json.Unmarshal(text, &d); err != nil {
				t.Fatal(err)
			}
			return shape{root: d.Components.Schemas["a"], named: d.Components.Schemas}
		}
		mine, stored := draw("mine"), draw("stored")
		if lost := mine.lost(mine); len(lost) > 0 {
			t.Errorf("P1: a schema loses %v of itself", lost)
		}
		for _, path := range mine.lost(stored) {
			if strings.Contains(path, "[]") {
				continue
			}
			if _, kept := mine.typeAt(strings.Split(path, ".")); kept {
				t.Errorf("P1: %s is lost, and kept", path)
			}
		}
	})
}
