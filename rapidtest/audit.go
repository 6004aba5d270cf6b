package rapidtest

import (
	"fmt"
	"maps"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubehold/kubehold/meta"
)

// A violation is a rule that a history breaks.
type violation struct {
	rule, what string
}

func (v violation) Error() string { return v.rule + ": " + v.what }

func breaks(rule, format string, args ...any) error {
	return violation{rule, fmt.Sprintf(format, args...)}
}

// A state of a hold as the audit reads it off an object.
type reading struct {
	// keys counts the annotations of a hold that is bound to this object.
	keys int
	// instance is the hold in force; 0 for none, -1 for one that cannot be understood.
	instance   int64
	found      string
	paused     bool
	opened     bool
	executions int64
	ended      bool
	deleting   bool
	inactive   bool // the kind's own controller pauses it
}

const unknownInstance = -1

// read reads an object the long way round, sharing no code with what it checks but the names of the annotations.
func (s *subject) read(obj *unstructured.Unstructured) reading {
	var k meta.Keys
	a, uid := obj.GetAnnotations(), string(obj.GetUID())
	r := reading{
		paused:   s.paused(obj),
		opened:   a[k.Opened()] == uid,
		ended:    s.ended(obj) != "",
		deleting: obj.GetDeletionTimestamp() != nil,
		inactive: s.deactivated(obj) != "",
		found:    "running",
	}
	if count, bound, ok := strings.Cut(a[k.Executions()], " "); ok && bound == uid {
		r.executions, _ = strconv.ParseInt(count, 10, 64)
	}
	if bound, ok := a[k.UID()]; ok && bound != uid {
		return r
	}
	for _, key := range k.OfHold() {
		if _, ok := a[key]; ok {
			r.keys++
		}
	}
	if r.keys == 0 {
		return r
	}
	n, err := strconv.ParseInt(a[k.Instance()], 10, 64)
	if err != nil || n < 1 {
		n = unknownInstance
	}
	r.instance = n
	if found, ok := a[k.Found()]; ok {
		r.found, _, _ = strings.Cut(found, "=")
	}
	return r
}

// audit checks one committed version against the one before it (rules I1, I2, I3, I6, I10, I11, and the rules on what a Hold, a Release and
// an Open write). by is the call that wrote it.
func (s *subject) audit(prev, next *unstructured.Unstructured, by callSpec) error {
	if prev == nil || next == nil {
		return breaks("I11", "%s created or deleted an object", by)
	}
	if err := s.foreignUntouched(prev, next); err != nil {
		return err
	}
	p, n := s.read(prev), s.read(next)
	if n.keys != 0 && n.keys != len((meta.Keys{}).OfHold()) && n.keys != p.keys {
		return breaks("I1", "%s left %d annotations of a hold", by, n.keys)
	}
	if err := s.auditExecutions(p, n, by); err != nil {
		return err
	}
	switch by.op {
	case meta.OpHold:
		return auditHold(s, p, n, by)
	case meta.OpRelease:
		return auditRelease(s, p, n, by)
	case meta.OpOpen:
		return auditOpen(p, n, by)
	}
	return breaks("I3", "%s wrote", by)
}

func auditHold(s *subject, p, n reading, by callSpec) error {
	switch {
	case p.instance == unknownInstance:
		return breaks("H10", "%s overwrote a hold of unknown instance", by)
	case p.instance > by.instance:
		return breaks("I3", "%s overwrote hold %d", by, p.instance)
	case n.instance != by.instance || n.keys != len((meta.Keys{}).OfHold()):
		return breaks("H1", "%s left instance %d in force, with %d annotations", by, n.instance, n.keys)
	case !n.paused:
		return breaks("I2", "%s left the object running", by)
	case p.deleting:
		return breaks("H11", "%s held an object that is being deleted", by)
	case n.opened != p.opened:
		return breaks("I10", "%s changed the opened mark", by)
	case n.found != s.expectFound(p):
		return breaks("H9", "%s recorded %q, and found %q", by, n.found, s.expectFound(p))
	}
	return nil
}

// expectFound is the record that a hold placed on p has to have.
func (s *subject) expectFound(p reading) string {
	switch {
	case p.instance > 0 && p.paused:
		return p.found
	case s.startGate && !p.opened:
		return "gate"
	case p.paused, p.inactive:
		return "paused"
	}
	return "running"
}

func auditRelease(s *subject, p, n reading, by callSpec) error {
	resumed := p.paused && !n.paused
	switch {
	case p.instance != by.instance:
		return breaks("I3", "%s lifted hold %d", by, p.instance)
	case n.keys != 0:
		return breaks("I1", "%s left %d annotations of the hold", by, n.keys)
	case !p.paused && n.paused:
		return breaks("R2", "%s paused the object", by)
	case resumed && p.ended:
		return breaks("R7", "%s resumed an object that has ended", by)
	case resumed && p.deleting:
		return breaks("R3", "%s resumed an object that is being deleted", by)
	case resumed && p.found == "paused":
		return breaks("R3", "%s resumed what it found paused", by)
	case resumed && s.startGate && !p.opened:
		return breaks("I10", "%s ran what the start gate holds", by)
	case !resumed && p.paused && !p.ended && !p.deleting && p.found != "paused" && (!s.startGate || p.opened):
		return breaks("R3", "%s kept paused what it should have resumed", by)
	case n.opened != p.opened:
		return breaks("I10", "%s changed the opened mark", by)
	}
	return nil
}

func auditOpen(p, n reading, by callSpec) error {
	resumed := p.paused && !n.paused
	switch {
	case !n.opened || p.opened:
		return breaks("O1", "%s wrote something else than the opened mark", by)
	case p.ended || p.deleting:
		return breaks("O3", "%s opened an object that has ended or is being deleted", by)
	case resumed && p.instance != 0:
		return breaks("I10", "%s resumed an object under hold %d", by, p.instance)
	case n.instance != p.instance || n.keys != p.keys:
		return breaks("O2", "%s changed the hold", by)
	case p.instance == 0 && n.paused:
		return breaks("O1", "%s left the object paused, though no hold is on it", by)
	}
	return nil
}

func (s *subject) auditExecutions(p, n reading, by callSpec) error {
	raised := n.executions - p.executions
	resumed := p.paused && !n.paused
	switch {
	case raised < 0:
		return breaks("I6", "%s let A fall from %d to %d", by, p.executions, n.executions)
	case raised > 1, raised == 1 && !resumed:
		return breaks("I6", "%s raised A from %d to %d without an execution for each", by, p.executions, n.executions)
	case raised == 0 && resumed && s.startGate:
		return breaks("I6", "%s began an execution and left A at %d", by, n.executions)
	}
	return nil
}

// foreignUntouched checks that two versions differ in nothing but what is ours to write (rule I11).
func (s *subject) foreignUntouched(prev, next *unstructured.Unstructured) error {
	p, n := s.withoutOurs(prev), s.withoutOurs(next)
	if sameMap(p, n) {
		return nil
	}
	return breaks("I11", "a write changed what is not ours:\n\tbefore %v\n\tafter  %v", p, n)
}

// withoutOurs is what is left of an object without the fields that are ours, or the server's.
func (s *subject) withoutOurs(obj *unstructured.Unstructured) map[string]any {
	var k meta.Keys
	out := withoutField(obj.Object, s.path)
	for _, f := range []string{"resourceVersion", "generation", "managedFields"} {
		out = withoutField(out, []string{"metadata", f})
	}
	for _, key := range append(k.OfHold(), k.Opened(), k.Executions()) {
		out = withoutField(out, []string{"metadata", "annotations", key})
	}
	return out
}

// withoutField is m without a field, sharing the rest. Maps that the field leaves empty go with it: whether they are there says nothing.
func withoutField(m map[string]any, path []string) map[string]any {
	v, ok := m[path[0]]
	if !ok {
		return m
	}
	if len(path) == 1 {
		m = maps.Clone(m)
		delete(m, path[0])
		return m
	}
	child, ok := v.(map[string]any)
	if !ok {
		return m
	}
	m = maps.Clone(m)
	m[path[0]] = withoutField(child, path[1:])
	if len(m[path[0]].(map[string]any)) == 0 {
		delete(m, path[0])
	}
	return m
}
