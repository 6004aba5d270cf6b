package rapidtest_test

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubehold/kubehold/rapidtest"
)

// BenchmarkDynamic is one read and one write with a deadline, as a client under test does them.
func BenchmarkDynamic(b *testing.B) {
	s := newServer()
	c := s.Dynamic("alice").Resource(rapidtest.TrainJobs().GVR).Namespace("default")
	if _, err := c.Create(b.Context(), trainJob("a"), metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	empty := s.Snapshot()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	for i := 0; b.Loop(); i++ {
		obj, err := c.Get(ctx, "a", metav1.GetOptions{})
		if err != nil {
			b.Fatal(err)
		}
		_ = unstructured.SetNestedField(obj.Object, i%2 == 0, "spec", "suspend")
		if _, err := c.Update(ctx, obj, metav1.UpdateOptions{FieldValidation: metav1.FieldValidationStrict}); err != nil {
			b.Fatal(err)
		}
		if i%1000 == 0 {
			s.Restore(empty)
		}
	}
	b.ReportMetric(2*float64(b.N)/b.Elapsed().Seconds(), "requests/s")
}
