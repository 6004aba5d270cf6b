package rapidtest

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// What the server makes of a request depends only on what it has stored, and few things are ever stored in one exploration. So it is asked once
// for each request in each of these states.

// A storeNode is all that the server has stored at some moment.
type storeNode struct {
	snap Snapshot
	sum  uint64
	// held and named are the objects of the world; nil where there is none.
	held, named *unstructured.Unstructured
	effects     map[string]*effect
}

// An effect is what came of a request, or of somebody else's writes.
type effect struct {
	next   *storeNode
	answer answer
	// wrote: something was committed. changed: another instance came into force.
	wrote, changed bool
	// broken is the rule that a commit breaks, or what went wrong with the writes of somebody else.
	broken error
}

// here is the node of what the server has stored now.
func (x *explorer) here() *storeNode {
	s := x.subject
	n := &storeNode{
		sum:     x.server.StateHash(),
		held:    x.server.Stored(s.held, s.namespace(), s.heldObjectName()),
		named:   x.server.Stored(s.named, s.namespace(), worldName),
		effects: map[string]*effect{},
	}
	key := fmt.Sprintf("%x %s %s %d", n.sum, versionOf(n.held), versionOf(n.named), x.server.ResourceVersion())
	if known, ok := x.stores[key]; ok {
		return known
	}
	n.snap = x.server.Snapshot()
	x.stores[key] = n
	return n
}

func versionOf(obj *unstructured.Unstructured) string {
	if obj == nil {
		return ""
	}
	return obj.GetResourceVersion()
}

// mayCommit says whether a write of the held object can still commit: not once the object has moved, for a resourceVersion never comes back.
func (n *storeNode) mayCommit(req *Request) bool {
	return n.held != nil && n.held.GetName() == req.Name && n.held.GetResourceVersion() == precondition(req)
}

// append writes what is stored, and of resourceVersions that somebody remembers which are equal and which are current.
func (n *storeNode) append(b []byte, remembered []string) []byte {
	b = binary.BigEndian.AppendUint64(b, n.sum)
	var stale []string
	for _, rv := range remembered {
		switch rv = strings.TrimSpace(rv); {
		case rv == "":
			b = append(b, '-')
		case rv == versionOf(n.held):
			b = append(b, 'h')
		case rv == versionOf(n.named):
			b = append(b, 'n')
		default:
			i := slices.Index(stale, rv)
			if i < 0 {
				i = len(stale)
				stale = append(stale, rv)
			}
			b = append(b, 's', byte(i))
		}
	}
	return b
}

// effectOf returns what comes of do, which is known by key, on what n has stored.
func (x *explorer) effectOf(n *storeNode, key string, do func() (answer, error), audit func(Commit) error) *effect {
	if e, ok := n.effects[key]; ok {
		return e
	}
	x.server.Restore(n.snap)
	x.commits = nil
	e := &effect{}
	e.answer, e.broken = do()
	for _, c := range x.commits {
		e.wrote = true
		e.changed = e.changed || x.changesInstance(c)
		if e.broken == nil && audit != nil {
			e.broken = audit(c)
		}
	}
	e.next = x.here()
	n.effects[key] = e
	return e
}

// execute has the server execute a request of call i, and audits what it commits.
func (x *explorer) execute(w *worldState, i int, from *node, req *Request) (answer, error) {
	key := fmt.Sprintf("%d %x %s", i, x.contentKey(from), precondition(req))
	e := x.effectOf(w.store, key, func() (answer, error) {
		resp, err := x.server.RoundTrip(context.Background(), req)
		return answer{resp, err}, nil
	}, func(c Commit) error { return x.auditCommit(i, c) })
	w.store = e.next
	if e.changed {
		w.record.change()
	}
	w.wrote[i] = w.wrote[i] || e.wrote
	if done := w.at[i].done; e.wrote && done != nil && !done.mayStillWrite() {
		return e.answer, breaks("I8", "a write of %s was committed after it had returned: %s", x.calls[i].spec, done)
	}
	return e.answer, e.broken
}

// others has somebody else write.
func (x *explorer) others(w *worldState, what string, do func() error) error {
	e := x.effectOf(w.store, what, func() (answer, error) { return answer{}, do() }, nil)
	w.store = e.next
	if e.changed {
		w.record.change()
	}
	return e.broken
}

// auditCommit checks one commit of call i.
func (x *explorer) auditCommit(i int, c Commit) error {
	spec := x.calls[i].spec
	switch {
	case c.GVR != x.subject.held || c.Name != x.subject.heldObjectName():
		return breaks("I9", "%s wrote %s %s", spec, c.GVR.Resource, c.Name)
	case c.Type != "MODIFIED":
		return x.subject.audit(c.Previous, nil, spec)
	}
	return x.subject.audit(c.Previous, c.Object, spec)
}

// changesInstance says whether another instance is in force after a commit.
func (x *explorer) changesInstance(c Commit) bool {
	if c.GVR != x.subject.held {
		return false
	}
	var before, after int64
	if c.Previous != nil {
		before = x.subject.read(c.Previous).instance
	}
	if c.Type != "DELETED" {
		after = x.subject.read(c.Object).instance
	}
	return before != after
}

// foreignWrite is one write of somebody else to the held object.
func (x *explorer) foreignWrite(kind string) error {
	s := x.subject
	to := s.heldValue
	switch kind {
	case "status written":
		return s.changeStatus(x.person, "Noticed")
	case "resumed by hand":
		to = s.running
	}
	return s.change(x.person, s.held, s.heldObjectName(), func(obj *unstructured.Unstructured) error { return s.setPause(obj, to) })
}

// replace puts another object in the place of the held or of the named one. Where the two differ, the new named object has a held one of its
// own.
func (x *explorer) replace(which string) error {
	s := x.subject
	if which == "named" {
		if err := s.remove(x.person, s.named, worldName); err != nil {
			return err
		}
	}
	if err := s.remove(x.person, s.held, s.heldObjectName()); err != nil {
		return err
	}
	if s.indirect() && which == "held" {
		return s.createHeld(x.person, x.server.Stored(s.named, s.namespace(), worldName))
	}
	return s.create(x.person)
}

// contentKey hashes the request that a call waits on, without the resourceVersion it is bound to.
func (x *explorer) contentKey(n *node) uint64 {
	if n.content == 0 {
		h := &hasher{}
		h.text(n.next.Verb + n.next.GVR.Resource + n.next.Name + n.next.List.LabelSelector + n.next.List.Continue)
		if n.next.Object != nil {
			h.number(x.contentOf(n.next.Object))
		}
		n.content = h.sum()
	}
	return n.content
}

// essenceOf hashes what matters of the request that a call waits on; see essence.
func (x *explorer) essenceOf(n *node) uint64 {
	if n.next.Object != nil { // an update, of which there is one kind
		return x.essence(n.next.Object)
	}
	return x.contentKey(n)
}
