package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/samber/lo"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/kinds"
	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/rapidtest"
)

// kueueMode is the chapter in which the Workload is held that Kueue has made for
// a TrainJob. When it is released, running again is up to Kueue.
func kueueMode(_ context.Context, w *world) (chapter, error) {
	kind := kinds.OnKueue(kinds.TrainJob())
	first, err := newTale(w, vision, kind)
	if err != nil {
		return chapter{}, err
	}
	second, err := newTale(w, sweep, kind)
	if err != nil {
		return chapter{}, err
	}
	plain, err := newSupervisor(w, "red", kinds.TrainJob(), w.config)
	if err != nil {
		return chapter{}, err
	}
	return chapter{
		title: "Kueue mode: the Workload is held, by its spec.active; the TrainJob is Kueue's",
		scenes: []scene{
			first.loses(lostNode{
				begins:    []step{{"ana", "creates it, in a queue", first.queued(nil)}},
				stopped:   []step{{"Kueue", "evicts its Workload", act(first.evicted).and(first.jobUntouched)}},
				gate:      "the client has looked: there is no readmission gate here",
				restarted: []step{{"Kueue", "admits its Workload again", first.admitted}},
			}),
			second.runsOut(),
			first.toldApart(plain),
		},
	}, nil
}

// queued is the act of making a job that Kueue manages.
func (t *tale) queued(labels map[string]string) act {
	return func(ctx context.Context) (string, error) {
		if err := t.createJob(ctx, t.name, lo.Assign(labels, map[string]string{kinds.QueueNameLabel: t.queue})); err != nil {
			return "", err
		}
		return t.admitted(ctx)
	}
}

// admitted is the act of waiting until Kueue lets the job run.
func (t *tale) admitted(ctx context.Context) (string, error) {
	name, err := t.untilWorkload(ctx, "Workload admitted, TrainJob not suspended", func(w *unstructured.Unstructured, suspended bool) bool {
		return conditionIs(w, "Admitted", "") && !suspended
	})
	return name + " is admitted\nKueue lets the TrainJob run", err
}

// evicted is the act of waiting until Kueue has stopped the job, because its
// Workload is not active.
func (t *tale) evicted(ctx context.Context) (string, error) {
	name, err := t.untilWorkload(ctx, "Workload evicted, TrainJob suspended", func(w *unstructured.Unstructured, suspended bool) bool {
		return conditionIs(w, "Evicted", "Deactivated") && suspended
	})
	return name + " is evicted: Deactivated\nKueue suspends the TrainJob, which no hold touches", err
}

// untilWorkload waits until a Workload and its TrainJob are as they should be, and
// returns the Workload's name.
func (t *tale) untilWorkload(ctx context.Context, want string, ok func(w *unstructured.Unstructured, suspended bool) bool) (name string, err error) {
	err = t.until(ctx, want, func(ctx context.Context) (string, bool, error) {
		w, err := t.workload(ctx, t.name)
		if err != nil {
			return "no Workload", false, err
		}
		job, err := t.in(trainJobs()).Get(ctx, t.job(t.name), metav1.GetOptions{})
		if err != nil {
			return "no TrainJob", false, err
		}
		name = w.GetName()
		suspended, _, err := unstructured.NestedBool(job.Object, "spec", "suspend")
		return fmt.Sprintf("Workload %s, TrainJob %s", trueConditions(w), lo.Ternary(suspended, "suspended", "not suspended")), ok(w, suspended), err
	})
	return name, err
}

// conditionIs reports whether a condition is true, for this reason if one is
// given.
func conditionIs(obj *unstructured.Unstructured, kind, reason string) bool {
	return lo.ContainsBy(holdable.Conditions(obj), func(c holdable.Condition) bool {
		return c.Type == kind && c.Status == "True" && (reason == "" || c.Reason == reason)
	})
}

// trueConditions lists those of Kueue's conditions that say how a Workload stands.
func trueConditions(obj *unstructured.Unstructured) string {
	var found []string
	for _, kind := range []string{"Admitted", "Evicted", "Finished"} {
		if conditionIs(obj, kind, "") {
			found = append(found, kind)
		}
	}
	if len(found) == 0 {
		return "not admitted"
	}
	return strings.ToLower(strings.Join(found, " and "))
}

// jobUntouched is the check that a hold has left nothing on the TrainJob.
func (t *tale) jobUntouched(ctx context.Context) error {
	job, err := t.in(trainJobs()).Get(ctx, t.job(t.name), metav1.GetOptions{})
	if err != nil {
		return err
	}
	for key := range job.GetAnnotations() {
		if strings.HasPrefix(key, meta.DefaultPrefix+"/") {
			return unlike("a TrainJob without annotations of the hold", key)
		}
	}
	return nil
}

const (
	// timeLimit is the label of a job that Kueue stops after so many seconds.
	timeLimit        = "kueue.x-k8s.io/max-exec-time-seconds"
	timeLimitSeconds = "3"
	timeLimitCause   = "execution time limit"
)

// runsOut tells a deactivation by Kueue from a hold.
func (t *tale) runsOut() scene {
	byKueue := func(in holdable.Inspection) bool { return in.Deactivated == timeLimitCause }
	return scene{
		title: t.job(t.name) + " is stopped by Kueue itself, which is no hold",
		steps: []step{
			{"ana", "creates it, for 3 seconds", t.queued(map[string]string{timeLimit: timeLimitSeconds})},
			{"Kueue", "ends it: its time is up", t.timeIsUp(byKueue)},
			{"red", "Hold(1), on top of that", t.red.hold(t.name, 1, "the budget is spent").comesTo(holdable.Placed, 0)},
			{"red", "Inspect", t.comesToStand(holdable.Held, 1, byKueue).saying("beside it, by Kueue: " + timeLimitCause)},
			{"red", "Release(1)", t.red.release(t.name, 1).comesTo(holdable.KeptPaused, 0).
				and(t.stands(holdable.Deactivated, 0), t.startsNothing)},
		},
	}
}

// timeIsUp is the act in which Kueue stops a job that has run for too long.
func (t *tale) timeIsUp(byKueue func(holdable.Inspection) bool) act {
	return func(ctx context.Context) (string, error) {
		if k := t.cast.kueue; k != nil {
			w, err := t.workload(ctx, t.name)
			if err != nil {
				return "", err
			}
			if err := k.Deactivate(ctx, w.GetNamespace(), w.GetName(), rapidtest.CauseMaximumExecutionTime); err != nil {
				return "", err
			}
		}
		_, err := t.untilWorkload(ctx, "Workload evicted, TrainJob suspended", func(w *unstructured.Unstructured, suspended bool) bool {
			return conditionIs(w, "Evicted", "") && suspended
		})
		if err != nil {
			return "", err
		}
		return t.comesToStand(holdable.Deactivated, 0, byKueue)(ctx)
	}
}

// toldApart tells what else is no hold, on a job that runs.
func (t *tale) toldApart(plain supervisor) scene {
	asIs := func(e *meta.Error) bool { return e.Kind == meta.ErrRejected }
	return scene{
		title: t.job(t.name) + " is stopped by a person, which is no hold either",
		steps: []step{
			{"red", "Hold(3), in plain mode", plain.hold(t.name, 3, "wrong mode").isRefused(meta.ErrRejected, asIs).
				and(t.stands(holdable.Running, 0))},
			{"ana", "kueuectl stop workload", func(ctx context.Context) (string, error) {
				w, err := t.workload(ctx, t.name)
				if err != nil {
					return "", err
				}
				if err := (rapidtest.Human{Client: t.client}).StopWorkload(ctx, w.GetNamespace(), w.GetName()); err != nil {
					return "", err
				}
				return t.comesToStand(holdable.Paused, 0)(ctx)
			}},
		},
	}
}
