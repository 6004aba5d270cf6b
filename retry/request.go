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
	"k8s.io/client-go/dynamic"
)

// pageSize is how many objects of a list are asked for at once.
const pageSize = 500

// A Reader sends the reads of a call. Every one of them is live and consistent,
// leaves before the call's deadline or not at all, and ends with it. Its errors
// hold the API error, below a *RequestError; pass them on (rules T4, T6).
type Reader interface {
	// Get returns one object.
	Get(ctx context.Context, resource schema.GroupVersionResource, namespace, name string) (*unstructured.Unstructured, error)
	// Each calls visit for the objects that a label selector matches, page by
	// page, until visit returns false.
	Each(ctx context.Context, resource schema.GroupVersionResource, namespace, selector string, visit func(*unstructured.Unstructured) bool) error
}

// A RequestError is the failure of one request, named.
type RequestError struct {
	Verb        string
	Resource    schema.GroupVersionResource
	Subresource string
	Namespace   string
	Name        string
	// RetryAfter is how long the apiserver asked to wait.
	RetryAfter time.Duration
	Err        error
}

// Error names the request, beside the cause.
func (e *RequestError) Error() string {
	resource := e.Resource.GroupResource()
	if e.Subresource != "" {
		resource.Resource += "/" + e.Subresource
	}
	return fmt.Sprintf("%s %s: %v", e.Verb, resource, e.Err)
}

// Unwrap yields the cause: the API error, or that of the network.
func (e *RequestError) Unwrap() error { return e.Err }

func retryAfter(err error) time.Duration {
	var wait time.Duration
	if re := (*RequestError)(nil); errors.As(err, &re) {
		wait = re.RetryAfter
	}
	seconds, _ := apierrors.SuggestsClientDelay(err) // 0 where it does not
	return max(wait, time.Duration(seconds)*time.Second)
}

// reader is the Reader of a call, and its one writer.
type reader struct{ *call }

func (r reader) Get(ctx context.Context, resource schema.GroupVersionResource, namespace, name string) (*unstructured.Unstructured, error) {
	var obj *unstructured.Unstructured
	ev := Event{Verb: "get", Resource: resource, Namespace: namespace, Name: name}
	_, err := r.request(ctx, ev, func(ctx context.Context) (_ metav1.Common, err error) {
		obj, err = r.client(resource, namespace).Get(ctx, name, metav1.GetOptions{})
		return obj, err
	})
	r.saw(resource, obj)
	return obj, readError(err)
}

func (r reader) Each(ctx context.Context, resource schema.GroupVersionResource, namespace, selector string, visit func(*unstructured.Unstructured) bool) error {
	opts := metav1.ListOptions{LabelSelector: selector, Limit: pageSize}
	for {
		var list *unstructured.UnstructuredList
		ev := Event{Verb: "list", Resource: resource, Namespace: namespace}
		_, err := r.request(ctx, ev, func(ctx context.Context) (_ metav1.Common, err error) {
			list, err = r.client(resource, namespace).List(ctx, opts)
			return list, err
		})
		if err != nil {
			return readError(err)
		}
		for i := range list.Items {
			r.saw(resource, &list.Items[i])
		}
		for i := range list.Items {
			if !visit(&list.Items[i]) {
				return nil
			}
		}
		if opts.Continue = list.GetContinue(); opts.Continue == "" {
			return nil
		}
	}
}

// readError marks what another try may mend (rules T4, T6): a failure of the
// network, a 5xx, a 429, and a page token that has expired.
func readError(err error) error {
	code := statusCode(err)
	definite := code >= 400 && code < 500 && code != http.StatusTooManyRequests
	if err == nil || definite && !isExpired(err) {
		return err
	}
	return passing{err}
}

// update sends w and returns the answer and how often it was transmitted.
func (r reader) update(w *write) (answer *unstructured.Unstructured, sent int, err error) {
	ev := Event{
		Verb:         "update",
		Resource:     r.op.Resource,
		Subresource:  r.op.Subresource,
		Namespace:    w.want.GetNamespace(),
		Name:         w.want.GetName(),
		Precondition: w.want.GetResourceVersion(),
		Edits:        w.edits,
	}
	opts := metav1.UpdateOptions{FieldManager: FieldManager, FieldValidation: metav1.FieldValidationStrict}
	var part []string
	if ev.Subresource != "" {
		part = []string{ev.Subresource}
	}
	sent, err = r.request(r.ctx, ev, func(ctx context.Context) (_ metav1.Common, err error) {
		answer, err = r.client(r.op.Resource, ev.Namespace).Update(ctx, w.want, opts, part...)
		return answer, err
	})
	return answer, sent, err
}

func (r reader) client(resource schema.GroupVersionResource, namespace string) dynamic.ResourceInterface {
	return r.engine.client.Resource(resource).Namespace(namespace) // "" for none
}

// request sends one request, if there is time left for it, tells the observer,
// and names the request in the error.
func (r reader) request(ctx context.Context, ev Event, send func(context.Context) (metav1.Common, error)) (sent int, err error) {
	if err := r.left(nil); err != nil {
		return 0, err
	}
	if ctx != r.ctx { // of a Read's own making: it ends with the call all the same
		var cancel context.CancelFunc
		end, _ := r.ctx.Deadline()
		ctx, cancel = context.WithDeadline(ctx, end)
		defer cancel()
		defer context.AfterFunc(r.ctx, func() {
			if r.ctx.Err() == context.Canceled { // else it is late, and says so itself
				cancel()
			}
		})()
	}
	ctx, t := withTransmission(ctx)
	ev.Sent = time.Now()
	answer, err := send(ctx)
	if err != nil {
		err = &RequestError{
			Verb: ev.Verb, Resource: ev.Resource, Subresource: ev.Subresource, Namespace: ev.Namespace, Name: ev.Name,
			RetryAfter: time.Duration(t.retryAfter.Load()), Err: err,
		}
	}
	if r.engine.observe != nil {
		ev.Op, ev.Object, ev.Try = r.op.Call.Op, r.op.Call.Object, r.tries
		ev.Took, ev.Transmissions, ev.Err = time.Since(ev.Sent), int(t.count.Load()), err
		if err == nil {
			ev.ResourceVersion = answer.GetResourceVersion()
		}
		r.engine.observe(ev)
	}
	return int(t.count.Load()), err
}

func accessReviews() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "authorization.k8s.io", Version: "v1", Resource: "selfsubjectaccessreviews"}
}

// denied asks the apiserver whether a request that it answered 403 is one that
// this identity may not send (rule T4). A webhook may answer 403 as well, and
// then the review says that it may.
func (c *call) denied(err error) bool {
	var re *RequestError
	if !apierrors.IsForbidden(err) || !errors.As(err, &re) {
		return false
	}
	review := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": accessReviews().GroupVersion().String(),
		"kind":       "SelfSubjectAccessReview",
		"spec": map[string]any{"resourceAttributes": map[string]any{
			"verb": re.Verb, "group": re.Resource.Group, "version": re.Resource.Version,
			"resource": re.Resource.Resource, "subresource": re.Subresource,
			"namespace": re.Namespace, "name": re.Name,
		}},
	}}
	var answer *unstructured.Unstructured
	ev := Event{Verb: "create", Resource: accessReviews()}
	_, err = reader{c}.request(c.ctx, ev, func(ctx context.Context) (_ metav1.Common, err error) {
		answer, err = c.engine.client.Resource(accessReviews()).Create(ctx, review, metav1.CreateOptions{})
		return answer, err
	})
	if err != nil {
		return false
	}
	allowed, found, _ := unstructured.NestedBool(answer.Object, "status", "allowed")
	return found && !allowed
}
