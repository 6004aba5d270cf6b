package retry_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"

	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/rapidtest"
	"github.com/kubehold/kubehold/retry"
)

// statusOp sets the phase of the Widget's part "a", in its status.
func (l *lab) statusOp() retry.Op {
	op := l.op()
	op.Subresource = "status"
	op.Decide = func(*unstructured.Unstructured) (retry.Decision, error) {
		return retry.Decision{Edits: []retry.Edit{retry.Set(mine, "status", "parts", retry.Item("name", "a"), "phase")}}, nil
	}
	return op
}

func (l *lab) doStatus() (retry.Result, error) {
	return l.engine.Do(context.Background(), time.Now().Add(time.Minute), l.statusOp())
}

// withParts gives the Widget two parts.
func (l *lab) withParts() {
	l.patch(`{"status":{"parts":[{"name":"b","phase":"old","kept":1},{"name":"a","phase":"old","kept":2}]}}`, "status")
}

func parts(obj *unstructured.Unstructured) []any {
	list, _, _ := unstructured.NestedSlice(obj.Object, "status", "parts")
	return list
}

// T1, T3: what goes to a subresource is bound, counted and sent again like any
// other update.
func TestT1ASubresourceIsUpdatedLikeTheObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, setup{rules: []rapidtest.Rule{rapidtest.Nth(1, rapidtest.Writes(), rapidtest.LoseRequest())}})
		l.withParts()
		res, err := l.doStatus()
		if err != nil || res.Tries != 2 {
			t.Fatalf("%d tries, %v\n%s", res.Tries, err, l.plan.Timeline())
		}
		want := []any{
			map[string]any{"name": "b", "phase": "old", "kept": int64(1)},
			map[string]any{"name": "a", "phase": mine, "kept": int64(2)},
		}
		if diff := cmp.Diff(want, parts(l.stored())); diff != "" {
			t.Error(diff)
		}
		for _, tr := range l.wire.of("PUT") {
			if !strings.HasSuffix(tr.path, "/widgets/w/status") || tr.query.Get("fieldManager") != retry.FieldManager {
				t.Errorf("PUT %s?%v", tr.path, tr.query)
			}
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, ev := range l.events {
			if (ev.Subresource == "status") != (ev.Verb == "update") {
				t.Errorf("the observer was told of %s of %q", ev.Verb, ev.Subresource)
			}
		}
	})
}

// T1: another writer between the read and the update of a subresource is a
// conflict, and all is decided again.
func TestT1ASubresourceConflicts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, setup{})
		l.withParts()
		l.before(rapidtest.VerbUpdate, 1, l.touch)
		res, err := l.doStatus()
		if err != nil || res.Tries != 2 || len(l.commits()) != 1 {
			t.Fatalf("%d tries, %d commits, %v", res.Tries, len(l.commits()), err)
		}
	})
}

// T7: an edit outside of the subresource is not made, and that is no success.
func TestT7ASubresourceHasOnlyItsPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, setup{})
		op := l.op()
		op.Subresource = "status"
		_, err := l.engine.Do(t.Context(), time.Now().Add(time.Minute), op)
		l.failed(err, meta.ErrRejected, meta.FateNone)
		if l.mark() != "" {
			t.Error("it was written")
		}
	})
}

// T4: the access review asks about the subresource, and the error names it.
func TestT4ForbiddenSubresource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, setup{})
		l.withParts()
		l.server.Authorize(func(a rapidtest.Access) bool { return a.Verb != "update" || a.Subresource != "status" })
		_, err := l.doStatus()
		l.failed(err, meta.ErrForbidden, meta.FateNone)
		if !strings.Contains(err.Error(), "update widgets/status.example.com") {
			t.Errorf("got %v", err)
		}
		res, err := l.do()
		l.succeeded(res, err, 1, 1)
	})
}

// Rule H1: an edit of an element of a list changes that element and nothing else.
func TestEditsInLists(t *testing.T) {
	object := func() map[string]any {
		return map[string]any{"list": []any{
			"text", nil, map[string]any{"name": int64(1)},
			map[string]any{"name": "a", "v": "1", "deep": map[string]any{"x": "1"}},
			map[string]any{"name": "a", "v": "2"},
			map[string]any{"name": "b=c", "v": "3", "list": []any{map[string]any{"k": "q"}}},
		}}
	}
	with := func(i int, key string, value any) map[string]any {
		obj := object()
		obj["list"].([]any)[i].(map[string]any)[key] = value
		return obj
	}
	item := retry.Item
	cases := map[string]struct {
		edit retry.Edit
		want map[string]any // nil: a *PathError
	}{
		"Set":               {retry.Set("9", "list", item("name", "a"), "v"), with(3, "v", "9")},
		"SetNew":            {retry.Set("9", "list", item("name", "b=c"), "w", "x"), with(5, "w", map[string]any{"x": "9"})},
		"SetBelow":          {retry.Set("9", "list", item("name", "a"), "deep", "x"), with(3, "deep", map[string]any{"x": "9"})},
		"ListInAList":       {retry.Set("9", "list", item("name", "b=c"), "list", item("k", "q"), "v"), with(5, "list", []any{map[string]any{"k": "q", "v": "9"}})},
		"Remove":            {retry.Remove("list", item("name", "a"), "deep", "x"), with(3, "deep", map[string]any{})},
		"RemoveNothing":     {retry.Remove("list", item("name", "a"), "w"), object()},
		"RemoveInNoElement": {retry.Remove("list", item("name", "z"), "v"), object()},
		"NoElement":         {retry.Set("9", "list", item("name", "z"), "v"), nil},
		"NoText":            {retry.Set("9", "list", item("name", "1"), "v"), nil},
		"NoStepOfAList":     {retry.Set("9", "list", "name", "v"), nil},
		"RemoveBehindThat":  {retry.Remove("list", "0", "v"), nil},
		"TheElementItself":  {retry.Set("9", "list", item("name", "a")), nil},
		"RemoveTheElement":  {retry.Remove("list", item("name", "a")), nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			obj := &unstructured.Unstructured{Object: object()}
			got, err := retry.Apply(obj, []retry.Edit{tc.edit})
			if diff := cmp.Diff(object(), obj.Object); diff != "" {
				t.Fatalf("the object was changed: %s", diff)
			}
			if tc.want == nil {
				var bad *retry.PathError
				if !errors.As(err, &bad) || !strings.Contains(err.Error(), "list is a list and has no such element") {
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
			if missing := retry.Missing(got, []retry.Edit{tc.edit}); len(missing) > 0 {
				t.Errorf("missing %v", missing)
			}
		})
	}
}

// T7: whichever element is edited, Lookup finds what Apply has set, and the
// other elements stay as they are.
func TestEditsInListsProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "=", "a=b", ""}), 1, 4, rapid.ID[string]).Draw(t, "names")
		var list []any
		for _, name := range names {
			list = append(list, map[string]any{"name": name, "v": name})
		}
		chosen := rapid.SampledFrom(names).Draw(t, "chosen")
		obj := &unstructured.Unstructured{Object: map[string]any{"list": list}}
		edit := retry.Set("new", "list", retry.Item("name", chosen), "v")
		got, err := retry.Apply(obj, []retry.Edit{edit})
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			want := name
			if name == chosen {
				want = "new"
			}
			if v, err := retry.Lookup(got, "list", retry.Item("name", name), "v"); err != nil || v != want {
				t.Fatalf("%q reads %v, %v: want %q", name, v, err, want)
			}
		}
		if v, err := retry.Lookup(got, "list", retry.Item("name", "none"), "v"); v != nil || err != nil {
			t.Fatalf("got %v, %v for an element that is not there", v, err)
		}
	})
}

func TestItemString(t *testing.T) {
	edit := retry.Set("Ready", "status", "admissionChecks", retry.Item("name", "gate"), "state")
	if got, want := edit.String(), "status.admissionChecks[name=gate].state=Ready"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
