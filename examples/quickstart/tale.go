package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/meta"
)

// A tale is what happens to one job, with what is remembered from one step to the
// next.
type tale struct {
	*world
	name      string
	red, blue supervisor
	late      *late

	earlier []types.UID // the pods of the execution before
	current []types.UID // the pods that run now
	lost    string      // the pod on the lost node
}

// newTale returns a tale with two supervisors, one of whom is on a slow line as
// well.
func newTale(w *world, name string, kind holdable.Holdable[bool]) (*tale, error) {
	t := &tale{world: w, name: name}
	line := newSlowLine()
	var slow supervisor
	var errs [3]error
	t.red, errs[0] = newSupervisor(w, "red", kind, w.config)
	t.blue, errs[1] = newSupervisor(w, "blue", kind, w.config)
	slow, errs[2] = newSupervisor(w, "red", kind, line.under(w.config))
	slow.patience *= 10 // it has to be still under way some steps later
	t.late = &late{line: line, made: slow.hold(name, 1, nodeLost)}
	return t, errors.Join(errs[:]...)
}

const (
	nodeLost = "its node is lost"
	twoPods  = "two pods run, and no other"
)

func (t *tale) inspect(ctx context.Context) (holdable.Inspection, error) {
	return t.blue.holder.Inspect(ctx, meta.Ref{Namespace: t.namespace, Name: t.job(t.name)})
}

// stands is the check that the job is in this state, with this instance in force;
// 0 for none.
func (t *tale) stands(state holdable.State, instance int64) check {
	return func(ctx context.Context) error {
		in, err := t.inspect(ctx)
		if err == nil && !standsAs(in, state, instance) {
			err = unlike(standing(state, instance), stand(in))
		}
		return err
	}
}

func standsAs(in holdable.Inspection, state holdable.State, instance int64) bool {
	return in.State == state && lo.FromPtr(in.Hold).Instance == instance
}

// standing is a state in words, as the story has it.
func standing(state holdable.State, instance int64) string {
	if instance == 0 {
		return string(state) + "; no hold"
	}
	return fmt.Sprintf("%s: instance %d", state, instance)
}

// stand is an inspection in words.
func stand(in holdable.Inspection) string {
	text := string(in.State)
	if in.Why != "" {
		text += ": " + in.Why
	}
	if in.Hold == nil {
		text += "; no hold"
	}
	return text
}

// hasRun is the check of A: how many executions the job has been given.
func (t *tale) hasRun(executions int64) check {
	return func(ctx context.Context) error {
		in, err := t.inspect(ctx)
		if err == nil && in.Executions != executions {
			err = unlike(fmt.Sprintf("execution %d", executions), fmt.Sprintf("execution %d", in.Executions))
		}
		return err
	}
}

// comesToStand is the act of waiting until the job is in this state.
func (t *tale) comesToStand(state holdable.State, instance int64, more ...func(holdable.Inspection) bool) act {
	return func(ctx context.Context) (string, error) {
		var in holdable.Inspection
		err := t.until(ctx, standing(state, instance), func(ctx context.Context) (_ string, ok bool, err error) {
			in, err = t.inspect(ctx)
			ok = standsAs(in, state, instance) && lo.EveryBy(more, func(m func(holdable.Inspection) bool) bool { return m(in) })
			return stand(in), ok, err
		})
		return stand(in), err
	}
}

// startsNothing is the check that the job gets no pods, however long those who
// make pods may take to do so. Some that are ending may be there.
func (t *tale) startsNothing(ctx context.Context) error {
	for began := time.Now(); ; {
		if err := t.cast.act(ctx); err != nil {
			return err
		}
		pods, err := t.pods(ctx, t.name)
		switch {
		case err != nil:
			return err
		case lo.SomeBy(pods, func(p unstructured.Unstructured) bool { return p.GetDeletionTimestamp() == nil }):
			return unlike("no pod", places(pods))
		case time.Since(began) >= t.watch:
			return nil
		}
		if !pause(ctx, t.pace) {
			return ctx.Err()
		}
	}
}

// startsPods is the act of waiting for the pods of a new execution. There must be
// none of the one before.
func (t *tale) startsPods(ctx context.Context) (string, error) {
	t.earlier = t.current
	var pods []unstructured.Unstructured
	err := t.until(ctx, twoPods, func(ctx context.Context) (_ string, ok bool, err error) {
		pods, err = t.pods(ctx, t.name)
		t.current = lo.Map(pods, func(p unstructured.Unstructured, _ int) types.UID { return p.GetUID() })
		return places(pods), len(pods) == 2 && lo.EveryBy(pods, runs), err
	})
	if err != nil {
		return "", err
	}
	if lo.Some(t.current, t.earlier) {
		return "", unlike("new pods", "pods of the execution before: "+places(pods))
	}
	nodes := lo.Map(pods, func(p unstructured.Unstructured, _ int) string { return nodeOf(p) })
	slices.Sort(nodes)
	return fmt.Sprintf("2 %spods run, on %s", lo.Ternary(len(t.earlier) > 0, "new ", ""), strings.Join(lo.Uniq(nodes), " and ")), nil
}

// stopsPods is the act of waiting until every pod has ended but the one of which
// nobody hears.
func (t *tale) stopsPods(ctx context.Context) (string, error) {
	if err := t.reportLost(ctx, t.lost); err != nil {
		return "", err
	}
	err := t.until(ctx, "one pod is left, "+t.lost, func(ctx context.Context) (string, bool, error) {
		pods, err := t.pods(ctx, t.name)
		ok := len(pods) == 1 && pods[0].GetName() == t.lost && textAt(pods[0], "status", "phase") == "Failed"
		return places(pods), ok, err
	})
	if err != nil {
		return "", err
	}
	in, err := t.inspect(ctx)
	if err != nil {
		return "", err
	}
	if in.Drained != holdable.NotDrained || in.Pod != t.lost {
		return "", unlike("not drained, as "+t.lost+" remains", fmt.Sprintf("drained: %s %s", in.Drained, in.Pod))
	}
	return t.lost + " is left\nit says Failed, but a controller wrote that\ndrained: no", nil
}

// losesNode is the act of losing a node that has a pod of the job.
func (t *tale) losesNode(ctx context.Context) (string, error) {
	var err error
	t.lost, err = t.loseNode(ctx, t.name)
	answer := t.lostNode() + ", and with it " + t.lost
	if t.cast.kubelet == nil {
		answer += "\nboth made up: no node of this cluster is touched"
	}
	return answer, err
}

// powersOff is the act of making sure that nothing runs on the lost node.
func (t *tale) powersOff(ctx context.Context) (string, error) {
	if err := t.powerOff(ctx, t.lost); err != nil {
		return "", err
	}
	err := t.until(ctx, "drained", func(ctx context.Context) (string, bool, error) {
		in, err := t.inspect(ctx)
		return "drained: " + string(in.Drained), in.Drained == holdable.IsDrained, err
	})
	return t.lost + " is gone\ndrained: yes", err
}

// A lostNode is what differs between the modes in the scene of a lost node.
type lostNode struct {
	begins     []step // until the job's pods are to start
	stopped    []step // what happens when the first hold lies
	restarted  []step // what happens when the last one is lifted
	executions int64  // A, when it runs again; 0 where the mode does not count
	gate       string // what there is to say about who waits for the pods
}

// loses tells how a job survives the loss of its node.
func (t *tale) loses(mode lostNode) scene {
	heldBy2 := t.stands(holdable.Held, 2)
	steps := slices.Concat(mode.begins, []step{
		{"Trainer", "starts its pods", t.startsPods},
		{"a node", "is lost", t.losesNode},
		{"red", "Hold(1), on a slow line", t.late.leaves},
		{"red", "Hold(1), on another line", t.red.hold(t.name, 1, nodeLost).comesTo(holdable.Placed, max(mode.executions-1, 0)).
			and(t.stands(holdable.Held, 1))},
	}, mode.stopped, []step{
		{"Trainer", "deletes its pods", t.stopsPods},
		{"blue", "takes over: Hold(2)", t.blue.hold(t.name, 2, "taken over from red").comesTo(holdable.Placed, max(mode.executions-1, 0)).and(heldBy2)},
		{"red", "Release(1), too late", t.red.release(t.name, 1).isRefused(meta.ErrStaleHold, overtakenBy(2)).and(heldBy2)},
		{"red", "the stuck Hold(1) arrives", t.late.arrives(2).and(heldBy2)},
		{"blue", "Release(2), too early", t.blue.release(t.name, 2).isRefused(meta.ErrPodsRemain).and(heldBy2).saying(mode.gate)},
		{"ana", "powers that node off", act(t.powersOff).and(heldBy2)},
		{"blue", "Release(2)", t.blue.release(t.name, 2).comesTo(holdable.Lifted, mode.executions)},
	}, mode.restarted, []step{
		{"Trainer", "starts its pods", act(t.startsPods).and(t.stands(holdable.Running, 0), t.hasRun(mode.executions))},
	})
	return scene{title: t.job(t.name) + " runs, and one of its nodes is lost", steps: steps}
}
