//go:build e2e

package holdtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/kinds"
	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/probe"
	"github.com/kubehold/kubehold/rapidtest/realstack/cluster"
	"github.com/kubehold/kubehold/rapidtest/realstack/stack"
	"github.com/kubehold/kubehold/retry"
)

// Where Kueue is too old for the fields that a hold writes, or absent, every call
// says so and writes nothing; after a probe, nothing is even sent.
func TestKueueIsTooOldOrAbsent(t *testing.T) {
	server, err := stack.Start(t.Context(), stack.Options{APIServerOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	c, err := cluster.New(server.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	w := &world{stack: server, cluster: c}
	// Each takes away more than the one before.
	for _, lack := range []struct {
		name string
		take func(*scene)
		// says is in every error, and in what a probe says.
		says string
	}{
		{"TheField", (*scene).dropActive, "active"},
		{"TheVersion", (*scene).dropVersion, "workloads"},
		{"Kueue", (*scene).dropWorkloads, "workloads"},
	} {
		t.Run(lack.name, func(t *testing.T) {
			s := newSceneOn(t, w)
			job := s.makeJob("job", false, s.queued())
			if lack.name == "TheField" {
				s.makeWorkload(job)
			}
			lack.take(s)
			before := s.written()
			m := s.kueue()
			_, err := m.holder.Hold(t.Context(), ref(job), call(1))
			var e *meta.Error
			if !errors.As(err, &e) || !errors.Is(err, meta.ErrRejected) || e.Fate != meta.FateNone || !strings.Contains(err.Error(), lack.says) {
				t.Errorf("%v, want a rejection that names %s, and no write", err, lack.says)
			}
			t.Logf("without a probe: %v", err)
			m.answersUnsupported(job, lack.says)
			if after := s.written(); before != after {
				t.Errorf("something was written:\n%s\n%s", before, after)
			}
		})
	}
}

// written is the versions of what there is to be written in the scene.
func (s *scene) written() string {
	s.Helper()
	var versions []string
	for _, resource := range []schema.GroupVersionResource{cluster.TrainJobs(), cluster.Workloads()} {
		list, err := s.cluster.Client().Resource(resource).Namespace(s.namespace).List(s.soon(), metav1.ListOptions{})
		if isGone(err) && err != nil {
			continue
		}
		s.must(err)
		for _, o := range list.Items {
			versions = append(versions, fmt.Sprintf("%s %s %s", o.GetKind(), o.GetName(), o.GetResourceVersion()))
		}
	}
	return strings.Join(versions, ", ")
}

// answersUnsupported has a probe look at the cluster, and a client that goes by
// what it has found answer without sending anything.
func (m mode) answersUnsupported(job *cluster.Object, says string) {
	m.Helper()
	kind := kinds.OnKueue(kinds.TrainJob())
	found, err := probe.Run(m.soon(), m.config(), kind, probe.Options{
		Namespaces: []string{m.namespace}, Engine: retry.Options{RequestTimeout: requestTimeout}, Settle: -1})
	m.must(err)
	sent := 0
	client, err := holdable.New(kind, m.config(), retry.Options{Observer: func(retry.Event) { sent++ }}, holdable.Options{})
	m.must(err)
	holder := client.Use(found)
	for name, try := range map[string]method{"Hold": holder.Hold, "Release": holder.Release} {
		_, err := try(m.Context(), ref(job), call(1))
		if !errors.Is(err, meta.ErrUnsupported) || !strings.Contains(fmt.Sprint(err), says) {
			m.Errorf("%s: %v, want ErrUnsupported that names %s", name, err, says)
		}
		m.Logf("after a probe: %v", err)
	}
	if sent > 0 {
		m.Errorf("%d requests were sent", sent)
	}
}

// makeWorkload makes the Workload of a job in the place of Kueue.
func (s *scene) makeWorkload(job *cluster.Object) {
	s.Helper()
	workload := named("workload")
	workload.SetAPIVersion("kueue.x-k8s.io/v1beta2")
	workload.SetKind("Workload")
	workload.SetLabels(map[string]string{cluster.JobUIDLabel: string(job.GetUID())})
	workload.Object["spec"] = map[string]any{"queueName": s.namespace, "podSets": []any{map[string]any{
		"name": "node", "count": int64(1), "template": map[string]any{"spec": map[string]any{"containers": []any{
			map[string]any{"name": "node", "image": "example.invalid/sleep:1"},
		}}},
	}}}
	_, err := s.cluster.Client().Resource(cluster.Workloads()).Namespace(s.namespace).Create(s.soon(), workload, metav1.CreateOptions{})
	s.must(err)
}

const workloadsDefinition = "workloads.kueue.x-k8s.io"

// redefine changes every version of the definition of Workloads.
func (s *scene) redefine(change func(version map[string]any)) {
	s.Helper()
	definitions := s.cluster.Client().Resource(gvr("apiextensions.k8s.io", "v1", "customresourcedefinitions"))
	object, err := definitions.Get(s.soon(), workloadsDefinition, metav1.GetOptions{})
	s.must(err)
	versions, _, err := unstructured.NestedSlice(object.Object, "spec", "versions")
	s.must(err)
	for _, v := range versions {
		version, _ := v.(map[string]any)
		change(version)
	}
	s.must(unstructured.SetNestedSlice(object.Object, versions, "spec", "versions"))
	_, err = definitions.Update(s.soon(), object, metav1.UpdateOptions{})
	s.must(err)
}

// dropActive takes spec.active out of the schema of Workloads.
func (s *scene) dropActive() {
	s.Helper()
	s.redefine(func(version map[string]any) {
		unstructured.RemoveNestedField(version, "schema", "openAPIV3Schema", "properties", "spec", "properties", "active")
	})
	s.must(cluster.Wait(s.soon(), "the apiserver no longer knows spec.active", func(ctx context.Context) (bool, any, error) {
		list, err := s.cluster.Client().Resource(cluster.Workloads()).Namespace(s.namespace).List(ctx, metav1.ListOptions{})
		if err != nil || len(list.Items) != 1 {
			return false, nil, fmt.Errorf("want one Workload: %w", err)
		}
		_, err = s.cluster.Client().Resource(cluster.Workloads()).Namespace(s.namespace).Patch(ctx, list.Items[0].GetName(),
			"application/merge-patch+json", []byte(`{"spec":{"active":false}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: "Strict"})
		return err != nil && strings.Contains(err.Error(), "unknown field"), nil, nil
	}))
}

// dropVersion has the apiserver no longer serve the version that holds use.
func (s *scene) dropVersion() {
	s.Helper()
	s.redefine(func(version map[string]any) {
		if version["name"] == cluster.Workloads().Version {
			version["served"] = false
		}
	})
	s.workloadsAreGone()
}

// dropWorkloads takes the kind out of the apiserver.
func (s *scene) dropWorkloads() {
	s.Helper()
	definitions := s.cluster.Client().Resource(gvr("apiextensions.k8s.io", "v1", "customresourcedefinitions"))
	s.must(definitions.Delete(s.soon(), workloadsDefinition, metav1.DeleteOptions{}))
	s.must(cluster.Wait(s.soon(), "the definition is gone", func(ctx context.Context) (bool, any, error) {
		_, err := definitions.Get(ctx, workloadsDefinition, metav1.GetOptions{})
		return err != nil && isGone(err), err, nil
	}))
	s.workloadsAreGone()
}

func (s *scene) workloadsAreGone() {
	s.Helper()
	s.must(cluster.Wait(s.soon(), "Workloads are not served", func(ctx context.Context) (bool, any, error) {
		_, err := s.cluster.Client().Resource(cluster.Workloads()).List(ctx, metav1.ListOptions{})
		return err != nil && isGone(err), err, nil
	}))
}
