package retry_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"pgregory.net/rapid"

	"github.com/samber/lo"

	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/rapidtest"
	"github.com/kubehold/kubehold/retry"
)

// What is asked of the engine here: to set spec.mark of the Widget ns/w to
// "mine", unless somebody has written "newer" there.
const (
	mine  = "mine"
	newer = "newer"
)

func widgets() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
}

// gadgets are another resource, whose objects may have the name of a Widget.
func gadgets() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "gadgets"}
}

func widget() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1",
		"kind":       "Widget",
		"metadata":   map[string]any{"namespace": "ns", "name": "w"},
		"spec":       map[string]any{"size": int64(3)},
	}}
}

// A setup says how a lab differs from the usual one.
type setup struct {
	// rules are what goes wrong with the engine's requests.
	rules []rapidtest.Rule
	// options are the engine's; without a Backoff its waits are 10 ms, 20 ms,
	// 40 ms and so on, without jitter.
	options retry.Options
	// defaultBackoff leaves the Backoff of options as it is.
	defaultBackoff bool
	// config changes the rest.Config that the engine is made from.
	config func(*rest.Config)
	// face is the client of the engine, overHTTP if empty.
	face face
}

// A face is a kind of client.
type face string

const (
	// overHTTP is retry.New: client-go's client over the engine's transport.
	overHTTP face = "over HTTP"
	// bare is client-go's client without the engine's transport.
	bare face = "bare"
	// inProcess is the model's own client, which sends once and counts.
	inProcess face = "in process"
)

// A lab is an apiserver with one Widget in it, and an engine. It lives in a
// synctest bubble.
type lab struct {
	rapid.TB
	server *rapidtest.Server
	plan   *rapidtest.Plan
	wire   *wire
	config *rest.Config
	engine *retry.Engine
	// stranger is another client of the same server, whom nothing bothers.
	stranger dynamic.ResourceInterface
	touches  atomic.Int64

	// deed is held while a stranger does something, so that none of it happens
	// between the two steps of another thing.
	deed   sync.Mutex
	mu     sync.Mutex
	hooks  []hook
	events []retry.Event
}

// A hook runs before some of the engine's requests reach the server.
type hook struct {
	verb string
	left int
	do   func()
}

func newLab(t rapid.TB, with setup) *lab {
	t.Helper()
	l := &lab{TB: t, plan: rapidtest.NewPlan(with.rules...)}
	l.server = rapidtest.NewServer(rapidtest.Resource{
		GVR: widgets(), Kind: "Widget", Namespaced: true, StatusSubresource: true,
		Fields: []string{"spec.mark", "spec.size", "status.*"},
	}, rapidtest.Resource{GVR: gadgets(), Kind: "Gadget", Namespaced: true})
	l.stranger = l.server.Dynamic("stranger").Resource(widgets()).Namespace("ns")
	l.create()

	l.config = l.server.RESTConfig("engine", l.runHooks, l.plan.Middleware)
	l.wire = &wire{next: l.config.Transport}
	l.config.Transport = l.wire
	if with.config != nil {
		with.config(l.config)
	}
	if with.options.Backoff.Duration == 0 && !with.defaultBackoff {
		with.options.Backoff = wait.Backoff{Duration: 10 * time.Millisecond, Factor: 2}
	}
	if with.options.Observer == nil {
		with.options.Observer = l.observe
	}
	l.engine = l.newEngine(with)
	return l
}

func (l *lab) newEngine(with setup) *retry.Engine {
	l.Helper()
	var engine *retry.Engine
	var err error
	switch with.face {
	case inProcess:
		engine, err = retry.NewForClient(l.server.Dynamic("engine", l.runHooks, l.plan.Middleware), with.options)
	case bare:
		var client dynamic.Interface
		client, err = dynamic.NewForConfig(l.config)
		l.check(err)
		engine, err = retry.NewForClient(client, with.options)
	default:
		engine, err = retry.New(l.config, with.options)
	}
	if err != nil {
		l.Fatal(err)
	}
	return engine
}

func (l *lab) observe(ev retry.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, ev)
}

func (l *lab) runHooks(next rapidtest.RoundTrip) rapidtest.RoundTrip {
	return func(ctx context.Context, req *rapidtest.Request) (*rapidtest.Response, error) {
		l.mu.Lock()
		var due []func()
		for i := range l.hooks {
			if h := &l.hooks[i]; h.verb == req.Verb && h.left > 0 {
				h.left--
				due = append(due, h.do)
			}
		}
		l.mu.Unlock()
		for _, do := range due {
			do()
		}
		return next(ctx, req)
	}
}

// before has do run before each of the engine's next n requests of a verb.
func (l *lab) before(verb string, n int, do func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hooks = append(l.hooks, hook{verb, n, do})
}

// What the stranger does.

func (l *lab) create() {
	_, err := l.stranger.Create(context.Background(), widget(), metav1.CreateOptions{})
	l.check(err)
}

func (l *lab) remove() { l.check(l.stranger.Delete(context.Background(), "w", metav1.DeleteOptions{})) }

func (l *lab) replace() {
	l.remove()
	l.create()
}

// touch makes a commit that changes nothing which the engine looks at.
func (l *lab) touch() {
	l.patch(fmt.Sprintf(`{"status":{"touched":%d}}`, l.touches.Add(1)), "status")
}

// write sets spec.mark.
func (l *lab) write(mark string) { l.patch(fmt.Sprintf(`{"spec":{"mark":%q}}`, mark)) }

// patch has no precondition, so that it conflicts with nobody.
func (l *lab) patch(body string, subresource ...string) {
	_, err := l.stranger.Patch(context.Background(), "w", types.MergePatchType, []byte(body), metav1.PatchOptions{}, subresource...)
	l.check(err)
}

// stored returns a copy of the Widget as it is now.
func (l *lab) stored() *unstructured.Unstructured {
	return l.server.Stored(widgets(), "ns", "w").DeepCopy()
}

// check fails the test for what can only go wrong if the test itself is wrong.
func (l *lab) check(err error) {
	l.Helper()
	if err != nil {
		l.Errorf("not what is tested: %v", err)
	}
}

// op is the call that is tested.
func (l *lab) op() retry.Op {
	return retry.Op{
		Call: meta.Error{
			Op: "Mark", Instance: 7,
			Object: meta.Object{Kind: "Widget", Ref: meta.Ref{Namespace: "ns", Name: "w"}},
		},
		Resource: widgets(),
		Read:     getWidget,
		Decide:   decideMark,
	}
}

func getWidget(ctx context.Context, r retry.Reader) (*unstructured.Unstructured, error) {
	return r.Get(ctx, widgets(), "ns", "w")
}

func decideMark(read *unstructured.Unstructured) (retry.Decision, error) {
	mark, err := retry.Lookup(read, "spec", "mark")
	switch {
	case err != nil:
		return retry.Decision{}, err
	case mark == newer:
		return retry.Decision{}, meta.Errorf(meta.ErrStaleHold, "a newer mark")
	case mark == mine:
		return retry.Decision{}, nil
	}
	return retry.Decision{Edits: []retry.Edit{retry.Set(mine, "spec", "mark")}}, nil
}

// do runs the call with a minute to its deadline.
func (l *lab) do() (retry.Result, error) { return l.doWithin(time.Minute) }

func (l *lab) doWithin(d time.Duration) (retry.Result, error) {
	return l.engine.Do(context.Background(), time.Now().Add(d), l.op())
}

// updates are the engine's updates as they left, in order.
func (l *lab) updates() []rapidtest.Event { return l.sent(rapidtest.VerbUpdate) }

// sent are the engine's requests of a verb, of any verb for "".
func (l *lab) sent(verb string) []rapidtest.Event {
	return lo.Filter(l.plan.Events(), func(e rapidtest.Event, _ int) bool { return verb == "" || e.Request.Verb == verb })
}

// commits are the engine's own.
func (l *lab) commits() []rapidtest.Commit {
	return lo.Filter(l.server.History(), func(c rapidtest.Commit, _ int) bool { return c.Request.User == "engine" })
}

// mark is spec.mark as it is stored, "" if there is none.
func (l *lab) mark() string {
	if l.server.Stored(widgets(), "ns", "w") == nil {
		return ""
	}
	mark, _, _ := unstructured.NestedString(l.stored().Object, "spec", "mark")
	return mark
}

// succeeded is an error of the test unless the call succeeded, in so many tries
// and commits.
func (l *lab) succeeded(res retry.Result, err error, tries, commits int) {
	l.Helper()
	if err != nil {
		l.Fatalf("the call failed: %v\n%s", err, l.plan.Timeline())
	}
	if res.Tries != tries || len(l.commits()) != commits {
		l.Errorf("%d tries and %d commits, want %d and %d\n%s", res.Tries, len(l.commits()), tries, commits, l.plan.Timeline())
	}
	if got, _ := retry.Lookup(res.Object, "spec", "mark"); got != mine {
		l.Errorf("the result has the mark %v", got)
	}
}

// failed returns the error of a call that failed as that kind, with that to say
// of its writes.
func (l *lab) failed(err error, kind meta.Sentinel, fate meta.Fate) *meta.Error {
	l.Helper()
	var e *meta.Error
	if !errors.As(err, &e) {
		l.Fatalf("not a *meta.Error: %v\n%s", err, l.plan.Timeline())
	}
	if !errors.Is(err, kind) || e.Fate != fate {
		l.Fatalf("%v, fate %v: want %v, fate %v\n%s", err, e.Fate, kind, fate, l.plan.Timeline())
	}
	if strings.Contains(err.Error(), "%!") { // what package fmt makes of a value that is not there
		l.Errorf("the text of the error has a hole: %v", err)
	}
	return e
}

// sends is an error of the test unless the engine sent so many reads and
// updates.
func (l *lab) sends(reads, updates int) {
	l.Helper()
	gotUpdates := len(l.updates())
	gotReads := len(l.sent("")) - gotUpdates
	if gotReads != reads || gotUpdates != updates {
		l.Errorf("%d reads and %d updates were sent, want %d and %d\n%s", gotReads, gotUpdates, reads, updates, l.plan.Timeline())
	}
}

// A wire is the network below client-go. It writes down what is transmitted.
type wire struct {
	next http.RoundTripper
	// bend, if set, answers some of the requests instead, by returning a
	// response or an error for them. n counts the transmissions from 1.
	bend func(n int, r *http.Request) (*http.Response, error)

	mu   sync.Mutex
	sent []transmission
}

// A transmission is one request on the wire.
type transmission struct {
	method   string
	path     string
	query    url.Values
	body     []byte
	at       time.Time
	deadline time.Time
}

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	tr := transmission{method: r.Method, path: r.URL.Path, query: r.URL.Query(), at: time.Now()}
	tr.deadline, _ = r.Context().Deadline()
	if r.Body != nil {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		tr.body, r = body, r.Clone(r.Context())
		r.Body = io.NopCloser(bytes.NewReader(tr.body))
	}
	w.mu.Lock()
	w.sent = append(w.sent, tr)
	n := len(w.sent)
	w.mu.Unlock()
	if w.bend != nil {
		if resp, err := w.bend(n, r); resp != nil || err != nil {
			return resp, err
		}
	}
	return w.next.RoundTrip(r)
}

// of returns the transmissions of a method, in order.
func (w *wire) of(methods ...string) []transmission {
	w.mu.Lock()
	defer w.mu.Unlock()
	return lo.Filter(w.sent, func(tr transmission, _ int) bool { return slices.Contains(methods, tr.method) })
}

// answer is an HTTP response with a JSON body; headers come in pairs.
func answer(r *http.Request, code int, body string, headers ...string) *http.Response {
	resp := &http.Response{
		StatusCode: code, Status: fmt.Sprintf("%d %s", code, http.StatusText(code)),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
		Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)),
	}
	for pair := range slices.Chunk(headers, 2) {
		resp.Header.Set(pair[0], pair[1])
	}
	return resp
}
