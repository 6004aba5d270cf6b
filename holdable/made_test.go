package holdable

import (
	"context"
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubehold/kubehold/meta"
)

func parts() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "parts"}
}

// A part of a machine, found by a label; below it are pods.
func part(selector func(*unstructured.Unstructured) (string, error)) Made {
	return Holdable[bool]{
		Kind: "Part", Resource: parts(), Pause: Pause[bool]{Path: Field("spec", "suspend"), Held: true}, Ended: ConditionTrue("Done"),
	}.AsMade(selector)
}

// Rule G1: what a pause field says of an object, whatever its type.
func TestStop(t *testing.T) {
	for name, tc := range map[string]struct {
		stop   Stop
		object map[string]any
		want   bool
	}{
		"Stopped":         {Stop{Field("spec", "suspend"), true, false}, map[string]any{"spec": map[string]any{"suspend": true}}, false},
		"Running":         {Stop{Field("spec", "suspend"), true, false}, map[string]any{"spec": map[string]any{"suspend": false}}, true},
		"Absent":          {Stop{Field("spec", "suspend"), true, false}, map[string]any{}, true},
		"AbsentIsHeld":    {Stop{Field("spec", "state"), "off", "off"}, map[string]any{}, false},
		"AnotherType":     {Stop{Field("spec", "parallelism"), int64(0), int64(1)}, map[string]any{"spec": map[string]any{"parallelism": "0"}}, true},
		"NotToBeRead":     {Stop{Field("spec", "suspend"), true, true}, map[string]any{"spec": "none"}, true},
		"AtTheTop":        {Stop{Field("paused"), true, false}, map[string]any{}, true},
		"OfAPause":        {Pause[int64]{Path: Field("spec", "replicas"), Held: 0, Running: 1, Absent: 1}.Stop(), map[string]any{"spec": map[string]any{"replicas": int64(0)}}, false},
		"NotToBeLookedAt": {Stop{}, map[string]any{"spec": map[string]any{"suspend": false}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.stop.runs(&unstructured.Unstructured{Object: tc.object}); got != tc.want {
				t.Errorf("it runs: %v, want %v", got, tc.want)
			}
		})
	}
}

// Rule G1: for what is paused, has ended or is being deleted, nothing is made any
// more.
func TestMadeRuns(t *testing.T) {
	done := map[string]any{"conditions": []any{map[string]any{"type": "Done", "status": "True"}}}
	for name, tc := range map[string]struct {
		object map[string]any
		want   bool
	}{
		"Runs":    {map[string]any{"spec": map[string]any{"suspend": false}}, true},
		"Paused":  {map[string]any{"spec": map[string]any{"suspend": true}}, false},
		"Ended":   {map[string]any{"status": done}, false},
		"Deleted": {map[string]any{"metadata": map[string]any{"deletionTimestamp": resetAt}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := part(nil).runs(&unstructured.Unstructured{Object: tc.object}); got != tc.want {
				t.Errorf("it runs: %v, want %v", got, tc.want)
			}
		})
	}
}

// A partsReader answers what a list or a get of parts is answered.
type partsReader struct {
	objects  []*unstructured.Unstructured
	err      error
	selector string
}

func (r *partsReader) Get(_ context.Context, _ schema.GroupVersionResource, namespace, name string) (*unstructured.Unstructured, error) {
	for _, obj := range r.objects {
		if obj.GetNamespace() == namespace && obj.GetName() == name {
			return obj, r.err
		}
	}
	return nil, apierrors.NewNotFound(parts().GroupResource(), name)
}

func (r *partsReader) Each(_ context.Context, _ schema.GroupVersionResource, _, selector string, visit func(*unstructured.Unstructured) bool) error {
	r.selector = selector
	for _, obj := range r.objects {
		if !visit(obj) {
			return r.err
		}
	}
	return r.err
}

// Rule G1: which of what stands between an object and its pods is not paused.
func TestRunning(t *testing.T) {
	made := func(name string, suspend bool) *unstructured.Unstructured {
		return object(map[string]any{"name": name, "namespace": "ns"}, map[string]any{"suspend": suspend})
	}
	odd := func(*unstructured.Unstructured) (string, error) { return "", errors.New("odd") }
	none := func(*unstructured.Unstructured) (string, error) { return "", nil }
	all := []*unstructured.Unstructured{made("a", true), made("m", false), made("z", false)}
	noRoute := apierrors.NewGenericServerResponse(404, "get", parts().GroupResource(), "m", "404 page not found", 0, true)
	for name, tc := range map[string]struct {
		makes   []Made
		objects []*unstructured.Unstructured
		err     error
		want    string
		says    string // in the error, "" for none
	}{
		"Nothing":        {nil, all, nil, "", ""},
		"ByName":         {[]Made{part(nil)}, all, nil, "Part m", ""},
		"NoneOfTheName":  {[]Made{part(nil)}, all[:1], nil, "", ""},
		"ByLabel":        {[]Made{part(PodsNamed("machine"))}, all[2:], nil, "Part z", ""},
		"TheFirst":       {[]Made{part(PodsNamed("machine"))}, all, nil, "Part m", ""},
		"AllPaused":      {[]Made{part(PodsNamed("machine")), part(nil)}, all[:1], nil, "", ""},
		"TheSecondKind":  {[]Made{part(nil), part(PodsNamed("machine"))}, all[2:], nil, "Part z", ""},
		"NotServed":      {[]Made{part(PodsNamed("machine"))}, nil, noRoute, "", "could not find the requested resource"},
		"NotServedToGet": {[]Made{part(nil)}, all, noRoute, "", "could not find the requested resource"},
		"Forbidden":      {[]Made{part(PodsNamed("machine"))}, nil, apierrors.NewForbidden(parts().GroupResource(), "", nil), "", "forbidden"},
		"ForbiddenToGet": {[]Made{part(nil)}, all, apierrors.NewForbidden(parts().GroupResource(), "", nil), "", "forbidden"},
		"OddSelector":    {[]Made{part(odd)}, all, nil, "", "the Parts of the object cannot be found"},
		"EverySelector":  {[]Made{part(none)}, all, nil, "", "every Part of the namespace"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &partsReader{objects: tc.objects, err: tc.err}
			got, err := running(t.Context(), r, tc.makes, made("m", true))
			if got != tc.want || (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %q, %v, want %q, %q", got, err, tc.want, tc.says)
			}
			if strings.Contains(tc.says, "Part") && !errors.Is(err, meta.ErrRejected) {
				t.Errorf("got %v", err)
			}
			if r.selector != "" && r.selector != "machine=m" {
				t.Errorf("it lists %q", r.selector)
			}
		})
	}
}
