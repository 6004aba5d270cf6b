package rapidtest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kubehold/kubehold/rapidtest"
)

// face is one way to reach a server.
type face struct {
	name string
	open func(t *testing.T, s *rapidtest.Server, mws ...rapidtest.Middleware) dynamic.Interface
}

func faces() []face {
	return []face{
		{"Dynamic", func(_ *testing.T, s *rapidtest.Server, mws ...rapidtest.Middleware) dynamic.Interface {
			return s.Dynamic("alice", mws...)
		}},
		{"HTTP", func(t *testing.T, s *rapidtest.Server, mws ...rapidtest.Middleware) dynamic.Interface {
			cfg := s.RESTConfig("alice", mws...)
			cfg.WarningHandler = rest.NoWarnings{}
			c, err := dynamic.NewForConfig(cfg)
			if err != nil {
				t.Fatal(err)
			}
			return c
		}},
	}
}

// forEachFace runs a test through both faces, each with a server of its own and in virtual time.
func forEachFace(t *testing.T, test func(t *testing.T, s *rapidtest.Server, c dynamic.Interface)) {
	t.Helper()
	for _, f := range faces() {
		t.Run(f.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				test(t, s, f.open(t, s))
			})
		})
	}
}

func newServer() *rapidtest.Server {
	return rapidtest.NewServer(rapidtest.TrainJobs(), rapidtest.Workloads(), rapidtest.JobSets(), rapidtest.Jobs(), rapidtest.Pods(), rapidtest.AdmissionChecks())
}

func trainJob(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob",
		"metadata": map[string]any{"name": name, "namespace": "default"},
		"spec":     map[string]any{"runtimeRef": map[string]any{"name": "torch"}},
	}}
}

func trainJobs(c dynamic.Interface) dynamic.ResourceInterface {
	return c.Resource(rapidtest.TrainJobs().GVR).Namespace("default")
}

func create(t *testing.T, c dynamic.ResourceInterface, obj *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	out, err := c.Create(t.Context(), obj, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create %s: %v", obj.GetName(), err)
	}
	return out
}

// edited is a changed copy of obj.
func edited(obj *unstructured.Unstructured, edit func(*unstructured.Unstructured)) *unstructured.Unstructured {
	out := obj.DeepCopy()
	edit(out)
	return out
}

func setNested(value any, path ...string) func(*unstructured.Unstructured) {
	return func(u *unstructured.Unstructured) { _ = unstructured.SetNestedField(u.Object, value, path...) }
}

func nested(u *unstructured.Unstructured, path ...string) any {
	v, _, _ := unstructured.NestedFieldNoCopy(u.Object, path...)
	return v
}

// wantStatus checks an API error by its code and reason.
func wantStatus(t *testing.T, err error, code int32, reason metav1.StatusReason) {
	t.Helper()
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		t.Fatalf("got %v, want a %d %s", err, code, reason)
	}
	if got := status.Status(); got.Code != code || got.Reason != reason {
		t.Fatalf("got %d %s (%s), want %d %s", got.Code, got.Reason, got.Message, code, reason)
	}
}

func mustUpdate(t *testing.T, c dynamic.ResourceInterface, obj *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	out, err := c.Update(t.Context(), obj, metav1.UpdateOptions{})
	if err != nil {
		t.Fatalf("update %s: %v", obj.GetName(), err)
	}
	return out
}

func TestCreateFillsInWhatTheServerOwns(t *testing.T) {
	forEachFace(t, func(t *testing.T, _ *rapidtest.Server, c dynamic.Interface) {
		in := edited(trainJob("a"), func(u *unstructured.Unstructured) {
			u.SetUID("mine")
			u.SetGeneration(7)
			_ = unstructured.SetNestedField(u.Object, "x", "status", "nonsense")
		})
		got := create(t, trainJobs(c), in)
		want := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob",
			"metadata": map[string]any{
				"name": "a", "namespace": "default", "uid": "5eed0000-0000-4000-8000-000000000001", "resourceVersion": "9",
				"generation": int64(1), "creationTimestamp": "2000-01-01T00:00:00Z",
			},
			"spec": map[string]any{
				"suspend": false, "managedBy": "trainer.kubeflow.org/trainjob-controller",
				"runtimeRef": map[string]any{"name": "torch", "apiGroup": "trainer.kubeflow.org", "kind": "ClusterTrainingRuntime"},
			},
		}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		_, err := trainJobs(c).Create(t.Context(), in, metav1.CreateOptions{})
		wantStatus(t, err, 409, metav1.StatusReasonAlreadyExists)
		_, err = trainJobs(c).Create(t.Context(), edited(in, func(u *unstructured.Unstructured) {
			u.SetName("b")
			u.SetResourceVersion("9")
		}), metav1.CreateOptions{})
		wantStatus(t, err, 500, metav1.StatusReasonUnknown)
	})
}

func TestUpdateChecksTheResourceVersionFirst(t *testing.T) {
	forEachFace(t, func(t *testing.T, s *rapidtest.Server, c dynamic.Interface) {
		first := create(t, trainJobs(c), trainJob("a"))
		second := mustUpdate(t, trainJobs(c), edited(first, setNested(true, "spec", "suspend")))
		if second.GetResourceVersion() != "10" || second.GetGeneration() != 2 {
			t.Errorf("got rv %s generation %d, want 10 and 2", second.GetResourceVersion(), second.GetGeneration())
		}
		again := mustUpdate(t, trainJobs(c), second)
		if again.GetResourceVersion() != "10" {
			t.Errorf("an identical update moved the resourceVersion to %s", again.GetResourceVersion())
		}
		_, err := trainJobs(c).Update(t.Context(), edited(second, func(u *unstructured.Unstructured) { u.SetResourceVersion("9") }), metav1.UpdateOptions{})
		wantStatus(t, err, 409, metav1.StatusReasonConflict)
		_, err = trainJobs(c).Update(t.Context(), edited(second, func(u *unstructured.Unstructured) { u.SetResourceVersion("") }), metav1.UpdateOptions{})
		wantStatus(t, err, 422, metav1.StatusReasonInvalid)
		_, err = trainJobs(c).Update(t.Context(), edited(second, func(u *unstructured.Unstructured) { u.SetUID("other") }), metav1.UpdateOptions{})
		wantStatus(t, err, 409, metav1.StatusReasonConflict)
		if !strings.Contains(err.Error(), "UID in precondition: other, UID in object meta: "+string(second.GetUID())) {
			t.Errorf("unexpected text: %v", err)
		}
		if n := len(s.History()); n != 2 {
			t.Errorf("%d commits, want 2", n)
		}
	})
}

func TestStatusSubresource(t *testing.T) {
	forEachFace(t, func(t *testing.T, _ *rapidtest.Server, c dynamic.Interface) {
		obj := create(t, trainJobs(c), trainJob("a"))
		withStatus := edited(obj, func(u *unstructured.Unstructured) {
			setNested([]any{map[string]any{"type": "Complete", "status": "True"}}, "status", "conditions")(u)
			setNested(true, "spec", "suspend")(u)
			u.SetAnnotations(map[string]string{"a": "b"})
		})
		done, err := trainJobs(c).UpdateStatus(t.Context(), withStatus, metav1.UpdateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if nested(done, "status", "conditions") == nil || nested(done, "spec", "suspend") != false || done.GetAnnotations() != nil || done.GetGeneration() != 1 {
			t.Errorf("an update of the status changed something else: %v", done)
		}
		main := mustUpdate(t, trainJobs(c), edited(done, func(u *unstructured.Unstructured) { delete(u.Object, "status") }))
		if main.GetResourceVersion() != done.GetResourceVersion() {
			t.Error("dropping the status from an update of the object changed it")
		}
		annotated := mustUpdate(t, trainJobs(c), edited(done, func(u *unstructured.Unstructured) { u.SetAnnotations(map[string]string{"a": "b"}) }))
		if annotated.GetGeneration() != 1 || annotated.GetResourceVersion() == done.GetResourceVersion() {
			t.Error("an annotation must move the resourceVersion and not the generation")
		}
	})
}

func TestFinalizersAndDeletion(t *testing.T) {
	forEachFace(t, func(t *testing.T, s *rapidtest.Server, c dynamic.Interface) {
		jobs := trainJobs(c)
		create(t, jobs, edited(trainJob("a"), func(u *unstructured.Unstructured) { u.SetFinalizers([]string{"x.io/one"}) }))
		for range 2 {
			if err := jobs.Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		obj, err := jobs.Get(t.Context(), "a", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if obj.GetDeletionTimestamp() == nil || *obj.GetDeletionGracePeriodSeconds() != 0 || obj.GetGeneration() != 2 || obj.GetResourceVersion() != "10" {
			t.Errorf("not marked as deleting once: %v", obj.Object["metadata"])
		}
		_, err = jobs.Update(t.Context(), edited(obj, func(u *unstructured.Unstructured) { u.SetFinalizers([]string{"x.io/one", "x.io/two"}) }), metav1.UpdateOptions{})
		wantStatus(t, err, 422, metav1.StatusReasonInvalid)
		_, err = jobs.Create(t.Context(), trainJob("a"), metav1.CreateOptions{})
		wantStatus(t, err, 409, metav1.StatusReasonAlreadyExists)
		if !strings.HasPrefix(err.Error(), "object is being deleted: ") {
			t.Error(err)
		}
		gone := mustUpdate(t, jobs, edited(obj, func(u *unstructured.Unstructured) { u.SetFinalizers(nil) }))
		if gone.GetResourceVersion() != obj.GetResourceVersion() {
			t.Error("the update that deletes answers with the resourceVersion it was sent")
		}
		_, err = jobs.Get(t.Context(), "a", metav1.GetOptions{})
		wantStatus(t, err, 404, metav1.StatusReasonNotFound)
		last := s.History()[2]
		if last.Type != watch.Deleted || last.Object.GetFinalizers() == nil || last.Object.GetResourceVersion() != "11" {
			t.Errorf("unexpected last commit %v", last)
		}
	})
}

func TestDeletePreconditions(t *testing.T) {
	forEachFace(t, func(t *testing.T, _ *rapidtest.Server, c dynamic.Interface) {
		obj := create(t, trainJobs(c), trainJob("a"))
		uid, rv := types.UID("other"), "1"
		err := trainJobs(c).Delete(t.Context(), "a", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
		wantStatus(t, err, 409, metav1.StatusReasonConflict)
		err = trainJobs(c).Delete(t.Context(), "a", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &rv}})
		wantStatus(t, err, 409, metav1.StatusReasonConflict)
		uid, rv = obj.GetUID(), obj.GetResourceVersion()
		if err := trainJobs(c).Delete(t.Context(), "a", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &rv}}); err != nil {
			t.Error(err)
		}
		wantStatus(t, trainJobs(c).Delete(t.Context(), "a", metav1.DeleteOptions{}), 404, metav1.StatusReasonNotFound)
	})
}

func TestPodsEndGracefully(t *testing.T) {
	forEachFace(t, func(t *testing.T, _ *rapidtest.Server, c dynamic.Interface) {
		pods := c.Resource(rapidtest.Pods().GVR).Namespace("default")
		pod := func(name, node string) *unstructured.Unstructured {
			return &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": name}, "spec": map[string]any{"nodeName": node},
			}}
		}
		create(t, pods, pod("unbound", ""))
		create(t, pods, pod("bound", "n1"))
		for _, name := range []string{"unbound", "bound", "bound"} {
			if err := pods.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		_, err := pods.Get(t.Context(), "unbound", metav1.GetOptions{})
		wantStatus(t, err, 404, metav1.StatusReasonNotFound)
		got, err := pods.Get(t.Context(), "bound", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if end := got.GetDeletionTimestamp(); end == nil || !end.Equal(&metav1.Time{Time: time.Now().Add(30 * time.Second)}) {
			t.Errorf("deletionTimestamp %v, want 30 s from now", end)
		}
		if err := pods.Delete(t.Context(), "bound", *metav1.NewDeleteOptions(0)); err != nil {
			t.Fatal(err)
		}
		_, err = pods.Get(t.Context(), "bound", metav1.GetOptions{})
		wantStatus(t, err, 404, metav1.StatusReasonNotFound)
	})
}

func TestPagedListsShowOneMoment(t *testing.T) {
	forEachFace(t, func(t *testing.T, s *rapidtest.Server, c dynamic.Interface) {
		for i := range 5 {
			create(t, trainJobs(c), trainJob(fmt.Sprintf("job-%d", i)))
		}
		page, err := trainJobs(c).List(t.Context(), metav1.ListOptions{Limit: 2})
		if err != nil {
			t.Fatal(err)
		}
		if *page.GetRemainingItemCount() != 3 || page.GetResourceVersion() != "13" {
			t.Errorf("remaining %d at rv %s, want 3 at 13", *page.GetRemainingItemCount(), page.GetResourceVersion())
		}
		if err := trainJobs(c).Delete(t.Context(), "job-3", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		create(t, trainJobs(c), trainJob("job-9"))
		next, err := trainJobs(c).List(t.Context(), metav1.ListOptions{Limit: 9, Continue: page.GetContinue()})
		if err != nil {
			t.Fatal(err)
		}
		if names := namesOf(next); names != "job-2 job-3 job-4" || next.GetContinue() != "" {
			t.Errorf("second page is %s, continue %q", names, next.GetContinue())
		}
		s.ExpireContinueTokens()
		_, err = trainJobs(c).List(t.Context(), metav1.ListOptions{Limit: 9, Continue: page.GetContinue()})
		wantStatus(t, err, 410, metav1.StatusReasonExpired)
	})
}

func namesOf(list *unstructured.UnstructuredList) string {
	var names []string
	for _, i := range list.Items {
		names = append(names, i.GetName())
	}
	return strings.Join(names, " ")
}

func TestSelectors(t *testing.T) {
	forEachFace(t, func(t *testing.T, _ *rapidtest.Server, c dynamic.Interface) {
		for _, name := range []string{"a", "b", "c"} {
			create(t, trainJobs(c), edited(trainJob(name), func(u *unstructured.Unstructured) {
				u.SetLabels(map[string]string{"name": name, "all": "yes"})
			}))
		}
		cases := map[string]struct {
			opts metav1.ListOptions
			want string
		}{
			"LabelIn":        {metav1.ListOptions{LabelSelector: "name in (a,c)"}, "a c"},
			"LabelAbsent":    {metav1.ListOptions{LabelSelector: "!all"}, ""},
			"NameField":      {metav1.ListOptions{FieldSelector: "metadata.name=b"}, "b"},
			"NamespaceField": {metav1.ListOptions{FieldSelector: "metadata.namespace=default"}, "a b c"},
		}
		for name, tc := range cases {
			list, err := trainJobs(c).List(t.Context(), tc.opts)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if got := namesOf(list); got != tc.want {
				t.Errorf("%s: got %q, want %q", name, got, tc.want)
			}
		}
		_, err := trainJobs(c).List(t.Context(), metav1.ListOptions{FieldSelector: "spec.suspend=true"})
		wantStatus(t, err, 400, metav1.StatusReasonBadRequest)
		_, err = trainJobs(c).List(t.Context(), metav1.ListOptions{LabelSelector: "a in"})
		wantStatus(t, err, 400, metav1.StatusReasonBadRequest)
	})
}

func TestDryRunStoresNothing(t *testing.T) {
	forEachFace(t, func(t *testing.T, s *rapidtest.Server, c dynamic.Interface) {
		all := []string{metav1.DryRunAll}
		dry, err := trainJobs(c).Create(t.Context(), trainJob("a"), metav1.CreateOptions{DryRun: all})
		if err != nil || dry.GetUID() == "" || dry.GetResourceVersion() != "" {
			t.Errorf("dry run of a create: %v, %v", dry, err)
		}
		obj := create(t, trainJobs(c), trainJob("a"))
		_, err = trainJobs(c).Create(t.Context(), trainJob("a"), metav1.CreateOptions{DryRun: all})
		wantStatus(t, err, 409, metav1.StatusReasonAlreadyExists)
		upd, err := trainJobs(c).Update(t.Context(), edited(obj, setNested(true, "spec", "suspend")), metav1.UpdateOptions{DryRun: all})
		if err != nil || upd.GetGeneration() != 2 || upd.GetResourceVersion() != obj.GetResourceVersion() {
			t.Errorf("dry run of an update: %v, %v", upd, err)
		}
		if err := trainJobs(c).Delete(t.Context(), "a", metav1.DeleteOptions{DryRun: all}); err != nil {
			t.Error(err)
		}
		if n := len(s.History()); n != 1 {
			t.Errorf("%d commits, want 1", n)
		}
	})
}

func TestPatches(t *testing.T) {
	forEachFace(t, func(t *testing.T, _ *rapidtest.Server, c dynamic.Interface) {
		create(t, trainJobs(c), edited(trainJob("a"), func(u *unstructured.Unstructured) { u.SetAnnotations(map[string]string{"keep": "1", "drop": "2"}) }))
		patch := func(pt types.PatchType, body string, opts metav1.PatchOptions) (*unstructured.Unstructured, error) {
			return trainJobs(c).Patch(t.Context(), "a", pt, []byte(body), opts)
		}
		merged, err := patch(types.MergePatchType, `{"metadata":{"annotations":{"drop":null,"new":"3"}},"spec":{"suspend":true}}`, metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(map[string]string{"keep": "1", "new": "3"}, merged.GetAnnotations()); diff != "" || nested(merged, "spec", "suspend") != true {
			t.Errorf("merge patch: %s", diff)
		}
		_, err = patch(types.MergePatchType, `{"metadata":{"resourceVersion":"9"},"spec":{"suspend":false}}`, metav1.PatchOptions{})
		wantStatus(t, err, 409, metav1.StatusReasonConflict)
		jsoned, err := patch(types.JSONPatchType, `[{"op":"test","path":"/spec/suspend","value":true},{"op":"replace","path":"/spec/suspend","value":false},{"op":"remove","path":"/metadata/annotations/keep"}]`, metav1.PatchOptions{})
		if err != nil || nested(jsoned, "spec", "suspend") != false || len(jsoned.GetAnnotations()) != 1 {
			t.Errorf("JSON patch: %v, %v", jsoned, err)
		}
		_, err = patch(types.JSONPatchType, `[{"op":"test","path":"/spec/suspend","value":true}]`, metav1.PatchOptions{})
		wantStatus(t, err, 422, metav1.StatusReasonInvalid)
		_, err = patch(types.StrategicMergePatchType, `{}`, metav1.PatchOptions{})
		wantStatus(t, err, 415, metav1.StatusReasonUnsupportedMediaType)
		_, err = patch(types.MergePatchType, `{"spec":{"nonsense":1}}`, metav1.PatchOptions{FieldValidation: metav1.FieldValidationStrict})
		wantStatus(t, err, 422, metav1.StatusReasonInvalid)
	})
}

func TestUnknownFields(t *testing.T) {
	forEachFace(t, func(t *testing.T, _ *rapidtest.Server, c dynamic.Interface) {
		odd := edited(trainJob("a"), setNested(true, "spec", "active"))
		_, err := trainJobs(c).Create(t.Context(), odd, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
		wantStatus(t, err, 400, metav1.StatusReasonBadRequest)
		if want := `TrainJob in version "v1alpha1" cannot be handled as a TrainJob: strict decoding error: unknown field "spec.active"`; err.Error() != want {
			t.Errorf("got %q", err)
		}
		if got := create(t, trainJobs(c), odd); nested(got, "spec", "active") != nil {
			t.Error("an unknown field was stored")
		}
	})
}

func TestRefusals(t *testing.T) {
	cases := map[string]struct {
		do     func(ctx context.Context, jobs dynamic.ResourceInterface, obj *unstructured.Unstructured) error
		code   int32
		reason metav1.StatusReason
	}{
		"InvalidName": {func(ctx context.Context, jobs dynamic.ResourceInterface, obj *unstructured.Unstructured) error {
			_, err := jobs.Create(ctx, trainJob("Not_A_Name"), metav1.CreateOptions{})
			return err
		}, 422, metav1.StatusReasonInvalid},
		"InvalidAnnotation": {func(ctx context.Context, jobs dynamic.ResourceInterface, obj *unstructured.Unstructured) error {
			obj.SetAnnotations(map[string]string{"no spaces": ""})
			_, err := jobs.Update(ctx, obj, metav1.UpdateOptions{})
			return err
		}, 422, metav1.StatusReasonInvalid},
		"InvalidLabel": {func(ctx context.Context, jobs dynamic.ResourceInterface, obj *unstructured.Unstructured) error {
			obj.SetLabels(map[string]string{"a": "no spaces"})
			_, err := jobs.Update(ctx, obj, metav1.UpdateOptions{})
			return err
		}, 422, metav1.StatusReasonInvalid},
		"LargeAnnotations": {func(ctx context.Context, jobs dynamic.ResourceInterface, obj *unstructured.Unstructured) error {
			obj.SetAnnotations(map[string]string{"a": strings.Repeat("x", 256<<10)})
			_, err := jobs.Update(ctx, obj, metav1.UpdateOptions{})
			return err
		}, 422, metav1.StatusReasonInvalid},
		"LargeBody": {func(ctx context.Context, jobs dynamic.ResourceInterface, obj *unstructured.Unstructured) error {
			obj.SetAnnotations(map[string]string{"a": strings.Repeat("x", 3<<20)})
			_, err := jobs.Update(ctx, obj, metav1.UpdateOptions{})
			return err
		}, 413, metav1.StatusReasonRequestEntityTooLarge},
		"UnknownOption": {func(ctx context.Context, jobs dynamic.ResourceInterface, obj *unstructured.Unstructured) error {
			_, err := jobs.Update(ctx, obj, metav1.UpdateOptions{FieldValidation: "Nonsense"})
			return err
		}, 422, metav1.StatusReasonInvalid},
		"OtherNamespace": {func(ctx context.Context, jobs dynamic.ResourceInterface, obj *unstructured.Unstructured) error {
			obj.SetNamespace("elsewhere")
			_, err := jobs.Update(ctx, obj, metav1.UpdateOptions{})
			return err
		}, 400, metav1.StatusReasonBadRequest},
		"OtherVersion": {func(ctx context.Context, jobs dynamic.ResourceInterface, obj *unstructured.Unstructured) error {
			obj.SetAPIVersion("trainer.kubeflow.org/v9")
			_, err := jobs.Update(ctx, obj, metav1.UpdateOptions{})
			return err
		}, 400, metav1.StatusReasonBadRequest},
		"NoSuchObject": {func(ctx context.Context, jobs dynamic.ResourceInterface, obj *unstructured.Unstructured) error {
			obj.SetName("b")
			_, err := jobs.Update(ctx, obj, metav1.UpdateOptions{})
			return err
		}, 404, metav1.StatusReasonNotFound},
		"NoSuchSubresource": {func(ctx context.Context, jobs dynamic.ResourceInterface, obj *unstructured.Unstructured) error {
			_, err := jobs.Get(ctx, "a", metav1.GetOptions{}, "scale")
			return err
		}, 404, metav1.StatusReasonNotFound},
		"FutureList": {func(ctx context.Context, jobs dynamic.ResourceInterface, obj *unstructured.Unstructured) error {
			_, err := jobs.List(ctx, metav1.ListOptions{ResourceVersion: "4711", ResourceVersionMatch: metav1.ResourceVersionMatchExact})
			return err
		}, 504, metav1.StatusReasonTimeout},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			forEachFace(t, func(t *testing.T, s *rapidtest.Server, c dynamic.Interface) {
				obj := create(t, trainJobs(c), trainJob("a"))
				wantStatus(t, tc.do(t.Context(), trainJobs(c), obj), tc.code, tc.reason)
				if n := len(s.History()); n != 1 {
					t.Errorf("%d commits, want 1", n)
				}
			})
		})
	}
}

func TestUnknownResourceIsNoRoute(t *testing.T) {
	forEachFace(t, func(t *testing.T, _ *rapidtest.Server, c dynamic.Interface) {
		gvr := rapidtest.TrainJobs().GVR
		gvr.Version = "v9"
		_, err := c.Resource(gvr).Namespace("default").Get(t.Context(), "a", metav1.GetOptions{})
		wantStatus(t, err, 404, metav1.StatusReasonNotFound)
		if err.Error() != "the server could not find the requested resource" {
			t.Error(err)
		}
	})
}

func TestAuthorization(t *testing.T) {
	forEachFace(t, func(t *testing.T, s *rapidtest.Server, c dynamic.Interface) {
		create(t, trainJobs(c), trainJob("a"))
		s.Authorize(func(a rapidtest.Access) bool { return a.Verb == rapidtest.VerbGet })
		err := trainJobs(c).Delete(t.Context(), "a", metav1.DeleteOptions{})
		wantStatus(t, err, 403, metav1.StatusReasonForbidden)
		if want := `trainjobs.trainer.kubeflow.org "a" is forbidden: User "alice" cannot delete resource "trainjobs" in API group "trainer.kubeflow.org" in the namespace "default"`; err.Error() != want {
			t.Errorf("got  %s\nwant %s", err, want)
		}
		for verb, want := range map[string]bool{"get": true, "delete": false} {
			if got := reviewed(t, c, verb); got != want {
				t.Errorf("review of %s: %v, want %v", verb, got, want)
			}
		}
	})
}

func reviewed(t *testing.T, c dynamic.Interface, verb string) bool {
	t.Helper()
	gvr := rapidtest.TrainJobs().GVR
	gvr.Group, gvr.Version, gvr.Resource = "authorization.k8s.io", "v1", "selfsubjectaccessreviews"
	out, err := c.Resource(gvr).Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
		"spec": map[string]any{"resourceAttributes": map[string]any{
			"verb": verb, "group": "trainer.kubeflow.org", "version": "v1alpha1", "resource": "trainjobs", "namespace": "default", "name": "a",
		}},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return nested(out, "status", "allowed") == true
}

func TestAdmission(t *testing.T) {
	forEachFace(t, func(t *testing.T, s *rapidtest.Server, c dynamic.Interface) {
		obj := create(t, trainJobs(c), trainJob("a"))
		asked := 0
		s.Admit(func(ar rapidtest.AdmissionRequest) (*unstructured.Unstructured, error) {
			asked++
			ar.Object.SetAnnotations(nil)
			return ar.Object, nil
		})
		stripped := mustUpdate(t, trainJobs(c), edited(obj, func(u *unstructured.Unstructured) { u.SetAnnotations(map[string]string{"a": "b"}) }))
		if stripped.GetResourceVersion() != obj.GetResourceVersion() {
			t.Error("what admission takes back must leave no trace")
		}
		_, err := trainJobs(c).Update(t.Context(), edited(obj, func(u *unstructured.Unstructured) { u.SetResourceVersion("1") }), metav1.UpdateOptions{})
		wantStatus(t, err, 409, metav1.StatusReasonConflict)
		if asked != 2 {
			t.Errorf("mutating admission was asked %d times, want 2: it runs before the resourceVersion is checked", asked)
		}
		s.AdmitValidating(func(ar rapidtest.AdmissionRequest) error {
			return rapidtest.Denied("policy.example.com", 409, metav1.StatusReasonConflict, ar.Operation)
		})
		_, err = trainJobs(c).Update(t.Context(), edited(obj, setNested(true, "spec", "suspend")), metav1.UpdateOptions{})
		wantStatus(t, err, 409, metav1.StatusReasonConflict)
		if want := `admission webhook "policy.example.com" denied the request: UPDATE`; err.Error() != want {
			t.Error(err)
		}
		err = trainJobs(c).Delete(t.Context(), "a", metav1.DeleteOptions{})
		wantStatus(t, err, 409, metav1.StatusReasonConflict)
	})
}

// An admission hook that writes makes the update start again from what it wrote, as the real server's transaction does.
func TestUpdateStartsAgainWhenTheObjectChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		c, other := s.Dynamic("alice"), s.Dynamic("bob")
		obj := create(t, trainJobs(c), trainJob("a"))
		meddled := false
		s.Admit(func(ar rapidtest.AdmissionRequest) (*unstructured.Unstructured, error) {
			if !meddled && ar.Request.User == "alice" {
				meddled = true
				mustUpdate(t, trainJobs(other), edited(obj, func(u *unstructured.Unstructured) { u.SetLabels(map[string]string{"by": "bob"}) }))
			}
			return nil, nil
		})
		_, err := trainJobs(c).Update(t.Context(), edited(obj, setNested(true, "spec", "suspend")), metav1.UpdateOptions{})
		wantStatus(t, err, 409, metav1.StatusReasonConflict)

		meddled = false
		obj, _ = trainJobs(c).Get(t.Context(), "a", metav1.GetOptions{})
		got, err := trainJobs(c).Patch(t.Context(), "a", types.MergePatchType, []byte(`{"spec":{"suspend":true}}`), metav1.PatchOptions{})
		if err != nil || got.GetLabels()["by"] != "bob" {
			t.Errorf("a patch without a resourceVersion must go over what changed meanwhile: %v, %v", got, err)
		}
	})
}

func TestWatch(t *testing.T) {
	forEachFace(t, func(t *testing.T, s *rapidtest.Server, c dynamic.Interface) {
		obj := create(t, trainJobs(c), edited(trainJob("a"), func(u *unstructured.Unstructured) { u.SetLabels(map[string]string{"team": "x"}) }))
		w, err := trainJobs(c).Watch(t.Context(), metav1.ListOptions{LabelSelector: "team=x", ResourceVersion: obj.GetResourceVersion()})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		obj = mustUpdate(t, trainJobs(c), edited(obj, setNested(true, "spec", "suspend")))
		obj = mustUpdate(t, trainJobs(c), edited(obj, func(u *unstructured.Unstructured) { u.SetLabels(map[string]string{"team": "y"}) }))
		mustUpdate(t, trainJobs(c), edited(obj, func(u *unstructured.Unstructured) { u.SetLabels(map[string]string{"team": "x"}) }))
		if err := trainJobs(c).Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		var got []string
		for range 4 {
			e := <-w.ResultChan()
			got = append(got, fmt.Sprintf("%s %s", e.Type, e.Object.(*unstructured.Unstructured).GetResourceVersion()))
		}
		if diff := cmp.Diff([]string{"MODIFIED 10", "DELETED 11", "ADDED 12", "DELETED 13"}, got); diff != "" {
			t.Error(diff)
		}
		s.EndWatches()
		if _, ok := <-w.ResultChan(); ok {
			t.Error("the watch goes on")
		}
		s.ExpireContinueTokens()
		w, err = trainJobs(c).Watch(t.Context(), metav1.ListOptions{ResourceVersion: "9"})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		e := <-w.ResultChan()
		wantStatus(t, apierrors.FromObject(e.Object), 410, metav1.StatusReasonExpired)
	})
}

func TestTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		obj := create(t, trainJobs(s.Dynamic("alice")), trainJob("a"))
		plan := rapidtest.NewPlan(rapidtest.Each(rapidtest.Writes(), rapidtest.HoldRequest(5*time.Second)))
		cfg := s.RESTConfig("alice", plan.Middleware)
		cfg.Timeout = 0
		c, err := dynamic.NewForConfig(cfg)
		if err != nil {
			t.Fatal(err)
		}
		put := &rapidtest.Request{
			Verb: rapidtest.VerbUpdate, GVR: rapidtest.TrainJobs().GVR, Namespace: "default", Name: "a",
			Object: edited(obj, setNested(true, "spec", "suspend")), Hold: 5 * time.Second,
		}
		start := time.Now()
		resp, err := s.RoundTrip(t.Context(), put.With(func(r *rapidtest.Request) { r.Timeout = time.Second }))
		if err != nil || resp.Code != http.StatusGatewayTimeout || time.Since(start) != time.Second {
			t.Fatalf("with a timeout of 1 s: %v, %v after %v; want 504 after 1 s", resp, err, time.Since(start))
		}
		time.Sleep(time.Minute)
		if n := len(s.History()); n != 1 {
			t.Fatalf("what was cut off was committed: %d commits", n)
		}
		if _, err := trainJobs(c).Update(t.Context(), put.Object, metav1.UpdateOptions{}); err != nil {
			t.Fatalf("without a timeout: %v", err)
		}
	})
}

func TestFaults(t *testing.T) {
	type outcome struct {
		err     func(error) bool
		commits int // beyond the create, when all is over
		early   int // of these, when the client has its answer
	}
	status := func(code int32) func(error) bool {
		return func(err error) bool {
			s := apierrors.APIStatus(nil)
			return errors.As(err, &s) && s.Status().Code == code
		}
	}
	is := func(target error) func(error) bool { return func(err error) bool { return errors.Is(err, target) } }
	none := func(err error) bool { return err == nil }
	cases := map[string]struct {
		fault rapidtest.Fault
		want  outcome
	}{
		"None":            {rapidtest.Fault{}, outcome{none, 1, 1}},
		"LoseRequest":     {rapidtest.LoseRequest(), outcome{func(err error) bool { return err != nil && !status(504)(err) }, 0, 0}},
		"LoseResponse":    {rapidtest.LoseResponse(), outcome{is(io.ErrUnexpectedEOF), 1, 1}},
		"HangRequest":     {rapidtest.HangRequest(), outcome{is(context.DeadlineExceeded), 0, 0}},
		"HangResponse":    {rapidtest.HangResponse(), outcome{is(context.DeadlineExceeded), 1, 1}},
		"Delay":           {rapidtest.DelayRequest(time.Second), outcome{none, 1, 1}},
		"DelayTooLong":    {rapidtest.DelayRequest(time.Minute), outcome{is(context.DeadlineExceeded), 1, 0}},
		"HoldTooLong":     {rapidtest.HoldRequest(time.Minute), outcome{is(context.DeadlineExceeded), 0, 0}},
		"CommitLater":     {rapidtest.CommitLater(time.Minute), outcome{status(504), 1, 0}},
		"HangCommitLater": {rapidtest.HangCommitLater(time.Minute), outcome{is(context.DeadlineExceeded), 1, 0}},
		"Duplicate":       {rapidtest.Duplicate(), outcome{status(409), 1, 1}},
		"Answer409":       {rapidtest.Answer(409), outcome{status(409), 0, 0}},
		"Answer403Commit": {rapidtest.Answer(403).AfterCommit(), outcome{status(403), 1, 1}},
		"Answer500":       {rapidtest.Answer(500).AfterCommit(), outcome{status(500), 1, 1}},
		"Answer503":       {rapidtest.Answer(503), outcome{status(503), 0, 0}},
		"Answer418":       {rapidtest.Answer(418), outcome{status(418), 0, 0}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for _, f := range faces() {
				t.Run(f.name, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						s := newServer()
						plan := rapidtest.NewPlan(rapidtest.Nth(1, rapidtest.Verbs(rapidtest.VerbUpdate), tc.fault))
						c := f.open(t, s, plan.Middleware)
						obj := create(t, trainJobs(c), trainJob("a"))
						ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
						defer cancel()
						_, err := trainJobs(c).Update(ctx, edited(obj, setNested(true, "spec", "suspend")), metav1.UpdateOptions{})
						if !tc.want.err(err) {
							t.Errorf("unexpected outcome %v\n%s", err, plan.Timeline())
						}
						if n := len(s.History()) - 1; n != tc.want.early {
							t.Errorf("%d commits when the client has its answer, want %d", n, tc.want.early)
						}
						time.Sleep(time.Hour)
						if n := len(s.History()) - 1; n != tc.want.commits {
							t.Errorf("%d commits in the end, want %d", n, tc.want.commits)
						}
					})
				})
			}
		})
	}
}

// client-go sends again by itself on an answer with Retry-After: eleven times what the caller asked for once.
func TestRESTConfigIsTheRealClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		plan := rapidtest.NewPlan(rapidtest.Each(rapidtest.Verbs(rapidtest.VerbUpdate), rapidtest.Answer(503).WithRetryAfter(1)))
		c, err := dynamic.NewForConfig(s.RESTConfig("alice", plan.Middleware))
		if err != nil {
			t.Fatal(err)
		}
		obj := create(t, trainJobs(c), trainJob("a"))
		start := time.Now()
		_, err = trainJobs(c).Update(t.Context(), obj, metav1.UpdateOptions{})
		wantStatus(t, err, 503, metav1.StatusReasonServiceUnavailable)
		if n := len(plan.Events()) - 1; n != 11 || time.Since(start) != 10*time.Second {
			t.Errorf("%d transmissions in %v, want 11 in 10 s", n, time.Since(start))
		}
	})
}

func TestSnapshotRestoreCloneHash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		c := trainJobs(s.Dynamic("alice"))
		obj := create(t, c, trainJob("a"))
		snap, hash := s.Snapshot(), s.StateHash(obj.GetResourceVersion())
		held := mustUpdate(t, c, edited(obj, setNested(true, "spec", "suspend")))
		if s.StateHash(obj.GetResourceVersion()) == hash {
			t.Error("another state has the same hash")
		}
		clone := s.Clone()
		back := mustUpdate(t, c, edited(held, setNested(false, "spec", "suspend")))
		if s.StateHash(back.GetResourceVersion()) != hash {
			t.Error("the same state under another resourceVersion has another hash")
		}
		if s.StateHash(obj.GetResourceVersion()) == hash {
			t.Error("a client with an old resourceVersion is in another state than one with the current")
		}
		s.Restore(snap)
		if s.StateHash(obj.GetResourceVersion()) != hash || len(s.History()) != 1 {
			t.Error("not restored")
		}
		if got := clone.Stored(rapidtest.TrainJobs().GVR, "default", "a"); got.GetResourceVersion() != held.GetResourceVersion() || len(clone.History()) != 2 {
			t.Error("the clone changed")
		}
		mustUpdate(t, c, edited(obj, setNested(true, "spec", "suspend")))
		if len(s.History()) != 2 || len(s.HistoryOf(rapidtest.TrainJobs().GVR, "default", "a")) != 2 {
			t.Error("the history does not go on from the snapshot")
		}
	})
}

func TestOnCommitSeesEveryVersionInOrder(t *testing.T) {
	forEachFace(t, func(t *testing.T, s *rapidtest.Server, c dynamic.Interface) {
		var seen []string
		s.OnCommit(func(commit rapidtest.Commit) {
			stored := s.Stored(commit.GVR, commit.Namespace, commit.Name)
			seen = append(seen, fmt.Sprintf("%d %s %v", commit.ResourceVersion, commit.Type, stored != nil))
		})
		obj := create(t, trainJobs(c), trainJob("a"))
		mustUpdate(t, trainJobs(c), edited(obj, setNested(true, "spec", "suspend")))
		if err := trainJobs(c).Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"9 ADDED true", "10 MODIFIED true", "11 DELETED false"}, seen); diff != "" {
			t.Error(diff)
		}
	})
}

// A hook that takes its time: nobody is told of a commit before it has seen it.
func TestNoAnswerIsAheadOfOnCommit(t *testing.T) {
	forEachFace(t, func(t *testing.T, s *rapidtest.Server, c dynamic.Interface) {
		obj := create(t, trainJobs(c), trainJob("a"))
		var seen atomic.Value
		seen.Store(obj.GetResourceVersion())
		s.OnCommit(func(commit rapidtest.Commit) {
			for range 1000 {
				runtime.Gosched()
			}
			seen.Store(commit.Object.GetResourceVersion())
		})
		reading, stop := context.WithCancel(t.Context())
		var reader sync.WaitGroup
		reader.Go(func() {
			for reading.Err() == nil {
				got, err := trainJobs(c).Get(t.Context(), "a", metav1.GetOptions{})
				if known := seen.Load().(string); err != nil || older(known, got.GetResourceVersion()) {
					t.Errorf("a get shows %v, and the hook has seen %s: %v", got, known, err)
					return
				}
			}
		})
		for range 50 {
			obj = mustUpdate(t, trainJobs(c), edited(obj, func(u *unstructured.Unstructured) {
				u.SetLabels(map[string]string{"was": u.GetResourceVersion()})
			}))
		}
		stop()
		reader.Wait()
	})
}

func older(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err != nil || order < 0
}

func TestSchedulerDecidesTheOrder(t *testing.T) {
	orders := map[string]string{} // which actor goes first -> who wins
	for _, first := range []string{"a", "b"} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer()
			obj := create(t, trainJobs(s.Dynamic("setup")), trainJob("x"))
			sched := rapidtest.NewScheduler(rapidtest.BeforeExecution)
			for _, actor := range []string{"b", "a"} {
				c := trainJobs(s.Dynamic(actor, sched.Middleware(actor)))
				go func() {
					_, err := c.Update(t.Context(), edited(obj, func(u *unstructured.Unstructured) { u.SetLabels(map[string]string{"by": actor}) }), metav1.UpdateOptions{})
					if err == nil {
						orders[first] = actor
					}
				}()
			}
			synctest.Wait()
			steps := sched.Parked()
			if len(steps) != 2 || steps[0].Actor != "a" {
				t.Fatalf("parked %v, want a and b", steps)
			}
			if first == "b" {
				steps[0], steps[1] = steps[1], steps[0]
			}
			for _, step := range steps {
				step.Proceed()
				synctest.Wait()
			}
		})
	}
	if diff := cmp.Diff(map[string]string{"a": "a", "b": "b"}, orders); diff != "" {
		t.Error(diff)
	}
}
