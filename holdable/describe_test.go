package holdable

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubehold/kubehold/meta"
)

// Rule P1: the requests that the calls send, by verb and resource.
func TestNeeds(t *testing.T) {
	elsewhere := ticketed()
	elsewhere.GatedElsewhere = true
	blind := machine()
	blind.Pods = nil
	cases := map[string]struct {
		kind Kind
		opts Options
		want map[string]string
	}{
		"Itself": {machine(), Options{}, map[string]string{
			"get machines": "Hold Inspect Release", "update machines": "Hold Release", "list pods": "Inspect Release",
		}},
		"StartGate": {gated(), Options{}, map[string]string{
			"get machines": "Hold Inspect Open Release", "update machines": "Hold Open Release", "list pods": "Inspect Open Release",
		}},
		"PodsCannotBeFound": {blind, Options{CheckPods: true}, map[string]string{
			"get machines": "Hold Inspect Release", "update machines": "Hold Release",
		}},
		// Rule I9: the named object is read, and only what is held is written.
		"ByTicket": {elsewhere, Options{}, map[string]string{
			"get machines": "Hold Inspect Release", "list tickets": "Hold Inspect Release", "get tickets": "Hold Release",
			"update tickets": "Hold Release", "list pods": "Inspect",
		}},
		"ByTicketChecksPods": {elsewhere, Options{CheckPods: true}, map[string]string{
			"get machines": "Hold Inspect Release", "list tickets": "Hold Inspect Release", "get tickets": "Hold Release",
			"update tickets": "Hold Release", "list pods": "Inspect Release",
		}},
		"TicketItself": {elsewhere.Direct(), Options{}, map[string]string{
			"get tickets": "Hold Inspect Release", "update tickets": "Hold Release",
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := map[string]string{}
			for _, need := range tc.kind.Describe().Needs(tc.opts) {
				key := need.Verb + " " + need.Resource.Resource
				if _, twice := got[key]; twice {
					t.Errorf("%s is there twice", key)
				}
				var ops []string
				for _, op := range slices.Sorted(slices.Values(need.Ops)) {
					ops = append(ops, string(op))
				}
				got[key] = strings.Join(ops, " ")
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestDescribe(t *testing.T) {
	d := ticketed().Describe()
	if d.Kind != "Ticket" || d.Resource != tickets() || d.Named == nil || d.Named.Kind != "Machine" || d.Held != true || d.StartGate || !gated().Describe().StartGate {
		t.Errorf("got %+v", d)
	}
	d.PausePath[0] = "changed"
	if again := ticketed().Describe(); !slices.Equal(again.PausePath, Field("spec", "suspend")) {
		t.Errorf("the description shares its path: %v", again.PausePath)
	}
	kind := ticketed()
	kind.Makes = []Made{part(nil)}
	kind.Describe().Makes[0].Kind = "changed"
	if again := kind.Describe().Makes; len(again) != 1 || again[0].Kind != "Part" {
		t.Errorf("the description shares what is made: %v", again)
	}
	if direct := kind.Direct().Describe(); len(direct.Makes) > 0 {
		t.Errorf("what is made for the named object is made for %s: %v", direct.Kind, direct.Makes)
	}
	owned := object(map[string]any{"labels": map[string]any{"example.com/fleet": "f"}}, nil)
	if d.Owner(owned) == "" || d.Owner(object(nil, nil)) != "" {
		t.Error("the description has another owner than the kind")
	}
}

// Rule H8: the first owner that claims an object is the one that is named.
func TestOwnerOf(t *testing.T) {
	kind := machine()
	obj := object(map[string]any{
		"labels":          map[string]any{"example.com/fleet": "f"},
		"ownerReferences": []any{map[string]any{"apiVersion": "example.com/v1", "kind": "Rack", "name": "r", "uid": "x", "controller": true}},
	}, nil)
	if got := kind.ownerOf(obj); !strings.Contains(got, "Fleet") {
		t.Errorf("got %q", got)
	}
	obj.SetLabels(nil)
	if got := kind.ownerOf(obj); !strings.Contains(got, "Rack r") {
		t.Errorf("got %q", got)
	}
}

// The kind that is named by itself loses what is found from the other object.
func TestDirect(t *testing.T) {
	kind := ticketed()
	got := kind.Direct()
	if gvk := got.GroupVersionKind(); gvk.Kind != "Ticket" || kind.Of == nil {
		t.Errorf("got %v, and %v is left", gvk, kind.Of)
	}
	if err := got.Check(); err != nil {
		t.Error(err)
	}
	if gvk := machine().Direct().GroupVersionKind(); gvk.Kind != "Machine" {
		t.Errorf("got %v", gvk)
	}
	for _, need := range machine().Direct().Describe().Needs(Options{}) {
		if need.Resource == pods() && slices.Contains(need.Ops, meta.OpRelease) {
			return
		}
	}
	t.Error("a kind that is direct anyway has lost its pods")
}
