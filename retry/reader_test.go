package retry_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/samber/lo"

	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/rapidtest"
	"github.com/kubehold/kubehold/retry"
)

// crowd makes n more Widgets, with a label that tells odd from even.
func (l *lab) crowd(n int) []string {
	var names []string
	for i := range n {
		w := widget()
		w.SetName(fmt.Sprintf("w-%05d", i))
		w.SetLabels(map[string]string{"parity": []string{"even", "odd"}[i%2]})
		_, err := l.stranger.Create(context.Background(), w, metav1.CreateOptions{})
		l.check(err)
		names = append(names, w.GetName())
	}
	return names
}

// listing is the call with a Read that lists first, and hands each name to
// visit.
func (l *lab) listing(selector string, visit func(name string) bool) retry.Op {
	op := l.op()
	op.Read = func(ctx context.Context, r retry.Reader) (*unstructured.Unstructured, error) {
		err := r.Each(ctx, widgets(), "ns", selector, func(obj *unstructured.Unstructured) bool { return visit(obj.GetName()) })
		if err != nil {
			return nil, err
		}
		return getWidget(ctx, r)
	}
	return op
}

// Each lists live and in pages, visits every object that the selector matches
// once and in order, and asks for no more pages once it was told to stop.
func TestEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, setup{})
		names := l.crowd(1001)
		odd := lo.Filter(names, func(_ string, i int) bool { return i%2 == 1 })
		for _, tc := range []struct {
			selector string
			stopAt   string
			want     []string
			pages    int
		}{
			{"", "", append([]string{"w"}, names...), 3},
			{"parity=odd", "", odd, 2},
			{"parity=none", "", nil, 1},
			{"", "w-00000", []string{"w", "w-00000"}, 1},
			{"parity", "w-00500", names[:501], 2},
		} {
			var got []string
			before := len(l.sent(rapidtest.VerbList))
			_, err := l.engine.Do(t.Context(), time.Now().Add(time.Minute), l.listing(tc.selector, func(name string) bool {
				got = append(got, name)
				return name != tc.stopAt
			}))
			l.check(err)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%+v: visited (-want +got):\n%s", tc.selector, diff)
			}
			pages := l.sent(rapidtest.VerbList)[before:]
			if len(pages) != tc.pages {
				t.Errorf("%q until %q: %d pages, want %d", tc.selector, tc.stopAt, len(pages), tc.pages)
			}
			for i, p := range pages {
				o := p.Request.List
				if o.LabelSelector != tc.selector || o.ResourceVersion != "" || o.ResourceVersionMatch != "" || o.Limit != 500 || (o.Continue == "") != (i == 0) {
					t.Errorf("page %d: %+v", i+1, o)
				}
			}
		}
	})
}

// T6: an expired page token costs a try, and the listing starts again. A page
// that fails is not skipped.
func TestT6EachStartsAgain(t *testing.T) {
	for name, spoil := range map[string]func(*lab){
		"Expired": func(l *lab) {
			second := 0
			l.before(rapidtest.VerbList, 2, func() {
				if second++; second == 2 {
					l.server.ExpireContinueTokens()
				}
			})
		},
		"LostPage": func(*lab) {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rules := []rapidtest.Rule{rapidtest.Nth(2, rapidtest.Verbs(rapidtest.VerbList), rapidtest.LoseRequest())}
				l := newLab(t, setup{rules: lo.Ternary(name == "Expired", nil, rules)})
				names := append([]string{"w"}, l.crowd(600)...)
				spoil(l)
				var got []string
				res, err := l.engine.Do(t.Context(), time.Now().Add(time.Minute), l.listing("", func(name string) bool {
					got = append(got, name)
					return true
				}))
				l.succeeded(res, err, 2, 1)
				if diff := cmp.Diff(append(names[:500:500], names...), got); diff != "" {
					t.Errorf("visited (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// The objects of a cluster-scoped kind are read and written without a namespace.
func TestClusterScopedObjects(t *testing.T) {
	globes := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "globes"}
	server := rapidtest.NewServer(rapidtest.Resource{GVR: globes, Kind: "Globe"})
	globe := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Globe", "metadata": map[string]any{"name": "g"}, "spec": map[string]any{},
	}}
	if _, err := server.Dynamic("stranger").Resource(globes).Create(t.Context(), globe, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	engine, err := retry.New(server.RESTConfig("engine"), retry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	res, err := engine.Do(t.Context(), time.Now().Add(time.Minute), retry.Op{
		Resource: globes,
		Read: func(ctx context.Context, r retry.Reader) (*unstructured.Unstructured, error) {
			err := r.Each(ctx, globes, "", "", func(*unstructured.Unstructured) bool { seen++; return true })
			if err != nil {
				return nil, err
			}
			return r.Get(ctx, globes, "", "g")
		},
		Decide: decideMark,
	})
	if mark, _ := retry.Lookup(res.Object, "spec", "mark"); err != nil || mark != mine || seen != 1 {
		t.Errorf("%v, %v; saw %d", res.Object, err, seen)
	}
}

// A RequestError names the request, beside the cause.
func TestRequestError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, setup{rules: []rapidtest.Rule{rapidtest.Each(rapidtest.Writes(), rapidtest.Answer(429).WithRetryAfter(3))}})
		_, err := l.doWithin(time.Second)
		l.failed(err, meta.ErrDeadline, meta.FateNone)
		var e *retry.RequestError
		if !errors.As(err, &e) {
			t.Fatalf("there is none in the chain of %v", err)
		}
		want := &retry.RequestError{Verb: "update", Resource: widgets(), Namespace: "ns", Name: "w", RetryAfter: 3 * time.Second, Err: e.Err}
		if *e != *want {
			t.Errorf("got %+v, want %+v", e, want)
		}
	})
}
