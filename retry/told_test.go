package retry_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/retry"
)

// What errors say is for people, who have to find the place by it.
func TestInWhichWordsErrorsAreTold(t *testing.T) {
	cause := errors.New("no route")
	for want, err := range map[string]error{
		"an edit without a path":                                    &retry.PathError{},
		"spec: apiVersion is a string, not an object":               &retry.PathError{Path: []string{"spec"}, At: []string{"apiVersion"}, Value: "v1"},
		"checks[name=a].state: checks is a list and has no such el": &retry.PathError{Path: []string{"checks", "name=a", "state"}, At: []string{"checks"}, Value: []any{}},
		"get widgets.example.com: no route":                         &retry.RequestError{Verb: "get", Resource: widgets(), Err: cause},
		"update widgets/status.example.com: no route":               &retry.RequestError{Verb: "update", Resource: widgets(), Subresource: "status", Err: cause},
	} {
		if !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %q, want %q", err, want)
		}
	}
}

// T2: eight retries are as many as there can be.
func TestT2AsManyRetriesAsThereCanBe(t *testing.T) {
	client := newLab(t, setup{}).server.Dynamic("x")
	if _, err := retry.NewForClient(client, retry.Options{Retries: retry.MaxRetries}); err != nil {
		t.Error(err)
	}
	_, err := retry.NewForClient(client, retry.Options{Retries: retry.MaxRetries + 1})
	if !errors.Is(err, meta.ErrInvalid) || !strings.Contains(err.Error(), "9 retries: at most 8 are") {
		t.Errorf("got %v", err)
	}
}

// The step into a list is one that Item has made, and no other: without a key it
// selects nothing, whatever the elements have for a name.
func TestOnlyItemsLeadIntoLists(t *testing.T) {
	obj := &unstructured.Unstructured{Object: map[string]any{"list": []any{map[string]any{"name": "", "a": "x"}, 7}}}
	var bad *retry.PathError
	if got, err := retry.Apply(obj, []retry.Edit{retry.Set("y", "list", "name", "a")}); !errors.As(err, &bad) {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := retry.Lookup(obj, "list", "name", "a"); !errors.As(err, &bad) {
		t.Errorf("got %v, %v", got, err)
	}
	got, err := retry.Lookup(obj, "list", retry.Item("name", ""), "a")
	if diff := cmp.Diff(any("x"), got); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
}

// What is not there is nil, which compares as such.
func TestLookupOfAnElementThatIsNotThere(t *testing.T) {
	obj := &unstructured.Unstructured{Object: map[string]any{"list": []any{map[string]any{"name": "b"}}}}
	if got, err := retry.Lookup(obj, "list", retry.Item("name", "a")); got != nil || err != nil {
		t.Errorf("got %#v, %v", got, err)
	}
	if got := retry.Missing(obj, []retry.Edit{retry.Remove("list", retry.Item("name", "a"))}); len(got) != 0 {
		t.Errorf("%v is missing", got)
	}
}
