package meta

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// A Sentinel is a kind of failure, to be found with errors.Is.
type Sentinel string

// The kinds of failure (rule E1).
const (
	// ErrInvalid: the caller's input is wrong. Nothing was sent.
	ErrInvalid Sentinel = "invalid"
	// ErrRejected: the call was refused, by the rules or by the apiserver. The
	// same call again would be refused again unless something else changes.
	ErrRejected Sentinel = "rejected"
	// ErrStaleHold: another instance has overtaken this call. Is ErrRejected.
	ErrStaleHold Sentinel = "stale hold"
	// ErrDeadline: the deadline, or the caller's context, left no time for the
	// next request. Is ErrRejected.
	ErrDeadline Sentinel = "out of time"
	// ErrMissing: the named or the held object does not exist. Is ErrRejected.
	ErrMissing Sentinel = "no such object"
	// ErrReplaced: the name now belongs to an object with another UID. Is
	// ErrRejected.
	ErrReplaced Sentinel = "object replaced"
	// ErrForbidden: the apiserver answered 403, and an access review says that
	// this identity lacks the permission. Is ErrRejected and ErrUnsupported.
	ErrForbidden Sentinel = "forbidden"
	// ErrPodsRemain: resuming would run two executions at once; Error.Pods
	// names a pod that remains. Nothing was written.
	ErrPodsRemain Sentinel = "pods remain"
	// ErrConflict: no try is left, and the last one was lost to another writer.
	// apierrors.IsConflict holds as well.
	ErrConflict Sentinel = "conflict"
	// ErrUnsupported: this installation, or this kind, cannot do it.
	ErrUnsupported Sentinel = "unsupported"
	// ErrInDoubt: a write of this call may have committed, or may still do so
	// until Error.PendingUntil.
	ErrInDoubt Sentinel = "in doubt"
)

// Error is the sentinel's own text.
func (s Sentinel) Error() string { return string(s) }

// Is makes the narrower kinds of failure match the wider ones.
func (s Sentinel) Is(target error) bool {
	switch s {
	case ErrStaleHold, ErrDeadline, ErrMissing, ErrReplaced:
		return target == ErrRejected
	case ErrForbidden:
		return target == ErrRejected || target == ErrUnsupported
	}
	return false
}

// A Fate says what became of the writes of a call that returned an error
// (rule E3).
type Fate int

const (
	// FateNone: the call wrote nothing and never will. Claimed only if no
	// write of it was ever in doubt.
	FateNone Fate = iota
	// FateSettled: a write may have landed, and may have been overtaken since;
	// nothing more can land.
	FateSettled
	// FatePending: a write may still land until Error.PendingUntil.
	FatePending
)

// String returns none, settled or pending.
func (f Fate) String() string {
	return [...]string{"none", "settled", "pending"}[min(max(f, FateNone), FatePending)]
}

// An Error is how every call of this module fails (rule E2). Match it with
// errors.Is against a Sentinel, and take the details from it with errors.As.
// The error of the apiserver, or of the context that ended, stays in the chain.
type Error struct {
	// Kind is what errors.Is finds.
	Kind Sentinel
	// Op and Object are what was asked; Object is what the caller named.
	Op     Op
	Object Object
	// Instance is the instance asked for, Seen the one that was in force when
	// the call was decided, 0 if there was none or none could be read.
	Instance, Seen int64
	// Changed says that the instance in force changed during the call.
	Changed bool
	// Tries is how many tries were begun, 0 if nothing was sent.
	Tries int
	// Pods names what remains, for ErrPodsRemain.
	Pods []string
	// Detail says in words what happened.
	Detail string

	// Fate says what became of the writes of this call.
	Fate Fate
	// Held and UID name the object that was written, and Precondition is the
	// resourceVersion that the last write was bound to; empty if there was no
	// write. A live read of that object that shows another resourceVersion or
	// UID settles a pending fate before PendingUntil does.
	Held         Object
	UID          types.UID
	Precondition string
	// PendingUntil is set for FatePending: nothing of this call lands after.
	PendingUntil time.Time

	// Err is the cause: an API error, a context's error, or nil.
	Err error
}

// Errorf returns an Error of that kind with a formatted detail.
func Errorf(kind Sentinel, format string, args ...any) *Error {
	return &Error{Kind: kind, Detail: fmt.Sprintf(format, args...)}
}

// Invalidf returns an ErrInvalid with a formatted detail.
func Invalidf(format string, args ...any) *Error { return Errorf(ErrInvalid, format, args...) }

// Because returns e with err as its cause.
func (e *Error) Because(err error) *Error {
	e.Err = err
	return e
}

// Unwrap yields the kind and the cause.
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Err}
}

// Error tells the operation, the object, the numbers, the cause, and what
// became of the writes.
func (e *Error) Error() string {
	var b strings.Builder
	if e.Op != "" {
		fmt.Fprintf(&b, "%s of %s: ", e.call(), e.Object)
	}
	b.WriteString(string(e.Kind))
	if e.Detail != "" {
		fmt.Fprintf(&b, ": %s", e.Detail)
	}
	if len(e.Pods) > 0 {
		fmt.Fprintf(&b, ": %s", strings.Join(e.Pods, ", "))
	}
	if e.Err != nil {
		fmt.Fprintf(&b, ": %v", e.Err)
	}
	if e.Tries > 0 {
		fmt.Fprintf(&b, " (tries: %d; writes: %s)", e.Tries, e.fate())
	}
	return b.String()
}

func (e *Error) call() string {
	if e.Instance == 0 {
		return string(e.Op)
	}
	return fmt.Sprintf("%s(%d)", e.Op, e.Instance)
}

func (e *Error) fate() string {
	switch e.Fate {
	case FatePending:
		return fmt.Sprintf("in doubt until %s, on %s at resourceVersion %s",
			e.PendingUntil.UTC().Format(time.RFC3339), e.Held, e.Precondition)
	case FateSettled:
		return "may have landed, nothing more can"
	}
	return "none"
}
