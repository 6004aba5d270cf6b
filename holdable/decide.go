package holdable

import (
	"fmt"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/retry"
)

// The decisions are pure: from what was read, the call, and the instance that
// the call saw last, to the edits to make, success without any, or a refusal.
// They send nothing and know no clock. What was read is never changed.

// Did says what a call that succeeded has done.
type Did string

const (
	// Placed: the hold was written by this call.
	Placed Did = "placed"
	// InForce: the hold was in force and asserted already; nothing was written.
	InForce Did = "already in force"
	// Lifted: the hold is off and the object may run.
	Lifted Did = "lifted"
	// KeptPaused: the hold is off, and the pause field was left as it was; Why
	// says why.
	KeptPaused Did = "kept paused"
	// Opened: the start gate is open and the object runs.
	Opened Did = "opened"
	// MarkedOpen: the start gate is open, and the object was left as it was;
	// Why says why.
	MarkedOpen Did = "marked open"
	// AlreadyOpen: it was open before; nothing was written.
	AlreadyOpen Did = "already open"
)

// A verdict is a decision that is no refusal.
type verdict struct {
	did Did
	why string
	// edits are what to write, none for nothing.
	edits []retry.Edit
	// resumes says that the edits let the object run, which they may do only
	// if no pod of it remains (rule R4).
	resumes bool
	// executions is A after the edits.
	executions int64
}

// seen is the instance that a read of a call saw, and on which object. It is
// all that one try passes on to the next (rule T1).
type seen struct {
	uid      types.UID
	instance int64
}

// changed reports whether another instance is in force than an earlier read saw
// (rule H6). On another object the comparison starts afresh.
func (s *seen) changed(uid types.UID, instance int64) bool {
	return s != nil && s.uid == uid && s.instance != instance
}

// A request is a Hold, Release or Open, with what its decision needs besides
// what was read.
type request struct {
	meta.Call
	keys meta.Keys
	now  time.Time
	// last is what was seen before what is there now, nil if the first read saw
	// it already.
	last *seen
}

func stale(v int64, changed bool, format string, args ...any) *meta.Error {
	e := meta.Errorf(meta.ErrStaleHold, format, args...)
	e.Seen, e.Changed = v, changed
	return e
}

// hold decides Hold.
func (h *Holdable[T]) hold(v view[T], r request) (verdict, error) {
	if err := h.mayHold(v, r); err != nil {
		return verdict{}, err
	}
	if v.instance() == r.Instance && v.paused {
		return verdict{did: InForce, executions: v.executions}, nil // H2
	}
	return verdict{did: Placed, edits: h.place(v, r), executions: v.executions}, nil // H1, H3, H5
}

// mayHold refuses a Hold (rules H4, H6, H8, H10, H11).
func (h *Holdable[T]) mayHold(v view[T], r request) error {
	in := v.instance()
	switch {
	case v.unknown != nil:
		return meta.Errorf(meta.ErrRejected, "a hold of unknown instance lies there").Because(v.unknown)
	case in > r.Instance:
		return stale(in, r.last.changed(v.uid, in), "instance %d is in force, which is newer", in)
	case in != r.Instance && r.last.changed(v.uid, in):
		return stale(in, true, "the instance in force changed during the call, from %s to %s", number(r.last.instance), number(in))
	case v.beingDeleted:
		return meta.Errorf(meta.ErrRejected, "the object is being deleted: what comes after it would not carry the hold")
	}
	return h.mayWrite(v)
}

// mayWrite refuses to write a pause field that belongs to someone else or is
// not what the kind says it is.
func (h *Holdable[T]) mayWrite(v view[T]) error {
	switch {
	case v.owner != "":
		return meta.Errorf(meta.ErrRejected, "%s is not ours to write: %s", retry.PathString(h.Pause.Path), v.owner)
	case v.badType != nil:
		return meta.Errorf(meta.ErrRejected, "the pause field cannot be read").Because(v.badType)
	case v.lacksTheParent:
		return meta.Errorf(meta.ErrRejected, "the object lacks %s, without which %s has no meaning",
			retry.PathString(h.Pause.Path[:len(h.Pause.Path)-1]), retry.PathString(h.Pause.Path))
	}
	return nil
}

// place returns the edits of a hold: the pause field and the six annotations.
func (h *Holdable[T]) place(v view[T], r request) []retry.Edit {
	hold := meta.Hold{
		Instance: r.Instance,
		Holder:   r.Holder,
		Reason:   r.Reason,
		Since:    r.now,
		UID:      v.uid,
	}
	hold.Found, hold.Restore = h.found(v)
	if v.instance() == r.Instance && !v.hold.Since.IsZero() {
		hold.Since = v.hold.Since
	}
	edits := []retry.Edit{retry.Set(h.Pause.Held, h.Pause.Path...)}
	values := r.keys.Annotations(hold)
	for _, key := range r.keys.OfHold() {
		edits = append(edits, retry.Set(values[key], Annotation(key)...))
	}
	return edits
}

// found is the record of rule H9. It is kept while a hold is in force and the
// field reads held, and taken anew otherwise.
func (h *Holdable[T]) found(v view[T]) (meta.Found, string) {
	switch {
	case v.hold != nil && v.paused:
		return v.hold.Found, v.hold.Restore
	case h.StartGate && !v.opened:
		return meta.FoundGate, ""
	case v.paused || v.deactivated != "":
		return meta.FoundPaused, ""
	}
	return meta.FoundRunning, h.Pause.found(v.value, v.present)
}

// release decides Release.
func (h *Holdable[T]) release(v view[T], r request) (verdict, error) {
	in := v.instance()
	switch {
	case v.unknown != nil:
		return verdict{}, stale(0, false, "a hold of unknown instance lies there").Because(v.unknown)
	case in != r.Instance:
		return verdict{}, stale(in, r.last.changed(v.uid, in), "%s is in force", number(in)) // R1, R8
	}
	out := verdict{did: Lifted, executions: v.executions}
	for _, key := range r.keys.OfHold() {
		out.edits = append(out.edits, retry.Remove(Annotation(key)...))
	}
	if why := h.keepsPaused(v); why != "" {
		out.did, out.why = KeptPaused, why
		return out, nil
	}
	return h.resume(v, r, out)
}

// keepsPaused says why lifting the hold does not resume the object (rules R3,
// R6, R7, H8), "" if it does.
func (h *Holdable[T]) keepsPaused(v view[T]) string {
	switch {
	case v.ended != "":
		return "it has ended: " + v.ended
	case v.beingDeleted:
		return "it is being deleted"
	case v.owner != "":
		return "its pause field is left to its owner: " + v.owner
	case v.hold.Found == meta.FoundPaused:
		return "the hold found it paused by someone else"
	case !v.opened && (h.StartGate || v.hold.Found == meta.FoundGate):
		return "it has not been opened, and is back at its start gate"
	}
	return ""
}

// open decides Open.
func (h *Holdable[T]) open(v view[T], r request) (verdict, error) {
	switch {
	case v.opened:
		return verdict{did: AlreadyOpen, executions: v.executions}, nil // O3
	case v.ended != "":
		return verdict{}, meta.Errorf(meta.ErrRejected, "the object has ended: %s", v.ended)
	case v.beingDeleted:
		return verdict{}, meta.Errorf(meta.ErrRejected, "the object is being deleted")
	}
	if err := h.mayWrite(v); err != nil {
		return verdict{}, err
	}
	out := verdict{
		did:        MarkedOpen,
		edits:      []retry.Edit{retry.Set(string(v.uid), Annotation(r.keys.Opened())...)},
		executions: v.executions,
	}
	switch {
	case v.unknown != nil:
		out.why = "a hold of unknown instance lies there: " + v.unknown.Error()
	case v.hold != nil:
		out.why = fmt.Sprintf("hold %d is in force", v.hold.Instance) // O2
	default:
		out.did = Opened
		return h.resume(v, r, out)
	}
	return out, nil
}

// resume adds to out what lets the object run (rules R4, O1): the pause field,
// and A for a kind with a start gate. An object whose field reads running
// already is in an execution that this one does not begin.
func (h *Holdable[T]) resume(v view[T], r request, out verdict) (verdict, error) {
	if v.badType != nil {
		return verdict{}, h.mayWrite(v)
	}
	if !v.paused {
		out.why = "it was running already"
		return out, nil
	}
	edit, err := h.Pause.resume(v.hold)
	if err != nil {
		return verdict{}, meta.Errorf(meta.ErrRejected, "the record of the hold cannot be restored").Because(err)
	}
	out.edits = append(out.edits, edit)
	out.resumes = true
	if !h.StartGate {
		return out, nil
	}
	if v.badExecutions != nil || v.executions == math.MaxInt64 {
		return verdict{}, meta.Errorf(meta.ErrRejected, "the count of executions cannot be raised").Because(v.badExecutions)
	}
	out.executions++
	a := r.keys.ExecutionsValue(v.uid, out.executions)
	out.edits = append(out.edits, retry.Set(a, Annotation(r.keys.Executions())...))
	return out, nil
}

// number writes an instance in words.
func number(instance int64) string {
	if instance == 0 {
		return "no hold"
	}
	return fmt.Sprintf("instance %d", instance)
}
