package rapidtest

import (
	"errors"
	"fmt"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/meta"
)

// A callSpec is one call of a supervisor.
type callSpec struct {
	op       meta.Op
	instance int64
}

func (c callSpec) String() string {
	if c.op == meta.OpOpen {
		return string(c.op)
	}
	return fmt.Sprintf("%s(%d)", c.op, c.instance)
}

// An outcome is what a caller was told.
type outcome struct {
	receipt holdable.Receipt
	err     error
}

// ok says that the call succeeded.
func (o outcome) ok() bool { return o.err == nil }

// failure is the call's error, the zero one for a success.
func (o outcome) failure() meta.Error {
	var e *meta.Error
	if errors.As(o.err, &e) {
		return *e
	}
	return meta.Error{}
}

// class puts outcomes together that mean the same to a caller.
func (o outcome) class() string {
	if o.ok() {
		return string(o.receipt.Did)
	}
	return string(o.failure().Kind)
}

// String tells the outcome as a caller reads it.
func (o outcome) String() string {
	if !o.ok() {
		return o.err.Error()
	}
	text := string(o.receipt.Did)
	if o.receipt.Why != "" {
		text += ": " + o.receipt.Why
	}
	return text
}

// mayStillWrite says whether a write of the call may still commit after it has returned.
func (o outcome) mayStillWrite() bool { return o.failure().Fate == meta.FatePending }

// wroteNothing says whether the caller was told that nothing was written, ever (rule I8).
func (o outcome) wroteNothing() bool {
	return !o.ok() && o.failure().Fate == meta.FateNone
}
