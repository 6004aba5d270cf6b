//go:build e2e

package gatetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/rapidtest/realstack/cluster"
	"github.com/kubehold/kubehold/rapidtest/realstack/stack"
)

// rounds holds and releases every job so often: it waits until the job runs,
// holds it, and releases it as soon as Kueue has suspended it, while its pod
// still ends. In the end every job runs. It returns how long it took, from a
// release to the next pod that runs, on the average.
func (s *scene) rounds(jobs []*cluster.Object, n int64, counted bool) time.Duration {
	s.Helper()
	waited := make(chan time.Duration, len(jobs)*int(n))
	s.inParallel(jobs, func(job *cluster.Object) error {
		ctx, cancel := context.WithTimeout(s.Context(), time.Duration(n)*patience)
		defer cancel()
		pod, err := s.waitRuns(ctx, job, "")
		for round := int64(1); err == nil && round <= n; round++ {
			if a := s.executions(job); counted && a != round {
				s.Errorf("I6: %s runs execution %d under number %d", job.GetName(), round, a)
			}
			if err = s.hold(ctx, job, round); err != nil {
				return err
			}
			if err = s.release(ctx, job, round); err != nil {
				return err
			}
			released := time.Now()
			pod, err = s.waitRuns(ctx, job, pod)
			waited <- time.Since(released)
		}
		return err
	})
	close(waited)
	var sum time.Duration
	for w := range waited {
		sum += w
	}
	return sum / time.Duration(len(jobs)*int(n))
}

// Rules G1, I5, I6: 200 times a job is held and released while its pod takes three
// seconds to end, 20 jobs at a time, with two replicas of the gate of which one is
// killed every few seconds. No two executions are ever there at the same time, and
// each has its own number.
func TestNeverTwoExecutionsWithTheGate(t *testing.T) {
	s := newScene(t)
	shared.startGate(t).ready()
	stop := s.killNowAndThen(5 * time.Second)
	s.makeQueue(2*parallel, holdable.DefaultGateCheck)
	jobs := s.makeJobs(parallel)
	const each = 10
	began := time.Now()
	wait := s.rounds(jobs, each, true)
	kills := stop()
	s.neverTwice()
	for _, job := range jobs {
		if a := s.executions(job); a != each+1 {
			t.Errorf("I6: %s has run %d executions, and A is %d", job.GetName(), each+1, a)
		}
	}
	double, _ := s.watcher.doubles()
	t.Logf("with the gate: %d rounds in %v, %v from release to run, gates killed %d times, double executions: %d",
		parallel*each, time.Since(began).Round(time.Second), wait.Round(10*time.Millisecond), kills, len(double))
}

// The control, without its premise: with plain Kueue the same rounds have
// executions side by side.
func TestTwoExecutionsWithoutTheGate(t *testing.T) {
	s := newScene(t)
	s.makeQueue(2 * parallel)
	const each = 3
	began := time.Now()
	wait := s.rounds(s.makeJobs(parallel), each, false)
	time.Sleep(slowPods + time.Second)
	double, beside := s.watcher.doubles()
	t.Logf("without the gate: %d rounds in %v, %v from release to run, double executions: %d, side by side for %v in all",
		parallel*each, time.Since(began).Round(time.Second), wait.Round(10*time.Millisecond), len(double), beside.Round(time.Second))
	if len(double) == 0 {
		t.Error("no two executions ran side by side")
	}
}

// killNowAndThen has a second replica of the gate killed and started again, until
// it is stopped. It returns how often that was.
func (s *scene) killNowAndThen(every time.Duration) (stop func() int) {
	second := shared.startGate(s.T)
	ask, kills := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		for {
			select {
			case <-ask:
				kills <- n
				return
			case <-time.After(every):
				second.kill()
				second = shared.startGate(s.T)
				n++
			}
		}
	}()
	return func() int {
		close(ask)
		return <-kills
	}
}

// Rules G1, I5: a job is held the moment it is let in, when nobody has made its
// pods yet, and released as soon as it is suspended. The pod that is made all the
// same, however late, never meets that of the next execution.
//
// It is too soon for Kueue and Trainer: see counted. A job that they never stop is
// suspended, its pod runs on, and it is not drained. Whoever suspends its JobSet
// by hand lets it go on.
func TestHeldAsSoonAsItIsLetIn(t *testing.T) {
	s := newScene(t)
	shared.startGate(t).ready()
	s.makeQueue(2*parallel, holdable.DefaultGateCheck)
	const each = 4
	var rounds, stuck atomic.Int64
	s.inParallel(s.makeJobs(parallel), func(job *cluster.Object) error {
		var last int64
		for round := int64(1); round <= each; round++ {
			letIn := func() bool { return s.executions(job) > last && !suspended(s.watcher.current(job)) }
			if err := s.within(patience/6, job.GetName()+" is let in", letIn); err != nil {
				stuck.Add(1)
				if err := s.freeNeverStopped(job); err != nil {
					return err
				}
				if err := s.within(patience, job.GetName()+" is let in", letIn); err != nil {
					return err
				}
			}
			last = s.executions(job)
			if err := s.hold(s.soon(), job, round); err != nil {
				return err
			}
			if err := s.release(s.soon(), job, round); err != nil {
				return err
			}
			rounds.Add(1)
		}
		return nil
	})
	s.neverTwice()
	t.Logf("%d rounds; the gate has waited for a JobSet or a Job %d times; Kueue and Trainer did not stop a job %d times",
		rounds.Load(), s.watcher.waits("is not paused"), stuck.Load())
}

// freeNeverStopped suspends the JobSet of a job, which is one that is suspended
// and whose JobSet runs on, and of which Inspect does not say that it is drained.
func (s *scene) freeNeverStopped(job *cluster.Object) error {
	in, err := s.holder.Inspect(s.soon(), ref(job))
	if err != nil {
		return err
	}
	made, err := s.jobSets().Get(s.soon(), job.GetName(), metav1.GetOptions{})
	if err != nil {
		return err
	}
	if now := s.watcher.current(job); !suspended(now) || suspended(made) || in.Drained != holdable.NotDrained || in.Gate != "Pending" {
		return fmt.Errorf("%s is not let in: %+v:\n%s", job.GetName(), in, strings.Join(s.watcher.story(job.GetName()), "\n"))
	}
	return s.suspendJobSet(job)
}

// suspendJobSet does what a person does to a job that Trainer does not stop.
func (s *scene) suspendJobSet(job *cluster.Object) error {
	_, err := s.jobSets().Patch(s.soon(), job.GetName(), types.MergePatchType, []byte(`{"spec":{"suspend":true}}`), metav1.PatchOptions{})
	return err
}

func (s *scene) jobSets() dynamic.ResourceInterface {
	return s.Client().Resource(jobSets()).Namespace(s.name)
}

// Rule G1: a hold that is lifted before Kueue has seen it evicts nothing: the same
// pod goes on, and A stays.
func TestLiftedBeforeKueueHasSeenIt(t *testing.T) {
	s := newScene(t)
	shared.startGate(t).ready()
	s.makeQueue(10, holdable.DefaultGateCheck)
	job := s.makeJob("job", nil)
	pod := s.runs(job, "")
	s.without(stack.Kueue, func() error {
		if _, err := s.holder.Hold(s.soon(), ref(job), call(1)); err != nil {
			return err
		}
		return s.release(s.soon(), job, 1)
	})
	time.Sleep(5 * time.Second)
	if now := s.watcher.newest(job); now == nil || now.GetUID() != pod || now.GetDeletionTimestamp() != nil || s.executions(job) != 1 {
		t.Errorf("A is %d, and the pod %v", s.executions(job), now)
	}
}

// without does something while a component stands still, and its webhooks,
// without which nobody can write its objects, are out of the way.
func (s *scene) without(component stack.Component, do func() error) {
	s.Helper()
	var putBack []func() error
	for _, resource := range []string{"mutatingwebhookconfigurations", "validatingwebhookconfigurations"} {
		configs := s.Client().Resource(schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: resource})
		all, err := configs.List(s.soon(), metav1.ListOptions{})
		must(s.T, err)
		for _, config := range all.Items {
			if !strings.HasPrefix(config.GetName(), string(component)) {
				continue
			}
			must(s.T, configs.Delete(s.soon(), config.GetName(), metav1.DeleteOptions{}))
			putBack = append(putBack, func() error {
				config.SetResourceVersion("")
				config.SetUID("")
				_, err := configs.Create(s.soon(), &config, metav1.CreateOptions{})
				return err
			})
		}
	}
	must(s.T, shared.stack.Pause(component))
	time.Sleep(time.Second) // until kube-apiserver asks the webhooks no more
	failed := do()
	must(s.T, shared.stack.Resume(component))
	for _, put := range putBack {
		must(s.T, put())
	}
	must(s.T, failed)
}

// Rules G1, I5: a job is held and released while JobSet and Trainer stand still,
// JobSet before it has made a Job and Trainer before it has suspended the JobSet.
// The job is suspended then and has no pods, and pods are on their way. The gate
// stays shut, says why, and counts nothing until the JobSet is suspended.
//
// Kueue takes such a job for stopped, and then Trainer does not suspend the JobSet
// by itself: see counted. Whoever suspends it by hand lets it go on.
func TestTheGateWaitsForTheJobSet(t *testing.T) {
	s := newScene(t)
	first := shared.startGate(t)
	first.ready()
	s.makeQueue(10, holdable.DefaultGateCheck)
	first.kill() // the job is not to be let in yet
	job := s.makeJob("job", nil)
	jobSet := func(what string, is func(suspended bool) bool) error {
		return until(s.soon(), what, func() bool {
			obj, err := s.jobSets().Get(s.soon(), job.GetName(), metav1.GetOptions{})
			return err == nil && is(suspended(obj))
		})
	}
	must(t, jobSet("the job has a JobSet", func(bool) bool { return true }))
	shut := func() error {
		in, err := s.holder.Inspect(s.soon(), ref(job))
		if err == nil && (in.Gate != "Pending" || in.GateWhy != "JobSet job is not paused" || in.Executions != 1) {
			err = fmt.Errorf("while the JobSet is not suspended: %+v", in)
		}
		return err
	}
	s.without(stack.JobSet, func() error {
		shared.startGate(t).ready()
		if err := jobSet("the JobSet is resumed", func(suspended bool) bool { return !suspended }); err != nil {
			return err
		}
		s.without(stack.Trainer, func() error {
			if err := s.hold(s.soon(), job, 1); err != nil {
				return err
			}
			if err := s.release(s.soon(), job, 1); err != nil {
				return err
			}
			if err := until(s.soon(), "the gate says why it is shut", func() bool { return shut() == nil }); err != nil {
				return errors.Join(err, shut())
			}
			time.Sleep(5 * time.Second)
			return shut()
		})
		return nil
	})
	must(t, s.suspendJobSet(job))
	if s.runs(job, ""); s.executions(job) != 2 {
		t.Errorf("A is %d in the second execution", s.executions(job))
	}
	s.neverTwice()
}
