package rapidtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/samber/lo"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/kinds"
	"github.com/kubehold/kubehold/meta"
)

// A Comparison is how one way of pausing objects has fared under the schedules of [ComparePeers]: in how many of them something came out wrong.
type Comparison struct {
	// Name says which way.
	Name string
	// Schedules is how many were played.
	Schedules int
	// Undone: an older call resumed the object while a newer hold was in force.
	Undone int
	// Ran: the object ran while a hold was in force, of which the caller had been told that it is.
	Ran int
	// Twice: a pod of one execution was made while one of another remained.
	Twice int
	// Lies: a caller was told that he holds the object while a newer hold was in force all along, or that nothing was done where something was.
	Lies int
	// Wrong: any of these.
	Wrong int
}

// ComparePeers plays schedules with this library and with what people do without it, and counts in how many of them something comes out wrong. The
// package documentation has the table of 10,000; command rapidtest/peers prints it.
//
// A schedule is drawn from a seed, and the same for all of them. Three supervisors hold one TrainJob, one after the other and some before the one
// before has released it, as after a failover. They follow the protocol of rule I4: each has a number of its own from one counter, none holds once it
// knows of a newer one, none releases before all earlier holds have settled, and none begins a release when a newer hold has begun. So nobody is
// careless, which is more than users of the other ways do today. What goes wrong comes from the network: half of all requests are lost, late,
// repeated or answered with an error. (A repeat comes after the request itself. No client can see one that overtakes it.) A supervisor may stand
// still between its look at the counter and its request, and somebody else writes an annotation now and then. Trainer makes the pods of the TrainJob,
// and the kubelet takes ten seconds to end one.
//
// The other ways are: the example in the documentation of client-go's util/retry; what kueuectl stop and resume, and flux suspend and resume, send;
// and controller-runtime's MergeFromWithOptimisticLock, with the second try that is often written around it.
func ComparePeers(t *testing.T, schedules int, seed uint64) []Comparison {
	t.Helper()
	var all []Comparison
	for _, p := range peers() {
		played := make([]wrongs, schedules)
		next := atomic.Int64{}
		var wg sync.WaitGroup
		for range runtime.GOMAXPROCS(0) {
			wg.Go(func() {
				for i := next.Add(1) - 1; i < int64(schedules); i = next.Add(1) - 1 {
					played[i] = playSchedule(t, p, seed+uint64(i))
				}
			})
		}
		wg.Wait()
		c := Comparison{Name: p.name, Schedules: schedules}
		for _, w := range played {
			c.add(w)
		}
		all = append(all, c)
	}
	return all
}

func (c *Comparison) add(w wrongs) {
	one := func(b bool) int { return lo.Ternary(b, 1, 0) }
	c.Undone += one(w.undone)
	c.Ran += one(w.ran)
	c.Twice += one(w.twice)
	c.Lies += one(w.lied)
	c.Wrong += one(w != wrongs{})
}

// PeerTable writes comparisons as a table.
func PeerTable(all []Comparison) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\tundone\tran\ttwice\tlies\twrong\n")
	for _, c := range all {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\n", c.Name, c.Undone, c.Ran, c.Twice, c.Lies, c.Wrong)
	}
	_ = w.Flush() // a strings.Builder takes everything
	return b.String()
}

// wrongs are what came out wrong in one schedule.
type wrongs struct{ undone, ran, twice, lied bool }

// A contest is one schedule with one peer. It lives in a synctest bubble.
type contest struct {
	peer    peer
	seed    uint64
	subject *subject
	server  *Server
	ledger  *ledger
	changed chan struct{}

	mu    sync.Mutex
	calls []*contestCall
}

// A contestCall is one call of a supervisor, and what became of it.
type contestCall struct {
	// user is who its requests come from: nobody else's do.
	user            string
	op              meta.Op
	instance        int64
	begun, returned time.Time
	err             error
}

// playSchedule plays the schedule of a seed.
func playSchedule(t *testing.T, p peer, seed uint64) (out wrongs) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &contest{
			peer: p, seed: seed, subject: subjectOf(kinds.TrainJob()),
			ledger:  &ledger{bound: meta.DefaultRequestTimeout + meta.DefaultMargin},
			changed: make(chan struct{}, 1),
		}
		if err := c.play(t.Context()); err != nil {
			t.Fatal(err)
		}
		out = c.judge()
	})
	return out
}

// random draws for one purpose, the same whatever else is drawn.
func (c *contest) random(purpose ...uint64) *rand.Rand {
	mixed := uint64(0)
	for _, p := range purpose {
		mixed = mixed*1_000_003 + p + 1
	}
	return rand.New(rand.NewPCG(c.seed, mixed))
}

// pick draws one of several.
func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

// odd is an instant of a schedule's own, for nothing to coincide with it by accident.
func odd(r *rand.Rand, d time.Duration) time.Duration {
	return d + time.Duration(r.IntN(1000))*time.Microsecond
}

// play has everybody at work until all is over.
func (c *contest) play(ctx context.Context) error {
	c.server = c.subject.server()
	if err := c.subject.create(c.server.Dynamic("setup")); err != nil {
		return err
	}
	c.server.OnCommit(func(Commit) {
		select {
		case c.changed <- struct{}{}:
		default:
		}
	})
	ctx, cancel := context.WithCancel(ctx)
	var others, supervisors sync.WaitGroup
	others.Go(func() { c.control(ctx) })
	others.Go(func() { c.meddle(ctx) })
	r := c.random(0)
	begin := time.Duration(0)
	for i := range 3 {
		begin += odd(r, pick(r, 2*time.Second, 5*time.Second, 10*time.Second, 20*time.Second))
		start, release := begin, i < 2 || r.IntN(3) == 0
		supervisors.Go(func() {
			if sleep(ctx, start) {
				_ = c.supervisor(uint64(i)).recover(ctx, release)
			}
		})
	}
	supervisors.Wait()
	sleep(ctx, 2*c.ledger.bound) // for what is late to arrive
	cancel()
	others.Wait()
	return nil
}

func (c *contest) supervisor(i uint64) *supervisor {
	r := c.random(1, i)
	return &supervisor{
		holder: &contestant{contest: c, number: i}, ledger: c.ledger, ref: c.subject.ref(c.server),
		patience: odd(r, pick(r, 10*time.Second, 30*time.Second, 60*time.Second)),
		pause:    odd(r, pick(r, 200*time.Millisecond, 2*time.Second)),
		lag:      odd(r, pick(r, 0, 0, 500*time.Millisecond, 4*time.Second)),
		tries:    30,
	}
}

// control is Trainer and the kubelet, who work when something has changed, and look at pods that end from time to time.
func (c *contest) control(ctx context.Context) {
	trainer := &Trainer{Client: c.server.Dynamic("trainer"), Nodes: []string{"n"}, Grace: podGrace}
	kubelet := &Kubelet{Client: c.server.Dynamic("kubelet")}
	for {
		_ = Settle(ctx, trainer, kubelet) // nothing goes wrong with their requests
		select {
		case <-ctx.Done():
			return
		case <-c.changed:
			sleep(ctx, 10*time.Millisecond)
		case <-time.After(podGrace / 4):
		}
	}
}

// meddle is somebody who writes to the object what is nobody's business here, and moves its resourceVersion.
func (c *contest) meddle(ctx context.Context) {
	r := c.random(2)
	somebody := Human{Client: c.server.Dynamic("somebody")}
	for sleep(ctx, odd(r, pick(r, 300*time.Millisecond, 2*time.Second, 20*time.Second))) {
		note := fmt.Sprintf(`{"metadata":{"annotations":{"other.example/note":"%d"}}}`, r.IntN(1000))
		_ = somebody.Patch(ctx, c.subject.held, worldNamespace, worldName, note) // nothing goes wrong with it
	}
}

// A contestant is the holder of one supervisor: each of its calls is a client of its own on a bad network.
type contestant struct {
	holdable.Holder
	*contest
	// number is the supervisor's, made how many calls it has made.
	number, made uint64
}

// Hold implements holdable.Holder.
func (c *contestant) Hold(ctx context.Context, ref meta.Ref, call meta.Call) (holdable.Receipt, error) {
	return c.call(ctx, meta.OpHold, call, func(h holdable.Holder) (holdable.Receipt, error) { return h.Hold(ctx, ref, call) })
}

// Release implements holdable.Holder.
func (c *contestant) Release(ctx context.Context, ref meta.Ref, call meta.Call) (holdable.Receipt, error) {
	if c.ledger.overtaken(call.Instance) {
		return holdable.Receipt{}, errOvertaken
	}
	r := c.random(4, c.number, c.made)
	if !sleep(ctx, odd(r, pick(r, 0, 0, 2*time.Second, 5*time.Second, 20*time.Second))) { // it stands still
		return holdable.Receipt{}, ctx.Err()
	}
	return c.call(ctx, meta.OpRelease, call, func(h holdable.Holder) (holdable.Receipt, error) { return h.Release(ctx, ref, call) })
}

// overtaken says whether a newer instance was given out.
func (l *ledger) overtaken(instance int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return instance < l.last
}

func (c *contestant) call(ctx context.Context, op meta.Op, call meta.Call, make func(holdable.Holder) (holdable.Receipt, error)) (holdable.Receipt, error) {
	c.made++
	made := &contestCall{
		user: fmt.Sprintf("supervisor %d, call %d, %s(%d)", c.number, c.made, op, call.Instance), op: op, instance: call.Instance, begun: time.Now(),
	}
	c.mu.Lock()
	c.calls = append(c.calls, made)
	c.mu.Unlock()
	h, err := c.peer.holder(c.server.Dynamic(made.user, c.network(c.number, c.made)))
	if err != nil {
		return holdable.Receipt{}, err
	}
	receipt, err := make(h)
	c.mu.Lock()
	made.returned, made.err = time.Now(), err
	c.mu.Unlock()
	return receipt, err
}

// network carries the requests of one call of one supervisor. What goes wrong with the n-th of them is the same for every peer.
func (c *contest) network(supervisor, call uint64) Middleware {
	n := uint64(0)
	return func(next RoundTrip) RoundTrip {
		return func(ctx context.Context, req *Request) (*Response, error) {
			n++
			r := c.random(3, supervisor, call, n)
			deliver := next
			if r.IntN(20) == 0 { // something on the way sends it again
				deliver = executedTwice(next, odd(r, pick(r, time.Second, 20*time.Second)))
			}
			return drawContestFault(r).carryOut(ctx, req, deliver)
		}
	}
}

// executedTwice has a request executed once more some time after the first, and nobody hears the second answer. Where the second overtakes the first no
// client can tell, and neither does this library: see rule C7.
func executedTwice(next RoundTrip, later time.Duration) RoundTrip {
	return func(ctx context.Context, req *Request) (*Response, error) {
		resp, err := next(ctx, req)
		go func() {
			if sleep(context.WithoutCancel(ctx), later) {
				_, _ = next(context.WithoutCancel(ctx), req)
			}
		}()
		return resp, err
	}
}

func drawContestFault(r *rand.Rand) Fault {
	if r.IntN(2) == 0 {
		return DelayRequest(odd(r, time.Millisecond))
	}
	d := odd(r, pick(r, 20*time.Millisecond, time.Second, 5*time.Second, 25*time.Second, 60*time.Second))
	return pick(r,
		LoseRequest(), LoseResponse(), HangResponse(),
		DelayRequest(d), DelayRequest(d), DelayRequest(d), HoldRequest(d), CommitLater(d), HangCommitLater(d),
		Answer(http.StatusConflict), Answer(http.StatusServiceUnavailable), Answer(http.StatusGatewayTimeout).AfterCommit(),
	)
}

// judge looks at everything that was committed and at what everybody was told.
func (c *contest) judge() wrongs {
	var out wrongs
	history := c.server.History()
	for i, commit := range history {
		if commit.GVR == Pods().GVR {
			out.twice = out.twice || c.beganBesideAnother(history[:i], commit)
			continue
		}
		if commit.GVR != c.subject.held {
			continue
		}
		paused := c.subject.paused(commit.Object)
		if by := c.callOf(commit); by != nil && !paused && commit.Previous != nil && c.subject.paused(commit.Previous) {
			n, begun := c.inForce(commit.Time)
			out.undone = out.undone || begun && n > by.instance
		}
		if !paused {
			until := time.Now()
			if k := slices.IndexFunc(history[i+1:], func(later Commit) bool { return later.GVR == c.subject.held }); k >= 0 {
				until = history[i+1+k].Time
			}
			out.ran = out.ran || c.heldBetween(commit.Time, until)
		}
	}
	out.lied = slices.ContainsFunc(c.calls, func(call *contestCall) bool { return c.isLie(call, history) })
	return out
}

// beganBesideAnother says whether a pod was made while one of another execution remained.
func (c *contest) beganBesideAnother(before []Commit, made Commit) bool {
	if made.Type != watch.Added {
		return false
	}
	pods := map[string]*unstructured.Unstructured{}
	for _, commit := range before {
		switch {
		case commit.GVR != Pods().GVR:
		case commit.Type == watch.Deleted:
			delete(pods, commit.Name)
		default:
			pods[commit.Name] = commit.Object
		}
	}
	for _, pod := range pods {
		if podRemains(pod) && pod.GetLabels()[ExecutionLabel] != made.Object.GetLabels()[ExecutionLabel] {
			return true
		}
	}
	return false
}

// callOf is the call that made a commit, nil if somebody else did.
func (c *contest) callOf(commit Commit) *contestCall {
	call, _ := lo.Find(c.calls, func(call *contestCall) bool { return call.user == commit.Request.User })
	return call
}

// inForce is the newest instance whose Hold had succeeded by a time, and whether no Release of it had begun.
func (c *contest) inForce(at time.Time) (newest int64, held bool) {
	for _, call := range c.calls {
		if call.op == meta.OpHold && call.err == nil && call.returned.Before(at) {
			newest = max(newest, call.instance)
		}
	}
	return newest, newest > 0 && !slices.ContainsFunc(c.calls, func(call *contestCall) bool {
		return call.op == meta.OpRelease && call.instance == newest && !call.begun.After(at)
	})
}

// heldBetween says whether a hold was in force at some moment between two.
func (c *contest) heldBetween(from, to time.Time) bool {
	moments := []time.Time{from.Add(1)}
	for _, call := range c.calls {
		if call.op == meta.OpHold && call.returned.After(from) && call.returned.Add(1).Before(to) {
			moments = append(moments, call.returned.Add(1))
		}
	}
	return slices.ContainsFunc(moments, func(at time.Time) bool {
		_, held := c.inForce(at)
		return held && at.Before(to)
	})
}

// isLie says whether the caller was told what is not so.
func (c *contest) isLie(call *contestCall, history []Commit) bool {
	failed := (*meta.Error)(nil)
	switch {
	case call.err == nil && call.op == meta.OpHold:
		before, held := c.inForce(call.begun)
		after, still := c.inForce(call.returned)
		return held && still && before > call.instance && after > call.instance
	case errors.As(call.err, &failed) && failed.Fate == meta.FateNone:
		return slices.ContainsFunc(history, func(commit Commit) bool {
			return commit.Request.User == call.user && commit.GVR == c.subject.held
		})
	}
	return false
}
