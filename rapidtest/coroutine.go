package rapidtest

import (
	"context"
	"fmt"
	"time"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/meta"
)

// Given the same answers, a call sends the same requests: it has no other input. So an exploration keeps, for every call, a tree of what it
// does: a node stands for a sequence of answers, and knows the request that the call sends next, or what its caller is told. A real call
// runs through the real engine once for each node, and the tree answers from then on.

// An answer is what a call sees of one request.
type answer struct {
	resp *Response
	err  error
}

// A node is a call after a sequence of answers.
type node struct {
	id int
	// content remembers the hash of next; 0 before it is asked for.
	content uint64
	parent  *node
	via     answer
	// next is the request that the call waits on; nil if it has returned, and done is what its caller was told.
	next *Request
	done *outcome
	kids map[string]*node
	// bound remembers next with the resourceVersions that it was bound to.
	bound map[string]*Request
	// live is a running call that stands here, nil if none does any more.
	live *coroutine
}

// A callTree is all that one call may do.
type callTree struct {
	spec    callSpec
	root    *node
	nodes   int
	subject *subject
	ref     meta.Ref
	retries int
	running []*coroutine
}

// newCallTree starts the call. It must be called in a synctest bubble, and stopped there.
func newCallTree(s *subject, ref meta.Ref, spec callSpec, retries int) (*callTree, error) {
	t := &callTree{spec: spec, subject: s, ref: ref, retries: retries}
	co, err := t.start()
	if err != nil {
		return nil, err
	}
	t.root = t.arrive(co, nil, answer{})
	return t, nil
}

// stop ends every call that still runs.
func (t *callTree) stop() {
	for _, co := range t.running {
		co.cancel()
		for range co.asked { // until it has returned
		}
	}
}

// after returns the node that the call gets to when its request is answered so.
func (t *callTree) after(n *node, key string, shown func() answer) (*node, error) {
	if kid, ok := n.kids[key]; ok {
		return kid, nil
	}
	a := shown()
	co := n.live
	if n.live = nil; co == nil {
		var err error
		if co, err = t.replay(n); err != nil {
			return nil, err
		}
	}
	co.answers <- a
	kid := t.arrive(co, n, a)
	if n.kids == nil {
		n.kids = map[string]*node{}
	}
	n.kids[key] = kid
	return kid, nil
}

// arrive makes the node at which a call stands now.
func (t *callTree) arrive(co *coroutine, parent *node, via answer) *node {
	t.nodes++
	n := &node{id: t.nodes, parent: parent, via: via, bound: map[string]*Request{}}
	if req, ok := <-co.asked; ok {
		n.next, n.live = req, co
		return n
	}
	n.done = &co.out
	return n
}

// replay runs a new call to where n stands.
func (t *callTree) replay(n *node) (*coroutine, error) {
	if n.parent == nil {
		co, err := t.start()
		if err == nil {
			<-co.asked
		}
		return co, err
	}
	co, err := t.replay(n.parent)
	if err != nil {
		return nil, err
	}
	co.answers <- n.via
	if req, ok := <-co.asked; !ok || req.Verb != n.next.Verb || req.Name != n.next.Name {
		return nil, fmt.Errorf("%s does not repeat itself: the same answers led to %v, and before that to %v", t.spec, req, n.next)
	}
	return co, nil
}

// A coroutine is a call that stops at each of its requests until it is given the answer.
type coroutine struct {
	asked   chan *Request // closed when the call has returned
	answers chan answer
	out     outcome
	cancel  context.CancelFunc
}

// callDeadline is far enough away that no call of an exploration reaches it.
const callDeadline = time.Hour

func (t *callTree) start() (*coroutine, error) {
	ctx, cancel := context.WithCancel(context.Background())
	co := &coroutine{asked: make(chan *Request), answers: make(chan answer), cancel: cancel}
	ask := func(RoundTrip) RoundTrip {
		return func(ctx context.Context, req *Request) (*Response, error) {
			select {
			case co.asked <- req:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			select {
			case a := <-co.answers:
				return a.resp, a.err
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}
	holder, err := t.subject.holder(t.subject.server().Dynamic(t.spec.String(), ask), t.retries)
	if err != nil {
		cancel()
		return nil, err
	}
	t.running = append(t.running, co)
	go func() {
		defer close(co.asked)
		defer cancel()
		co.out = t.spec.run(ctx, holder, t.ref, time.Now().Add(callDeadline))
	}()
	return co, nil
}

// run makes the call.
func (c callSpec) run(ctx context.Context, holder holdable.Holder, ref meta.Ref, deadline time.Time) outcome {
	call := meta.Call{Instance: c.instance, Deadline: deadline, Holder: c.String(), Reason: "rapidtest"}
	var out outcome
	switch c.op {
	case meta.OpHold:
		out.receipt, out.err = holder.Hold(ctx, ref, call)
	case meta.OpRelease:
		out.receipt, out.err = holder.Release(ctx, ref, call)
	case meta.OpOpen:
		out.receipt, out.err = holder.Open(ctx, ref, call)
	}
	return out
}
