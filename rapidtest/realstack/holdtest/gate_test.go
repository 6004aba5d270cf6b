//go:build e2e

package holdtest

import (
	"context"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/kinds"
	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/rapidtest/realstack/cluster"
	"github.com/kubehold/kubehold/retry"
)

const (
	gateWorkers  = 4
	gatePatience = 5 * time.Second
	gatePause    = 100 * time.Millisecond
)

// makeGatedQueue makes the queue of the scene with a readmission gate, which asks
// the apiserver of cfg.
func (s *scene) makeGatedQueue(cpu string, cfg *rest.Config) {
	s.Helper()
	s.gate = s.namespace
	s.must(s.cluster.CreateAdmissionCheck(s.soon(), s.gate, holdable.GateController))
	s.makeQueue(cpu, s.gate)
	engine, err := retry.New(cfg, retry.Options{RequestTimeout: requestTimeout})
	s.must(err)
	gate, err := holdable.NewGate(kinds.OnKueue(kinds.TrainJob()), engine, holdable.Options{Gate: s.gate})
	s.must(err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.keep(ctx, gate)
	}()
	s.Cleanup(func() {
		stop()
		<-ended
		checks := s.cluster.Client().Resource(gvr("kueue.x-k8s.io", "v1beta2", "admissionchecks"))
		if err := checks.Delete(context.Background(), s.gate, metav1.DeleteOptions{}); err != nil {
			s.Error(err)
		}
	})
}

// keep asks the gate again and again about every Workload that waits for it.
func (s *scene) keep(ctx context.Context, gate *holdable.Gate) {
	workloads := s.cluster.Client().Resource(cluster.Workloads()).Namespace(s.namespace)
	for ctx.Err() == nil {
		list, err := workloads.List(ctx, metav1.ListOptions{ResourceVersion: "0"}) // from the apiserver's cache
		if err == nil {
			err = inParallel(s.waiting(list.Items), gateWorkers, func(job meta.Ref) error {
				_, err := gate.Answer(ctx, job, time.Now().Add(gatePatience))
				return err
			})
		}
		if err != nil && errors.Is(err, meta.ErrInvalid) {
			s.Errorf("the gate: %v", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(gatePause):
		}
	}
}

// waiting are the jobs whose Workloads have quota and wait for the gate.
func (s *scene) waiting(workloads []cluster.Object) []meta.Ref {
	var jobs []meta.Ref
	for _, w := range workloads {
		state, _ := cluster.CheckState(&w, s.gate)
		owner := metav1.GetControllerOf(&w)
		if state == "Pending" && owner != nil && says("QuotaReserved", "")(&w) {
			jobs = append(jobs, meta.Ref{Namespace: w.GetNamespace(), Name: owner.Name})
		}
	}
	return jobs
}
