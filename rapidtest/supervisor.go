package rapidtest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/meta"
)

// A ledger is what the supervisors of one object share. In a real system it is durable, and every
// change of it is on disk before what it is about is done: it has to survive whoever wrote it. It
// has two things in it: the counter that instances come from, and every Hold and Open that may
// still have an effect.
type ledger struct {
	bound time.Duration // CallBound

	mu    sync.Mutex
	last  int64
	calls []*entry
}

// An entry is a Hold or an Open that was begun.
type entry struct {
	instance int64
	// settles is when it can have no effect any more, whatever becomes of it: a moment that is
	// known before it is made.
	settles time.Time
}

// next gives the next instance: each is given once, and a later one is larger.
func (l *ledger) next() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	return l.last
}

// begin writes a call down before it is made. It refuses a hold that is not the newest any more:
// whoever has the newest may have waited for all the earlier ones by now, and would not know of
// this one.
func (l *ledger) begin(op meta.Op, instance int64, deadline time.Time) (*entry, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if op == meta.OpHold && instance < l.last {
		return nil, false
	}
	e := &entry{instance: instance, settles: deadline.Add(l.bound)}
	l.calls = append(l.calls, e)
	return e, true
}

// end writes down what became of a call: it has settled, unless its error says that a write of it
// may still land.
func (l *ledger) end(e *entry, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.settles = time.Time{}
	if failed := (*meta.Error)(nil); errors.As(err, &failed) && failed.Fate == meta.FatePending {
		e.settles = failed.PendingUntil
	}
}

// settled is when every Hold up to an instance, and every Open, that was begun so far has settled.
func (l *ledger) settled(instance int64) (at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.calls {
		if e.instance <= instance && e.settles.After(at) {
			at = e.settles
		}
	}
	return at
}

// A supervisor stops an object and lets it run again, beside others that do the same, over any
// network. It follows the protocol of rule I4:
//
//   - every hold has an instance of its own, from one counter that only grows;
//   - it holds again if it does not know whether it holds, unless a newer instance was given out
//     meanwhile;
//   - it releases only once its Hold has succeeded, and once every Hold and Open before, its own
//     repeats included, has returned with a fate other than pending or has settled: a release takes
//     the instance away, and with it all that could refuse a Hold that is still on its way.
//
// Then the newest hold wins, and one that was released or overtaken does not come back.
//
// Two kinds of late calls are waited for. One is a call that has not returned, such as that of a
// supervisor whose process stood still: it may yet read an object on which no hold is any more. The
// other is an update whose call has returned in doubt. Once anything else is written it cannot
// commit, for its resourceVersion is gone; but a Release that finds no hold writes nothing, and if
// the object was replaced meanwhile, it finds none.
type supervisor struct {
	holder holdable.Holder
	ledger *ledger
	ref    meta.Ref
	// patience is how long a call may take, pause the time between two, and lag how long the
	// supervisor stands still between writing a call down and making it, as a process may at any
	// time.
	patience, pause, lag time.Duration
	tries                int
	// asserts is how often it holds again before it releases, to put right what others may have
	// done.
	asserts int
	manners
}

// manners are the mistakes that a supervisor makes; none of them is the protocol.
type manners struct {
	// hasty: it releases without waiting for earlier calls.
	hasty bool
	// trusting: it counts every call that has returned as settled, in doubt or not.
	trusting bool
	// stubborn: it holds again though a newer instance was given out.
	stubborn bool
}

var errOvertaken = errors.New("a newer hold was begun")

// recover holds the object and, if it is to, releases it again.
func (s *supervisor) recover(ctx context.Context, release bool) error {
	n := s.ledger.next()
	if err := s.hold(ctx, n); err != nil || !release {
		return err
	}
	for range s.asserts {
		if !sleep(ctx, s.pause) {
			return ctx.Err()
		}
		_ = s.call(ctx, meta.OpHold, n) // it has succeeded once, which is enough
	}
	for !s.hasty {
		wait := time.Until(s.ledger.settled(n))
		if wait <= 0 {
			break
		}
		if !sleep(ctx, min(wait, time.Second)) { // an earlier call may return before it settles
			return ctx.Err()
		}
	}
	return s.release(ctx, n)
}

func (s *supervisor) hold(ctx context.Context, n int64) error {
	return s.insist(ctx, func() error { return s.call(ctx, meta.OpHold, n) }, func(e *meta.Error) bool {
		return errors.Is(e, meta.ErrInDoubt) || errors.Is(e, meta.ErrConflict) || errors.Is(e, meta.ErrStaleHold) && e.Seen < n
	})
}

func (s *supervisor) release(ctx context.Context, n int64) error {
	return s.insist(ctx, func() error { return s.call(ctx, meta.OpRelease, n) }, func(e *meta.Error) bool {
		return errors.Is(e, meta.ErrInDoubt) || errors.Is(e, meta.ErrConflict) || errors.Is(e, meta.ErrPodsRemain)
	})
}

// open lets the object past its start gate.
func (s *supervisor) open(ctx context.Context) error { return s.call(ctx, meta.OpOpen, 0) }

// insist makes a call again and again while again says so.
func (s *supervisor) insist(ctx context.Context, try func() error, again func(*meta.Error) bool) error {
	for tries := 1; ; tries++ {
		err := try()
		failed := (*meta.Error)(nil)
		if err == nil || ctx.Err() != nil || tries == s.tries || !errors.As(err, &failed) || !again(failed) {
			return err
		}
		if !sleep(ctx, s.pause) {
			return ctx.Err()
		}
	}
}

// call makes one call, with its entry in the ledger if it needs one. A supervisor that dies
// meanwhile leaves the entry behind.
func (s *supervisor) call(ctx context.Context, op meta.Op, n int64) error {
	call := meta.Call{Instance: n, Deadline: time.Now().Add(s.patience), Holder: "supervisor", Reason: "rapidtest"}
	if op == meta.OpRelease {
		_, err := s.holder.Release(ctx, s.ref, call)
		return err
	}
	e, ok := s.ledger.begin(op, n, call.Deadline)
	if !ok && !s.stubborn {
		return errOvertaken
	}
	if !sleep(ctx, s.lag) {
		return ctx.Err()
	}
	method := s.holder.Hold
	if op == meta.OpOpen {
		method = s.holder.Open
	}
	_, err := method(ctx, s.ref, call)
	switch {
	case ctx.Err() != nil || !ok:
	case s.trusting:
		s.ledger.end(e, nil)
	default:
		s.ledger.end(e, err)
	}
	return err
}
