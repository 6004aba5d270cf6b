//go:build e2e

package holdtest

import (
	"strings"
	"testing"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/rapidtest/realstack/cluster"
	"github.com/kubehold/kubehold/rapidtest/realstack/stack"
)

// A held is a job that is held in a mode.
type held struct {
	mode
	job *cluster.Object
}

// The pod of a lost node remains, whatever controllers say of it, until its node
// says otherwise.
func TestAPodOnALostNode(t *testing.T) {
	s := alone(t)
	s.makeQueue("1") // without a gate, so that Release has to look
	var both []held
	for _, m := range []mode{s.kueue(), s.plain()} {
		both = append(both, held{m, m.start(strings.ToLower(m.name))})
	}
	s.pause(stack.Kwok) // all nodes are lost
	for _, h := range both {
		h.hold(h.job, 1)
	}
	for _, h := range both {
		h.trainJobSays(h.job, "Suspended")
		pods, err := s.cluster.Pods(s.soon(), h.job)
		s.must(err)
		for _, pod := range pods {
			node := &cluster.Object{Object: map[string]any{}}
			node.SetName(nestedString(&pod, "spec", "nodeName"))
			_, err := s.cluster.WaitFor(s.soon(), gvr("", "v1", "nodes"), node, "the node is lost", func(node *cluster.Object) bool {
				status, _ := cluster.Condition(node, "Ready")
				return status == "Unknown"
			})
			s.must(err)
		}
		h.remains(pods)
		for _, pod := range pods { // what the pod garbage collector writes once the Node is deleted
			_, err := s.cluster.Patch(s.soon(), gvr("", "v1", "pods"), &pod, map[string]any{"status": map[string]any{"phase": "Failed"}}, "status")
			s.must(err)
		}
		h.remains(pods)
	}
	s.resume(stack.Kwok)
	for _, h := range both {
		h.drained(h.job)
		h.release(h.job, 1)
		h.runs(h.job)
		h.neverTwice(h.job)
	}
}

// remains fails unless the pods of a held job remain, and keep it from being released.
func (h held) remains(pods []cluster.Object) {
	h.Helper()
	in := h.wantState(h.job, holdable.Held)
	if len(pods) != 1 || in.Drained != holdable.NotDrained || in.Pod != pods[0].GetName() {
		h.Errorf("drained is %q for pod %q, want no for %v", in.Drained, in.Pod, names(pods))
	}
	h.refused(h.holder.Release, h.job, 1, meta.ErrPodsRemain)
}
