//go:build e2e

package holdtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/rapidtest/realstack/cluster"
)

// A report is a call and what its caller was told.
type report struct {
	op meta.Op
	// id is the Holder of the call, which no other call has.
	id           string
	instance     int64
	began, ended time.Time
	receipt      holdable.Receipt
	err          *meta.Error
}

// mayHaveWritten reports whether the caller has to reckon with a write.
func (r *report) mayHaveWritten() bool {
	if r.err != nil {
		return r.err.Fate != meta.FateNone
	}
	return r.receipt.Did != holdable.InForce && r.receipt.Did != holdable.AlreadyOpen
}

// lastEffect is the latest time at which a write of the call may have landed.
func (r *report) lastEffect() time.Time {
	if r.err != nil && r.err.Fate == meta.FatePending {
		return r.err.PendingUntil
	}
	return r.ended
}

// A ledger is what the supervisors of one job share, and what is durable in a
// real installation: the instances, and the calls that may have an effect yet.
type ledger struct {
	mu      sync.Mutex
	last    int64
	pending map[string]pendingHold // by the call's id
	reports []report
}

type pendingHold struct {
	instance int64
	until    time.Time
}

// next is an instance that nobody has used.
func (l *ledger) next() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	return l.last
}

func (l *ledger) expect(id string, p pendingHold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pending == nil {
		l.pending = map[string]pendingHold{}
	}
	l.pending[id] = p
}

func (l *ledger) returned(r report) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reports = append(l.reports, r)
	delete(l.pending, r.id)
	if r.op == meta.OpHold && r.err != nil && r.err.Fate == meta.FatePending {
		l.pending[r.id] = pendingHold{instance: r.instance, until: r.err.PendingUntil}
	}
}

// settled reports whether no Hold up to that instance can have an effect any more
// (rule I4).
func (l *ledger) settled(instance int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(l.pending, func(_ string, p pendingHold) bool { return now.After(p.until) })
	for _, p := range l.pending {
		if p.instance <= instance {
			return false
		}
	}
	return true
}

// A charge is a job in the care of supervisors.
type charge struct {
	*cluster.Object
	runtime string
	holder  holdable.Holder
	ledger  ledger
	// stopped reports whether the controllers between the job and its pods have
	// followed a hold, so that none of them makes a pod from what was before it
	// (rule I5).
	// If not, it says what it waits for.
	stopped func(context.Context) (stopped bool, why string)
}

// A supervisor recovers charges, as examples/dispatch does, one at a time.
type supervisor struct {
	name string
	// patience is the time that each call has, pause the time between two.
	patience, pause time.Duration
	calls           *atomic.Int64 // numbers the calls of all supervisors
}

// errOvertaken says that somebody with a newer hold sees to the job now.
var errOvertaken = errors.New("overtaken by a newer hold")

// errGone says that the hold went without being lifted: Kueue made the Workload
// anew.
var errGone = errors.New("the hold is gone")

// recover holds a charge, waits until nothing of it runs, and releases it. It
// begins again with the same instance if the hold is gone by then.
func (s *supervisor) recover(ctx context.Context, c *charge) error {
	n := c.ledger.next()
	for {
		err := s.recoverAs(ctx, c, n)
		if !errors.Is(err, errGone) {
			return err
		}
	}
}

func (s *supervisor) recoverAs(ctx context.Context, c *charge, n int64) error {
	if err := s.hold(ctx, c, n); err != nil {
		return err
	}
	if err := s.drain(ctx, c, n); err != nil {
		return err
	}
	err := cluster.Wait(ctx, "every earlier hold has settled", func(context.Context) (bool, any, error) {
		return c.ledger.settled(n), nil, nil
	})
	if err != nil {
		return err
	}
	return s.release(ctx, c, n)
}

func (s *supervisor) hold(ctx context.Context, c *charge, n int64) error {
	return s.insist(ctx, func() (done bool, seen any, err error) {
		failed := s.call(ctx, c, meta.OpHold, n)
		if failed != nil && errors.Is(failed, meta.ErrStaleHold) && failed.Seen > n {
			err = errOvertaken
		}
		return failed == nil, failed, err
	})
}

func (s *supervisor) drain(ctx context.Context, c *charge, n int64) error {
	return s.insist(ctx, func() (done bool, seen any, err error) {
		look, cancel := context.WithTimeout(ctx, s.patience)
		defer cancel()
		in, failed := c.holder.Inspect(look, ref(c.Object))
		switch {
		case failed != nil:
			return false, failed, nil
		case in.Hold != nil && in.Hold.Instance > n:
			return false, in, errOvertaken
		case in.Hold == nil || in.Hold.Instance != n || in.State == holdable.Undone:
			return false, in, s.hold(ctx, c, n)
		case in.Drained != holdable.IsDrained:
			return false, in, nil
		}
		stopped, why := c.stopped(ctx)
		return stopped, why, nil
	})
}

func (s *supervisor) release(ctx context.Context, c *charge, n int64) error {
	doubted := false // so that an earlier try may have lifted it
	return s.insist(ctx, func() (done bool, seen any, err error) {
		failed := s.call(ctx, c, meta.OpRelease, n)
		if failed == nil {
			return true, nil, nil
		}
		if errors.Is(failed, meta.ErrStaleHold) {
			switch {
			case failed.Seen > n:
				err = errOvertaken
			case !doubted:
				err = errGone
			}
			return true, failed, err
		}
		doubted = doubted || failed.Fate != meta.FateNone
		return false, failed, nil
	})
}

// insist repeats a call until it is done.
func (s *supervisor) insist(ctx context.Context, try func() (done bool, seen any, err error)) error {
	for {
		done, seen, err := try()
		if done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (last seen: %+v)", ctx.Err(), seen)
		case <-time.After(s.pause):
		}
	}
}

// call makes a Hold or a Release and takes down what came of it.
func (s *supervisor) call(ctx context.Context, c *charge, op meta.Op, n int64) *meta.Error {
	r := report{op: op, id: fmt.Sprintf("%s-%d", s.name, s.calls.Add(1)), instance: n, began: time.Now()}
	call := meta.Call{Instance: n, Holder: r.id, Reason: "a fault", Deadline: r.began.Add(s.patience)}
	try := c.holder.Release
	if op == meta.OpHold {
		try = c.holder.Hold
		c.ledger.expect(r.id, pendingHold{instance: n, until: call.Deadline.Add(c.holder.CallBound())})
	}
	var err error
	r.receipt, err = try(ctx, ref(c.Object), call)
	r.ended = time.Now()
	if err != nil && !errors.As(err, &r.err) {
		r.err = meta.Errorf("", "an error of another type").Because(err)
	}
	c.ledger.returned(r)
	return r.err
}
