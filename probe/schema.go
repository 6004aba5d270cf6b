package probe

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A document is an OpenAPI v3 document, as far as the fields of objects go.
type document struct {
	Components struct {
		Schemas map[string]*node `json:"schemas"`
	} `json:"components"`
}

// A node is the schema of one value.
type node struct {
	Ref        string           `json:"$ref"`
	AllOf      []*node          `json:"allOf"`
	Type       string           `json:"type"`
	Properties map[string]*node `json:"properties"`
	Items      *node            `json:"items"`
	// Values is the schema of the values of a map.
	Values values `json:"additionalProperties"`
	// Open says that fields which the schema does not name are kept.
	Open  bool                      `json:"x-kubernetes-preserve-unknown-fields"`
	Kinds []schema.GroupVersionKind `json:"x-kubernetes-group-version-kind"`
}

// values is a schema, or true or false for any value and none.
type values struct{ *node }

// UnmarshalJSON implements json.Unmarshaler.
func (v *values) UnmarshalJSON(data []byte) error {
	switch string(data) {
	case "true":
		v.node = &node{Open: true}
		return nil
	case "false", "null":
		return nil
	}
	v.node = new(node)
	return json.Unmarshal(data, v.node)
}

// A shape is the schema of a kind, with what its references lead to.
type shape struct {
	root  *node
	named map[string]*node
}

// shapeOf returns the shape of a kind, false if the document has none.
func (d document) shapeOf(gvk schema.GroupVersionKind) (shape, bool) {
	for _, name := range slices.Sorted(maps.Keys(d.Components.Schemas)) {
		if n := d.Components.Schemas[name]; n != nil && slices.Contains(n.Kinds, gvk) {
			return shape{root: n, named: d.Components.Schemas}, true
		}
	}
	return shape{}, false
}

// resolve follows the references of a node, and merges what it is all of.
func (s shape) resolve(n *node) *node { return s.resolveWithin(n, 8) }

func (s shape) resolveWithin(n *node, depth int) *node {
	switch {
	case n == nil || depth == 0:
		return &node{}
	case n.Ref != "":
		return s.resolveWithin(s.named[strings.TrimPrefix(n.Ref, "#/components/schemas/")], depth-1)
	case len(n.AllOf) == 0:
		return n
	}
	merged := *n
	merged.Properties = maps.Clone(n.Properties)
	for _, part := range n.AllOf {
		part = s.resolveWithin(part, depth-1)
		merged.Type = cmp.Or(merged.Type, part.Type)
		merged.Items = cmp.Or(merged.Items, part.Items)
		merged.Open = merged.Open || part.Open
		merged.Values = cmp.Or(merged.Values, part.Values)
		if merged.Properties == nil {
			merged.Properties = map[string]*node{}
		}
		maps.Copy(merged.Properties, part.Properties)
	}
	return &merged
}

// keepsAll reports whether a value keeps all that is put into it. An object
// without properties is not meant: it keeps nothing.
func (n *node) keepsAll() bool {
	return n.Open || n.Type == "" && n.Properties == nil && n.Values.node == nil && n.Items == nil
}

// typeAt returns the JSON type of the field at path, "" if it may be any, and
// whether a field there is kept at all.
func (s shape) typeAt(path []string) (jsonType string, kept bool) {
	n := s.resolve(s.root)
	for _, name := range path {
		child := n.Properties[name]
		if child == nil {
			child = n.Values.node
		}
		if child == nil {
			return "", n.keepsAll()
		}
		n = s.resolve(child)
	}
	return n.Type, true
}

// lost returns the paths of the fields that stored has and s has not, so that
// an object which is written through s loses them. Only the topmost are named.
func (s shape) lost(stored shape) []string {
	return s.compare(stored, s.root, stored.root, "", map[[2]*node]bool{})
}

// compare goes through two schemas side by side. seen has the pairs of nodes
// that were compared already, for schemas may contain themselves.
func (s shape) compare(stored shape, mine, theirs *node, at string, seen map[[2]*node]bool) []string {
	pair := [2]*node{mine, theirs}
	mine, theirs = s.resolve(mine), stored.resolve(theirs)
	if seen[pair] || mine.keepsAll() {
		return nil
	}
	seen[pair] = true
	var lost []string
	for _, name := range slices.Sorted(maps.Keys(theirs.Properties)) {
		path := joined(".", at, name)
		child := mine.Properties[name]
		if child == nil {
			child = mine.Values.node
		}
		switch {
		case path == "apiVersion" || path == "kind" || path == "metadata":
		case child == nil:
			lost = append(lost, path)
		default:
			lost = append(lost, s.compare(stored, child, theirs.Properties[name], path, seen)...)
		}
	}
	if mine.Items != nil && theirs.Items != nil {
		lost = append(lost, s.compare(stored, mine.Items, theirs.Items, at+"[]", seen)...)
	}
	if mine.Values.node != nil && theirs.Values.node != nil {
		lost = append(lost, s.compare(stored, mine.Values.node, theirs.Values.node, at+"[]", seen)...)
	}
	return lost
}

// jsonTypeOf is the JSON type of the value of a pause field.
func jsonTypeOf(value any) string {
	switch value.(type) {
	case bool:
		return "boolean"
	case int64:
		return "integer"
	}
	return "string"
}
