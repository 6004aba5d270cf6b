package rapidtest

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/kinds"
)

// pipelines is a kind that package kinds does not have, paused by a word.
func pipelines() holdable.Holdable[string] {
	return holdable.Holdable[string]{
		Kind:     "Pipeline",
		Resource: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "pipelines"},
		Pause:    holdable.Pause[string]{Path: holdable.Field("spec", "state"), Held: "Paused", Running: "Active", Absent: "Active"},
		Ended:    holdable.ConditionTrue("Complete"),
		Pods:     holdable.PodsNamed("example.com/pipeline"),
	}
}

// pipelineController is what its controller does.
func pipelineController(s *Server) Actor {
	return &Runner{
		Client:   s.Dynamic("pipeline-controller"),
		Resource: pipelines().Resource,
		Runs: func(obj *unstructured.Unstructured) bool {
			state, _, _ := unstructured.NestedString(obj.Object, "spec", "state")
			return (state == "" || state == "Active") && !hasEnded(obj)
		},
		Labels: func(obj *unstructured.Unstructured) map[string]string {
			return map[string]string{"example.com/pipeline": obj.GetName()}
		},
	}
}

func pipelineOptions() []Option {
	return []Option{Schema("spec.state", "spec.steps", "spec.mode", "status.*"), Controller(pipelineController)}
}

// Each mistake in a descriptor is found, and named.
func TestCheckNamesTheMistake(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*holdable.Holdable[string])
		says   string
	}{
		"NoMistake": {func(*holdable.Holdable[string]) {}, ""},
		"HeldIsRunning": {func(h *holdable.Holdable[string]) { h.Pause.Held = "Active" },
			"descriptor of Pipeline: spec.state=Active would both hold the object and let it run"},
		"PauseFieldUnderStatus": {func(h *holdable.Holdable[string]) { h.Pause.Path = holdable.Field("status", "state") },
			"descriptor of Pipeline: an update cannot write status.state"},
		"ResumeThatResumesNothing": {func(h *holdable.Holdable[string]) { h.Pause.Absent, h.Pause.Resume = "Paused", holdable.RemoveField },
			"descriptor of Pipeline: a missing spec.state reads held, so removing it resumes nothing"},
		"PathThatTheSchemaLacks": {func(h *holdable.Holdable[string]) { h.Pause.Path = holdable.Field("spec", "status") },
			"descriptor of Pipeline: the schema of a Pipeline has no spec.status, so that an apiserver refuses the field, or drops it"},
		"PathThatTheControllerIgnores": {func(h *holdable.Holdable[string]) { h.Pause.Path = holdable.Field("spec", "mode") },
			"descriptor of Pipeline: spec.mode=Paused is to hold an object, but its controller keeps it running: pod job-"},
		"HeldThatDoesNotHold": {func(h *holdable.Holdable[string]) {
			h.Pause.Held, h.Pause.Running, h.Pause.Absent = "Active", "Active ", "Active "
		},
			"descriptor of Pipeline: spec.state=Active  is to let an object run, but its controller makes no pods of it"},
		"RunningThatDoesNotRun": {func(h *holdable.Holdable[string]) { h.Pause.Running = "Running" },
			"descriptor of Pipeline: spec.state=Running is to let an object run, but its controller makes no pods of it"},
		"AbsentThatIsNot": {func(h *holdable.Holdable[string]) { h.Pause.Absent = "Paused" },
			"descriptor of Pipeline: a missing spec.state is to read Paused, but its controller lets such an object run"},
		"SelectorOfNone": {func(h *holdable.Holdable[string]) { h.Pods = holdable.PodsNamed("example.com/job") },
			`descriptor of Pipeline: Pods selects by "example.com/job=job", but pods of the object have labels `},
		"SelectorOfOthersToo": {func(h *holdable.Holdable[string]) { h.Pods = selectBy("example.com/pipeline") },
			`descriptor of Pipeline: Pods selects by "example.com/pipeline", whatever the object: the pods of all of them`},
		"SelectorOfAll": {func(h *holdable.Holdable[string]) { h.Pods = selectBy("") },
			"descriptor of Pipeline: Pods selects by nothing, which takes every pod of the namespace for the object's"},
		"SelectorThatIsNone": {func(h *holdable.Holdable[string]) { h.Pods = selectBy("a=b=c") },
			`descriptor of Pipeline: Pods selects by "a=b=c", which is no selector: `},
		"SelectorOfWhatCannotBe": {func(h *holdable.Holdable[string]) {
			h.Pods = func(obj *unstructured.Unstructured) (string, error) { return "!a,a=" + obj.GetName(), nil }
		}, `descriptor of Pipeline: Pods selects by "!a,a=job", which no pod can match`},
		"SelectorThatFails": {func(h *holdable.Holdable[string]) {
			h.Pods = func(*unstructured.Unstructured) (string, error) { return "", errors.New("no such field") }
		}, "descriptor of Pipeline: Pods fails for a new object: no such field"},
		"EndedAtOnce": {func(h *holdable.Holdable[string]) {
			h.Ended = func(*unstructured.Unstructured) string { return "not running" }
		}, `descriptor of Pipeline: Ended says of a new object that it has ended: "not running"`},
		"DeactivatedAtOnce": {func(h *holdable.Holdable[string]) {
			h.Deactivated = func(*unstructured.Unstructured) string { return "limit" }
		}, `descriptor of Pipeline: Deactivated says of a new object that it is deactivated: "limit"`},
		"OwnedAtOnce": {func(h *holdable.Holdable[string]) {
			h.Owners = []holdable.Owner{func(*unstructured.Unstructured) string { return "everything is mine" }}
		}, `descriptor of Pipeline: Owners says of a new object that it has another owner of its pause field: "everything is mine"`},
		"EndedChangesTheObject": {func(h *holdable.Holdable[string]) {
			h.Ended = func(obj *unstructured.Unstructured) string { obj.SetLabels(nil); return "" }
		}, "descriptor of Pipeline: Ended changes the object that it is asked about"},
	} {
		t.Run(name, func(t *testing.T) {
			kind := pipelines()
			c.change(&kind)
			err := newSuite(kind, pipelineOptions()).mistake(t)
			switch {
			case c.says == "" && err != nil:
				t.Error(err)
			case c.says != "" && (err == nil || !strings.HasPrefix(strings.TrimPrefix(err.Error(), "invalid: "), c.says)):
				t.Errorf("got  %v\nwant %s", err, c.says)
			}
		})
	}
}

func selectBy(selector string) func(*unstructured.Unstructured) (string, error) {
	return func(*unstructured.Unstructured) (string, error) { return selector, nil }
}

// Two modes that write one field would undo each other's holds: rule H8.
func TestCheckNamesTheSecondOwner(t *testing.T) {
	for name, kind := range map[string]holdable.Holdable[bool]{"TrainJob": kinds.TrainJob(), "JobSet": kinds.JobSet(), "Job": kinds.Job()} {
		t.Run(name, func(t *testing.T) {
			if err := newSuite(kind, nil).mistake(t); err != nil {
				t.Error(err)
			}
			kind.Owners = nil
			want := "descriptor of " + name + ": spec.suspend of an object in a queue is Kueue's: Hold(1) was placed, and Kueue has resumed the object. Name it in Owners"
			if err := newSuite(kind, nil).mistake(t); err == nil || err.Error() != want {
				t.Errorf("got  %v\nwant %s", err, want)
			}
		})
	}
}
