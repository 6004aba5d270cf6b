package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/samber/lo"

	"github.com/kubehold/kubehold/meta"
)

// An act is what a step does. It returns what came of it, in words, or an error
// if that is not what the story says.
type act func(context.Context) (string, error)

// A check is what must be true besides.
type check func(context.Context) error

// and is an act that must leave everything as the checks say.
func (a act) and(checks ...check) act {
	return func(ctx context.Context) (string, error) {
		answer, err := a(ctx)
		for _, c := range checks {
			if err == nil {
				err = c(ctx)
			}
		}
		return answer, err
	}
}

// saying is an act with something to add to its answer.
func (a act) saying(more string) act {
	return func(ctx context.Context) (string, error) {
		answer, err := a(ctx)
		return strings.TrimSpace(answer + "\n" + more), err
	}
}

// A step is one line of the story.
type step struct {
	who, does string
	act       act
}

// A scene is what happens to one job.
type scene struct {
	title string
	steps []step
}

// A chapter is one mode.
type chapter struct {
	title  string
	scenes []scene
}

// unlike is the error of an act that came to something else than the story says.
func unlike(want, seen string) error { return fmt.Errorf("told: %s\nseen: %s", want, seen) }

// perform tells the whole story in a world, and leaves the world as it was. Its
// error says which step did not come out as told, or what is left behind.
func perform(ctx context.Context, w *world, out io.Writer) error {
	t := &teller{out: out}
	err := tell(ctx, w, t)
	if w.cleanUp != nil {
		t.printf("\nRemoving all that this run has made ... ")
		left := w.cleanUp(context.WithoutCancel(ctx))
		t.printf("%s\n", lo.Ternary(left == nil, "it is gone.", "NOT DONE"))
		err = errors.Join(err, left)
	}
	return err
}

func tell(ctx context.Context, w *world, t *teller) error {
	ctx, end := context.WithCancel(ctx)
	defer end() // whatever is still under way when a step fails ends with the story
	prologue(t, w)
	for _, write := range []func(context.Context, *world) (chapter, error){plainMode, kueueMode} {
		c, err := write(ctx, w)
		if err != nil {
			return err
		}
		if err := t.tell(ctx, c); err != nil {
			return err
		}
	}
	return epilogue(t)
}

func (t *teller) tell(ctx context.Context, c chapter) error {
	t.chapter(c.title)
	for _, scene := range c.scenes {
		t.scene(scene.title)
		for _, s := range scene.steps {
			if t.begin(s); t.err != nil {
				return fmt.Errorf("writing the story down: %w", t.err)
			}
			answer, err := s.act(ctx)
			switch {
			case ctx.Err() != nil:
				t.answer("... interrupted")
				return fmt.Errorf("interrupted in step %d (%s: %s)", t.steps, s.who, s.does)
			case err != nil:
				t.answer("NOT AS TOLD\n" + err.Error())
				return fmt.Errorf("step %d (%s: %s) did not come out as told: %s",
					t.steps, s.who, s.does, strings.ReplaceAll(err.Error(), "\n", "; "))
			}
			t.answer(answer)
		}
	}
	return nil
}

func prologue(t *teller, w *world) {
	t.line("A hold says: stop this object, and do not run it again until I say so. It has a number, its instance, so that " +
		"a call which comes late cannot undo a newer hold.")
	t.printf("\n")
	t.line("%s", w.place)
	t.printf(`
  ana        is a person with kubectl
  red, blue  are two supervisors; they number their holds from one counter
  rv         is the resourceVersion of what is held: it moves with every write
`)
}

// epilogue says what a hold does not do by itself.
func epilogue(t *teller) error {
	bound, err := meta.CallBound(0, 0)
	t.printf("\n\n")
	t.line("What the numbers cannot do: a Release takes its number away, and a Hold that is still on its way then finds none "+
		"which is newer. So a supervisor releases only when every earlier call has returned and its fate is known, or its deadline "+
		"has been over for %v, which is CallBound.", bound)
	t.printf("\n")
	t.line("Every step came out as told: %d of %d.", t.steps, t.steps)
	return errors.Join(err, t.err)
}
