package main

import (
	"context"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/kinds"
)

// plainMode is the chapter in which the TrainJob itself is held. Its jobs have a
// start gate, and their executions are counted.
func plainMode(_ context.Context, w *world) (chapter, error) {
	kind := kinds.WithStartGate(kinds.TrainJob())
	first, err := newTale(w, llm, kind)
	if err != nil {
		return chapter{}, err
	}
	second, err := newTale(w, draft, kind)
	if err != nil {
		return chapter{}, err
	}
	return chapter{
		title: "Plain mode: the TrainJob itself is held, by its spec.suspend",
		scenes: []scene{
			first.loses(lostNode{
				begins: []step{
					{"ana", "creates it, suspended", first.created(nil)},
					{"red", "Open", first.red.open(llm).comesTo(holdable.Opened, 1)},
				},
				executions: 2,
			}),
			second.waits(),
		},
	}, nil
}

// created is the act of making the job, which then waits at its start gate.
func (t *tale) created(labels map[string]string) act {
	return func(ctx context.Context) (string, error) {
		if err := t.createJob(ctx, t.name, labels); err != nil {
			return "", err
		}
		return t.comesToStand(holdable.Waiting, 0)(ctx)
	}
}

// waits tells what holds do to a job that has not been opened yet.
func (t *tale) waits() scene {
	const reason = "not before the data is there"
	return scene{
		title: t.job(t.name) + " is held before it was opened",
		steps: []step{
			{"ana", "creates it, suspended", t.created(nil)},
			{"red", "Hold(1)", t.red.hold(t.name, 1, reason).comesTo(holdable.Placed, 0).and(t.stands(holdable.Held, 1))},
			{"red", "Release(1)", t.red.release(t.name, 1).comesTo(holdable.KeptPaused, 0).and(t.stands(holdable.Waiting, 0), t.startsNothing)},
			{"blue", "Hold(2)", t.blue.hold(t.name, 2, reason).comesTo(holdable.Placed, 0).and(t.stands(holdable.Held, 2))},
			{"red", "Open, under the hold", t.red.open(t.name).comesTo(holdable.MarkedOpen, 0).
				and(t.stands(holdable.Held, 2), t.hasRun(0), t.startsNothing)},
			{"blue", "Release(2)", t.blue.release(t.name, 2).comesTo(holdable.Lifted, 1)},
			{"Trainer", "starts its pods", act(t.startsPods).and(t.stands(holdable.Running, 0), t.hasRun(1))},
		},
	}
}
