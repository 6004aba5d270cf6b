package holdable

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/kubehold/kubehold/meta"
)

func tickets() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "tickets"}
}

// ticketed is a kind whose objects are held by the ticket that somebody made
// for them, as Kueue makes Workloads.
func ticketed() Holdable[bool] {
	kind := machine()
	kind.Of = &Named{Kind: kind.Kind, Resource: kind.Resource, UIDLabel: "example.com/machine-uid"}
	kind.Kind, kind.Resource = "Ticket", tickets()
	return kind
}

// A ticket says which machine it is for by a label, by its controller, or both.
type ticket struct {
	name, label, controller, created, namespace string
	done                                        bool
}

func (k ticket) object() *unstructured.Unstructured {
	metadata := map[string]any{"name": k.name, "namespace": "ns", "uid": "uid of " + k.name}
	if k.namespace != "" {
		metadata["namespace"] = k.namespace
	}
	if k.label != "" {
		metadata["labels"] = map[string]any{"example.com/machine-uid": k.label}
	}
	if k.controller != "" {
		metadata["ownerReferences"] = []any{
			map[string]any{"apiVersion": "example.com/v1", "kind": "Other", "name": "o", "uid": "not the controller's"},
			map[string]any{"apiVersion": "example.com/v1", "kind": "Machine", "name": "m", "uid": k.controller, "controller": true},
		}
	}
	if k.created != "" {
		metadata["creationTimestamp"] = k.created
	}
	if k.done {
		return object(metadata, nil, "Done")
	}
	return object(metadata, nil)
}

func shop(named *unstructured.Unstructured, all ...ticket) objects {
	o := objects{}
	if named != nil {
		o[machine().Resource] = []*unstructured.Unstructured{named}
	}
	for _, k := range all {
		o[tickets()] = append(o[tickets()], k.object())
	}
	return o
}

func machineOf(uid string) *unstructured.Unstructured {
	return object(map[string]any{"name": "m", "namespace": "ns", "uid": uid}, nil)
}

// Rule H7: how the held object is found from the named one.
func TestFind(t *testing.T) {
	const early, late = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
	cases := map[string]struct {
		tickets []ticket
		want    string        // the name of what is found
		err     meta.Sentinel // or why nothing is
	}{
		"ByLabel":            {[]ticket{{name: "a", label: "u"}}, "a", ""},
		"ByLabelAndOwner":    {[]ticket{{name: "a", label: "u", controller: "u"}}, "a", ""},
		"ByOwner":            {[]ticket{{name: "a", controller: "u"}}, "a", ""},
		"LabelBeforeOwner":   {[]ticket{{name: "a", controller: "u"}, {name: "b", label: "u"}}, "b", ""},
		"LabelOfAnother":     {[]ticket{{name: "a", label: "v"}}, "", meta.ErrMissing},
		"OwnerIsAnother":     {[]ticket{{name: "a", controller: "v"}}, "", meta.ErrMissing},
		"LabelledNotOwned":   {[]ticket{{name: "a", label: "u", controller: "v"}}, "", meta.ErrMissing},
		"PastTheForged":      {[]ticket{{name: "a", label: "u", controller: "v"}, {name: "b", label: "u", controller: "u"}}, "b", ""},
		"ForgedThenByOwner":  {[]ticket{{name: "a", label: "u", controller: "v"}, {name: "b", controller: "u"}}, "b", ""},
		"OwnerNotController": {[]ticket{{name: "a", controller: "not the controller's"}, {name: "b"}}, "", meta.ErrMissing},
		"None":               {nil, "", meta.ErrMissing},
		"NameProvesNothing":  {[]ticket{{name: "m"}}, "", meta.ErrMissing},
		"OtherNamespace":     {[]ticket{{name: "a", label: "u", namespace: "elsewhere"}}, "", meta.ErrMissing},
		"Two":                {[]ticket{{name: "a", label: "u"}, {name: "b", label: "u"}}, "", meta.ErrRejected},
		"TwoByOwner":         {[]ticket{{name: "a", controller: "u"}, {name: "b", controller: "u"}}, "", meta.ErrRejected},
		"OneOfTwoFinished":   {[]ticket{{name: "a", label: "u", created: late, done: true}, {name: "b", label: "u", created: early}}, "b", ""},
		"TwoOfThreeFinished": {[]ticket{{name: "a", label: "u", done: true}, {name: "b", label: "u", done: true}, {name: "c", label: "u"}}, "c", ""},
		"Finished":           {[]ticket{{name: "a", label: "u", done: true}}, "a", ""},
		"NewestFinished":     {[]ticket{{name: "a", label: "u", created: early, done: true}, {name: "b", label: "u", created: late, done: true}}, "b", ""},
		"NewestComesFirst":   {[]ticket{{name: "a", label: "u", created: late, done: true}, {name: "b", label: "u", created: early, done: true}}, "a", ""},
	}
	kind := ticketed()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for _, pinned := range []types.UID{"", "u"} {
				find := &finder[bool]{kind: &kind, ref: meta.Ref{Namespace: "ns", Name: "m", UID: pinned}, wantNamed: pinned == ""}
				got, err := find.read(t.Context(), shop(machineOf("u"), tc.tickets...))
				if tc.err != "" {
					var e *meta.Error
					if !errors.As(err, &e) || e.Kind != tc.err || !errors.Is(err, meta.ErrRejected) {
						t.Fatalf("got %v, %v, want %s", got, err, tc.err)
					}
					continue
				}
				if err != nil || got.GetName() != tc.want || got.GetKind() != "Machine" {
					t.Fatalf("got %v, %v, want %s", got, err, tc.want)
				}
			}
		})
	}
}

// Rule H7: an error that says that there are too many names them.
func TestFindNamesTheUnfinished(t *testing.T) {
	kind := ticketed()
	find := &finder[bool]{kind: &kind, ref: meta.Ref{Namespace: "ns", Name: "m", UID: "u"}}
	_, err := find.read(t.Context(), shop(nil, ticket{name: "first", label: "u"}, ticket{name: "past", label: "u", done: true}, ticket{name: "second", label: "u"}))
	if err == nil || !strings.Contains(err.Error(), "first") || !strings.Contains(err.Error(), "second") || strings.Contains(err.Error(), "past") {
		t.Errorf("got %v", err)
	}
}

// Rule H7: what is found carries the UID of the named object, whatever else
// lies around, and an unfinished one is preferred.
func TestFindNeverTakesAnothers(t *testing.T) {
	kind := ticketed()
	check(t, func(t *rapid.T) {
		uid := rapid.SampledFrom([]string{"", "u", "v", "w"})
		var all []ticket
		for i := range rapid.IntRange(0, 4).Draw(t, "tickets") {
			all = append(all, ticket{
				name: fmt.Sprint(i), label: uid.Draw(t, "label"), controller: uid.Draw(t, "controller"),
				done: rapid.Bool().Draw(t, "done"),
			})
		}
		find := &finder[bool]{kind: &kind, ref: meta.Ref{Namespace: "ns", Name: "m", UID: "u"}}
		got, err := find.read(t.Context(), shop(nil, all...))
		if err != nil {
			return
		}
		ours, label := controller(got).UID, got.GetLabels()["example.com/machine-uid"]
		if ours != "u" && (ours != "" || label != "u") {
			t.Fatalf("took the ticket of %q, labelled %q", ours, label)
		}
	})
}

// Rule C6: the UID of the named object is what the caller pinned, or what the
// first read saw, and another one later is another object.
func TestFindKeepsTheUID(t *testing.T) {
	for name, kind := range map[string]Holdable[bool]{"Itself": machine(), "ByTicket": ticketed()} {
		t.Run(name, func(t *testing.T) {
			tickets := []ticket{{name: "a", label: "u"}, {name: "b", label: "v"}}
			find := &finder[bool]{kind: &kind, ref: meta.Ref{Namespace: "ns", Name: "m"}, wantNamed: true}
			for range 2 {
				if _, err := find.read(t.Context(), shop(machineOf("u"), tickets...)); err != nil {
					t.Fatal(err)
				}
			}
			if got := find.object(); got.UID != "u" || got.Kind != "Machine" {
				t.Errorf("the receipt would name %+v", got)
			}
			if _, err := find.read(t.Context(), shop(machineOf("v"), tickets...)); !errors.Is(err, meta.ErrReplaced) || !errors.Is(err, meta.ErrRejected) {
				t.Errorf("replaced: got %v", err)
			}
			pinned := &finder[bool]{kind: &kind, ref: meta.Ref{Namespace: "ns", Name: "m", UID: "v"}, wantNamed: true}
			if _, err := pinned.read(t.Context(), shop(machineOf("u"), tickets...)); !errors.Is(err, meta.ErrReplaced) {
				t.Errorf("pinned to another: got %v", err)
			}
			for _, pin := range []types.UID{"", "u"} {
				nameless := &finder[bool]{kind: &kind, ref: meta.Ref{Namespace: "ns", Name: "m", UID: pin}, wantNamed: true}
				if _, err := nameless.read(t.Context(), shop(machineOf(""), tickets...)); !errors.Is(err, meta.ErrRejected) {
					t.Errorf("no UID at all, pinned to %q: got %v", pin, err)
				}
			}
		})
	}
}

// Rules H7 and T1: every try looks again.
func TestFindLooksAgain(t *testing.T) {
	kind := ticketed()
	find := &finder[bool]{kind: &kind, ref: meta.Ref{Namespace: "ns", Name: "m"}, wantNamed: true}
	for _, name := range []string{"first", "second"} {
		got, err := find.read(t.Context(), shop(machineOf("u"), ticket{name: name, label: "u"}))
		if err != nil || got.GetName() != name {
			t.Errorf("got %v, %v, want %s", got, err, name)
		}
	}
}

// A pinned UID saves the read of the named object, unless its pods are wanted.
func TestFindReadsTheNamedObjectWhereItMust(t *testing.T) {
	kind := ticketed()
	for _, wanted := range []bool{false, true} {
		find := &finder[bool]{kind: &kind, ref: meta.Ref{Namespace: "ns", Name: "m", UID: "u"}, wantNamed: wanted}
		_, err := find.read(t.Context(), shop(nil, ticket{name: "a", label: "u"}))
		if wanted != apierrors.IsNotFound(err) || !wanted && err != nil {
			t.Errorf("wanted %t: got %v", wanted, err)
		}
	}
}

// The engine tells by the error of a read whether another try can help, so it
// has to come through.
func TestFindPassesErrorsOn(t *testing.T) {
	for name, kind := range map[string]Holdable[bool]{"Itself": machine(), "ByTicket": ticketed()} {
		for _, pinned := range []types.UID{"", "u"} {
			find := &finder[bool]{kind: &kind, ref: meta.Ref{Namespace: "ns", Name: "m", UID: pinned}, wantNamed: pinned == ""}
			if _, err := find.read(t.Context(), broken{}); !errors.Is(err, errBroken) {
				t.Errorf("%s: got %v", name, err)
			}
		}
	}
}
