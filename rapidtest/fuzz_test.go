package rapidtest

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"reflect"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"pgregory.net/rapid"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/kinds"
	"github.com/kubehold/kubehold/meta"
)

// strangeKinds are descriptors of every kind and mode, and of pause fields of every type and place.
func strangeKinds() []*subject {
	resource := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "things"}
	return []*subject{
		subjectOf(kinds.Job()), subjectOf(kinds.JobSet()), subjectOf(kinds.TrainJob()), subjectOf(kinds.Workload()),
		subjectOf(kinds.WithStartGate(kinds.TrainJob())),
		subjectOf(kinds.OnKueue(kinds.TrainJob())), subjectOf(kinds.OnKueue(kinds.Job())),
		subjectOf(holdable.Holdable[int64]{
			Kind: "Thing", Resource: resource, StartGate: true,
			Pause: holdable.Pause[int64]{Path: holdable.Field("spec", "replicas"), Held: 0, Running: 1, Absent: 1, Resume: holdable.RestoreFound},
		}),
		subjectOf(holdable.Holdable[string]{
			Kind: "Thing", Resource: resource,
			Pause: holdable.Pause[string]{Path: holdable.Annotation("example.com/paused"), Held: "true", Resume: holdable.RemoveField},
		}),
		subjectOf(holdable.Holdable[string]{
			Kind: "Thing", Resource: resource, ClusterScoped: true,
			Pause: holdable.Pause[string]{Path: holdable.Field("spec", "strategy", "policy"), Held: "Stop", Running: "Go", RequireParent: true},
		}),
	}
}

// suffers has every call made on an object of a kind, of which the server says that it is this, and that these are its pods. Nothing of it may panic,
// nothing of the object be changed that is not ours, and what was read not at all.
func (s *subject) suffers(t rapid.TB, obj map[string]any, pods []map[string]any) {
	t.Helper()
	served := &unstructured.Unstructured{Object: obj}
	before := runtime.DeepCopyJSON(obj)
	var wrong error
	lie := func(RoundTrip) RoundTrip {
		return func(_ context.Context, req *Request) (*Response, error) {
			switch {
			case req.Verb == VerbUpdate:
				if err := s.foreignUntouched(s.withoutNull(served), s.withoutNull(req.Object)); err != nil || req.GVR != s.held {
					wrong = fmt.Errorf("%v of %s: %w", req, s.heldKind, err)
				}
				return &Response{Code: http.StatusOK, Object: withVersionText(req.Object, "2")}, nil
			case req.Verb == VerbList && req.GVR == Pods().GVR:
				list := &unstructured.UnstructuredList{}
				for _, pod := range pods {
					list.Items = append(list.Items, unstructured.Unstructured{Object: pod})
				}
				return &Response{Code: http.StatusOK, List: list}, nil
			case req.Verb == VerbList:
				return &Response{Code: http.StatusOK, List: &unstructured.UnstructuredList{Items: []unstructured.Unstructured{*served}}}, nil
			}
			return &Response{Code: http.StatusOK, Object: served}, nil
		}
	}
	holder, err := s.holder(s.server().Dynamic("us", lie), 1)
	if err != nil {
		t.Fatal(err)
	}
	ref := meta.Ref{Namespace: s.namespace(), Name: worldName}
	for _, spec := range []callSpec{{meta.OpHold, 2}, {meta.OpRelease, 2}, {meta.OpOpen, 0}} {
		out := spec.run(context.Background(), holder, ref, time.Now().Add(time.Hour))
		if wrong != nil {
			t.Fatal(wrong)
		}
		if f := out.failure(); !out.ok() && f.Kind == "" {
			t.Fatalf("%s of %s: no *meta.Error: %v", spec, s.heldKind, out.err)
		}
	}
	if in, err := holder.Inspect(context.Background(), ref); err == nil && in.State == "" {
		t.Fatalf("%s has no state", s.heldKind)
	}
	if !reflect.DeepEqual(before, obj) {
		t.Fatalf("what was read was changed: %v, before that %v", obj, before)
	}
}

// withoutNull is an object without a null on the way to a field that is ours: a null is as good as nothing, and a map takes its place.
func (s *subject) withoutNull(obj *unstructured.Unstructured) *unstructured.Unstructured {
	obj = obj.DeepCopy()
	for _, path := range [][]string{s.path, {"metadata", "annotations", ""}} {
		for i := range path[:len(path)-1] {
			if v, there, _ := unstructured.NestedFieldNoCopy(obj.Object, path[:i+1]...); there && v == nil {
				unstructured.RemoveNestedField(obj.Object, path[:i+1]...)
			}
		}
	}
	return obj
}

// words are the keys and the texts of strange objects: those that something here looks at, and some others.
func words() []string {
	var k meta.Keys
	return append(append(k.OfHold(), k.Opened(), k.Executions()),
		"metadata", "annotations", "labels", "ownerReferences", "deletionTimestamp", "creationTimestamp", "name", "uid", "controller", "kind", "apiVersion",
		"spec", "suspend", "active", "replicas", "strategy", "policy", "status", "conditions", "type", "reason", "message", "admissionChecks", "state",
		"containers", "initContainers", "containerStatuses", "initContainerStatuses", "terminated", "nodeName", "phase",
		"kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/job-uid", "example.com/paused", "example.com/other",
		"True", "Complete", "Failed", "Finished", "Evicted", "DeactivationTarget", "DeactivatedDueToAdmissionCheck", "Succeeded", "Stop", "Go",
		"u", "2", "1", "0", "-1", "02", "running", "running=1", "running=null", "running=0", "gate", "paused", "1 u", "x u", "2026-05-06T07:08:09Z", "true", "",
	)
}

func drawStrange(t *rapid.T, depth int) any {
	most := 8
	if depth == 0 {
		most = 5
	}
	switch rapid.IntRange(0, most).Draw(t, "what") {
	case 0:
		return nil
	case 1:
		return rapid.Bool().Draw(t, "bool")
	case 2:
		return rapid.Int64().Draw(t, "int")
	case 3:
		return float64(rapid.IntRange(-1000, 1000).Draw(t, "float")) + 0.5 // whole ones become integers on the wire
	case 4, 5:
		return rapid.OneOf(rapid.SampledFrom(words()), rapid.String()).Draw(t, "text")
	case 6:
		list := make([]any, rapid.IntRange(0, 3).Draw(t, "length"))
		for i := range list {
			list[i] = drawStrange(t, depth-1)
		}
		return list
	}
	return drawStrangeMap(t, depth-1)
}

func drawStrangeMap(t *rapid.T, depth int) map[string]any {
	m := map[string]any{}
	for range rapid.IntRange(0, 6).Draw(t, "size") {
		m[rapid.SampledFrom(words()).Draw(t, "key")] = drawStrange(t, max(depth, 0))
	}
	return m
}

// drawStrangeObject draws what has the outlines of an object, more often than not, and anything inside of them.
func drawStrangeObject(t *rapid.T) map[string]any {
	obj := drawStrangeMap(t, 2)
	for _, part := range []string{"metadata", "spec", "status"} {
		if rapid.IntRange(0, 9).Draw(t, part) > 0 {
			obj[part] = drawStrangeMap(t, 3)
		}
	}
	if metadata, ok := obj["metadata"].(map[string]any); ok {
		annotations := map[string]any{}
		for _, key := range rapid.SliceOfN(rapid.SampledFrom(words()), 0, 8).Draw(t, "annotations") {
			annotations[key] = drawStrange(t, rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(t, "depth"))
		}
		if rapid.IntRange(0, 9).Draw(t, "annotated") > 0 {
			metadata["annotations"] = annotations
		}
		metadata["uid"], metadata["resourceVersion"], metadata["name"] = "u", "1", worldName
	}
	return obj
}

// drawSuffering is a strange object of any kind, with strange pods.
func drawSuffering(t *rapid.T) {
	all := strangeKinds()
	s := all[rapid.IntRange(0, len(all)-1).Draw(t, "kind")]
	obj := drawStrangeObject(t)
	var pods []map[string]any
	for range rapid.IntRange(0, 3).Draw(t, "pods") {
		pods = append(pods, drawStrangeObject(t))
	}
	s.suffers(t, obj, pods)
}

// Whatever an object looks like, no descriptor panics, and nothing of anybody else's is changed (rules H1, I11).
func TestStrangeObjects(t *testing.T) { rapid.Check(t, drawSuffering) }

// FuzzStrangeObjects is TestStrangeObjects with draws that a fuzzer makes.
func FuzzStrangeObjects(f *testing.F) {
	for seed := range uint64(8) { // enough of each for an object and its pods: what ends too soon is passed over
		random := rand.NewChaCha8([32]byte{byte(seed)})
		data := make([]byte, 32<<10)
		if _, err := random.Read(data); err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(rapid.MakeFuzz(drawSuffering))
}

// FuzzObjects has every kind suffer an object, and a pod, that are given as JSON.
func FuzzObjects(f *testing.F) {
	const metadata = `"metadata":{"uid":"u","resourceVersion":"1","name":"job","annotations":{"kubehold.dev/hold-instance":"2","kubehold.dev/hold-uid":"u","note":"n"}`
	for _, seed := range []string{
		`{` + metadata + `},"spec":{"suspend":true,"active":false,"replicas":0}}`,
		`{` + metadata + `,"deletionTimestamp":"2026-05-06T07:08:09Z"},"spec":{"suspend":"yes","strategy":[]}}`,
		`{` + metadata + `,"ownerReferences":[{"controller":true,"kind":"JobSet","apiVersion":"jobset.x-k8s.io/v1alpha2"},7]},"spec":null}`,
		`{` + metadata + `},"status":{"conditions":[{"type":"Failed","status":"True"},{"type":1},null],"phase":"Failed"}}`,
		`{"metadata":{"uid":"u","resourceVersion":"1","annotations":[]},"spec":7}`,
		`{"metadata":null}`,
		`{}`,
	} {
		f.Add([]byte(seed), []byte(`{"spec":{"nodeName":"n","containers":[{"name":"main"}]},"status":{"phase":"Succeeded"}}`))
	}
	f.Fuzz(func(t *testing.T, object, pod []byte) {
		for _, s := range strangeKinds() {
			var obj, p map[string]any
			if decodeStrange(object, &obj) != nil || decodeStrange(pod, &p) != nil || obj == nil || p == nil {
				return
			}
			s.suffers(t, obj, []map[string]any{p})
		}
	})
}

// decodeStrange reads JSON as the dynamic client does: whole numbers are int64.
func decodeStrange(data []byte, into *map[string]any) error {
	if err := json.Unmarshal(data, into); err != nil || *into == nil {
		return err
	}
	(*into)["apiVersion"], (*into)["kind"] = "v1", "Strange"
	text, err := json.Marshal(*into)
	if err != nil {
		return err
	}
	obj := &unstructured.Unstructured{}
	err = obj.UnmarshalJSON(text)
	*into = obj.Object
	return err
}
