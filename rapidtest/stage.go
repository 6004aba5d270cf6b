package rapidtest

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/retry"
)

// A play is what scripts are written for: a kind, the world it begins in, and who else is there.
type play struct {
	subject *subject
	start   start
	// newServer makes the server; the subject's own, which knows no schema, where nil.
	newServer func() *Server
	// makeCast makes those who are at work beside the calls; nil for nobody.
	makeCast func(*Server) (cast, error)
	// options are those of the clients.
	options holdable.Options
	// gatekeeper makes the readmission gate, which answers when a script says so, over the same
	// network as the calls; nil for none.
	gatekeeper func(*Server, ...Middleware) (*gatekeeper, error)
	// http: some of the calls go through client-go's own client.
	http bool
	// counted: A is counted, by the calls or by the cast.
	counted bool
	// between stands between the clients and everything else, to spoil what they do; nil for
	// nothing.
	between Middleware
	// manners are those of the supervisors that share a ledger; nil where calls are made as they
	// come.
	manners *manners
}

// perform plays a script to its end, in virtual time, and returns its history. Whether a rule was
// broken is for the caller to ask.
func (p *play) perform(t *testing.T, s script) (h *history, err error) {
	synctest.Test(t, func(*testing.T) {
		st, bad := p.newStage()
		if bad != nil {
			err = bad
			return
		}
		for _, d := range s {
			if st.history.violated() != nil {
				break
			}
			d.do(st)
			synctest.Wait()
		}
		st.finish()
		h = st.history
	})
	return h, err
}

// A stage is where a script is played.
type stage struct {
	*play
	server  *Server
	network *Scheduler
	others  dynamic.Interface
	cast    cast
	history *history
	holders map[bool]holdable.Holder // by whether they speak HTTP
	running int
	ended   chan struct{}
	// storm is what goes wrong with the next requests.
	storm storms
	// answering is how often the gate was asked over the network.
	answering int
	// ledger is what supervisors share, and alive ends each of them.
	ledger *ledger
	alive  []context.CancelFunc
}

// mostCalls is how many calls a script can make: a history keeps sets of them in the bits of a
// word.
const mostCalls = 20

// mostAnswers is how often a script can have the gate answer over the network.
const mostAnswers = 9

func (p *play) newStage() (*stage, error) {
	st := &stage{
		play: p, server: p.subject.server(), network: NewScheduler(BeforeExecution),
		holders: map[bool]holdable.Holder{}, ended: make(chan struct{}, mostCalls+mostAnswers),
	}
	if p.newServer != nil {
		st.server = p.newServer()
	}
	if p.makeCast != nil {
		c, err := p.makeCast(st.server)
		if err != nil {
			return nil, err
		}
		st.cast = c
	}
	st.others = st.server.Dynamic("somebody else")
	if err := p.subject.create(st.others); err != nil {
		return nil, fmt.Errorf("making an object: %w", err)
	}
	if err := st.prepare(); err != nil {
		return nil, fmt.Errorf("putting it into a queue: %w", err)
	}
	if err := p.start.make(p.subject, st.others); err != nil {
		return nil, fmt.Errorf("making it %s: %w", p.start.name, err)
	}
	holder, err := st.holder(false)
	if err != nil {
		return nil, err
	}
	st.history = newHistory(p.subject, st.server, holder.CallBound())
	st.history.counted, st.history.protocol = p.counted, p.manners != nil
	st.ledger = &ledger{bound: holder.CallBound(), last: max(st.history.initial, 0)}
	return st, nil
}

// engineOptions make the waits between tries the same in every run.
func engineOptions() retry.Options {
	return retry.Options{Backoff: wait.Backoff{Duration: 20 * time.Millisecond, Factor: 2}}
}

// holder returns a client of the kind, through client-go's own client or the short way.
func (st *stage) holder(http bool) (holdable.Holder, error) {
	if h, ok := st.holders[http]; ok {
		return h, nil
	}
	way := []Middleware{st.watched}
	if st.between != nil {
		way = []Middleware{st.between, st.watched}
	}
	engine, err := retry.NewForClient(st.server.Dynamic("a supervisor", way...), engineOptions())
	if http {
		engine, err = retry.New(st.server.RESTConfig("a supervisor", way...), engineOptions())
	}
	if err != nil {
		return nil, err
	}
	holder, err := st.subject.kind.Connect(engine, st.options)
	st.holders[http] = holder
	return holder, err
}

// watched has the history see every request of a call, and the script decide when it goes on and
// with which fault.
func (st *stage) watched(next RoundTrip) RoundTrip {
	return func(ctx context.Context, req *Request) (*Response, error) {
		c := callOf(ctx)
		sent := st.history.sent(c, req)
		resp, err := st.network.Middleware(c.name)(next)(ctx, req)
		st.history.heard(sent, resp, err)
		return resp, err
	}
}

// finish has everything that was begun come to its end: the calls return, and what the network held
// back arrives.
func (st *stage) finish() {
	for quiet := 0; quiet < 2; {
		synctest.Wait()
		st.reap()
		steps := st.network.Parked()
		switch {
		case len(steps) > 0:
			st.letGo(steps[0], trouble{})
		case st.running > 0:
			st.await(time.Second)
		default:
			st.await(time.Hour)
			quiet++
			continue
		}
		quiet = 0
	}
	if st.manners != nil {
		st.newestWins()
	}
	st.history.end()
}

// await lets time pass until one more request is under way, or d is over.
func (st *stage) await(d time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	_ = st.network.Wait(ctx, len(st.network.Parked())+1) // that none came is no error
}

func (st *stage) reap() {
	for {
		select {
		case <-st.ended:
			st.running--
		default:
			return
		}
	}
}

func (b begins) do(st *stage) {
	holder, err := st.holder(b.http)
	if err != nil || len(st.history.calls) == mostCalls {
		return
	}
	ref := st.ref()
	if named := st.named(); b.pinned && named != nil {
		ref.UID = named.GetUID()
	}
	asked := meta.Call{
		Instance: b.instance, Deadline: time.Now().Add(b.within),
		Holder: fmt.Sprintf("caller %d", len(st.history.calls)+1), Reason: "rapidtest",
	}
	make := map[meta.Op]method{meta.OpHold: holder.Hold, meta.OpRelease: holder.Release, meta.OpOpen: holder.Open}[b.op]
	st.running++
	go func() {
		_, _ = witnessed{holder, st}.do(context.Background(), b.op, ref, asked, make)
		st.ended <- struct{}{}
	}()
}

// ref names the object.
func (st *stage) ref() meta.Ref { return meta.Ref{Namespace: st.subject.namespace(), Name: worldName} }

func (st *stage) named() *unstructured.Unstructured {
	return st.server.Stored(st.subject.named, st.subject.namespace(), worldName)
}

func (p proceeds) do(st *stage) {
	if steps := st.network.Parked(); len(steps) > 0 {
		st.letGo(steps[p.which%len(steps)], p.fault)
	}
}

func (s storms) do(st *stage) { st.storm = s }

// letGo lets a request go on, with a fault or, in a storm, with that of the storm.
func (st *stage) letGo(step *Step, t trouble) {
	if st.storm.requests > 0 && t.kind == "" {
		t = st.storm.fault
		st.storm.requests--
	}
	fault := t.fault()
	if t.kind == twice {
		fault.Name = fmt.Sprintf("once more after %v", t.after)
		go st.again(step.Request, t.after)
	}
	if fault.Name != "" {
		st.history.troubled(step.Request, fault.Name)
	}
	step.ProceedWith(fault)
}

// again has a request reach the server a second time, and nobody hear the answer.
func (st *stage) again(req *Request, after time.Duration) {
	if sleep(context.Background(), after) {
		_, _ = st.server.RoundTrip(context.Background(), req)
	}
}

func (p passes) do(st *stage) { st.await(p.time) }

func (a acts) do(st *stage) {
	if actors := st.cast.actors; len(actors) > 0 {
		st.act(actors[a.which%len(actors)])
	}
}

func (st *stage) act(actor Actor) bool {
	did, err := actor.Step(context.Background())
	if err != nil {
		st.history.other("%T: %v", actor, err)
	}
	return did && err == nil
}

func (a answers) do(st *stage) {
	if st.gatekeeper == nil || st.answering == mostAnswers {
		return
	}
	st.answering++
	keeper, err := st.gatekeeper(st.server, st.network.Middleware(fmt.Sprintf("the gate, %d", st.answering)))
	if err != nil {
		return
	}
	st.running++
	go func() {
		_ = keeper.answer(context.Background(), a.within) // what it was told does not matter: it looks again
		st.ended <- struct{}{}
	}()
}

func (settles) do(st *stage) {
	const rounds = 25 // more than it takes, unless two of them fight
	for range rounds {
		busy := false
		for _, a := range st.cast.actors {
			busy = st.act(a) || busy
		}
		if !busy {
			return
		}
	}
}

// meddlings are what others do.
func (p *play) meddlings() []string {
	all := []string{"status", "note", "resume", "pause", "end", "delete", "void", "garble", "recreate"}
	onNodes := []string{"status", "note", "lose a node", "lose a node", "return a node", "fence a node"}
	switch {
	case p.makeCast != nil && p.subject.indirect() && !p.options.CheckPods:
		return append(onNodes, "deactivate", "recreate by Kueue")
	case p.makeCast != nil:
		return onNodes
	case p.subject.indirect():
		return append(all, "recreate named")
	}
	return all
}

func (m meddles) do(st *stage) {
	st.history.other("somebody else: %s", m.how)
	if err := st.meddle(m.how); err != nil {
		st.history.other("which failed: %v", err)
	}
}

func (st *stage) meddle(how string) error {
	s := st.subject
	switch how {
	case "lose a node":
		st.cast.kubelet.Lose(st.someNode())
		return nil
	case "return a node":
		st.cast.kubelet.Return(st.someNode())
		return nil
	case "fence a node":
		st.cast.kubelet.Gone(st.someNode())
		return nil
	}
	held := st.history.held()
	if held == nil {
		return st.recreate()
	}
	change := func(f func(*unstructured.Unstructured) error) error {
		return s.change(st.others, s.held, held.GetName(), f)
	}
	switch how {
	case "status":
		return s.changeStatus(st.others, "Noticed")
	case "end":
		return s.changeStatus(st.others, "Complete", "Completed", "Finished")
	case "note":
		return change(st.note)
	case "resume":
		return change(func(obj *unstructured.Unstructured) error { return s.setPause(obj, s.running) })
	case "pause":
		return change(func(obj *unstructured.Unstructured) error { return s.setPause(obj, s.heldValue) })
	case "void":
		return change(annotated(meta.Keys{}.UID(), "another"))
	case "garble":
		return change(annotated(meta.Keys{}.Instance(), "two"))
	case "delete":
		return s.beginDeletion(st.others)
	case "deactivate":
		return st.cast.kueue.Deactivate(context.Background(), held.GetNamespace(), held.GetName(), CauseRequeuingLimit)
	case "recreate by Kueue":
		return st.cast.kueue.Recreate(context.Background(), held.GetNamespace(), held.GetName())
	case "recreate named":
		if err := s.remove(st.others, s.named, worldName); err != nil {
			return err
		}
	}
	if err := s.remove(st.others, s.held, held.GetName()); err != nil {
		return err
	}
	return st.recreate()
}

// someNode is a node that a pod is bound to, "" if there is none.
func (st *stage) someNode() string {
	for _, pod := range st.server.StoredAll(Pods().GVR) {
		if node, _, _ := unstructured.NestedString(pod.Object, "spec", "nodeName"); node != "" {
			return node
		}
	}
	return ""
}

// recreate makes the objects that are missing.
func (st *stage) recreate() error {
	if named := st.named(); st.subject.indirect() && named != nil {
		return st.subject.createHeld(st.others, named)
	}
	return st.subject.create(st.others)
}

// note adds content that is nobody's business here. It leaves the spec alone where pods are told
// apart by the generation of their object.
func (st *stage) note(obj *unstructured.Unstructured) error {
	text := obj.GetResourceVersion()
	err := unstructured.SetNestedField(obj.Object, text, "metadata", "annotations", "other.example/seen")
	if err != nil || st.makeCast != nil {
		return err
	}
	return unstructured.SetNestedField(obj.Object, text, "spec", "unheardOf", "seen")
}

// annotated sets an annotation that is there.
func annotated(key, value string) func(*unstructured.Unstructured) error {
	return func(obj *unstructured.Unstructured) error {
		annotations := obj.GetAnnotations()
		if _, ok := annotations[key]; ok {
			annotations[key] = value
			obj.SetAnnotations(annotations)
		}
		return nil
	}
}
