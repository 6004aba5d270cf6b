package holdable

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func conditions(all ...any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"conditions": all}}}
}

func TestConditions(t *testing.T) {
	got := Conditions(conditions(
		map[string]any{"type": "Complete", "status": "True", "reason": "R", "message": "m", "observedGeneration": int64(3)},
		"text",
		map[string]any{"type": int64(3), "status": true},
	))
	want := []Condition{{"Complete", "True", "R", "m"}, {}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := Conditions(&unstructured.Unstructured{}); len(got) > 0 {
		t.Errorf("of nothing: %v", got)
	}
}

// Rule R7: ended is a condition of the right type that is True, and nothing
// else.
func TestConditionTrue(t *testing.T) {
	condition := func(name, status string) map[string]any { return map[string]any{"type": name, "status": status} }
	cases := map[string]struct {
		obj  *unstructured.Unstructured
		want bool
	}{
		"First":      {conditions(condition("Complete", "True")), true},
		"Second":     {conditions(condition("Other", "True"), condition("Failed", "True")), true},
		"False":      {conditions(condition("Complete", "False")), false},
		"Unknown":    {conditions(condition("Complete", "Unknown")), false},
		"Lowercase":  {conditions(condition("Complete", "true")), false},
		"Other":      {conditions(condition("Completed", "True")), false},
		"FalseFirst": {conditions(condition("Complete", "False"), condition("Failed", "True")), true},
		"None":       {conditions(), false},
		"NoStatus":   {&unstructured.Unstructured{}, false},
	}
	ended := ConditionTrue("Complete", "Failed")
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := ended(tc.obj); (got != "") != tc.want {
				t.Errorf("got %q, want %t", got, tc.want)
			}
		})
	}
	if got := ended(conditions(condition("Failed", "True"))); !strings.Contains(got, "Failed") {
		t.Errorf("%q does not say how it ended", got)
	}
}

func TestPodSelectors(t *testing.T) {
	obj := object(map[string]any{"name": "m", "namespace": "ns", "uid": "u"}, nil)
	for want, selector := range map[string]func(*unstructured.Unstructured) (string, error){
		"example.com/job=m": PodsNamed("example.com/job"),
		"example.com/uid=u": PodsOfUID("example.com/uid"),
	} {
		if got, err := selector(obj); err != nil || got != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
}

// Rule H8: who else owns the pause field is seen on the object itself.
func TestOwnedByLabel(t *testing.T) {
	owner := OwnedByLabel("Fleet", "example.com/fleet", "hold the Fleet")
	cases := map[string]struct {
		labels map[string]any
		want   bool
	}{
		"Owned":       {map[string]any{"example.com/fleet": "f"}, true},
		"Empty":       {map[string]any{"example.com/fleet": ""}, false},
		"OtherLabel":  {map[string]any{"example.com/fleets": "f"}, false},
		"NoLabels":    {nil, false},
		"NotEvenText": {map[string]any{"example.com/fleet": true}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := owner(object(map[string]any{"labels": tc.labels}, nil))
			if (got != "") != tc.want {
				t.Errorf("got %q, want %t", got, tc.want)
			}
			if tc.want && !(strings.Contains(got, "Fleet") && strings.Contains(got, "example.com/fleet=f") && strings.HasSuffix(got, "hold the Fleet")) {
				t.Errorf("%q does not say who, how it shows, and what to do", got)
			}
		})
	}
}

// Rule H8: only the controller writes the field, not any owner.
func TestOwnedByController(t *testing.T) {
	owner := OwnedByController("Rack.example.com", "ReplicationController")
	ref := func(apiVersion, kind string, controller any) []any {
		return []any{map[string]any{"apiVersion": apiVersion, "kind": kind, "name": "r", "uid": "x", "controller": controller}}
	}
	cases := map[string]struct {
		refs []any
		want bool
	}{
		"Owned":         {ref("example.com/v1", "Rack", true), true},
		"AnyVersion":    {ref("example.com/v2beta1", "Rack", true), true},
		"CoreGroup":     {ref("v1", "ReplicationController", true), true},
		"NoController":  {ref("example.com/v1", "Rack", false), false},
		"OtherGroup":    {ref("example.org/v1", "Rack", true), false},
		"OtherKind":     {ref("example.com/v1", "Racks", true), false},
		"GroupAsCore":   {ref("v1", "Rack", true), false},
		"CoreInAGroup":  {ref("example.com/v1", "ReplicationController", true), false},
		"NoOwners":      {nil, false},
		"NoAPIVersion":  {ref("", "Rack", true), false},
		"BadAPIVersion": {ref("a/b/c", "Rack", true), false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := owner(object(map[string]any{"ownerReferences": tc.refs}, nil))
			if (got != "") != tc.want {
				t.Errorf("got %q, want %t", got, tc.want)
			}
		})
	}
	if got := owner(object(map[string]any{"ownerReferences": ref("example.com/v1", "Rack", true)}, nil)); !strings.Contains(got, "Rack r") {
		t.Errorf("%q does not name the parent", got)
	}
}
