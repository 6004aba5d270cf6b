package main

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// A world is where the story takes place: an apiserver, a namespace, and whoever
// plays the controllers that do not run there.
type world struct {
	place string // where this is, for the reader

	config    *rest.Config
	client    dynamic.Interface // ana's hands, and the eyes of the story
	namespace string
	// run is on a label of everything that this run makes, and suffix is on its
	// names where other runs may have the same ones.
	run, suffix string
	// queue is the LocalQueue that jobs wait in, and runtime the
	// TrainingRuntime that they are made from.
	queue, runtime string
	cast           cast

	// patience is how long a step waits for what it is to see, and pace how
	// long it waits before it looks again.
	patience, pace time.Duration
	// watch is how long a step watches that nothing happens. Whoever is played
	// needs no watching: he acts at once or not at all.
	watch time.Duration

	// made is what the run has made besides jobs, and cleanUp removes all of it;
	// nil where that is not needed.
	made    []made
	cleanUp func(context.Context) error
}

// runLabel is on everything that a run of the story makes.
const runLabel = "examples.kubehold.dev/quickstart"

// The jobs of the story, and one that only shows who reacts to it.
const (
	llm, draft, vision, sweep = "llm", "draft", "vision", "sweep"
	probeJob                  = "probe"
)

func jobNames() []string { return []string{llm, draft, vision, sweep, probeJob} }

// job returns the name of one of the story's jobs in this world.
func (w *world) job(name string) string { return name + w.suffix }

func (w *world) labels() map[string]string { return map[string]string{runLabel: w.run} }

// until waits until look is content. Whoever is played acts meanwhile, and only
// then, which is why a story on the model is the same each time. What look saw
// last is in the error of a wait that was in vain, as is a request that failed.
func (w *world) until(ctx context.Context, want string, look func(context.Context) (seen string, ok bool, err error)) error {
	ctx, cancel := context.WithTimeout(ctx, w.patience)
	defer cancel()
	last := "nothing"
	for {
		err := w.cast.act(ctx)
		if err == nil {
			seen, ok, lookErr := look(ctx)
			if ok && lookErr == nil {
				return nil
			}
			last, err = seen, lookErr
		}
		if err != nil && ctx.Err() == nil {
			last = err.Error()
		}
		if !pause(ctx, w.pace) {
			return unlike(want, fmt.Sprintf("%s, for %v", last, w.patience))
		}
	}
}

// pause waits, and reports false if ctx ends before.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
