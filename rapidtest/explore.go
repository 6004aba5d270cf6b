package rapidtest

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/meta"
)

// bounds are the limits of an exploration, within which it is complete.
type bounds struct {
	// faults and foreign are how many faults and foreign writes one history has at the most.
	faults, foreign int
	// retries is how often a call tries again.
	retries int
}

// outcomeClasses are the ways in which a call may end.
func outcomeClasses() []string {
	return []string{
		string(holdable.Placed), string(holdable.InForce), string(holdable.Lifted), string(holdable.KeptPaused),
		string(holdable.Opened), string(holdable.MarkedOpen), string(holdable.AlreadyOpen),
		string(meta.ErrStaleHold), string(meta.ErrConflict), string(meta.ErrInDoubt), string(meta.ErrPodsRemain),
		string(meta.ErrReplaced), string(meta.ErrMissing), string(meta.ErrRejected),
	}
}

// A tally is what an exploration has come across: how many histories, and how many of them have a call that ended in each of the
// outcomeClasses.
type tally struct {
	histories uint64
	outcomes  [14]uint64
}

func (t *tally) add(other tally) {
	t.histories += other.histories
	for i, n := range other.outcomes {
		t.outcomes[i] += n
	}
}

// An explorer goes through every history of a few calls on one object: every order of their requests, with every fault and every foreign
// write in every place. What can happen next depends only on the state of the world, so that each state is left only once.
//
// The state of the world is what the server has stored, the writes that the network holds back, how many faults and foreign writes are still
// to come, what the callers have been told, and where each call stands. Where a call stands is no secret of the engine's: it is how many
// requests of it have failed, the request that it waits on, the last write that it sent and whether an answer has left that one's fate open,
// and the last objects that it read (see memory). Of resourceVersions it matters which are equal and which are current, not their numbers.
type explorer struct {
	subject *subject
	bounds  bounds
	calls   []*callTree
	server  *Server
	person  dynamic.Interface
	faults  []faultKind
	commits []Commit
	seen    map[stateKey]tally
	// oneByOne: a state is left as often as it is reached, and not only once.
	oneByOne bool
	stores   map[string]*storeNode
	// contents remembers what contentOf found.
	contents map[*unstructured.Unstructured]uint64
	essences map[*unstructured.Unstructured]uint64
	judge    *judge
}

// A worldState is everything that the future depends on, and how it came about.
type worldState struct {
	store   *storeNode
	at      []*node
	late    []lateWrite
	faults  int
	foreign int
	// wrote says which calls have committed something.
	wrote []bool
	// memories are what the calls know.
	memories []memory
	// versions translate the resourceVersions that the calls see.
	versions []versions
	// record is the history as callers and the hold register saw it.
	record record

	from *worldState
	// did tells what led here from there; called only for a timeline.
	did func() string
}

// versions are the resourceVersions that a call has seen, in the order in which it saw them. The call itself is shown their places in that
// order, so that it does the same in histories that differ in nothing else: resourceVersions mean nothing to it but equal or not.
type versions []string

// shown returns the place of a resourceVersion, and the versions with it.
func (v versions) shown(rv string) (int, versions) {
	if i := slices.Index(v, rv); i >= 0 {
		return i, v
	}
	return len(v), append(slices.Clip(v), rv)
}

// real returns the request that a call waits on with the real resourceVersion in it.
func (v versions) real(n *node) *Request {
	req := n.next
	if req == nil || req.Object == nil {
		return req
	}
	i, err := strconv.Atoi(req.Object.GetResourceVersion())
	if err != nil || i >= len(v) {
		return req
	}
	bound, ok := n.bound[v[i]]
	if !ok {
		bound = req.With(func(r *Request) { r.Object = withVersionText(req.Object, v[i]) })
		n.bound[v[i]] = bound
	}
	return bound
}

// show is the answer as the call sees it, with a key that tells answers apart by everything that the call can see.
func (x *explorer) show(v versions, a answer) (string, versions, func() answer) {
	if a.err != nil {
		return a.err.Error(), v, func() answer { return a }
	}
	h := &hasher{}
	h.number(uint64(a.resp.Code))
	if a.resp.Status != nil {
		h.text(string(a.resp.Status.Reason))
		return string(h.buf), v, func() answer { return a }
	}
	places := make([]string, 0, 1)
	for _, obj := range a.objects() {
		var i int
		i, v = v.shown(obj.GetResourceVersion())
		places = append(places, strconv.Itoa(i))
		h.number(x.contentOf(obj))
		h.number(uint64(i))
	}
	return string(h.buf), v, func() answer { return a.withVersions(places) }
}

// withVersions is the answer with other resourceVersions on its objects.
func (a answer) withVersions(rvs []string) answer {
	resp := *a.resp
	if resp.Object != nil {
		resp.Object = withVersionText(resp.Object, rvs[0])
		return answer{resp: &resp}
	}
	list := *resp.List
	list.Items = slices.Clone(list.Items)
	for i := range list.Items {
		list.Items[i] = *withVersionText(&list.Items[i], rvs[i])
	}
	resp.List = &list
	return answer{resp: &resp}
}

// A memory is all that a call carries along between two requests.
type memory struct {
	// failures is how many of its requests have failed, which is how many tries it has behind it, and last what the last answer said.
	failures int
	last     answerClass
	// open: an answer has left the fate of the last write open. doubted is for how many writes it did.
	open    bool
	doubted int
	// refused: the last write was answered 409, which the next read of its object has to confirm.
	refused bool
	// wrote, read and named are the contents of the last write that was sent, and of the last held and named objects that were read, base and
	// version the resourceVersions of the first two.
	wrote, read, named uint64
	base, version      string
}

// An answerClass is all that an answer tells besides an object.
type answerClass byte

const (
	succeeds answerClass = iota
	conflicts
	tooMany
	refuses
	tellsNothing
)

func (a answer) class() answerClass {
	switch {
	case a.err != nil || a.resp.Code >= 500:
		return tellsNothing
	case a.resp.Code == http.StatusConflict:
		return conflicts
	case a.resp.Code == http.StatusTooManyRequests:
		return tooMany
	case a.resp.Code >= 400:
		return refuses
	}
	return succeeds
}

// learns is what a call knows after an answer to a request.
func (m memory) learns(x *explorer, req *Request, a answer) memory {
	s := x.subject
	m.last = a.class()
	if m.last != succeeds {
		m.failures++
	}
	switch {
	case req.Write():
		if content, base := x.essence(req.Object), req.Object.GetResourceVersion(); content != m.wrote || base != m.base {
			m.wrote, m.base, m.open = content, base, false
		}
		if m.last == tellsNothing && !m.open {
			m.open = true
			m.doubted++
		}
		m.refused = m.last == conflicts
	case m.last == succeeds && req.GVR == s.held:
		m.read, m.version = 0, ""
		for _, obj := range a.objects() {
			m.read, m.version = m.read*31+x.essence(obj), m.version+obj.GetResourceVersion()+" "
		}
	case m.last == succeeds && req.GVR == s.named:
		m.named = x.essence(a.resp.Object)
	case m.last != succeeds: // of a read that failed it does not matter how
		m.last = tellsNothing
	}
	return m
}

func (a answer) objects() []*unstructured.Unstructured {
	if a.resp.Object != nil {
		return []*unstructured.Unstructured{a.resp.Object}
	}
	var objects []*unstructured.Unstructured
	for i := range a.resp.List.Items {
		objects = append(objects, &a.resp.List.Items[i])
	}
	return objects
}

// contentOf hashes an object without its resourceVersion and generation, which rise with every write. Objects do not change, so that it
// remembers.
func (x *explorer) contentOf(obj *unstructured.Unstructured) uint64 {
	sum, ok := x.contents[obj]
	if !ok {
		v := stored{obj: obj}
		sum = v.contentHash()
		x.contents[obj] = sum
	}
	return sum
}

// essence hashes what a call can act on of an object: a call keeps no more of what it has read than that, and an update that it has prepared
// has the rest from the version that it is bound to, or cannot commit.
func (x *explorer) essence(obj *unstructured.Unstructured) uint64 {
	sum, ok := x.essences[obj]
	if !ok {
		h := &hasher{}
		h.text(string(obj.GetUID()))
		if obj.GetKind() == x.subject.heldKind {
			h.text(fmt.Sprint(x.subject.read(obj)))
		}
		sum = h.sum()
		x.essences[obj] = sum
	}
	return sum
}

// A lateWrite is a write that the network holds back.
type lateWrite struct {
	call int
	from *node
	req  *Request
}

// errors and answers that faults produce.
type faultKind struct {
	name string
	// executes: the server executes the request. later: it does so at some later time.
	executes, later bool
	// replace names what is replaced by another object of the same name before the request.
	replace string
	// sees is what the client sees; nil: the server's own answer.
	sees func() answer
	// writesOnly: it makes no difference to a read.
	writesOnly bool
}

func faultKinds(s *subject) []faultKind {
	code := func(code int) func() answer { return func() answer { return answer{resp: answerOf(code)} } }
	broken := func(err error) func() answer { return func() answer { return answer{err: err} } }
	kinds := []faultKind{
		{name: "lost before", sees: broken(&netError{syscall.ECONNREFUSED})},
		{name: "response lost", executes: true, sees: broken(io.ErrUnexpectedEOF), writesOnly: true},
		{name: "committed late, 504", later: true, sees: code(http.StatusGatewayTimeout), writesOnly: true},
		{name: "duplicated", executes: true, later: true, writesOnly: true},
		{name: "409 of a webhook", sees: code(http.StatusConflict), writesOnly: true},
		{name: "429", sees: code(http.StatusTooManyRequests)},
		{name: "500", sees: code(http.StatusInternalServerError)},
		{name: "504 committed", executes: true, sees: code(http.StatusGatewayTimeout), writesOnly: true},
		{name: "504 not committed", sees: code(http.StatusGatewayTimeout), writesOnly: true},
		{name: "object replaced", executes: true, replace: "held"},
	}
	if s.indirect() {
		kinds = append(kinds, faultKind{name: "named object replaced", executes: true, replace: "named"})
	}
	return kinds
}

// foreignKinds are the writes of others: a controller's status, and a person who pauses or resumes by hand.
func foreignKinds() []string { return []string{"status written", "resumed by hand", "paused by hand"} }

// newExplorer makes the world in its starting state. It must be called in a synctest bubble, and stopped there.
func newExplorer(s *subject, b bounds, st start, specs ...callSpec) (*explorer, *worldState, error) {
	x := &explorer{
		subject: s, bounds: b, server: s.server(), faults: faultKinds(s), judge: newJudge(specs),
		seen: map[stateKey]tally{}, stores: map[string]*storeNode{},
		contents: map[*unstructured.Unstructured]uint64{}, essences: map[*unstructured.Unstructured]uint64{},
	}
	x.person = x.server.Dynamic("setup")
	if err := s.create(x.person); err != nil {
		return nil, nil, err
	}
	if err := st.make(s, x.person); err != nil {
		return nil, nil, err
	}
	for _, spec := range specs {
		t, err := newCallTree(s, s.ref(x.server), spec, b.retries)
		if err != nil {
			return nil, nil, err
		}
		x.calls = append(x.calls, t)
	}
	x.server.OnCommit(func(c Commit) { x.commits = append(x.commits, c) })
	w := &worldState{
		store: x.here(), at: make([]*node, len(specs)),
		wrote: make([]bool, len(specs)), memories: make([]memory, len(specs)),
		versions: make([]versions, len(specs)), record: newRecord(len(specs)),
		did: func() string { return "start: " + st.name },
	}
	for i, t := range x.calls {
		w.at[i] = t.root
	}
	x.judge.initial = s.read(w.store.held).instance
	return x, w, nil
}

func (x *explorer) stop() {
	for _, t := range x.calls {
		t.stop()
	}
}

// A move is one thing that may happen next.
type move struct {
	name string
	make func(*worldState) error
}

// explore visits w and all that follows from it. The error is a *counterexample.
func (x *explorer) explore(w *worldState) (tally, error) {
	key := x.key(w)
	if t, ok := x.seen[key]; ok && !x.oneByOne {
		return t, nil
	}
	var sum tally
	moves := x.moves(w)
	if len(moves) == 0 {
		if err := x.judge.end(w); err != nil {
			return sum, &counterexample{w, err}
		}
		sum = x.ended(w)
	}
	for _, m := range moves {
		next, err := x.apply(w, m)
		if err != nil {
			return sum, err
		}
		if next == nil {
			continue
		}
		t, err := x.explore(next)
		if err != nil {
			return sum, err
		}
		sum.add(t)
	}
	x.seen[key] = sum
	return sum, nil
}

// shortest returns a shortest counterexample, breadth first.
func (x *explorer) shortest(w *worldState) error {
	seen := map[stateKey]bool{}
	for queue := []*worldState{w}; len(queue) > 0; {
		w, queue = queue[0], queue[1:]
		key := x.key(w)
		if seen[key] {
			continue
		}
		seen[key] = true
		moves := x.moves(w)
		if len(moves) == 0 {
			if err := x.judge.end(w); err != nil {
				return &counterexample{w, err}
			}
		}
		for _, m := range moves {
			next, err := x.apply(w, m)
			if err != nil {
				return err
			}
			if next != nil {
				queue = append(queue, next)
			}
		}
	}
	return nil
}

// ended counts a history that is over.
func (x *explorer) ended(w *worldState) tally {
	t := tally{histories: 1}
	for _, n := range w.at {
		t.outcomes[slices.Index(outcomeClasses(), n.done.class())] = 1
	}
	return t
}

// moves lists what may happen next.
func (x *explorer) moves(w *worldState) []move {
	var moves []move
	running := false
	for i, n := range w.at {
		if n.done != nil {
			continue
		}
		running = true
		moves = append(moves, move{"", x.step(i, faultKind{executes: true})})
		if w.faults == x.bounds.faults {
			continue
		}
		for _, f := range x.faults {
			if f.writesOnly && !n.next.Write() {
				continue
			}
			moves = append(moves, move{f.name, x.step(i, f)})
		}
	}
	for i := range w.late {
		moves = append(moves, move{"", x.land(i)})
	}
	if w.foreign < x.bounds.foreign && (running || len(w.late) > 0) {
		for _, kind := range foreignKinds() {
			moves = append(moves, move{"", x.foreign(kind)})
		}
	}
	return moves
}

// apply returns the state after a move, nil for one that changes nothing. The error is a *counterexample.
func (x *explorer) apply(w *worldState, m move) (*worldState, error) {
	next := &worldState{
		store: w.store, at: slices.Clone(w.at), late: slices.Clone(w.late), faults: w.faults, foreign: w.foreign,
		wrote: slices.Clone(w.wrote), memories: slices.Clone(w.memories), versions: slices.Clone(w.versions),
		record: w.record.clone(), from: w,
	}
	if err := m.make(next); err != nil {
		return nil, &counterexample{next, err}
	}
	if next.foreign > w.foreign && next.store == w.store {
		return nil, nil
	}
	next.late = slices.DeleteFunc(next.late, func(l lateWrite) bool { return !next.store.mayCommit(l.req) })
	return next, nil
}

// step executes and answers the request that a call waits on, under a fault.
func (x *explorer) step(i int, f faultKind) func(*worldState) error {
	return func(w *worldState) error {
		n := w.at[i]
		req := w.versions[i].real(n)
		if f.name != "" {
			w.faults++
		}
		if n.parent == nil {
			w.record.invoke(i)
		}
		if f.replace != "" {
			w.record.replace()
			if err := x.others(w, f.replace, func() error { return x.replace(f.replace) }); err != nil {
				return err
			}
		}
		var a answer
		w.did = func() string { return x.tellStep(i, req, f, a, w.at[i]) }
		if f.executes {
			var err error
			if a, err = x.execute(w, i, n, req); err != nil {
				return err
			}
		}
		if f.later {
			w.late = append(w.late, lateWrite{i, n, req})
		}
		if f.sees != nil {
			a = f.sees()
		}
		w.memories[i] = w.memories[i].learns(x, req, a)
		return x.deliver(w, i, a)
	}
}

func (x *explorer) tellStep(i int, req *Request, f faultKind, a answer, n *node) string {
	text := fmt.Sprintf("%s: %s", x.calls[i].spec, describe(x.subject, req))
	if f.name != "" {
		text += " [" + f.name + "]"
	}
	text += " -> " + a.String()
	if n.done != nil {
		text += fmt.Sprintf("; told: %s", n.done)
	}
	return text
}

// deliver gives a call its answer.
func (x *explorer) deliver(w *worldState, i int, a answer) error {
	key, seen, shown := x.show(w.versions[i], a)
	w.versions[i] = seen
	next, err := x.calls[i].after(w.at[i], key, shown)
	if err != nil {
		return err
	}
	w.at[i] = next
	if next.done == nil {
		return nil
	}
	w.record.finish(i, next.done, w.memories[i].doubted)
	return x.told(w, i, next.done)
}

// told holds what a caller is told against what was written, and against what is there where the call says that it has found it so.
func (x *explorer) told(w *worldState, i int, out *outcome) error {
	spec, there := x.calls[i].spec, reading{}
	if w.store.held != nil {
		there = x.subject.read(w.store.held)
	}
	switch {
	case w.wrote[i] && out.wroteNothing():
		return breaks("I8", "%s was told that nothing was written, but something was: %s", spec, out)
	case !out.ok():
		return nil
	case out.receipt.Did == holdable.InForce && (there.instance != spec.instance || !there.paused):
		return breaks("H2", "%s was told that it is in force: instance %d is, paused %v", spec, there.instance, there.paused)
	case out.receipt.Did == holdable.AlreadyOpen && !there.opened:
		return breaks("O3", "%s was told that the object is open already, and it is not", spec)
	}
	return nil
}

// land has the server execute a write that was held back.
func (x *explorer) land(k int) func(*worldState) error {
	return func(w *worldState) error {
		l := w.late[k]
		w.late = slices.Delete(w.late, k, k+1)
		var a answer
		var err error
		w.did = func() string {
			return fmt.Sprintf("late write of %s: %s -> %s", x.calls[l.call].spec, describe(x.subject, l.req), a)
		}
		a, err = x.execute(w, l.call, l.from, l.req)
		return err
	}
}

// foreign has somebody else write the held object.
func (x *explorer) foreign(kind string) func(*worldState) error {
	return func(w *worldState) error {
		w.foreign++
		w.did = func() string { return "somebody else: " + kind }
		return x.others(w, kind, func() error { return x.foreignWrite(kind) })
	}
}

// A stateKey is a hash of all that tells states apart. Two states of an exploration, of which there are millions, do not share one.
type stateKey [sha256.Size]byte

// key tells states apart by everything that the future depends on.
func (x *explorer) key(w *worldState) stateKey {
	var remembered []string
	b := make([]byte, 0, 64)
	number := func(n int) { b = binary.AppendUvarint(b, uint64(n)) }
	hash := func(n uint64) { b = binary.BigEndian.AppendUint64(b, n) }
	for i, n := range w.at {
		if n.done != nil {
			continue // what it was told is among the events
		}
		m := w.memories[i]
		number(i)
		number(m.failures)
		b = append(b, byte(m.last), flagByte(m.open), byte(m.doubted), flagByte(m.refused), flagByte(w.wrote[i]))
		hash(m.wrote)
		hash(m.read)
		hash(m.named)
		hash(x.essenceOf(n))
		remembered = append(remembered, m.base, m.version, precondition(w.versions[i].real(n)))
	}
	for _, l := range w.late {
		number(l.call)
		hash(x.essenceOf(l.from))
		remembered = append(remembered, precondition(l.req))
	}
	number(1 << 20)
	number(w.faults)
	number(w.foreign)
	b = w.record.append(b)
	return sha256.Sum256(w.store.append(b, remembered))
}

func flagByte(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// precondition is the resourceVersion that a request is bound to.
func precondition(req *Request) string {
	if req.Object == nil {
		return ""
	}
	return req.Object.GetResourceVersion()
}

func (a answer) String() string {
	switch {
	case a.err != nil:
		return a.err.Error()
	case a.resp == nil:
		return "nothing"
	}
	return a.resp.String()
}

// describe tells of a request what a reader of a timeline wants to know.
func describe(s *subject, req *Request) string {
	text := fmt.Sprintf("%s %s %s", req.Verb, req.GVR.Resource, req.Name)
	if req.Object == nil {
		return strings.TrimSpace(text)
	}
	r := s.read(req.Object)
	return fmt.Sprintf("%s at rv=%s (instance %d, paused %v, opened %v, A %d)",
		text, req.Object.GetResourceVersion(), r.instance, r.paused, r.opened, r.executions)
}

// A counterexample is a history that breaks a rule.
type counterexample struct {
	end *worldState
	err error
}

func (c *counterexample) Unwrap() error { return c.err }

// Error prints the history as a timeline, and where its calls are drawn if it is they that no order explains.
func (c *counterexample) Error() string {
	var steps []string
	for w := c.end; w != nil; w = w.from {
		steps = append(steps, w.did())
	}
	slices.Reverse(steps)
	var b strings.Builder
	fmt.Fprintf(&b, "%v\n", c.err)
	for i, step := range steps {
		fmt.Fprintf(&b, "%4d  %s\n", i, step)
	}
	b.WriteString(pageOf(c.err))
	return b.String()
}

// combinations returns every choice of n of the calls, in no order, with repetition.
func combinations(specs []callSpec, n int) [][]callSpec {
	if n == 0 {
		return [][]callSpec{nil}
	}
	var out [][]callSpec
	for i := range specs {
		for _, rest := range combinations(specs[i:], n-1) {
			out = append(out, append([]callSpec{specs[i]}, rest...))
		}
	}
	return out
}

// specsFor are the calls that an exploration of a kind is made of.
func specsFor(s *subject) []callSpec {
	specs := []callSpec{{meta.OpHold, 2}, {meta.OpHold, 3}, {meta.OpRelease, 2}, {meta.OpRelease, 3}}
	if s.startGate {
		specs = append(specs, callSpec{op: meta.OpOpen})
	}
	return specs
}
