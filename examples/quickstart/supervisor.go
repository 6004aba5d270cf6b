package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/retry"
)

// A supervisor decides when a job is held and when it may run again.
type supervisor struct {
	name     string
	holder   holdable.Holder
	world    *world
	patience time.Duration
}

// newSupervisor connects a supervisor to the apiserver of the world.
func newSupervisor(w *world, name string, kind holdable.Holdable[bool], config *rest.Config) (supervisor, error) {
	// Kueue does not wait for pods that are still ending. Where no readmission
	// gate runs, the client has to.
	holder, err := holdable.New(kind, config, retry.Options{}, holdable.Options{CheckPods: true})
	return supervisor{name: name, holder: holder, world: w, patience: w.patience}, err
}

// A calling is a call that has yet to be made.
type calling func(context.Context) (holdable.Receipt, error)

func (s supervisor) call(op meta.Op, job string, instance int64, reason string) calling {
	return func(ctx context.Context) (holdable.Receipt, error) {
		ref := meta.Ref{Namespace: s.world.namespace, Name: s.world.job(job)}
		call := meta.Call{Instance: instance, Deadline: time.Now().Add(s.patience), Holder: s.name, Reason: reason}
		switch op {
		case meta.OpHold:
			return s.holder.Hold(ctx, ref, call)
		case meta.OpRelease:
			return s.holder.Release(ctx, ref, call)
		}
		return s.holder.Open(ctx, ref, call)
	}
}

func (s supervisor) hold(job string, instance int64, reason string) calling {
	return s.call(meta.OpHold, job, instance, reason)
}

func (s supervisor) release(job string, instance int64) calling {
	return s.call(meta.OpRelease, job, instance, "")
}

func (s supervisor) open(job string) calling { return s.call(meta.OpOpen, job, 0, "") }

// comesTo is the act of a call that succeeds and has done this.
func (c calling) comesTo(did holdable.Did, executions int64) act {
	return func(ctx context.Context) (string, error) {
		receipt, err := c(ctx)
		switch {
		case err != nil:
			return "", unlike(string(did), err.Error())
		case receipt.Did != did || receipt.Executions != executions:
			return "", unlike(fmt.Sprintf("%s, execution %d", did, executions),
				fmt.Sprintf("%s, execution %d", receipt.Did, receipt.Executions))
		}
		return inWords(receipt), nil
	}
}

func inWords(r holdable.Receipt) string {
	text := string(r.Did)
	switch through := r.Held.Kind != r.Object.Kind; {
	case through && r.Did == holdable.Placed:
		text += " on its " + r.Held.Kind
	case through && r.Did == holdable.Lifted:
		text += " from its " + r.Held.Kind
	}
	if r.Executions > 0 && (r.Did == holdable.Lifted || r.Did == holdable.Opened) {
		text += fmt.Sprintf(", execution %d", r.Executions)
	}
	text += ", rv " + r.ResourceVersion
	if r.Why != "" {
		text += "\n" + r.Why
	}
	return text
}

// isRefused is the act of a call that is refused, as an error of the kind, and
// has written nothing.
func (c calling) isRefused(as meta.Sentinel, more ...func(*meta.Error) bool) act {
	return func(ctx context.Context) (string, error) {
		receipt, err := c(ctx)
		if err == nil {
			return "", unlike("refused: "+string(as), inWords(receipt))
		}
		return refusal(err, as, more...)
	}
}

func refusal(err error, as meta.Sentinel, more ...func(*meta.Error) bool) (string, error) {
	var e *meta.Error
	ok := errors.Is(err, as) && errors.As(err, &e) && e.Fate == meta.FateNone
	for _, m := range more {
		ok = ok && m(e)
	}
	if !ok {
		return "", unlike("refused: "+string(as)+", nothing written", err.Error())
	}
	words := []string{"refused", string(e.Kind), e.Detail}
	switch {
	case len(e.Pods) > 0:
		words[2] = strings.Join(e.Pods, ", ")
	case e.Kind == meta.ErrRejected: // which says no more than refused
		words = []string{"refused", e.Detail}
	}
	return strings.Join(words, ": "), nil
}

// overtakenBy says that this instance is in force.
func overtakenBy(instance int64) func(*meta.Error) bool {
	return func(e *meta.Error) bool { return e.Seen == instance }
}

// A slowLine is a network in which the first update of its traveller gets stuck,
// until it is let go.
type slowLine struct {
	once  sync.Once
	stuck chan struct{} // closed when an update has got stuck
	free  chan struct{} // closed to let it go
}

func newSlowLine() *slowLine {
	return &slowLine{stuck: make(chan struct{}), free: make(chan struct{})}
}

// under returns a configuration whose requests take the line.
func (l *slowLine) under(config *rest.Config) *rest.Config {
	slow := rest.CopyConfig(config)
	slow.Wrap(func(next http.RoundTripper) http.RoundTripper { return travel{l, next} })
	return slow
}

type travel struct {
	line *slowLine
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t travel) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPut {
		t.line.once.Do(func() { close(t.line.stuck) })
		select {
		case <-t.line.free:
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	return t.next.RoundTrip(r)
}

// A late call is one that is under way while others are made.
type late struct {
	line *slowLine
	made calling
	done chan struct{} // closed when it has returned
	err  error
}

// leaves is the act that sends the call off, up to where it gets stuck.
func (l *late) leaves(ctx context.Context) (string, error) {
	l.done = make(chan struct{})
	go func() {
		defer close(l.done)
		_, l.err = l.made(ctx)
	}()
	select {
	case <-l.line.stuck:
		return "has read it, and its update is stuck on the way", nil
	case <-l.done:
		return "", unlike("an update that is stuck on the way", fmt.Sprintf("the call returned: %v", l.err))
	}
}

// arrives is the act in which the update arrives after all, too late.
func (l *late) arrives(by int64) act {
	return func(ctx context.Context) (string, error) {
		close(l.line.free)
		select {
		case <-l.done:
		case <-ctx.Done():
			return "", ctx.Err()
		}
		if l.err == nil {
			return "", unlike("refused: "+string(meta.ErrStaleHold), "the call succeeded")
		}
		answer, err := refusal(l.err, meta.ErrStaleHold, overtakenBy(by), func(e *meta.Error) bool { return e.Tries > 1 })
		var e *meta.Error
		if errors.As(l.err, &e) {
			answer = fmt.Sprintf("409: it is bound to rv %s, which is gone; looks again\n%s", e.Precondition, answer)
		}
		return answer, err
	}
}
