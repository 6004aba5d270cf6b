package rapidtest

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// The verbs of a [Request], as authorization knows them.
const (
	VerbGet              = "get"
	VerbList             = "list"
	VerbWatch            = "watch"
	VerbCreate           = "create"
	VerbUpdate           = "update"
	VerbPatch            = "patch"
	VerbDelete           = "delete"
	VerbDeleteCollection = "deletecollection"
)

// A Request is one transmission to the server: what client-go sends once. A client that sends the
// same thing again makes another Request, with another ID. A Request is not changed once it is on
// its way; a [Middleware] that wants another one passes on a copy ([Request.With]).
type Request struct {
	// ID numbers the transmissions to one server, from 1, in the order in which they left.
	ID int64
	// User is who asks, UserAgent the program.
	User, UserAgent string
	// Verb is one of the Verb constants.
	Verb string
	// GVR, Subresource ("" or "status"), Namespace and Name say what of.
	GVR                          schema.GroupVersionResource
	Subresource, Namespace, Name string
	// Object is the body of a create or an update. It belongs to the Request and must not be changed.
	Object *unstructured.Unstructured
	// Patch is the body of a patch, and PatchType its kind.
	Patch     []byte
	PatchType types.PatchType
	// FieldManager, FieldValidation (Ignore, Warn, Strict; "" is Warn) and DryRun ("All") are the
	// options of a write.
	FieldManager, FieldValidation string
	DryRun                        []string
	// List holds the options of a list, a watch or a deletecollection, and of a get its ResourceVersion.
	List metav1.ListOptions
	// Delete holds the options of a delete or a deletecollection.
	Delete metav1.DeleteOptions
	// BodySize is the size of the body in bytes, an estimate where nothing was encoded.
	BodySize int
	// Timeout is the ?timeout= of the request; 0 where there was none. The server cuts off a
	// request that it holds any longer.
	Timeout time.Duration
	// Hold keeps the request inside the server for a while before it is executed, as a slow webhook
	// would. It counts against the Timeout; a delay in the network (see [Fault]) does not.
	Hold time.Duration
}

// Write says whether the request can change what is stored: it is none of get, list and watch, and
// no dry run.
func (r *Request) Write() bool {
	switch r.Verb {
	case VerbGet, VerbList, VerbWatch:
		return false
	}
	return len(r.DryRun) == 0
}

// With returns a copy of the request that change has changed.
func (r *Request) With(change func(*Request)) *Request {
	out := *r
	change(&out)
	return &out
}

// String gives the request in one line, for timelines: "#7 update trainjobs/status default/a by alice".
func (r *Request) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "#%d %s %s", r.ID, r.Verb, r.GVR.Resource)
	if r.Subresource != "" {
		b.WriteString("/" + r.Subresource)
	}
	if at := strings.Trim(r.Namespace+"/"+r.Name, "/"); at != "" {
		b.WriteString(" " + at)
	}
	if len(r.DryRun) > 0 {
		b.WriteString(" (dry run)")
	}
	if r.User != "" {
		b.WriteString(" by " + r.User)
	}
	return b.String()
}

// method is the HTTP method of the request's verb.
func (r *Request) method() string {
	switch r.Verb {
	case VerbCreate:
		return http.MethodPost
	case VerbUpdate:
		return http.MethodPut
	case VerbPatch:
		return http.MethodPatch
	case VerbDelete, VerbDeleteCollection:
		return http.MethodDelete
	}
	return http.MethodGet
}

// path is the URL path of the request.
func (r *Request) path() string {
	parts := []string{"/apis", r.GVR.Group, r.GVR.Version}
	if r.GVR.Group == "" {
		parts = []string{"/api", r.GVR.Version}
	}
	if r.Namespace != "" {
		parts = append(parts, "namespaces", r.Namespace)
	}
	parts = append(parts, r.GVR.Resource)
	if r.Name != "" && r.Verb != VerbCreate {
		parts = append(parts, r.Name)
	}
	if r.Subresource != "" {
		parts = append(parts, r.Subresource)
	}
	return strings.Join(parts, "/")
}

// A Response is what the server answers to a [Request]. Exactly one of Object, List, Status, Watch
// and Text is set. Its objects are shared with the server and must not be changed; the faces copy
// them for their callers.
type Response struct {
	// Code is the HTTP status code.
	Code int
	// Object is the object of a get, a create, an update, a patch, or of a delete that left it there.
	Object *unstructured.Unstructured
	// List is the answer to a list.
	List *unstructured.UnstructuredList
	// Status is a failure, or the success of a delete that removed the object.
	Status *metav1.Status
	// Watch is the answer to a watch.
	Watch watch.Interface
	// Text is an answer in plain words, as proxies and missing routes give.
	Text string
	// RetryAfter, where positive, is the seconds of the Retry-After header.
	RetryAfter int
	// Warnings are the texts of the Warning headers.
	Warnings []string
}

// Err is the error that client-go makes of the response; nil for a success.
func (r *Response) Err() error { return r.errFor(&Request{}) }

func (r *Response) errFor(req *Request) error {
	switch {
	case r.Code < http.StatusBadRequest:
		return nil
	case r.Status != nil:
		return &apierrors.StatusError{ErrStatus: *r.Status.DeepCopy()}
	default:
		return apierrors.NewGenericServerResponse(r.Code, req.method(), schema.GroupResource{}, "", strings.TrimSpace(r.Text), r.RetryAfter, true)
	}
}

// String gives the response in a few words, for timelines: "200 rv=12" or "409 Conflict".
func (r *Response) String() string {
	switch {
	case r.Object != nil && r.Object.GetResourceVersion() != "":
		return fmt.Sprintf("%d rv=%s", r.Code, r.Object.GetResourceVersion())
	case r.List != nil:
		return fmt.Sprintf("%d %d items", r.Code, len(r.List.Items))
	case r.Status != nil && r.Status.Reason != "":
		return fmt.Sprintf("%d %s", r.Code, r.Status.Reason)
	}
	return fmt.Sprintf("%d", r.Code)
}

// retryAfter is the number in the Retry-After header; 0 for no header.
func (r *Response) retryAfter() int {
	if r.RetryAfter == 0 && r.Status != nil && r.Status.Details != nil {
		return int(r.Status.Details.RetryAfterSeconds)
	}
	return r.RetryAfter
}

// failure makes the response of an error: an API error keeps its status, anything else is a 500, as
// in the real server.
func failure(err error) *Response {
	var status metav1.Status
	if api, ok := err.(apierrors.APIStatus); ok {
		status = api.Status()
	} else {
		status = metav1.Status{Reason: metav1.StatusReasonUnknown, Message: err.Error()}
	}
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	if status.Status == "" {
		status.Status = metav1.StatusFailure
	}
	if status.Code == 0 {
		status.Code = http.StatusInternalServerError
	}
	return &Response{Code: int(status.Code), Status: &status}
}

func (r *Response) withWarnings(texts []string) *Response {
	r.Warnings = texts
	return r
}

// A RoundTrip carries one request to the server and brings back its answer. An error means that no
// answer came: the connection broke, or ctx ended; it says nothing about what the server did.
// Whatever the server refuses comes as a Response.
type RoundTrip func(ctx context.Context, req *Request) (*Response, error)

// A Middleware stands between the clients and the server and sees every request: it may look,
// change, delay, drop, repeat or answer it. See [Plan] and [Scheduler] for the two that tests need
// most.
type Middleware func(next RoundTrip) RoundTrip

// chain puts middlewares before next; the first one sees a request first.
func chain(next RoundTrip, mws []Middleware) RoundTrip {
	for _, mw := range slices.Backward(mws) {
		next = mw(next)
	}
	return next
}
