package rapidtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A Fault is what goes wrong with one request, on its way to the server, in it, and on the way
// back. The zero Fault is none. Its parts combine; the functions from [LoseRequest] to [Answer]
// make the usual ones.
type Fault struct {
	// Name says in timelines what it is.
	Name string

	// Drop: the request never reaches the server.
	Drop bool
	// Delay keeps the request in the network before it reaches the server, whose timeout has not
	// begun to run then.
	Delay time.Duration
	// Hold keeps the request inside the server before it is executed, where the server's timeout
	// runs; see [Request.Hold].
	Hold time.Duration
	// Detach: that the client has gone does not reach the server; the request goes on without it.
	Detach bool
	// Repeat is how many times the request is executed beyond the first, each time after the one
	// before it was answered.
	Repeat int

	// Early: the client sees Err, Response or, with Hang, nothing as soon as it has sent the
	// request, while the request goes on behind its back. It implies Detach.
	Early bool
	// Err is what the client sees instead of an answer: a broken connection.
	Err error
	// Response is what the client sees instead of the server's answer.
	Response *Response
	// Hang: the client sees nothing until its context ends.
	Hang bool
}

// LoseRequest breaks the connection before the request reaches the server: nothing is executed.
func LoseRequest() Fault {
	return Fault{Name: "request lost", Drop: true, Err: &netError{syscall.ECONNREFUSED}}
}

// LoseResponse breaks the connection after the request was executed and before the answer arrives.
func LoseResponse() Fault { return Fault{Name: "response lost", Err: io.ErrUnexpectedEOF} }

// ResetConnection is LoseResponse with ECONNRESET for an error.
func ResetConnection() Fault {
	return Fault{Name: "connection reset", Err: &netError{syscall.ECONNRESET}}
}

// HangRequest loses the request in a silent network: nothing is executed, and the client hears
// nothing until its context ends.
func HangRequest() Fault { return Fault{Name: "request hangs", Drop: true, Hang: true} }

// HangResponse has the request executed and loses the answer: the client hears nothing until its
// context ends.
func HangResponse() Fault { return Fault{Name: "response hangs", Hang: true} }

// DelayRequest keeps the request in the network for d; the client waits for it. If the client gives
// up first, the request arrives all the same.
func DelayRequest(d time.Duration) Fault {
	return Fault{Name: fmt.Sprintf("delayed %v", d), Delay: d, Detach: true}
}

// HoldRequest keeps the request inside the server for d. A timeout of the request's own, or of the
// server, that is over before cuts it off with a 504, and nothing is executed; so does the client's
// going.
func HoldRequest(d time.Duration) Fault { return Fault{Name: fmt.Sprintf("held %v", d), Hold: d} }

// CommitLater answers the client with a 504 at once, and executes the request after d, as it is
// then: if its precondition still holds.
func CommitLater(d time.Duration) Fault {
	f := Answer(http.StatusGatewayTimeout)
	f.Name, f.Drop, f.Early, f.Delay = fmt.Sprintf("504, executed %v later", d), false, true, d
	return f
}

// HangCommitLater leaves the client without an answer until its context ends, and executes the
// request after d, the client's going or not.
func HangCommitLater(d time.Duration) Fault {
	return Fault{Name: fmt.Sprintf("hangs, executed %v later", d), Early: true, Hang: true, Delay: d}
}

// Duplicate has the request executed twice, as a proxy that sends again would; the client sees the
// second answer.
func Duplicate() Fault { return Fault{Name: "sent twice", Repeat: 1} }

// Answer answers with a status of the given code instead of the server, which never sees the
// request. See [Fault.AfterCommit] and [Fault.WithRetryAfter].
func Answer(code int) Fault {
	return Fault{Name: fmt.Sprintf("answered %d", code), Drop: true, Response: answerOf(code)}
}

// AnswerError answers with an API error instead of the server, which never sees the request.
func AnswerError(err apierrors.APIStatus) Fault {
	status := err.Status()
	return Fault{
		Name: fmt.Sprintf("answered %d %s", status.Code, status.Reason), Drop: true,
		Response: failure(&apierrors.StatusError{ErrStatus: status}),
	}
}

// AfterCommit is the fault with the request executed first: the answer stands for one that was lost.
func (f Fault) AfterCommit() Fault {
	f.Name += " after it was executed"
	f.Drop = false
	return f
}

// WithRetryAfter is the fault with a Retry-After header on its answer, which has client-go send the
// request again by itself.
func (f Fault) WithRetryAfter(seconds int) Fault {
	if f.Response == nil {
		return f
	}
	resp := *f.Response
	resp.RetryAfter = seconds
	f.Response = &resp
	f.Name += fmt.Sprintf(", Retry-After %d", seconds)
	return f
}

// answerOf is a status of that code in the words of whoever gives it in a real cluster.
func answerOf(code int) *Response {
	status := metav1.Status{Status: metav1.StatusFailure, Code: int32(code)}
	switch code {
	case http.StatusForbidden:
		status.Reason, status.Message = metav1.StatusReasonForbidden, "admission webhook \"fault.rapidtest\" denied the request: forbidden"
	case http.StatusConflict:
		status.Reason, status.Message = metav1.StatusReasonConflict, "admission webhook \"fault.rapidtest\" denied the request: conflict"
	case http.StatusTooManyRequests:
		return failure(apierrors.NewTooManyRequestsError("too many requests, please try again later"))
	case http.StatusServiceUnavailable:
		return failure(apierrors.NewServiceUnavailable("apiserver is shutting down"))
	case http.StatusGatewayTimeout:
		return failure(apierrors.NewTimeoutError("request did not complete within the allotted timeout", 0))
	case http.StatusInternalServerError:
		return failure(apierrors.NewInternalError(errors.New("etcdserver: request timed out")))
	default:
		status.Message = strings.ToLower(http.StatusText(code))
	}
	return failure(&apierrors.StatusError{ErrStatus: status})
}

// netError is an error of the network such as net/http gives.
type netError struct{ cause syscall.Errno }

// Error implements error.
func (e *netError) Error() string { return "read tcp model.invalid:443: " + e.cause.Error() }

// Unwrap gives the errno, for errors.Is.
func (e *netError) Unwrap() error { return e.cause }

// carryOut takes a request through the fault.
func (f Fault) carryOut(ctx context.Context, req *Request, next RoundTrip) (*Response, error) {
	switch {
	case f.Early:
		if !f.Drop {
			go func() { _, _ = f.execute(context.WithoutCancel(ctx), req, next) }()
		}
		return f.see(ctx, nil, nil)
	case f.Drop:
		if f.Delay > 0 && !sleep(ctx, f.Delay) {
			return nil, ctx.Err()
		}
		return f.see(ctx, nil, nil)
	case f.Detach:
		resp, err := f.executeDetached(ctx, req, next)
		return f.see(ctx, resp, err)
	}
	resp, err := f.execute(ctx, req, next)
	return f.see(ctx, resp, err)
}

// see is what the client sees of an answer.
func (f Fault) see(ctx context.Context, resp *Response, err error) (*Response, error) {
	switch {
	case f.Hang:
		<-ctx.Done()
		return nil, ctx.Err()
	case f.Err != nil:
		return nil, f.Err
	case f.Response != nil:
		return f.Response, nil
	case resp == nil && err == nil:
		return nil, io.ErrUnexpectedEOF // a request that was dropped, with nothing said about what the client sees
	}
	return resp, err
}

func (f Fault) execute(ctx context.Context, req *Request, next RoundTrip) (*Response, error) {
	if f.Delay > 0 && !sleep(ctx, f.Delay) {
		return nil, ctx.Err()
	}
	if f.Hold > 0 {
		req = req.With(func(r *Request) { r.Hold += f.Hold })
	}
	resp, err := next(ctx, req)
	for range f.Repeat {
		resp, err = next(ctx, req)
	}
	return resp, err
}

// executeDetached is execute that goes on when ctx ends.
func (f Fault) executeDetached(ctx context.Context, req *Request, next RoundTrip) (*Response, error) {
	if ctx.Done() == nil {
		return f.execute(ctx, req, next)
	}
	return within(ctx, func(ctx context.Context, req *Request) (*Response, error) {
		return f.execute(context.WithoutCancel(ctx), req, next)
	}, req)
}

// A Match picks requests.
type Match func(*Request) bool

// Writes picks the requests that can change something: no reads, no dry runs.
func Writes() Match { return (*Request).Write }

// Reads picks the requests that are no [Writes].
func Reads() Match { return func(r *Request) bool { return !r.Write() } }

// Everything picks every request.
func Everything() Match { return func(*Request) bool { return true } }

// Verbs picks requests of any of these verbs.
func Verbs(verbs ...string) Match {
	return func(r *Request) bool {
		for _, v := range verbs {
			if r.Verb == v {
				return true
			}
		}
		return false
	}
}

// OfResource picks the requests to a resource by its plural name.
func OfResource(resource string) Match {
	return func(r *Request) bool { return r.GVR.Resource == resource }
}

// ByUser picks the requests of a user.
func ByUser(user string) Match { return func(r *Request) bool { return r.User == user } }

// And picks what both pick.
func (m Match) And(other Match) Match {
	return func(r *Request) bool { return m(r) && other(r) }
}

// A Rule of a [Plan] gives a fault to some of the requests that Match picks: those with the numbers
// From to To among them, from 1.
type Rule struct {
	Match    Match
	From, To int
	Fault    Fault
}

// Nth is the rule for the n-th request that match picks.
func Nth(n int, match Match, fault Fault) Rule {
	return Rule{Match: match, From: n, To: n, Fault: fault}
}

// Each is the rule for every request that match picks.
func Each(match Match, fault Fault) Rule { return Rule{Match: match, From: 1, Fault: fault} }

// Span is the rule for the requests number from to to that match picks.
func Span(from, to int, match Match, fault Fault) Rule {
	return Rule{Match: match, From: from, To: to, Fault: fault}
}

// A Plan decides what goes wrong with which request, and remembers all that passed. The first of
// its rules that counts a request among its own decides; every rule counts every request that it
// matches. Use its Middleware with [Server.Use] or a face:
//
//	plan := rapidtest.NewPlan(rapidtest.Nth(1, rapidtest.Writes(), rapidtest.LoseResponse()))
//	client := server.Dynamic("alice", plan.Middleware)
//
// A Plan is safe for concurrent use.
type Plan struct {
	mu     sync.Mutex
	start  time.Time
	rules  []Rule
	counts []int
	events []*Event
}

// NewPlan makes a plan of rules. Without any it only remembers.
func NewPlan(rules ...Rule) *Plan {
	return &Plan{start: time.Now(), rules: rules, counts: make([]int, len(rules))}
}

// An Event is what became of one request that passed a [Plan].
type Event struct {
	// Sent and Seen are when the client sent the request and when it saw the outcome, counted from
	// the plan's start. Seen is negative while it waits.
	Sent, Seen time.Duration
	// Request is the request.
	Request *Request
	// Fault is what the plan did to it.
	Fault Fault
	// Response or Err is what the client saw.
	Response *Response
	Err      error
}

// String gives the event in one line.
func (e Event) String() string {
	outcome := "waiting"
	switch {
	case e.Response != nil:
		outcome = e.Response.String()
	case e.Err != nil:
		outcome = e.Err.Error()
	}
	text := fmt.Sprintf("%8s %s -> %s", e.Sent.Round(time.Millisecond), e.Request, outcome)
	if e.Seen >= 0 && e.Seen != e.Sent {
		text += fmt.Sprintf(" after %s", (e.Seen - e.Sent).Round(time.Millisecond))
	}
	if e.Fault.Name != "" {
		text += " [" + e.Fault.Name + "]"
	}
	return text
}

// Middleware carries out the plan.
func (p *Plan) Middleware(next RoundTrip) RoundTrip {
	return func(ctx context.Context, req *Request) (*Response, error) {
		e := p.begin(req)
		resp, err := e.Fault.carryOut(ctx, req, next)
		p.end(e, resp, err)
		return resp, err
	}
}

func (p *Plan) begin(req *Request) *Event {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := &Event{Sent: time.Since(p.start), Seen: -1, Request: req}
	decided := false
	for i, r := range p.rules {
		if !r.Match(req) {
			continue
		}
		p.counts[i]++
		if n := p.counts[i]; !decided && n >= r.From && (r.To == 0 || n <= r.To) {
			e.Fault, decided = r.Fault, true
		}
	}
	p.events = append(p.events, e)
	return e
}

func (p *Plan) end(e *Event, resp *Response, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e.Seen, e.Response, e.Err = time.Since(p.start), resp, err
}

// Events returns what passed so far, in the order in which it was sent.
func (p *Plan) Events() []Event {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]Event, len(p.events))
	for i, e := range p.events {
		out[i] = *e
	}
	return out
}

// Timeline prints the events, one on a line, for the message of a test that failed.
func (p *Plan) Timeline() string {
	var b strings.Builder
	for _, e := range p.Events() {
		b.WriteString(e.String())
		b.WriteByte('\n')
	}
	return b.String()
}
