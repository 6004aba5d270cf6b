package retry

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/samber/lo"

	"github.com/kubehold/kubehold/meta"
)

// Do runs op until it succeeds, fails for good, or has been tried nine times
// (rule T2). No request leaves after deadline, nor after ctx has ended. The
// error is a *meta.Error.
func (e *Engine) Do(ctx context.Context, deadline time.Time, op Op) (Result, error) {
	// Adding to a time that time.Now returned gives the timer its monotonic
	// clock, whatever clock the caller's deadline came from (rule C3).
	until := time.Now().Add(time.Until(deadline))
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	c := &call{engine: e, op: op, ctx: ctx, until: until}
	if err := c.invalid(deadline); err != nil {
		return Result{}, c.fail(err)
	}
	c.backoff = e.backoff
	obj, err := c.run()
	if err != nil {
		return Result{}, c.fail(err)
	}
	return Result{Object: obj, Tries: c.tries}, nil
}

// A call is the state of one Do.
type call struct {
	engine  *Engine
	op      Op
	ctx     context.Context
	until   time.Time
	backoff wait.Backoff

	tries int
	// write is the last update that was sent, nil before the first.
	write *write
	// open says that the fate of write is not known (rule T3), doubted that
	// the fate of some write of this call was open or that one landed, which
	// is why no error may claim that there was none.
	open, doubted bool
	// moved says that a read has shown the object of write at another version,
	// so that write can commit no more, whatever became of the read.
	moved bool
	// refused says that write was last answered 409, which is a conflict only
	// if the next read shows that the object has moved (rule T8).
	refused bool
}

// A write is one update: what it was decided on, and what it sends.
type write struct {
	base, want *unstructured.Unstructured
	edits      []Edit
}

// passing marks an error that another try may mend.
type passing struct{ error }

func (p passing) Unwrap() error { return p.error }

func isPassing(err error) bool { return errors.As(err, new(passing)) }

// invalid refuses what cannot be run (rule C1).
func (c *call) invalid(deadline time.Time) error {
	switch {
	case c.engine == nil || c.engine.client == nil:
		return meta.Invalidf("an Engine that New did not make")
	case deadline.IsZero():
		return meta.Invalidf("no deadline")
	case c.op.Read == nil || c.op.Decide == nil:
		return meta.Invalidf("an Op without a Read or a Decide")
	}
	return nil
}

func (c *call) run() (*unstructured.Unstructured, error) {
	for {
		if err := c.left(nil); err != nil {
			return nil, err
		}
		c.tries++
		obj, err := c.try()
		if err == nil || !isPassing(err) {
			return obj, err
		}
		if ended := c.left(err); ended != nil {
			return nil, ended
		}
		if c.tries > c.engine.retries {
			return nil, c.exhausted(err)
		}
		if err := c.wait(err); err != nil {
			return nil, err
		}
	}
}

// try is one try. While the fate of a write is open, the same bytes go out
// again with the same precondition: at most one of the two can commit, so that
// a definite answer to the second is one to the first as well (rule T3). Every
// other try decides again from a new read (rule T1).
func (c *call) try() (*unstructured.Unstructured, error) {
	if c.open && !c.refused {
		return c.send()
	}
	read, err := c.op.Read(c.ctx, reader{c})
	if err == nil {
		err = identified(read)
	}
	if err != nil {
		return nil, c.readFailed(err)
	}
	landed, err := c.settle(read)
	if landed || err != nil {
		return read, err
	}
	d, err := c.op.Decide(read)
	if err != nil {
		return nil, err
	}
	if len(d.Edits) == 0 {
		return read, c.check(d)
	}
	want, err := Apply(read, d.Edits)
	if err != nil {
		return nil, meta.Errorf(meta.ErrRejected, "the object has another shape than its kind").Because(err)
	}
	if err := c.check(d); err != nil {
		return nil, err
	}
	c.write, c.moved = &write{base: read, want: want, edits: d.Edits}, false
	return c.send()
}

func (c *call) check(d Decision) error {
	if d.Check == nil {
		return nil
	}
	return d.Check(c.ctx, reader{c})
}

// settle compares a new read with the last write, if that was answered 409. It
// reports whether a write whose fate was open has landed (rule R8), and is an
// error if the 409 was no conflict (rule T8).
func (c *call) settle(read *unstructured.Unstructured) (landed bool, err error) {
	if !c.refused {
		return false, nil
	}
	now, err := c.written(read)
	if err != nil {
		return false, err
	}
	if now != nil && sameVersion(now, c.write.base) {
		return false, meta.Errorf(meta.ErrRejected,
			"the update was answered 409, but the object is still at resourceVersion %s: not a conflict", now.GetResourceVersion())
	}
	there := now == read && now.GetUID() == c.write.base.GetUID() && len(Missing(now, c.write.edits)) == 0
	landed = c.open && there
	// What lies there may be this call's all the same, if something between here
	// and the apiserver sent the update twice.
	c.doubted = c.doubted || there
	c.open, c.refused = false, false
	return landed, nil
}

// written returns the object of the last write as it is now, nil if it is gone.
// It is what was read, unless the call now deals with an object of another
// name, which tells nothing of the first.
func (c *call) written(read *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	base := c.write.base
	if read.GetName() == base.GetName() && read.GetNamespace() == base.GetNamespace() {
		return read, nil
	}
	return c.readWritten()
}

// readWritten reads the object of the last write, nil if it is gone.
func (c *call) readWritten() (*unstructured.Unstructured, error) {
	base := c.write.base
	now, err := reader{c}.Get(c.ctx, c.op.Resource, base.GetNamespace(), base.GetName())
	switch {
	case err == nil:
		return now, identified(now)
	case c.isGone(err):
		return nil, nil
	}
	return nil, err
}

func sameVersion(a, b *unstructured.Unstructured) bool {
	return a.GetUID() == b.GetUID() && a.GetResourceVersion() == b.GetResourceVersion()
}

// identified is an error if obj has no UID or no resourceVersion, without which
// an update has no precondition (rule T1).
func identified(obj *unstructured.Unstructured) error {
	if obj == nil || obj.GetUID() == "" || obj.GetResourceVersion() == "" {
		return meta.Errorf(meta.ErrRejected, "what was read is no stored object: it has no UID or no resourceVersion")
	}
	return nil
}

// readFailed settles an open fate where a read failed for good (rule T3): by the
// failure itself, if it says that the object is gone, or else by a look at the
// object, of which the failure may say nothing.
func (c *call) readFailed(err error) error {
	switch {
	case !c.open || c.moved || isPassing(err):
	case c.isGone(err):
		c.open = false
	default:
		now, unread := c.readWritten()
		c.open = unread != nil || now != nil && sameVersion(now, c.write.base)
	}
	return err
}

// saw notes what a read shows of the object of the last write. A read that
// failed shows nothing.
func (c *call) saw(resource schema.GroupVersionResource, obj *unstructured.Unstructured) {
	if c.write == nil || resource != c.op.Resource || identified(obj) != nil {
		return
	}
	base := c.write.base
	if obj.GetName() == base.GetName() && obj.GetNamespace() == base.GetNamespace() && !sameVersion(obj, base) {
		c.moved = true
	}
}

// isGone reports whether err says that the object of the last write does not
// exist. A 404 of anything else, a proxy's or a webhook's, does not say it.
func (c *call) isGone(err error) bool {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) || !apierrors.IsNotFound(err) || apierrors.IsUnexpectedServerError(err) {
		return false
	}
	d := status.Status().Details
	return d != nil && d.Name == c.write.base.GetName() &&
		d.Kind == c.op.Resource.Resource && d.Group == c.op.Resource.Group
}

// send transmits the write and judges the answer.
func (c *call) send() (*unstructured.Unstructured, error) {
	answer, sent, err := reader{c}.update(c.write)
	code := statusCode(err)
	switch {
	case err == nil:
		return c.accepted(answer, sent)
	case !c.hasLeft(err, sent):
		return nil, err // so it has no fate
	case code == http.StatusConflict:
		c.refused = true
		c.doubt(sent != 1)
		return nil, passing{err}
	case code == http.StatusTooManyRequests:
		c.doubt(sent != 1)
		return nil, passing{err}
	case code >= 400 && code < 500:
		c.doubt(sent != 1)
		if c.isGone(err) {
			c.open = false
		}
		return nil, err
	}
	c.doubt(true)
	return nil, passing{err}
}

// hasLeft reports whether an update that failed may have been transmitted.
func (c *call) hasLeft(err error, sent int) bool {
	return errors.As(err, new(*RequestError)) && (sent > 0 || !c.engine.counts)
}

// doubt leaves the fate of the write open, if so: an answer that does not say
// what became of it, or an answer to one transmission where there may have been
// others (rule C7).
func (c *call) doubt(so bool) {
	c.open = c.open || so
	c.doubted = c.doubted || so
}

// accepted looks at the answer to an update that the apiserver says it made
// (rule T7). An answer whose resourceVersion did not move closes the fate of no
// other transmission.
func (c *call) accepted(answer *unstructured.Unstructured, sent int) (*unstructured.Unstructured, error) {
	if answer.GetUID() != c.write.base.GetUID() || answer.GetResourceVersion() == "" {
		c.doubt(true)
		return nil, passing{meta.Errorf(meta.ErrRejected, "the answer to the update is not the object: kind %q, UID %q", answer.GetKind(), answer.GetUID())}
	}
	undone := Missing(answer, c.write.edits)
	if sameVersion(answer, c.write.base) {
		c.doubt(sent != 1)
		return nil, meta.Errorf(meta.ErrRejected,
			"the update was accepted, but changed nothing: something on the way undid %v", undone)
	}
	c.open = false
	if len(undone) > 0 {
		c.doubted = true
		return nil, meta.Errorf(meta.ErrRejected,
			"the update was stored at resourceVersion %s without %v: the schema lacks it, or something on the way took it out",
			answer.GetResourceVersion(), undone)
	}
	return answer, nil
}

// exhausted is the end of a call that has no tries left (rule T2).
func (c *call) exhausted(err error) error {
	kind := lo.Ternary(apierrors.IsConflict(err), meta.ErrConflict, meta.ErrRejected)
	return meta.Errorf(kind, "no try is left").Because(err)
}

// wait lets the time to the next try pass (rule T5).
func (c *call) wait(last error) error {
	d := max(c.backoff.Step(), retryAfter(last))
	if end, _ := c.ctx.Deadline(); time.Until(end) <= d {
		return meta.Errorf(meta.ErrDeadline, "the next try, in %v, would be too late", d).Because(last)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-c.ctx.Done():
	case <-t.C:
	}
	return c.left(last)
}

// left is an error if no request may leave any more (rules C2, C3), with the
// last failure beside the cause.
func (c *call) left(last error) error {
	err := expired(c.ctx)
	if err == nil {
		return nil
	}
	detail := "the deadline has passed"
	if time.Now().Before(c.until) {
		detail = "the caller's context has ended"
	}
	if last != nil {
		err = fmt.Errorf("%w; before that: %w", err, last)
	}
	return meta.Errorf(meta.ErrDeadline, "%s", detail).Because(err)
}

// fail completes the error of the call.
func (c *call) fail(err error) error {
	out := c.classify(err)
	out.Op, out.Object, out.Instance = c.op.Call.Op, c.op.Call.Object, c.op.Call.Instance
	out.Tries = c.tries
	if c.write != nil {
		base := c.write.base
		out.Held = meta.Object{Kind: base.GetKind(), Ref: meta.Ref{Namespace: base.GetNamespace(), Name: base.GetName()}}
		out.UID, out.Precondition = base.GetUID(), base.GetResourceVersion()
	}
	switch {
	case c.open && !c.moved:
		out.Kind, out.Fate, out.PendingUntil = meta.ErrInDoubt, meta.FatePending, c.until.Add(c.engine.bound)
	case c.doubted:
		out.Fate = meta.FateSettled
	}
	return out
}

// classify returns err as a *meta.Error of the right kind, with err's own chain
// below it.
func (c *call) classify(err error) *meta.Error {
	if own, ok := err.(*meta.Error); ok {
		copied := *own
		return &copied
	}
	if ended := c.left(err); ended != nil {
		return ended.(*meta.Error)
	}
	kind := meta.ErrRejected
	switch {
	case apierrors.IsNotFound(err) && !apierrors.IsUnexpectedServerError(err):
		kind = meta.ErrMissing
	case c.denied(err):
		kind = meta.ErrForbidden
	}
	return meta.Errorf(kind, "").Because(err)
}

// statusCode returns the HTTP status that err carries, 0 if it carries none.
func statusCode(err error) int32 {
	status := apierrors.APIStatus(nil)
	if errors.As(err, &status) {
		return status.Status().Code
	}
	return 0
}

// isExpired reports whether err is a list's page token that has expired.
func isExpired(err error) bool {
	reason := apierrors.ReasonForError(err)
	return reason == metav1.StatusReasonExpired || reason == metav1.StatusReasonGone
}
