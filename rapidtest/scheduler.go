package rapidtest

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// A Scheduler stops every request at its boundaries, before the server executes it and after, and
// lets it go on when it is told to. With it a test decides the order in which the requests of
// several clients happen, and can go through all orders:
//
//	synctest.Test(t, func(t *testing.T) {
//		sched := rapidtest.NewScheduler()
//		a := server.Dynamic("a", sched.Middleware("a"))
//		b := server.Dynamic("b", sched.Middleware("b"))
//		... start the clients ...
//		for {
//			synctest.Wait() // until nobody can go on
//			steps := sched.Parked()
//			if len(steps) == 0 {
//				break
//			}
//			steps[choose(len(steps))].Proceed()
//		}
//	})
//
// A request whose context ends while it is parked leaves with the context's error. A Scheduler is
// safe for concurrent use.
type Scheduler struct {
	mu      sync.Mutex
	parked  []*Step
	arrived chan struct{}
	phases  map[Phase]bool
}

// A Phase is where a request is stopped.
type Phase int

const (
	// BeforeExecution: the request has been sent and not been executed.
	BeforeExecution Phase = iota
	// AfterExecution: the request has been executed and its answer not been delivered.
	AfterExecution
)

// String names the phase.
func (p Phase) String() string {
	if p == AfterExecution {
		return "after"
	}
	return "before"
}

// NewScheduler makes a scheduler that stops requests in the given phases; in both where none is given.
func NewScheduler(phases ...Phase) *Scheduler {
	if len(phases) == 0 {
		phases = []Phase{BeforeExecution, AfterExecution}
	}
	s := &Scheduler{arrived: make(chan struct{}, 1), phases: map[Phase]bool{}}
	for _, p := range phases {
		s.phases[p] = true
	}
	return s
}

// A Step is a request that is stopped.
type Step struct {
	// Actor is the name that was given to the middleware.
	Actor string
	// Phase says where it is stopped.
	Phase Phase
	// Request is the request; Response and Err are its outcome, after execution.
	Request  *Request
	Response *Response
	Err      error

	scheduler *Scheduler
	proceed   chan Fault // takes one
}

// String gives the step in one line.
func (s *Step) String() string { return fmt.Sprintf("%s %s %s", s.Actor, s.Phase, s.Request) }

// Proceed lets the request go on. A step that has gone on already is left alone.
func (s *Step) Proceed() { s.ProceedWith(Fault{}) }

// ProceedWith lets the request go on with a fault: before execution any, after it one that changes
// what the client sees (Err, Response or Hang).
func (s *Step) ProceedWith(f Fault) {
	if s.scheduler.remove(s) {
		s.proceed <- f
	}
}

// Middleware stops the requests of one actor.
func (s *Scheduler) Middleware(actor string) Middleware {
	return func(next RoundTrip) RoundTrip {
		return func(ctx context.Context, req *Request) (*Response, error) {
			before, err := s.park(ctx, &Step{Actor: actor, Phase: BeforeExecution, Request: req})
			if err != nil {
				return nil, err
			}
			resp, err := before.carryOut(ctx, req, next)
			after, parkErr := s.park(ctx, &Step{Actor: actor, Phase: AfterExecution, Request: req, Response: resp, Err: err})
			if parkErr != nil {
				return nil, parkErr
			}
			return after.see(ctx, resp, err)
		}
	}
}

// park stops a step until it is told to go on, and returns the fault with which it does.
func (s *Scheduler) park(ctx context.Context, step *Step) (Fault, error) {
	if !s.phases[step.Phase] {
		return Fault{}, nil
	}
	step.scheduler, step.proceed = s, make(chan Fault, 1)
	s.mu.Lock()
	s.parked = append(s.parked, step)
	s.mu.Unlock()
	select {
	case s.arrived <- struct{}{}:
	default:
	}
	select {
	case f := <-step.proceed:
		return f, nil
	case <-ctx.Done():
		s.remove(step)
		return Fault{}, ctx.Err()
	}
}

func (s *Scheduler) remove(step *Step) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.parked, step)
	if i < 0 {
		return false
	}
	s.parked = slices.Delete(s.parked, i, i+1)
	return true
}

// Parked returns the steps that are stopped now, ordered by actor and, within one, by the request's
// number, so that equal situations look equal in every run.
func (s *Scheduler) Parked() []*Step {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := slices.Clone(s.parked)
	slices.SortStableFunc(out, func(a, b *Step) int {
		switch {
		case a.Actor != b.Actor && a.Actor < b.Actor:
			return -1
		case a.Actor != b.Actor:
			return 1
		}
		return int(a.Request.ID - b.Request.ID)
	})
	return out
}

// Wait waits until at least n steps are stopped, for tests outside of a synctest bubble.
func (s *Scheduler) Wait(ctx context.Context, n int) error {
	for {
		if len(s.Parked()) >= n {
			return nil
		}
		select {
		case <-s.arrived:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
