package rapidtest_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"pgregory.net/rapid"

	"github.com/kubehold/kubehold/rapidtest"
)

// operation is one call of a client, drawn at random, with what it needs to be made through either face.
type operation struct {
	Verb, Name            string
	RV                    string // current, stale, none
	UID                   string // current, other, none
	Annotation, Finalizer string
	Suspend, DryRun       bool
	Status                string
	Limit                 int64
}

func drawOperation(t *rapid.T) operation {
	pick := func(label string, values ...string) string { return rapid.SampledFrom(values).Draw(t, label) }
	return operation{
		Verb: pick("verb", "create", "update", "update", "update", "updateStatus", "delete", "merge patch", "json patch", "get", "list"),
		Name: pick("name", "a", "a", "b"), RV: pick("rv", "current", "current", "current", "stale", "none"), UID: pick("uid", "current", "current", "none", "other"),
		Annotation: pick("annotation", "", "1", "2"), Finalizer: pick("finalizer", "", "", "x.io/f"),
		Suspend: rapid.Bool().Draw(t, "suspend"), DryRun: rapid.IntRange(0, 9).Draw(t, "dryRun") == 0,
		Status: pick("status", "", "True", "False"), Limit: rapid.Int64Range(0, 2).Draw(t, "limit"),
	}
}

// outcome is what a client sees of an operation.
type outcome struct {
	Status *metav1.Status
	Err    string
	Object any
}

func outcomeOf(object any, err error) outcome {
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return outcome{Object: object}
	case errors.As(err, &status):
		s := status.Status()
		s.TypeMeta = metav1.TypeMeta{}
		return outcome{Status: &s}
	}
	return outcome{Err: err.Error()}
}

// play makes the operation through a client of a server.
func (op operation) play(t *rapid.T, s *rapidtest.Server, c dynamic.Interface) outcome {
	jobs, ctx := trainJobs(c), t.Context()
	var dry []string
	if op.DryRun {
		dry = []string{metav1.DryRunAll}
	}
	obj := op.object(s)
	switch op.Verb {
	case "create":
		return outcomeOf(jobs.Create(ctx, obj, metav1.CreateOptions{DryRun: dry}))
	case "update":
		return outcomeOf(jobs.Update(ctx, obj, metav1.UpdateOptions{DryRun: dry}))
	case "updateStatus":
		return outcomeOf(jobs.UpdateStatus(ctx, obj, metav1.UpdateOptions{DryRun: dry}))
	case "delete":
		return outcomeOf(nil, jobs.Delete(ctx, op.Name, metav1.DeleteOptions{DryRun: dry}))
	case "merge patch":
		body := fmt.Sprintf(`{"metadata":{"annotations":{"a":%q}},"spec":{"suspend":%v}}`, op.Annotation, op.Suspend)
		return outcomeOf(jobs.Patch(ctx, op.Name, types.MergePatchType, []byte(body), metav1.PatchOptions{DryRun: dry}))
	case "json patch":
		body := fmt.Sprintf(`[{"op":"test","path":"/spec/suspend","value":%v},{"op":"replace","path":"/spec/suspend","value":%v}]`, op.Suspend, !op.Suspend)
		return outcomeOf(jobs.Patch(ctx, op.Name, types.JSONPatchType, []byte(body), metav1.PatchOptions{DryRun: dry}))
	case "get":
		return outcomeOf(jobs.Get(ctx, op.Name, metav1.GetOptions{}))
	}
	return outcomeOf(jobs.List(ctx, metav1.ListOptions{Limit: op.Limit}))
}

func (op operation) object(s *rapidtest.Server) *unstructured.Unstructured {
	obj := trainJob(op.Name)
	if stored := s.Stored(rapidtest.TrainJobs().GVR, "default", op.Name); stored != nil {
		obj = stored.DeepCopy()
	}
	switch op.RV {
	case "none":
		obj.SetResourceVersion("")
	case "stale":
		obj.SetResourceVersion("1")
	}
	switch op.UID {
	case "none":
		obj.SetUID("")
	case "other":
		obj.SetUID("other")
	}
	if op.Verb == "create" && op.RV != "stale" {
		obj.SetResourceVersion("")
	}
	if op.Annotation != "" {
		obj.SetAnnotations(map[string]string{"a": op.Annotation})
	}
	obj.SetFinalizers(nil)
	if op.Finalizer != "" {
		obj.SetFinalizers([]string{op.Finalizer})
	}
	_ = unstructured.SetNestedField(obj.Object, op.Suspend, "spec", "suspend")
	if op.Status != "" {
		_ = unstructured.SetNestedSlice(obj.Object, []any{map[string]any{"type": "Complete", "status": op.Status}}, "status", "conditions")
	}
	return obj
}

// Whatever is done, and in whatever order, a client sees the same through both faces, and the servers end the same.
func TestBothFacesAreTheSameServer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rapid.SyncTest(t, func(t *rapid.T) {
			fast, wire := newServer(), newServer()
			cfg := wire.RESTConfig("alice")
			cfg.WarningHandler = rest.NoWarnings{}
			overWire, err := dynamic.NewForConfig(cfg)
			if err != nil {
				t.Fatal(err)
			}
			direct := fast.Dynamic("alice")
			for i := range rapid.IntRange(1, 12).Draw(t, "operations") {
				op := drawOperation(t)
				want, got := op.play(t, wire, overWire), op.play(t, fast, direct)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Fatalf("operation %d, %+v:\n%s", i, op, diff)
				}
			}
			if fast.StateHash() != wire.StateHash() || len(fast.History()) != len(wire.History()) {
				t.Fatal("the servers differ in the end")
			}
		})
	})
}

// What holds of every history, whoever does what.
func TestInvariantsOfEveryHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rapid.SyncTest(t, func(t *rapid.T) {
			s := newServer()
			var copies []*unstructured.Unstructured
			s.OnCommit(func(c rapidtest.Commit) {
				copies = append(copies, c.Object.DeepCopy())
				checkCommit(t, c)
			})
			c := s.Dynamic("alice")
			for range rapid.IntRange(1, 20).Draw(t, "operations") {
				before := s.ResourceVersion()
				op := drawOperation(t)
				out := op.play(t, s, c)
				if failed := out.Status != nil || out.Err != ""; (failed || op.DryRun || op.Verb == "get" || op.Verb == "list") && s.ResourceVersion() != before {
					t.Fatalf("%+v changed something: %+v", op, out)
				}
			}
			last := int64(0)
			for i, commit := range s.History() {
				if commit.ResourceVersion <= last {
					t.Fatalf("commit %d has resourceVersion %d after %d", i, commit.ResourceVersion, last)
				}
				last = commit.ResourceVersion
				if diff := cmp.Diff(copies[i], commit.Object); diff != "" {
					t.Fatalf("a stored object changed: %s", diff)
				}
			}
		})
	})
}

func checkCommit(t *rapid.T, c rapidtest.Commit) {
	if c.Previous == nil {
		if c.Object.GetGeneration() != 1 || c.Object.GetUID() == "" {
			t.Fatalf("a new object without generation 1 or a UID: %v", c.Object)
		}
		return
	}
	if c.Previous.GetUID() != c.Object.GetUID() {
		t.Fatalf("the UID changed in %v", c)
	}
	if c.Type == "DELETED" {
		return
	}
	specMoved := !cmp.Equal(c.Previous.Object["spec"], c.Object.Object["spec"])
	marked := c.Previous.GetDeletionTimestamp() == nil && c.Object.GetDeletionTimestamp() != nil
	if moved := c.Object.GetGeneration() != c.Previous.GetGeneration(); moved != (specMoved || marked) {
		t.Fatalf("generation moved: %v, spec moved: %v, marked as deleting: %v", moved, specMoved, marked)
	}
	if c.Request.Subresource == "status" && specMoved {
		t.Fatal("an update of the status changed the spec")
	}
	if c.Request.Subresource == "" && !cmp.Equal(c.Previous.Object["status"], c.Object.Object["status"]) {
		t.Fatal("an update of the object changed the status")
	}
}
