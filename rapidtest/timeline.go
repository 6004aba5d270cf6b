package rapidtest

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubehold/kubehold/retry"
)

// What follows puts requests, answers and versions into the words of a timeline.

// describeVersion tells which version of an object it is, and how that stands.
func (s *subject) describeVersion(obj *unstructured.Unstructured) string {
	if state := s.describeState(obj); state != "" {
		return fmt.Sprintf("rv=%s: %s", obj.GetResourceVersion(), state)
	}
	return "rv=" + obj.GetResourceVersion()
}

// describeState tells of an object what holds are about, "" if that is nothing.
func (s *subject) describeState(obj *unstructured.Unstructured) string {
	r := s.read(obj)
	switch obj.GetKind() {
	case s.heldKind:
	case "Pod":
		return describePod(obj)
	default:
		return s.describeNamed(obj, r)
	}
	words := []string{"no hold"}
	switch {
	case r.instance == unknownInstance:
		words[0] = "a hold of unknown instance"
	case r.instance > 0:
		words[0] = fmt.Sprintf("hold %d (found %s)", r.instance, r.found)
	}
	value, found, _ := unstructured.NestedFieldNoCopy(obj.Object, s.path...)
	if !found {
		value = "absent"
	}
	words = append(words, fmt.Sprintf("%s=%v", retry.PathString(s.path), value))
	if s.startGate {
		words = append(words, fmt.Sprintf("opened=%v", r.opened))
	}
	if r.executions > 0 {
		words = append(words, fmt.Sprintf("A=%d", r.executions))
	}
	for _, w := range []struct {
		is   bool
		word string
	}{{r.ended, "ended"}, {r.deleting, "being deleted"}, {r.inactive, "deactivated"}} {
		if w.is {
			words = append(words, w.word)
		}
	}
	return strings.Join(words, ", ")
}

func describePod(pod *unstructured.Unstructured) string {
	words := []string{"of execution " + pod.GetLabels()[ExecutionLabel]}
	if phase, _, _ := unstructured.NestedString(pod.Object, "status", "phase"); phase != "" {
		words = append(words, phase)
	}
	if pod.GetDeletionTimestamp() != nil {
		words = append(words, "being deleted")
	}
	if !podRemains(pod) {
		words = append(words, "its containers have ended")
	}
	return strings.Join(words, ", ")
}

// describeNamed tells of an object that is held through another one what Kueue does with it.
func (s *subject) describeNamed(obj *unstructured.Unstructured, r reading) string {
	var words []string
	if suspend, found, _ := unstructured.NestedBool(obj.Object, "spec", "suspend"); found {
		words = append(words, fmt.Sprintf("spec.suspend=%v", suspend))
	}
	if r.executions > 0 {
		words = append(words, fmt.Sprintf("A=%d", r.executions))
	}
	return strings.Join(words, ", ")
}

// describeRequest tells what a request asks for.
func (s *subject) describeRequest(req *Request) string {
	text := strings.TrimSpace(fmt.Sprintf("%s %s %s", req.Verb, req.GVR.Resource, req.Name))
	if req.Verb != VerbUpdate {
		return text
	}
	return fmt.Sprintf("%s, if still at rv=%s: %s", text, precondition(req), s.describeState(req.Object))
}

// describeAnswer tells what a client saw of its request: of a read, what it read.
func (s *subject) describeAnswer(req *Request, resp *Response, err error) string {
	switch {
	case err != nil:
		return err.Error()
	case resp.Object != nil && !req.Write():
		return s.describeVersion(resp.Object)
	case resp.List == nil:
		return resp.String()
	case len(resp.List.Items) == 0:
		return "none"
	case req.GVR != s.held:
		return fmt.Sprintf("%d %s", len(resp.List.Items), req.GVR.Resource)
	}
	var all []string
	for i := range resp.List.Items {
		all = append(all, s.describeVersion(&resp.List.Items[i]))
	}
	return strings.Join(all, "; ")
}
