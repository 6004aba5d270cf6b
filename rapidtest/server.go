package rapidtest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// defaultRequestTimeout is the real server's --request-timeout.
	defaultRequestTimeout = 60 * time.Second
	// writeTimeout is the longest that the real server works on one write, whatever the request timeout.
	writeTimeout = 34 * time.Second
	// maxBodySize is the largest request body that the real server reads.
	maxBodySize = 3 << 20
)

// A Server is a Kubernetes apiserver in memory. Make one with [NewServer], reach it through
// [Server.Dynamic], [Server.Transport], [Server.RESTConfig] or [Server.Handler], and look at what
// became of it with [Server.History] and [Server.Stored]. It is safe for concurrent use. It starts
// no goroutine that outlives a request or a watch, and knows the time only from package time, so
// that it works inside a testing/synctest bubble.
type Server struct {
	// RequestTimeout is how long the server works on a request that brings no timeout of its own;
	// 60 s where 0. No write takes longer than 34 s in any case. Set it before the first request.
	RequestTimeout time.Duration

	resources map[schema.GroupVersionResource]*servedResource
	order     []schema.GroupVersionResource
	ids       atomic.Int64

	// commitMu orders commits and their hooks; mu guards what follows and is never held while
	// anything else is called.
	commitMu    sync.Mutex
	mu          sync.Mutex
	state       state
	watches     map[*watchStream]struct{}
	middlewares []Middleware
	chained     RoundTrip
	authorizer  func(Access) bool
	mutating    []func(AdmissionRequest) (*unstructured.Unstructured, error)
	validating  []func(AdmissionRequest) error
	commitHooks []func(Commit)
}

// NewServer returns an empty server of the given resources, which lets every user do everything.
func NewServer(resources ...Resource) *Server {
	s := &Server{
		resources: map[schema.GroupVersionResource]*servedResource{},
		state:     newState(),
		watches:   map[*watchStream]struct{}{},
	}
	for _, r := range resources {
		if _, ok := s.resources[r.GVR]; !ok {
			s.order = append(s.order, r.GVR)
		}
		s.resources[r.GVR] = &servedResource{Resource: r, schema: newKnownFields(r.Fields)}
	}
	s.rechain()
	return s
}

// Use puts middlewares in front of the server, behind those that are there already. They see the
// requests of all faces.
func (s *Server) Use(mws ...Middleware) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.middlewares = append(slices.Clone(s.middlewares), mws...)
	s.rechain()
}

func (s *Server) rechain() { s.chained = chain(s.serve, s.middlewares) }

// OnCommit has hook called for every commit, one at a time and in order, before any request is
// answered that could tell of it. A hook may look at the server with [Server.Stored] and the like,
// but a request that it made would wait for itself. Property tests check here what must hold of
// every version.
func (s *Server) OnCommit(hook func(Commit)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commitHooks = append(slices.Clone(s.commitHooks), hook)
}

// An AdmissionRequest is what an admission hook is asked about.
type AdmissionRequest struct {
	// Request is the request under way.
	Request *Request
	// Operation is CREATE, UPDATE or DELETE; a patch is an UPDATE.
	Operation string
	// Object is the object to be stored, a copy that the hook may change and return; nil on a
	// delete. On a PUT of the main resource it still carries the status of the request.
	Object *unstructured.Unstructured
	// OldObject is the object as it is stored; nil on a create. It must not be changed.
	OldObject *unstructured.Unstructured
}

// Admit adds a mutating admission hook, in the order of calls. It returns the object to go on with
// (nil: the one it was given), or an error that refuses the request: an API error as it is, with
// any code from 400, see [Denied]; any other error as a 500. As in the real server it runs before
// the resourceVersion is checked, and again if the object changes meanwhile; it does not see
// deletes.
func (s *Server) Admit(hook func(AdmissionRequest) (*unstructured.Unstructured, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mutating = append(slices.Clone(s.mutating), hook)
}

// AdmitValidating adds a validating admission hook: it sees the object as it would be stored, after
// the resourceVersion and everything else was found right, and only says yes or no. It sees
// creates, updates and deletes.
func (s *Server) AdmitValidating(hook func(AdmissionRequest) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.validating = append(slices.Clone(s.validating), hook)
}

// Denied is the error of an admission webhook of the given name that refuses a request with this
// code, reason and message. A code below 400 becomes 400, as in the real server.
func Denied(webhook string, code int32, reason metav1.StatusReason, message string) error {
	text := fmt.Sprintf("admission webhook %q denied the request", webhook)
	switch {
	case message != "":
		text += ": " + message
	case reason != "":
		text += ": " + string(reason)
	default:
		text += " without explanation"
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: max(code, 400), Reason: reason, Message: text,
	}}
}

// RoundTrip sends a request through all middlewares to the server. It is what the faces use; tests
// may, for requests that no client would send. A request without an ID is given the next one.
func (s *Server) RoundTrip(ctx context.Context, req *Request) (*Response, error) {
	if req.ID == 0 {
		req = req.With(func(r *Request) { r.ID = s.nextID() })
	}
	s.mu.Lock()
	next := s.chained
	s.mu.Unlock()
	return next(ctx, req)
}

func (s *Server) nextID() int64 { return s.ids.Add(1) }

// serve is the innermost RoundTrip: the server itself.
func (s *Server) serve(ctx context.Context, req *Request) (*Response, error) {
	if req.Verb == VerbWatch {
		return s.execute(ctx, req), nil
	}
	serverCtx, cancel := context.WithTimeout(ctx, s.timeoutOf(req))
	defer cancel()
	if req.Hold > 0 && !sleep(serverCtx, req.Hold) {
		return cutOff(ctx, serverCtx)
	}
	resp := s.execute(serverCtx, req)
	s.awaitHooks()
	if ctx.Err() != nil && resp.Code == 504 {
		return nil, ctx.Err()
	}
	return resp, nil
}

// awaitHooks waits until the hooks have seen all that is committed. Else two requests that run at
// the same moment could read a version of each other, and tell of it, of which no hook knows.
func (s *Server) awaitHooks() {
	s.commitMu.Lock()
	defer s.commitMu.Unlock()
}

// cutOff answers a request whose time in the server is over: nothing if the client has gone, a 504
// otherwise.
func cutOff(client, server context.Context) (*Response, error) {
	if err := client.Err(); err != nil {
		return nil, err
	}
	return failure(errRequestTimeout(server.Err())), nil
}

func (s *Server) timeoutOf(req *Request) time.Duration {
	limit := s.RequestTimeout
	if limit <= 0 {
		limit = defaultRequestTimeout
	}
	if req.Timeout > 0 {
		limit = min(limit, req.Timeout)
	}
	switch req.Verb {
	case VerbCreate, VerbUpdate, VerbPatch, VerbDelete:
		limit = min(limit, writeTimeout)
	}
	return limit
}

// sleep waits for d, and reports false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// execute does what the request asks, without any wait.
func (s *Server) execute(ctx context.Context, req *Request) *Response {
	if isAccessReview(req.GVR) {
		return s.reviewAccess(req)
	}
	if err := s.checkAccess(req); err != nil {
		return failure(err)
	}
	res, resp := s.route(req)
	if resp != nil {
		return resp
	}
	if req.BodySize > maxBodySize {
		return failure(apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", maxBodySize)))
	}
	switch req.Verb {
	case VerbGet:
		return s.get(ctx, res, req)
	case VerbList:
		return s.list(res, req)
	case VerbWatch:
		return s.watch(ctx, res, req)
	case VerbCreate:
		return s.create(ctx, res, req)
	case VerbUpdate, VerbPatch:
		return s.update(ctx, res, req)
	case VerbDelete:
		return s.delete(ctx, res, req)
	case VerbDeleteCollection:
		return s.deleteCollection(ctx, res, req)
	}
	return failure(apierrors.NewMethodNotSupported(res.groupResource(), req.Verb))
}

// route finds the resource of a request, or the answer to one that leads nowhere.
func (s *Server) route(req *Request) (*servedResource, *Response) {
	res := s.resources[req.GVR]
	if res == nil || (!res.Namespaced && req.Namespace != "") {
		return nil, noRoute()
	}
	if res.Namespaced && req.Namespace == "" && req.Verb != VerbList && req.Verb != VerbWatch {
		return nil, noRoute()
	}
	switch {
	case req.Subresource == "":
		return res, nil
	case req.Subresource != "status" || !res.StatusSubresource:
		return nil, failure(apierrors.NewNotFound(res.groupResource(), req.Name))
	case req.Verb == VerbGet || req.Verb == VerbUpdate || req.Verb == VerbPatch:
		return res, nil
	}
	return nil, failure(apierrors.NewMethodNotSupported(res.groupResource(), req.Verb))
}

// noRoute is what the real server's mux answers where nothing is served.
func noRoute() *Response { return &Response{Code: 404, Text: "404 page not found\n"} }
