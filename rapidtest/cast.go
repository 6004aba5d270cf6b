package rapidtest

import (
	"context"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubehold/kubehold/meta"
)

// A cast is who else is at work beside the calls.
type cast struct {
	actors  []Actor
	kubelet *Kubelet
	kueue   *Kueue
}

// A staging says who is in the cast of the kinds that are known here.
type staging struct {
	// gateless: Kueue mode without the readmission gate.
	gateless bool
	// behind is by how many versions the view that the kind's controller has of its objects is behind, 0 for not at all.
	behind int
}

// gateCheck is the name of the admission check that the gate answers.
const gateCheck = "gate"

// podGrace is how long pods take to end.
const podGrace = 10 * time.Second

// castOf returns who makes the cast of a kind, nil if nobody knows who is at work there.
func (s *suite) castOf(how staging) func(*Server) cast {
	run := s.controllers
	if run == nil {
		run = knownController(s.subject.named, how)
	}
	if run == nil || s.subject.pods == nil || s.subject.indirect() && s.subject.held != Workloads().GVR {
		return nil
	}
	return func(server *Server) cast {
		c := cast{kubelet: &Kubelet{Client: server.Dynamic("kubelet")}}
		c.actors = append(run(server), c.kubelet)
		if !s.subject.indirect() {
			return c
		}
		c.kueue = &Kueue{Client: server.Dynamic("kueue"), Jobs: s.subject.named}
		c.actors = append(c.actors, c.kueue)
		if !how.gateless {
			c.kueue.AdmissionChecks = []string{gateCheck}
			c.actors = append(c.actors, &gate{subject: s.subject, hand: hand{server.Dynamic("the gate"), "gate"}})
		}
		return c
	}
}

// knownController makes the controller of a kind that package kinds knows.
func knownController(jobs schema.GroupVersionResource, how staging) func(*Server) []Actor {
	labels := map[schema.GroupVersionResource]func(*unstructured.Unstructured) map[string]string{
		JobSets().GVR: func(obj *unstructured.Unstructured) map[string]string {
			return map[string]string{JobSetNameLabel: obj.GetName()}
		},
		Jobs().GVR: func(obj *unstructured.Unstructured) map[string]string {
			return map[string]string{"batch.kubernetes.io/controller-uid": string(obj.GetUID())}
		},
	}[jobs]
	switch {
	case jobs == TrainJobs().GVR:
		return func(server *Server) []Actor {
			client := server.Dynamic("trainer", server.behind(jobs, how.behind))
			return []Actor{&Trainer{Client: client, Nodes: []string{"n1", "n2"}, Replicas: 2, Grace: podGrace}}
		}
	case labels != nil:
		return func(server *Server) []Actor {
			runs := func(obj *unstructured.Unstructured) bool {
				return !boolAt(obj, false, "spec", "suspend") && !hasEnded(obj)
			}
			return []Actor{&Runner{Client: server.Dynamic("controller", server.behind(jobs, how.behind)), Resource: jobs, Runs: runs, Labels: labels}}
		}
	}
	return nil
}

// behind answers lists of a resource as they would have been answered a number of versions ago, as a cache does that has not heard of the latest.
func (s *Server) behind(gvr schema.GroupVersionResource, versions int) Middleware {
	return func(next RoundTrip) RoundTrip {
		return func(ctx context.Context, req *Request) (*Response, error) {
			resp, err := next(ctx, req)
			if versions == 0 || err != nil || req.Verb != VerbList || req.GVR != gvr || resp.List == nil {
				return resp, err
			}
			old := *resp
			old.List = resp.List.DeepCopy()
			for i := range old.List.Items {
				item := &old.List.Items[i]
				if history := s.HistoryOf(gvr, item.GetNamespace(), item.GetName()); len(history) > 0 {
					*item = *history[max(len(history)-1-versions, 0)].Object.DeepCopy()
				}
			}
			return &old, nil
		}
	}
}

// prepare puts the named object into Kueue's hands, if there is a Kueue: in a queue, and suspended until it is admitted.
func (st *stage) prepare() error {
	if st.cast.kueue == nil {
		return nil
	}
	return st.subject.change(st.others, st.subject.named, worldName, func(obj *unstructured.Unstructured) error {
		obj.SetLabels(map[string]string{QueueNameLabel: "queue"})
		return unstructured.SetNestedField(obj.Object, true, "spec", "suspend")
	})
}

// gate is the readmission gate of rule G, for one kind.
type gate struct {
	subject *subject
	hand    hand
}

// Step implements [Actor].
func (g *gate) Step(ctx context.Context) (bool, error) {
	workloads, err := g.hand.list(ctx, Workloads().GVR, "")
	if err != nil {
		return false, err
	}
	for i := range workloads {
		if did, err := g.answer(ctx, &workloads[i]); did || err != nil {
			return did, err
		}
	}
	return false, nil
}

func (g *gate) answer(ctx context.Context, w *unstructured.Unstructured) (bool, error) {
	var check map[string]any
	for _, c := range checksOf(w) {
		if c["name"] == gateCheck {
			check = c
		}
	}
	r := g.subject.read(w)
	if check == nil || check["state"] != "Pending" || !conditionIs(w, "QuotaReserved", "True") || r.keys > 0 || r.paused {
		return false, nil
	}
	job, err := g.hand.in(g.subject.named, w).Get(ctx, worldName, metav1.GetOptions{})
	if err != nil {
		return false, overtaken(err)
	}
	pods, err := g.hand.list(ctx, Pods().GVR, w.GetNamespace())
	if err != nil {
		return false, err
	}
	for i := range pods {
		if ownedBy(&pods[i], job) && podRemains(&pods[i]) {
			return false, nil
		}
	}
	var k meta.Keys
	annotations := job.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	// A job is started and stopped by changes of its spec: while its generation is the same, A counts the same execution.
	if admission := strconv.FormatInt(job.GetGeneration(), 10); annotations[k.Admission()] != admission {
		annotations[k.Admission()] = admission
		annotations[k.Executions()] = k.ExecutionsValue(job.GetUID(), g.subject.read(job).executions+1)
		job.SetAnnotations(annotations)
		return g.hand.update(ctx, g.subject.named, job)
	}
	check["state"] = "Ready"
	return g.hand.updateStatus(ctx, Workloads().GVR, w)
}

// podRemains says whether processes of a pod may still run: it was bound to a node, and nobody who knows has said that they have ended.
func podRemains(pod *unstructured.Unstructured) bool {
	node, _, _ := unstructured.NestedString(pod.Object, "spec", "nodeName")
	return node != "" && !allTerminated(pod)
}
