package main

import (
	"context"
	"errors"
	"time"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/meta"
)

// A supervisor recovers jobs whose node was lost. It knows holds by the Holder
// interface alone: not the kind of its jobs, nor who else manages them.
type supervisor struct {
	holder holdable.Holder
	name   string
	// patience is the time that each call has, pause the time between two.
	patience, pause time.Duration
	say             func(format string, args ...any)

	// next is the instance that was given last, and settled the time from which
	// on no call made so far can have an effect any more. In a real supervisor
	// both are durable, shared by its replicas, and written before a call is
	// made: whoever takes over has to go on counting, and to wait as well.
	next    int64
	settled time.Time
}

// recover stops a job, waits until nothing of it runs, and lets it run again. If
// it returns an ErrStaleHold, somebody with a newer hold sees to the job now.
func (s *supervisor) recover(ctx context.Context, job meta.Ref, reason string) error {
	s.next++ // numbers only grow, and none is used for two holds
	call := meta.Call{Instance: s.next, Holder: s.name, Reason: reason}
	if err := s.hold(ctx, job, call); err != nil {
		return err
	}
	if err := s.drain(ctx, job, call); err != nil {
		return err
	}
	return s.release(ctx, job, call)
}

// hold places a hold. The same one may be asked for again whenever it is not
// known that a newer one lies there.
func (s *supervisor) hold(ctx context.Context, job meta.Ref, call meta.Call) error {
	return s.insist(ctx, job, call, "Hold", s.holder.Hold, func(e *meta.Error) bool {
		return errors.Is(e, meta.ErrInDoubt) || errors.Is(e, meta.ErrConflict) ||
			errors.Is(e, meta.ErrStaleHold) && e.Seen < call.Instance
	})
}

// drain waits until nothing of the held job runs. That its hold lies there says
// that the job is to stop, not that it has.
func (s *supervisor) drain(ctx context.Context, job meta.Ref, call meta.Call) error {
	for {
		in, err := s.holder.Inspect(ctx, job)
		switch {
		case err != nil:
			return err
		case in.Hold == nil || in.Hold.Instance != call.Instance || in.State == holdable.Undone:
			s.say("the hold is gone or undone")
			if err := s.hold(ctx, job, call); err != nil {
				return err
			}
		case in.Drained == holdable.IsDrained:
			s.say("the job is drained")
			return nil
		}
		if err := wait(ctx, s.pause); err != nil {
			return err
		}
	}
}

// release lifts the hold once no earlier call can have an effect any more: it
// takes the instance away, and with it all that could refuse a Hold which is
// still on its way (rule I4).
func (s *supervisor) release(ctx context.Context, job meta.Ref, call meta.Call) error {
	if d := time.Until(s.settled); d > 0 {
		s.say("an earlier call may land yet: waiting")
		if err := wait(ctx, d); err != nil {
			return err
		}
	}
	doubted := false // so that an earlier try may have lifted it
	err := s.insist(ctx, job, call, "Release", s.holder.Release, func(e *meta.Error) bool {
		doubted = doubted || e.Fate != meta.FateNone
		return errors.Is(e, meta.ErrInDoubt) || errors.Is(e, meta.ErrPodsRemain) || errors.Is(e, meta.ErrConflict)
	})
	if e := (*meta.Error)(nil); doubted && errors.As(err, &e) && errors.Is(e, meta.ErrStaleHold) && e.Seen == 0 {
		s.say("Release(%d) has landed", call.Instance)
		return nil
	}
	return err
}

// A method is one of a Holder's that make a call.
type method func(context.Context, meta.Ref, meta.Call) (holdable.Receipt, error)

// insist makes a call again and again while again says so.
func (s *supervisor) insist(ctx context.Context, job meta.Ref, call meta.Call, name string, try method, again func(*meta.Error) bool) error {
	for {
		receipt, err := s.call(ctx, job, call, try)
		if err == nil {
			s.say("%s(%d): %s", name, call.Instance, receipt.Did)
			return nil
		}
		var e *meta.Error // as all errors of a Holder are
		if !errors.As(err, &e) || !again(e) {
			return err
		}
		s.say("%s(%d): %s; once more", name, call.Instance, e.Kind)
		if err := wait(ctx, s.pause); err != nil {
			return err
		}
	}
}

// call makes one call, and takes down until when that may have an effect: while
// it is under way, until its deadline plus CallBound; if it returns in doubt,
// until the time that its error names; else no longer.
func (s *supervisor) call(ctx context.Context, job meta.Ref, call meta.Call, try method) (holdable.Receipt, error) {
	before := s.settled
	call.Deadline = time.Now().Add(s.patience)
	s.settled = latest(before, call.Deadline.Add(s.holder.CallBound()))
	receipt, err := try(ctx, job, call)
	s.settled = before
	if e := (*meta.Error)(nil); errors.As(err, &e) && e.Fate == meta.FatePending {
		s.settled = latest(before, e.PendingUntil)
	}
	return receipt, err
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
