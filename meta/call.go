package meta

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// MaxHolderBytes is the longest Holder of a Call (rule C1).
	MaxHolderBytes = 253
	// MaxReasonBytes is the longest Reason of a Call (rule C1).
	MaxReasonBytes = 4 << 10
)

// An Op names what a call asks for.
type Op string

// The operations of a holder.
const (
	OpHold    Op = "Hold"
	OpRelease Op = "Release"
	OpOpen    Op = "Open"
	OpInspect Op = "Inspect"
	// OpAnswer is the readmission gate's, which is no holder.
	OpAnswer Op = "Answer"
)

// A Call is what a supervisor says with every Hold, Release and Open.
type Call struct {
	// Instance names one hold of one object. It comes from a durable counter
	// that only grows; a larger number is a newer hold. Open ignores it.
	Instance int64
	// Deadline is when the last request of this call may leave. It must be
	// set. It is turned into one monotonic timer when the call begins, so that
	// a step of the wall clock does not move it (rule C3).
	Deadline time.Time
	// Holder says who calls, in at most MaxHolderBytes of UTF-8.
	Holder string
	// Reason says why, in at most MaxReasonBytes of UTF-8.
	Reason string
}

// Check returns an ErrInvalid when the call may not be made as op (rule C1).
// Whether the deadline has passed is not looked at here.
func (c Call) Check(op Op) error {
	switch {
	case c.Instance < 1 && op != OpOpen:
		return Invalidf("instance %d: must be 1 or more", c.Instance)
	case c.Instance < 0:
		return Invalidf("instance %d: must not be negative", c.Instance)
	case c.Deadline.IsZero():
		return Invalidf("no deadline")
	}
	if err := checkText("holder", c.Holder, MaxHolderBytes); err != nil {
		return err
	}
	return checkText("reason", c.Reason, MaxReasonBytes)
}

func checkText(what, s string, limit int) error {
	if len(s) > limit {
		return Invalidf("%s of %d bytes: at most %d fit", what, len(s), limit)
	}
	if !utf8.ValidString(s) {
		return Invalidf("%s %q: not UTF-8, so it would not be stored as given", what, s)
	}
	return nil
}

// A Ref names the object that a call is about.
type Ref struct {
	// Namespace is empty for a cluster-scoped kind, and only for one.
	Namespace string
	Name      string
	// UID, when set, pins the object: another object of the same name is
	// refused with ErrReplaced (rule C6). In Kueue mode it also saves the
	// read of the named object.
	UID types.UID
}

// Check returns an ErrInvalid when r cannot name an object of that scope.
func (r Ref) Check(clusterScoped bool) error {
	switch {
	case r.Name == "":
		return Invalidf("no name")
	case r.Namespace == "" && !clusterScoped:
		return Invalidf("no namespace for %q, whose kind is namespaced", r.Name)
	case r.Namespace != "" && clusterScoped:
		return Invalidf("namespace %q for %q, whose kind is cluster-scoped", r.Namespace, r.Name)
	}
	for _, segment := range []struct{ what, s string }{{"namespace", r.Namespace}, {"name", r.Name}} {
		if bad := content.IsPathSegmentName(segment.s); len(bad) > 0 {
			return Invalidf("%s %q: %s", segment.what, segment.s, strings.Join(bad, ", "))
		}
	}
	return nil
}

// An Object is a Ref with its kind, for people to read.
type Object struct {
	Kind string
	Ref
}

// String returns, for example, "TrainJob team-a/llm".
func (o Object) String() string {
	if o.Namespace == "" {
		return fmt.Sprintf("%s %s", o.Kind, o.Name)
	}
	return fmt.Sprintf("%s %s/%s", o.Kind, o.Namespace, o.Name)
}

const (
	// DefaultRequestTimeout is the apiserver's own default --request-timeout.
	DefaultRequestTimeout = 60 * time.Second
	// DefaultMargin is added to the request timeout for the network, etcd,
	// pauses of the client and the distance of two clocks.
	DefaultMargin = 5 * time.Second
)

// CallBound returns how long after its Deadline a call can still have an
// effect (rule C4): a request that left in time commits within the apiserver's
// request timeout plus a margin. Zero values mean the defaults: 60 s, and the
// request timeout plus 5 s. A bound that is not above the request timeout
// promises what nobody keeps, and is ErrInvalid.
func CallBound(requestTimeout, bound time.Duration) (time.Duration, error) {
	if requestTimeout == 0 {
		requestTimeout = DefaultRequestTimeout
	}
	if bound == 0 {
		bound = requestTimeout + DefaultMargin
	}
	if requestTimeout < 0 || bound <= requestTimeout {
		return 0, Invalidf("a call bound of %v is not above the apiserver's request timeout of %v", bound, requestTimeout)
	}
	return bound, nil
}
