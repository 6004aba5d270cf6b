package rapidtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/retry"
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
	// checkPods: the calls wait for pods themselves, and nobody but them evicts the job.
	checkPods bool
	// behind is by how many versions the view that the kind's controller has of its objects is
	// behind, 0 for not at all.
	behind int
}

// podGrace is how long pods take to end.
const podGrace = 10 * time.Second

// castOf returns who makes the cast of a kind, nil if nobody knows who is at work there.
func (s *suite) castOf(how staging) func(*Server) (cast, error) {
	run := s.controllers
	if run == nil {
		run = knownController(s.subject.named, how)
	}
	if run == nil || s.subject.pods == nil || s.subject.indirect() && s.subject.held != Workloads().GVR {
		return nil
	}
	return func(server *Server) (cast, error) {
		c := cast{kubelet: &Kubelet{Client: server.Dynamic("kubelet")}}
		c.actors = append(run(server), c.kubelet)
		if !s.subject.indirect() {
			return c, nil
		}
		c.kueue = &Kueue{Client: server.Dynamic("kueue"), Jobs: s.subject.named}
		c.actors = append(c.actors, c.kueue)
		if how.gateless {
			return c, nil
		}
		c.kueue.AdmissionChecks = []string{holdable.DefaultGateCheck}
		keeper, err := s.gatekeeper(server)
		c.actors = append(c.actors, keeper)
		return c, err
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
			client := server.Dynamic("controller", server.behind(jobs, how.behind))
			return []Actor{&Runner{Client: client, Resource: jobs, Runs: runs, Labels: labels}}
		}
	}
	return nil
}

// behind answers lists of a resource as they would have been answered a number of versions ago, as
// a cache does that has not heard of the latest.
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

// prepare puts the named object into Kueue's hands, if there is a Kueue: in a queue, and suspended
// until it is admitted.
func (st *stage) prepare() error {
	if st.cast.kueue == nil {
		return nil
	}
	return st.subject.change(st.others, st.subject.named, worldName, func(obj *unstructured.Unstructured) error {
		obj.SetLabels(map[string]string{QueueNameLabel: "queue"})
		return unstructured.SetNestedField(obj.Object, true, "spec", "suspend")
	})
}

// A gatekeeper is the readmission gate at work on the one job of a world.
type gatekeeper struct {
	gate   *holdable.Gate
	server *Server
	job    meta.Ref
}

// Step implements [Actor].
func (g *gatekeeper) Step(ctx context.Context) (bool, error) {
	before := g.server.ResourceVersion()
	err := g.answer(ctx, time.Minute)
	if errors.Is(err, meta.ErrRejected) { // there is no job, or no Workload of it yet
		err = nil
	}
	return g.server.ResourceVersion() != before, err
}

func (g *gatekeeper) answer(ctx context.Context, within time.Duration) error {
	_, err := g.gate.Answer(ctx, g.job, time.Now().Add(within))
	return err
}

// gatekeeper makes the gate of a kind that is held by its Workload.
func (s *suite) gatekeeper(server *Server, mws ...Middleware) (*gatekeeper, error) {
	kind, ok := s.kind.(holdable.Holdable[bool])
	if !ok {
		return nil, fmt.Errorf("a Workload whose pause field is no bool")
	}
	engine, err := retry.NewForClient(server.Dynamic("the gate", mws...), engineOptions())
	if err != nil {
		return nil, err
	}
	gate, err := holdable.NewGate(kind, engine, holdable.Options{})
	return &gatekeeper{gate: gate, server: server, job: meta.Ref{Namespace: s.subject.namespace(), Name: worldName}}, err
}

// podRemains says whether processes of a pod may still run: it was bound to a node, and nobody who
// knows has said that they have ended.
func podRemains(pod *unstructured.Unstructured) bool {
	node, _, _ := unstructured.NestedString(pod.Object, "spec", "nodeName")
	return node != "" && !allTerminated(pod)
}
