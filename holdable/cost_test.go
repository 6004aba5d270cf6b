//go:build !race

// The race detector makes pools lose what is put into them, so that what is
// allocated under it says nothing.

package holdable_test

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/kinds"
	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/rapidtest"
	"github.com/kubehold/kubehold/retry"
)

// A pair is a Hold beside the two requests that it is made of, sent through the
// same kind of client to the same object.
type pair struct {
	holder holdable.Holder
	bare   dynamic.ResourceInterface
	name   string
	next   int64
}

// newPair makes a JobSet of about size bytes.
func newPair(tb testing.TB, size int) *pair {
	tb.Helper()
	kind := kinds.JobSet()
	server := rapidtest.NewServer(rapidtest.Resource{GVR: kind.Resource, Kind: kind.Kind, Namespaced: true, StatusSubresource: true})
	cfg := server.RESTConfig("tester")
	cfg.QPS = -1
	client, err := dynamic.NewForConfig(retry.WithTransport(cfg))
	if err != nil {
		tb.Fatal(err)
	}
	holder, err := holdable.New(kind, cfg, retry.Options{}, holdable.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	p := &pair{holder: holder, bare: client.Resource(kind.Resource).Namespace("ns"), name: "big"}
	if _, err := p.bare.Create(tb.Context(), jobSetOf(size), metav1.CreateOptions{}); err != nil {
		tb.Fatal(err)
	}
	p.hold(tb) // so that both sides of the pair carry a hold
	return p
}

// jobSetOf has a list of environment variables that fills it up to about size.
func jobSetOf(size int) *unstructured.Unstructured {
	var env []any
	for i := 0; i*100 < size; i++ {
		env = append(env, map[string]any{"name": fmt.Sprintf("VARIABLE_%04d", i), "value": strings.Repeat("x", 60)})
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "jobset.x-k8s.io/v1alpha2",
		"kind":       "JobSet",
		"metadata":   map[string]any{"name": "big", "namespace": "ns"},
		"spec":       map[string]any{"suspend": false, "env": env},
	}}
}

func (p *pair) hold(tb testing.TB) {
	p.next++
	call := meta.Call{Instance: p.next, Deadline: time.Now().Add(time.Minute), Holder: "bench", Reason: "to see what it costs"}
	if _, err := p.holder.Hold(context.Background(), meta.Ref{Namespace: "ns", Name: p.name}, call); err != nil {
		tb.Fatal(err)
	}
}

// getPut is the bare pair: the same change under the same deadline, without a
// decision or a check.
func (p *pair) getPut(tb testing.TB) {
	p.next++
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	obj, err := p.bare.Get(ctx, p.name, metav1.GetOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	annotations := obj.Object["metadata"].(map[string]any)["annotations"].(map[string]any)
	annotations[meta.Keys{}.Instance()] = fmt.Sprint(p.next)
	obj.Object["spec"].(map[string]any)["suspend"] = true
	opts := metav1.UpdateOptions{FieldManager: retry.FieldManager, FieldValidation: metav1.FieldValidationStrict}
	if _, err := p.bare.Update(ctx, obj, opts); err != nil {
		tb.Fatal(err)
	}
}

// allocations returns the bytes and the count that one f allocates, at the least:
// what else goes on in the process only ever adds to it.
func allocations(f func()) (bytes, count float64) {
	const rounds, runs = 3, 10
	bytes, count = math.Inf(1), math.Inf(1)
	for range rounds {
		var before, after runtime.MemStats
		f()
		runtime.GC()
		runtime.ReadMemStats(&before)
		for range runs {
			f()
		}
		runtime.ReadMemStats(&after)
		bytes = min(bytes, float64(after.TotalAlloc-before.TotalAlloc)/runs)
		count = min(count, float64(after.Mallocs-before.Mallocs)/runs)
	}
	return bytes, count
}

// A Hold allocates little beyond the two requests that it consists of: what it
// adds does not grow with the object.
func TestHoldAllocatesLittleBesideItsRequests(t *testing.T) {
	for _, tc := range []struct {
		size                   int
		extraBytes, extraCount float64 // what may come on top of the bare pair
		ratio                  float64
	}{
		{size: 2 << 10, extraBytes: 12 << 10, extraCount: 170, ratio: 1},
		{size: 20 << 10, ratio: 1.10},
		{size: 200 << 10, ratio: 1.10},
	} {
		t.Run(fmt.Sprintf("%dKB", tc.size>>10), func(t *testing.T) {
			p := newPair(t, tc.size)
			bareBytes, bareCount := allocations(func() { p.getPut(t) })
			holdBytes, holdCount := allocations(func() { p.hold(t) })
			t.Logf("bytes: %.0f beside %.0f (%.3f); allocations: %.0f beside %.0f (%.3f)",
				holdBytes, bareBytes, holdBytes/bareBytes, holdCount, bareCount, holdCount/bareCount)
			if limit := bareBytes*tc.ratio + tc.extraBytes; holdBytes > limit {
				t.Errorf("a Hold allocates %.0f bytes, over %.0f", holdBytes, limit)
			}
			if limit := bareCount*tc.ratio + tc.extraCount; holdCount > limit {
				t.Errorf("a Hold makes %.0f allocations, over %.0f", holdCount, limit)
			}
		})
	}
}

// BenchmarkHold prints a Hold beside the bare GET and PUT of the same object,
// and the ratio of their times, measured turn by turn.
func BenchmarkHold(b *testing.B) {
	for _, size := range []int{2 << 10, 20 << 10, 200 << 10} {
		b.Run(fmt.Sprintf("%dKB", size>>10), func(b *testing.B) {
			p := newPair(b, size)
			b.ReportAllocs()
			var hold, bare time.Duration
			for b.Loop() {
				begin := time.Now()
				p.hold(b)
				between := time.Now()
				p.getPut(b)
				hold, bare = hold+between.Sub(begin), bare+time.Since(between)
			}
			b.ReportMetric(float64(hold.Nanoseconds())/float64(b.N), "hold-ns/op")
			b.ReportMetric(float64(bare.Nanoseconds())/float64(b.N), "getput-ns/op")
			b.ReportMetric(float64(hold)/float64(bare), "hold/getput")
		})
	}
}
