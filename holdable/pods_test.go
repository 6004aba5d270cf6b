package holdable

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"pgregory.net/rapid"

	"github.com/kubehold/kubehold/meta"
)

// pod returns a pod of machine m on a node, with one container of each sort.
func pod(name, phase string) *unstructured.Unstructured {
	named := func(name string) []any { return []any{map[string]any{"name": name}} }
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": name, "namespace": "ns", "labels": map[string]any{"machine": "m"}},
		"spec": map[string]any{
			"nodeName": "node-3", "containers": named("main"), "initContainers": named("init"), "ephemeralContainers": named("debug"),
		},
		"status": map[string]any{"phase": phase},
	}}
}

// status sets the status of a container, one of the lists of a pod's status.
func status(pod *unstructured.Unstructured, list string, statuses ...any) *unstructured.Unstructured {
	return with(pod, statuses, "status", list)
}

func state(container, state string) map[string]any {
	return map[string]any{"name": container, "state": map[string]any{state: map[string]any{"reason": "x"}}}
}

// ended says of every container of a pod that it has terminated.
func ended(pod *unstructured.Unstructured) *unstructured.Unstructured {
	status(pod, "containerStatuses", state("main", "terminated"))
	status(pod, "initContainerStatuses", state("init", "terminated"))
	return status(pod, "ephemeralContainerStatuses", state("debug", "terminated"))
}

func labelled(obj *unstructured.Unstructured, key, value string) *unstructured.Unstructured {
	obj.SetLabels(map[string]string{key: value})
	return obj
}

func without(obj *unstructured.Unstructured, path ...string) *unstructured.Unstructured {
	unstructured.RemoveNestedField(obj.Object, path...)
	return obj
}

// with sets a field whose parents are there.
func with(obj *unstructured.Unstructured, value any, path ...string) *unstructured.Unstructured {
	m := obj.Object
	for _, step := range path[:len(path)-1] {
		m = m[step].(map[string]any)
	}
	m[path[len(path)-1]] = value
	return obj
}

// Rule R5: what proves that a pod's processes are gone, and what does not.
func TestPodRemains(t *testing.T) {
	cases := map[string]struct {
		pod  *unstructured.Unstructured
		want bool
	}{
		"NeverBound":              {without(pod("p", "Pending"), "spec", "nodeName"), false},
		"BoundToNothing":          {with(pod("p", "Pending"), "", "spec", "nodeName"), false},
		"Pending":                 {pod("p", "Pending"), true},
		"Running":                 {pod("p", "Running"), true},
		"RunningAllEnded":         {ended(pod("p", "Running")), true},
		"TerminatingAllEnded":     {with(ended(pod("p", "Running")), "2026-01-02T03:04:05Z", "metadata", "deletionTimestamp"), true},
		"UnknownPhase":            {ended(pod("p", "Unknown")), true},
		"NoPhase":                 {ended(pod("p", "")), true},
		"NoStatus":                {without(pod("p", ""), "status"), true},
		"Succeeded":               {ended(pod("p", "Succeeded")), false},
		"Failed":                  {ended(pod("p", "Failed")), false},
		"FailedNoStatuses":        {pod("p", "Failed"), true}, // a lost node's, as a controller writes it
		"SucceededNoStatuses":     {pod("p", "Succeeded"), true},
		"MainStillRuns":           {status(ended(pod("p", "Failed")), "containerStatuses", state("main", "running")), true},
		"MainWaits":               {status(ended(pod("p", "Failed")), "containerStatuses", state("main", "waiting")), true},
		"MainHasNoState":          {status(ended(pod("p", "Failed")), "containerStatuses", map[string]any{"name": "main"}), true},
		"MainStateIsText":         {status(ended(pod("p", "Failed")), "containerStatuses", map[string]any{"name": "main", "state": "terminated"}), true},
		"MainTerminatedIsNull":    {status(ended(pod("p", "Failed")), "containerStatuses", map[string]any{"name": "main", "state": map[string]any{"terminated": nil}}), true},
		"MainEndedBefore":         {status(ended(pod("p", "Failed")), "containerStatuses", map[string]any{"name": "main", "state": map[string]any{"running": map[string]any{}}, "lastState": map[string]any{"terminated": map[string]any{}}}), true},
		"OtherContainerEnded":     {status(ended(pod("p", "Failed")), "containerStatuses", state("other", "terminated")), true},
		"InitStillRuns":           {status(ended(pod("p", "Failed")), "initContainerStatuses", state("init", "running")), true},
		"InitUnknown":             {without(ended(pod("p", "Failed")), "status", "initContainerStatuses"), true},
		"DebugStillRuns":          {status(ended(pod("p", "Failed")), "ephemeralContainerStatuses", state("debug", "running")), true},
		"DebugUnknown":            {without(ended(pod("p", "Failed")), "status", "ephemeralContainerStatuses"), true},
		"StatusInTheWrongList":    {status(status(ended(pod("p", "Failed")), "initContainerStatuses"), "containerStatuses", state("main", "terminated"), state("init", "terminated")), true},
		"OneStatusOfTwo":          {status(ended(pod("p", "Failed")), "containerStatuses", state("main", "terminated"), state("main", "running")), true},
		"OneStatusOfTwoReversed":  {status(ended(pod("p", "Failed")), "containerStatuses", state("main", "running"), state("main", "terminated")), true},
		"StatusesAreText":         {with(ended(pod("p", "Failed")), "x", "status", "containerStatuses"), true},
		"NameIsAMap":              {status(ended(pod("p", "Failed")), "containerStatuses", map[string]any{"name": map[string]any{}, "state": map[string]any{"terminated": map[string]any{}}}), true},
		"NoNames":                 {with(status(ended(pod("p", "Failed")), "containerStatuses", map[string]any{"state": map[string]any{"terminated": map[string]any{}}}), []any{map[string]any{}}, "spec", "containers"), true},
		"NoInitNoEphemeral":       {status(without(without(pod("p", "Succeeded"), "spec", "initContainers"), "spec", "ephemeralContainers"), "containerStatuses", state("main", "terminated")), false},
		"StatusOfNoContainerRuns": {status(ended(pod("p", "Failed")), "containerStatuses", state("main", "terminated"), state("gone", "running")), false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			before := tc.pod.DeepCopy()
			if got := PodRemains(tc.pod); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
			if !cmp.Equal(before, tc.pod) {
				t.Error("the pod was changed")
			}
		})
	}
}

// Rule R5, for any number of containers in any state.
func TestPodRemainsUnlessAllHaveTerminated(t *testing.T) {
	check(t, func(t *rapid.T) {
		phase := rapid.SampledFrom([]string{"Succeeded", "Failed", "Failed", "Running", "Pending", "Unknown", ""}).Draw(t, "phase")
		p := pod("p", phase)
		gone := phase == "Succeeded" || phase == "Failed"
		for _, list := range []string{"container", "initContainer", "ephemeralContainer"} {
			var containers, statuses []any
			for i := range rapid.IntRange(0, 3).Draw(t, list+"s") {
				name := fmt.Sprintf("%s-%d", list, i)
				containers = append(containers, map[string]any{"name": name})
				s := rapid.SampledFrom([]string{"terminated", "terminated", "terminated", "terminated", "running", "waiting", ""}).Draw(t, name)
				if s != "" {
					statuses = append(statuses, state(name, s))
				}
				gone = gone && s == "terminated"
			}
			slices.Reverse(statuses)
			with(p, containers, "spec", list+"s")
			status(p, list+"Statuses", statuses...)
		}
		if seldom(t, "never bound") {
			without(p, "spec", "nodeName")
			gone = true
		}
		if got := PodRemains(p); got == gone {
			t.Fatalf("remains: %t, gone: %t", got, gone)
		}
	})
}

// Rule R4: who waits for the pods of the earlier execution, and what he is told.
func TestPodsGone(t *testing.T) {
	on := func(change func(*Holdable[bool])) Holdable[bool] {
		kind := machine()
		change(&kind)
		return kind
	}
	elsewhere := on(func(k *Holdable[bool]) { k.GatedElsewhere = true })
	blind := on(func(k *Holdable[bool]) { k.Pods = nil })
	cases := map[string]struct {
		kind    Holdable[bool]
		optIn   bool
		resumes bool
		asks    bool
	}{
		"Resumes":            {machine(), false, true, true},
		"ResumesNothing":     {machine(), false, false, false},
		"GatedElsewhere":     {elsewhere, false, true, false},
		"GatedElsewhereToo":  {elsewhere, true, true, true},
		"ResumesNothingToo":  {elsewhere, true, false, false},
		"PodsCannotBeFound":  {blind, false, true, false},
		"PodsNotFoundEither": {blind, true, true, false},
	}
	named := object(map[string]any{"name": "m", "namespace": "ns", "uid": "u"}, nil)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := &Client[bool]{kind: tc.kind, checkPods: tc.optIn}
			gone := c.podsGone(verdict{resumes: tc.resumes}, &finder[bool]{kind: &c.kind, namedRead: named})
			if (gone != nil) != tc.asks {
				t.Fatalf("asks: %t, want %t", gone != nil, tc.asks)
			}
			if gone == nil {
				return
			}
			err := gone(t.Context(), objects{pods(): {ended(pod("a", "Failed")), pod("b", "Running")}})
			var e *meta.Error
			if !errors.As(err, &e) || !errors.Is(err, meta.ErrPodsRemain) || !slices.Equal(e.Pods, []string{"b"}) {
				t.Errorf("got %v", err)
			}
			if err := gone(t.Context(), objects{pods(): {ended(pod("a", "Failed"))}}); err != nil {
				t.Errorf("none remains: got %v", err)
			}
			if err := gone(t.Context(), broken{}); !errors.Is(err, errBroken) {
				t.Errorf("the list failed: got %v", err)
			}
		})
	}
}

// counting counts the pods that were looked at, and notes what was asked for.
type counting struct {
	objects
	visited  int
	resource schema.GroupVersionResource
	selector string
}

func (c *counting) Each(ctx context.Context, resource schema.GroupVersionResource, namespace, selector string, visit func(*unstructured.Unstructured) bool) error {
	c.resource, c.selector = resource, selector
	return c.objects.Each(ctx, resource, namespace, selector, func(obj *unstructured.Unstructured) bool {
		c.visited++
		return visit(obj)
	})
}

// Rule R4: the list stops at the first pod that remains.
func TestRemainingStopsAtTheFirst(t *testing.T) {
	named := object(map[string]any{"name": "m", "namespace": "ns", "uid": "u"}, nil)
	r := &counting{objects: objects{pods(): {ended(pod("a", "Failed")), pod("b", "Running"), pod("c", "Running")}}}
	got, err := remaining(t.Context(), r, PodsNamed("machine"), named)
	if err != nil || got != "b" || r.visited != 2 {
		t.Errorf("got %q, %v after %d pods", got, err, r.visited)
	}
	if r.resource != pods() || r.selector != "machine=m" {
		t.Errorf("asked for %v, %s", r.resource, r.selector)
	}
}

// A selector that cannot be made, or that takes in other objects' pods, proves
// nothing.
func TestRemainingNeedsASelector(t *testing.T) {
	named := object(map[string]any{"name": "m", "namespace": "ns", "uid": "u"}, nil)
	for name, pods := range map[string]func(*unstructured.Unstructured) (string, error){
		"Empty": func(*unstructured.Unstructured) (string, error) { return "", nil },
		"Error": func(*unstructured.Unstructured) (string, error) { return "a=b", errBroken },
	} {
		t.Run(name, func(t *testing.T) {
			r := &counting{}
			if _, err := remaining(t.Context(), r, pods, named); !errors.Is(err, meta.ErrRejected) || r.selector != "" {
				t.Errorf("got %v, and asked for %q", err, r.selector)
			}
		})
	}
}
