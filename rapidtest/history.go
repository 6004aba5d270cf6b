package rapidtest

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/retry"
)

// A history is what happens to one object while calls run: every request with what its client saw
// of it, every version as it is committed, and what each caller was told. It checks all of it as it
// happens, and keeps the first rule that was broken. It is safe for concurrent use.
type history struct {
	subject *subject
	server  *Server
	bound   time.Duration // CallBound
	// counted says that the executions of the named object are counted, by the calls or by a gate.
	counted bool
	// protocol says that the calls are those of supervisors that follow the protocol.
	protocol bool

	mu       sync.Mutex
	start    time.Time
	broken   error
	events   []*event
	requests map[int64]*call
	calls    []*call
	// versions are the committed versions of the held object, whichever it was, from the one that
	// the history began with.
	versions []revision
	record   record
	initial  int64
	// illegible: somebody has put instances on the object that no call has, which the hold register
	// knows nothing of.
	illegible bool
	// resumed: somebody else has resumed the object, so that it may run beside its earlier pods.
	resumed bool
	// executions are those that had pods.
	executions map[string]bool
	reign      reign
}

// A revision is the held object as it was committed; the object is nil if it was deleted.
type revision struct {
	obj     *unstructured.Unstructured
	reading reading
	by      *call
}

// A call is one call of a supervisor.
type call struct {
	spec     callSpec
	asked    meta.Call
	name     string
	began    time.Time
	deadline time.Time
	// from and to are the first and the last version that were there while it ran.
	from, to int
	updates  int // transmissions
	doubts   int // updates whose answer did not say what became of them
	commits  int
	// seen is what its reads of the held object have shown, in order.
	seen []sighting
	// uid is that of the named object: the one that was asked for, or else the first that was read.
	uid types.UID
	// last is the last update that was sent. open says that nothing has told what became of it yet,
	// refused that it was answered 409, which the next read has to confirm (rules T3, T8).
	last          *Request
	open, refused bool
	// waits says that the last update has not been answered.
	waits bool
	out   *outcome
}

// A sighting is the instance that a call saw on an object.
type sighting struct {
	uid      types.UID
	instance int64
}

type callKey struct{}

// callOf is the call that a context was made for, nil if none.
func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

func newHistory(s *subject, server *Server, bound time.Duration) *history {
	h := &history{
		subject: s, server: server, bound: bound, start: time.Now(),
		requests: map[int64]*call{}, executions: map[string]bool{}, record: newRecord(0),
	}
	h.versions = []revision{{obj: h.held()}}
	if obj := h.held(); obj != nil {
		h.versions[0].reading = s.read(obj)
		h.initial = h.versions[0].reading.instance
		h.reign = reign{highest: max(h.initial, 0), newest: max(h.initial, 0)}
	}
	h.seePods()
	server.OnCommit(h.committed)
	return h
}

// held is the object that is held, nil if there is none.
func (h *history) held() *unstructured.Unstructured {
	all := h.server.StoredAll(h.subject.held)
	if len(all) == 0 {
		return nil
	}
	return all[0]
}

// breaks keeps the first rule that is broken. The caller has the mutex.
func (h *history) breaks(err error) {
	if err != nil && h.broken == nil {
		h.broken = err
		h.note(event{kind: evBroken, text: err.Error()})
	}
}

func (h *history) fail(rule, format string, args ...any) { h.breaks(breaks(rule, format, args...)) }

func (h *history) violated() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.broken
}

// wordSize is how many calls the record of a history can tell apart.
const wordSize = 64

// begin notes that a call begins, and returns a context for it.
func (h *history) begin(ctx context.Context, spec callSpec, ref meta.Ref, asked meta.Call) (context.Context, *call) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := &call{
		spec: spec, asked: asked, began: time.Now(), deadline: asked.Deadline, uid: ref.UID,
		from: len(h.versions) - 1,
	}
	c.name = fmt.Sprintf("%02d %s", len(h.calls)+1, spec)
	h.calls = append(h.calls, c)
	h.illegible = h.illegible || len(h.calls) > wordSize
	h.record.calls = append(h.record.calls, called{})
	h.record.invoke(len(h.calls) - 1)
	h.note(event{kind: evBegins, call: c})
	return context.WithValue(ctx, callKey{}, c), c
}

// returned notes what the caller of a call was told, and holds it against what was there.
func (h *history) returned(c *call, out outcome) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c.out, c.to = &out, len(h.versions)-1
	h.note(event{kind: evTold, call: c})
	if c.waits { // its time was over before an answer came
		c.answered(nil, context.DeadlineExceeded)
	}
	h.record.finish(slices.Index(h.calls, c), c.out, min(c.doubts, mostDoubts))
	if late := time.Since(c.deadline); late > 0 && time.Since(c.began) > 0 {
		h.fail("C3", "%s returned %v after its deadline", c.spec, late)
	}
	if c.open && !out.mayStillWrite() {
		h.fail("E3", "%s does not know what became of its last update, and was told: %s", c.spec, out)
	}
	if c.spec.op == meta.OpRelease && (out.ok() || out.failure().Kind == meta.ErrStaleHold) {
		h.reign.end(c.spec.instance)
	}
	if out.ok() {
		h.breaks(h.kept(c, out.receipt))
	} else {
		h.breaks(h.excused(c, out.failure()))
	}
}

// kept checks that a success is one: at the resourceVersion that the receipt names, the object was
// as the call says.
func (h *history) kept(c *call, r holdable.Receipt) error {
	at := slices.IndexFunc(h.versions, func(v revision) bool {
		return v.obj != nil && v.obj.GetResourceVersion() == r.ResourceVersion
	})
	if at < c.from || at > c.to {
		return breaks("H12", "%s was told %q at resourceVersion %s, which is none of those that the object had meanwhile",
			c.spec, r.Did, r.ResourceVersion)
	}
	v := h.versions[at].reading
	wrote := r.Did != holdable.InForce && r.Did != holdable.AlreadyOpen
	switch {
	case c.spec.op == meta.OpHold && (v.instance != c.spec.instance || !v.paused):
		return breaks("H2", "%s was told %q, but at resourceVersion %s instance %d is in force and paused is %v",
			c.spec, r.Did, r.ResourceVersion, v.instance, v.paused)
	case c.spec.op == meta.OpRelease && v.instance == c.spec.instance:
		return breaks("R2", "%s was told %q, but at resourceVersion %s the hold is in force", c.spec, r.Did, r.ResourceVersion)
	case c.spec.op == meta.OpOpen && !v.opened:
		return breaks("O1", "%s was told %q, but at resourceVersion %s the object is not open", c.spec, r.Did, r.ResourceVersion)
	case wrote && c.commits == 0 && c.doubts == 0:
		return breaks("R8", "%s was told %q, but has written nothing", c.spec, r.Did)
	case !wrote && c.commits > 0 && c.doubts == 0:
		return breaks("H2", "%s was told %q, but has written", c.spec, r.Did)
	case r.Executions != v.executions && !h.subject.indirect():
		return breaks("I6", "%s was told of %d executions, and the object counts %d", c.spec, r.Executions, v.executions)
	}
	return nil
}

// excused checks what a failure says (rules E2, E3, I8).
func (h *history) excused(c *call, e meta.Error) error {
	switch {
	case e.Kind == "":
		return breaks("E2", "%s failed without saying how: %v", c.spec, c.out.err)
	case e.Fate == meta.FateNone && c.commits > 0:
		return breaks("I8", "%s was told that nothing was written, but something was: %v", c.spec, c.out.err)
	case e.Fate == meta.FatePending && e.PendingUntil.After(c.deadline.Add(h.bound)):
		return breaks("C4", "%s may have an effect %v after its deadline: %v", c.spec, e.PendingUntil.Sub(c.deadline), c.out.err)
	case e.Fate == meta.FatePending && !c.open:
		return breaks("E3", "%s is said to be pending, though it knows what became of its updates: %v", c.spec, c.out.err)
	case e.Kind == meta.ErrStaleHold && !h.wasInForce(e.Seen, c.from):
		return breaks("E2", "%s is said to have seen instance %d, which was never in force while it ran", c.spec, e.Seen)
	}
	return nil
}

// wasInForce says whether an instance was in force at a version or later, 0 for none.
func (h *history) wasInForce(instance int64, from int) bool {
	return slices.ContainsFunc(h.versions[from:], func(v revision) bool { return max(v.reading.instance, 0) == instance })
}

// sent checks a request as it leaves (rules I7, I9, T1, C8).
func (h *history) sent(c *call, req *Request) *event {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.requests[req.ID] = c
	e := h.note(event{kind: evSends, call: c, req: req})
	if !time.Now().Before(c.deadline) {
		h.fail("I7", "a request of %s left %v after its deadline", c.spec, time.Since(c.deadline))
	}
	if c.out != nil {
		h.fail("I7", "a request of %s left after it had returned", c.spec)
	}
	if c.open && !c.refused && !isAccessReview(req.GVR) && !c.repeats(req) {
		h.fail("T3", "%s sends something else while it does not know what became of its update", c.spec)
	}
	if !req.Write() || isAccessReview(req.GVR) {
		return e
	}
	c.updates++
	c.last, c.refused, c.waits = req, false, true
	switch {
	case req.GVR != h.subject.held:
		h.fail("I9", "%s writes %s %s", c.spec, req.GVR.Resource, req.Name)
	case req.Verb != VerbUpdate || req.Subresource != "":
		h.fail("H1", "%s sends a %s of %s/%s, not an update", c.spec, req.Verb, req.GVR.Resource, req.Subresource)
	case precondition(req) == "":
		h.fail("T1", "%s sends an update without a precondition", c.spec)
	case req.FieldManager != retry.FieldManager || req.FieldValidation != "Strict":
		h.fail("C8", "%s sends an update as field manager %q with field validation %q", c.spec, req.FieldManager, req.FieldValidation)
	case c.updates > 1+retry.MaxRetries:
		h.fail("I7", "%s sends update number %d", c.spec, c.updates)
	case c.overtaken():
		h.fail("H6", "%s goes on although the instance in force changed to %d while it ran", c.spec, c.seen[len(c.seen)-1].instance)
	}
	return e
}

// overtaken says that two reads of a Hold show different instances on the object that the last one
// is of, and this one not its own (rule H6). What was read of another object between them does not
// count.
func (c *call) overtaken() bool {
	if c.spec.op != meta.OpHold || len(c.seen) == 0 {
		return false
	}
	now := c.seen[len(c.seen)-1]
	return now.instance != c.spec.instance && slices.ContainsFunc(c.seen, func(s sighting) bool {
		return s.uid == now.uid && s.instance != now.instance
	})
}

// repeats says whether a request is the last update once more.
func (c *call) repeats(req *Request) bool {
	return req.Verb == VerbUpdate && req.GVR == c.last.GVR && sameMap(req.Object.Object, c.last.Object.Object)
}

// answered notes what an answer tells of the last update.
func (c *call) answered(resp *Response, err error) {
	c.waits = false
	switch {
	case err != nil || resp.Code >= 500:
		c.doubts++
		c.open = true
	case resp.Code == http.StatusConflict:
		c.refused = true
	case resp.Code < 300 || resp.Code == http.StatusNotFound:
		c.open = false
	}
}

// sees notes what a read shows.
func (c *call) sees(s *subject, req *Request, resp *Response) {
	if resp == nil {
		return
	}
	obj := s.shown(resp)
	if req.GVR == s.named && obj != nil && c.uid == "" {
		c.uid = obj.GetUID()
	}
	if req.GVR != s.held {
		return
	}
	if obj != nil && (resp.List != nil || !s.indirect()) { // a look at the object of the last write is no lookup
		c.seen = append(c.seen, sighting{obj.GetUID(), s.read(obj).instance})
	}
	if c.last != nil && (resp.Code == http.StatusNotFound && req.Name == c.last.Name || c.moved(obj)) {
		c.open, c.refused = false, false
	}
}

// shown is the object that an answer is about: of a list, the one that has not ended.
func (s *subject) shown(resp *Response) *unstructured.Unstructured {
	if resp.List == nil {
		return resp.Object
	}
	items := lo.ToSlicePtr(resp.List.Items)
	if len(items) > 1 {
		items = lo.Filter(items, func(obj *unstructured.Unstructured, _ int) bool { return s.ended(obj) == "" })
	}
	if len(items) != 1 {
		return nil
	}
	return items[0]
}

// moved says whether an object is the one that was updated last, and has moved.
func (c *call) moved(obj *unstructured.Unstructured) bool {
	base := c.last.Object
	return obj != nil && obj.GetName() == base.GetName() &&
		(obj.GetUID() != base.GetUID() || obj.GetResourceVersion() != base.GetResourceVersion())
}

// heard notes what a client saw of its request.
func (h *history) heard(sent *event, resp *Response, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case !sent.req.Write():
		sent.call.sees(h.subject, sent.req, resp)
	case !isAccessReview(sent.req.GVR) && sent.call.out == nil:
		sent.call.answered(resp, err)
	}
	h.note(event{kind: evHears, call: sent.call, req: sent.req, resp: resp, err: err, fault: sent.fault})
}

// troubled notes what goes wrong with a request under way.
func (h *history) troubled(req *Request, fault string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.events {
		if e.kind == evSends && e.req.ID == req.ID {
			e.fault = fault
		}
	}
}

// committed checks one committed version, of whichever object.
func (h *history) committed(c Commit) {
	h.mu.Lock()
	defer h.mu.Unlock()
	by := h.requests[c.Request.ID]
	h.note(event{kind: evCommit, call: by, commit: &c})
	if by != nil {
		by.commits++
		h.breaks(h.permitted(by, c))
	}
	if c.GVR == h.subject.held {
		h.follow(by, c)
	}
	if c.GVR == h.subject.named && c.Type == "MODIFIED" {
		h.breaks(h.countsUp(c))
	}
	if c.GVR == Pods().GVR && c.Type == "ADDED" {
		h.seePods()
	}
}

// countsUp checks that A never falls, whoever writes the named object, and rises by one (rule I6).
func (h *history) countsUp(c Commit) error {
	p, n := h.subject.read(c.Previous).executions, h.subject.read(c.Object).executions
	if n != p && n != p+1 {
		return breaks("I6", "A went from %d to %d: %s", p, n, c.Request.User)
	}
	return nil
}

// permitted checks a commit of one of the calls.
func (h *history) permitted(by *call, c Commit) error {
	switch {
	case c.GVR != h.subject.held:
		return breaks("I9", "%s wrote %s %s", by.spec, c.GVR.Resource, c.Name)
	case by.out != nil && !by.out.mayStillWrite():
		return breaks("I8", "a write of %s was committed after it had returned: %s", by.spec, by.out)
	case time.Now().After(by.deadline.Add(h.bound)):
		return breaks("C4", "a write of %s was committed %v after its deadline", by.spec, time.Since(by.deadline))
	case by.out != nil && time.Now().After(by.out.failure().PendingUntil):
		return breaks("E3", "a write of %s was committed at %v, and was to be pending until %v", by.spec, time.Now(), by.out.failure().PendingUntil)
	case by.out != nil && !names(by.out.failure(), c.Previous):
		return breaks("E2", "a write of %s was committed over resourceVersion %s, which is not the one that its error names: %s",
			by.spec, c.Previous.GetResourceVersion(), by.out)
	case c.Type != "MODIFIED":
		return h.subject.audit(c.Previous, nil, by.spec)
	}
	if uid := h.subject.uidOfNamed(c.Object); by.uid != uid {
		return breaks("C6", "%s is about the object with UID %s, and wrote that with UID %s", by.spec, by.uid, uid)
	}
	p, n := h.subject.read(c.Previous), h.subject.read(c.Object)
	if by.spec.op != meta.OpOpen && p.instance > 0 && n.instance > 0 && p.paused && !n.paused {
		return breaks("I2", "%s left the object running under hold %d", by.spec, n.instance)
	}
	if err := h.subject.audit(c.Previous, c.Object, by.spec); err != nil {
		return err
	}
	return h.resumesAsItShould(by, p, n, c)
}

// uidOfNamed is the UID of the object that callers name to have obj held.
func (s *subject) uidOfNamed(obj *unstructured.Unstructured) types.UID {
	if s.indirect() {
		return types.UID(obj.GetLabels()[s.uidLabel])
	}
	return obj.GetUID()
}

// names says whether an error names a version of an object as the one that a write may still be
// made to (rule E2).
func names(e meta.Error, obj *unstructured.Unstructured) bool {
	return obj != nil && e.UID == obj.GetUID() && e.Precondition == obj.GetResourceVersion() && e.Held.Name == obj.GetName()
}

// resumesAsItShould checks what a release has made of the pause field (rule R2).
func (h *history) resumesAsItShould(by *call, p, n reading, c Commit) error {
	if by.spec.op == meta.OpHold {
		return by.signed(c.Object)
	}
	if !p.paused || n.paused {
		return nil
	}
	got, _, _ := unstructured.NestedFieldNoCopy(c.Object.Object, h.subject.path...)
	if want := h.subject.resumes(c.Previous, h.lastRunning()); got != want {
		return breaks("R2", "%s left %v in %s, and not %v", by.spec, got, retry.PathString(h.subject.path), want)
	}
	return nil
}

// signed checks that a hold says who placed it, why and when (rule H1).
func (c *call) signed(obj *unstructured.Unstructured) error {
	var k meta.Keys
	a := obj.GetAnnotations()
	if a[k.Holder()] != c.asked.Holder || a[k.Reason()] != c.asked.Reason {
		return breaks("H1", "%s is said to be by %q, because of %q", c.spec, a[k.Holder()], a[k.Reason()])
	}
	if since, err := time.Parse(time.RFC3339, a[k.Since()]); err != nil || since.After(time.Now()) {
		return breaks("H1", "%s is said to be there since %q", c.spec, a[k.Since()])
	}
	return nil
}

// lastRunning is the value of the pause field in the last version that was not paused.
func (h *history) lastRunning() any {
	for _, v := range slices.Backward(h.versions) {
		if v.obj != nil && !v.reading.paused {
			value, _, _ := unstructured.NestedFieldNoCopy(v.obj.Object, h.subject.path...)
			return value
		}
	}
	return h.subject.running
}

// follow takes a version of the held object into the history of holds.
func (h *history) follow(by *call, c Commit) {
	next := revision{by: by}
	if c.Type != "DELETED" {
		next.obj, next.reading = c.Object, h.subject.read(c.Object)
	}
	last := h.versions[len(h.versions)-1]
	h.versions = append(h.versions, next)
	if by == nil && last.reading.paused && next.obj != nil && !next.reading.paused {
		h.resumed = true
	}
	before, after := last.reading.instance, next.reading.instance
	switch {
	case before == after:
	case next.obj == nil || by == nil && after == 0:
		h.record.replace()
		h.reign.erase()
	case by == nil:
		h.illegible = true
	default:
		h.record.change()
		h.reign.change(before, after, by)
	}
	if h.protocol && h.reign.returned != "" {
		h.fail("I4", "%s", h.reign.returned)
	}
}

// seePods checks that no pod of one execution was made while one of another remains (rule I5), and
// that there is a count for each (rule I6).
func (h *history) seePods() {
	if h.subject.pods == nil {
		return
	}
	present := map[string]bool{}
	for _, pod := range h.server.StoredAll(Pods().GVR) {
		execution := pod.GetLabels()[ExecutionLabel]
		h.executions[execution] = true
		if podRemains(pod) {
			present[execution] = true
		}
	}
	if h.resumed {
		return
	}
	if len(present) > 1 {
		h.fail("I5", "pods of %d executions are there side by side", len(present))
	}
	if a := h.executionsCounted(); h.counted && int64(len(h.executions)) > a {
		h.fail("I6", "%d executions had pods, and A is %d", len(h.executions), a)
	}
}

// executionsCounted is A.
func (h *history) executionsCounted() int64 {
	named := h.server.Stored(h.subject.named, h.subject.namespace(), worldName)
	if named == nil {
		return 0
	}
	return h.subject.read(named).executions
}

// end checks what only a whole history shows: that some order of the calls explains what their
// callers were told.
func (h *history) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.broken != nil || h.illegible || len(h.calls) == 0 {
		return
	}
	h.breaks(h.judge().decide(h.record))
}

// mostDoubts is how many writes in doubt of one call the hold register is told of: each makes it
// harder to find an order.
const mostDoubts = 3

// judge returns a judge of the history's record.
func (h *history) judge() *judge {
	var specs []callSpec
	for _, c := range h.calls {
		specs = append(specs, c.spec)
	}
	j := newJudge(specs)
	j.initial = h.initial
	return j
}

// A reign is who was in force, as far as the supervisors' protocol cares (rule I4).
type reign struct {
	// highest is the newest hold that was in force and that nobody but a call has taken off, newest
	// the newest of all.
	highest, newest int64
	// over are the holds that were released, and returned says which hold came back, "" if none
	// did.
	over     map[int64]bool
	returned string
	// erased: somebody else has taken a hold off, or replaced the object, and no call has placed the
	// newest or one that is newer since.
	erased bool
}

// end notes that a hold was released, or that its supervisor was told that it is not there.
func (r *reign) end(instance int64) {
	if r.over == nil {
		r.over = map[int64]bool{}
	}
	r.over[instance] = true
}

// erase forgets the holds that others have taken off.
func (r *reign) erase() { r.highest, r.erased = 0, true }

func (r *reign) change(before, after int64, by *call) {
	switch {
	case after == 0:
		r.end(before)
	case after < r.highest:
		r.returned = fmt.Sprintf("%s is in force again, after hold %d was", by.spec, r.highest)
	case r.over[after]:
		r.returned = fmt.Sprintf("%s is in force again, after its supervisor was done with it", by.spec)
	}
	r.erased = r.erased && (after == 0 || after < r.newest)
	r.highest, r.newest = max(r.highest, after), max(r.newest, after)
}

// An event is one line of a timeline.
type event struct {
	at     time.Duration
	kind   eventKind
	call   *call
	req    *Request
	resp   *Response
	err    error
	commit *Commit
	fault  string
	text   string
}

type eventKind byte

const (
	evBegins eventKind = iota
	evSends
	evHears
	evCommit
	evTold
	evOther
	evBroken
)

// note adds an event, unless a rule is broken already. The caller has the mutex.
func (h *history) note(e event) *event {
	e.at = time.Since(h.start)
	if h.broken == nil || e.kind == evBroken {
		h.events = append(h.events, &e)
	}
	return &e
}

// other notes what somebody else does.
func (h *history) other(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.note(event{kind: evOther, text: fmt.Sprintf(format, args...)})
}

// timeline prints the history: who read what at which resourceVersion, what was sent, what was
// committed when, and what each caller was told.
func (h *history) timeline() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var b strings.Builder
	if obj := h.versions[0].obj; obj != nil {
		fmt.Fprintf(&b, "%10s  %-16s %s\n", "", "at the start", h.subject.describeVersion(obj))
	}
	for _, e := range h.events {
		who, what := h.line(e)
		if what != "" {
			fmt.Fprintf(&b, "%10s  %-16s %s\n", e.at.Round(time.Microsecond), who, what)
		}
	}
	return b.String()
}

func (h *history) line(e *event) (who, what string) {
	if e.call != nil {
		who = e.call.name
	}
	switch e.kind {
	case evBegins:
		return who, fmt.Sprintf("begins, to be over in %v", e.call.deadline.Sub(h.start)-e.at)
	case evSends:
		return who, "sends " + h.subject.describeRequest(e.req) + inBrackets(e.fault)
	case evHears:
		return who, "hears " + h.subject.describeAnswer(e.req, e.resp, e.err)
	case evCommit:
		if who == "" {
			who = e.commit.Request.User
		}
		return who, "COMMITS " + h.describeCommit(e.commit)
	case evTold:
		return who, "TOLD " + e.call.out.String()
	case evBroken:
		return "", "BROKEN " + e.text
	}
	return "", e.text
}

func inBrackets(s string) string {
	if s == "" {
		return ""
	}
	return " [" + s + "]"
}

func (h *history) describeCommit(c *Commit) string {
	what := strings.ToLower(string(c.Type))
	if c.Type != "DELETED" {
		if state := h.subject.describeState(c.Object); state != "" {
			what = state
		}
	}
	return fmt.Sprintf("%s %s at rv=%d: %s", c.GVR.Resource, c.Name, c.ResourceVersion, what)
}
