package rapidtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/samber/lo"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// Dynamic returns a client of the server that acts as user. Its requests go through mws, which are
// this client's own, and then through what [Server.Use] has put there. It fails as client-go's
// dynamic client fails, but does without HTTP and JSON, and one call is one transmission: it never
// sends again by itself. [Server.RESTConfig] has the real client for where that matters.
//
// Server-side apply is not modelled: Apply and ApplyStatus are answered 405.
func (s *Server) Dynamic(user string, mws ...Middleware) dynamic.Interface {
	return &dynamicFace{server: s, user: user, trip: chain(s.RoundTrip, mws)}
}

type dynamicFace struct {
	server *Server
	user   string
	trip   RoundTrip
}

// Resource implements dynamic.Interface.
func (f *dynamicFace) Resource(gvr schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return &resourceFace{face: f, gvr: gvr}
}

type resourceFace struct {
	face      *dynamicFace
	gvr       schema.GroupVersionResource
	namespace string
}

// Namespace implements dynamic.NamespaceableResourceInterface.
func (r *resourceFace) Namespace(namespace string) dynamic.ResourceInterface {
	return &resourceFace{face: r.face, gvr: r.gvr, namespace: namespace}
}

// request starts a request for a name, which may be missing only where optional.
func (r *resourceFace) request(verb, name string, nameless bool, subresources []string) (*Request, error) {
	if name == "" && !nameless {
		return nil, errors.New("name is required")
	}
	if msgs := rest.IsValidPathSegmentName(r.namespace); len(msgs) != 0 {
		return nil, fmt.Errorf("invalid namespace %q: %v", r.namespace, msgs)
	}
	if msgs := rest.IsValidPathSegmentName(name); len(msgs) != 0 {
		return nil, fmt.Errorf("invalid resource name %q: %v", name, msgs)
	}
	return &Request{
		User: r.face.user, Verb: verb, GVR: r.gvr, Namespace: r.namespace, Name: name, Subresource: strings.Join(subresources, "/"),
	}, nil
}

// carry puts an object into a request as it would go over the wire.
func carry(req *Request, obj *unstructured.Unstructured) error {
	if obj == nil {
		return errors.New("object provided is nil")
	}
	content, size, err := wireCopyObject(obj.Object)
	if err != nil {
		return err
	}
	req.Object, req.BodySize = &unstructured.Unstructured{Object: content}, size
	return nil
}

// send is one transmission.
func (r *resourceFace) send(ctx context.Context, req *Request) (*Response, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	req.ID = r.face.server.nextID()
	countTransmission(ctx)
	resp, err := within(ctx, r.face.trip, req)
	if err != nil {
		method := req.method()
		return nil, &url.Error{Op: method[:1] + strings.ToLower(method[1:]), URL: modelHost + req.path(), Err: err}
	}
	if err := resp.errFor(req); err != nil {
		return nil, err
	}
	return resp, nil
}

func (r *resourceFace) sendForObject(ctx context.Context, req *Request) (*unstructured.Unstructured, error) {
	resp, err := r.send(ctx, req)
	if err != nil {
		return nil, err
	}
	if resp.Object == nil {
		return nil, fmt.Errorf("the server answered %s without an object", resp)
	}
	return resp.Object.DeepCopy(), nil
}

// within lets a round trip take no longer than its caller's context: the caller gets the context's
// error at once, whatever goes on behind it.
func within(ctx context.Context, trip RoundTrip, req *Request) (*Response, error) {
	if ctx.Done() == nil {
		return trip(ctx, req)
	}
	type answer struct {
		resp *Response
		err  error
	}
	answered := make(chan answer, 1)
	go func() {
		resp, err := trip(ctx, req)
		answered <- answer{resp, err}
	}()
	select {
	case a := <-answered:
		return a.resp, a.err
	case <-ctx.Done():
	}
	select {
	case a := <-answered: // an answer in time is an answer
		return a.resp, a.err
	default:
		return nil, ctx.Err()
	}
}

// Create implements dynamic.ResourceInterface.
func (r *resourceFace) Create(ctx context.Context, obj *unstructured.Unstructured, opts metav1.CreateOptions, subresources ...string) (*unstructured.Unstructured, error) {
	name := ""
	if obj != nil {
		name = obj.GetName()
	}
	req, err := r.request(VerbCreate, name, len(subresources) == 0, subresources)
	if err != nil {
		return nil, err
	}
	if err := carry(req, obj); err != nil {
		return nil, err
	}
	req.FieldManager, req.FieldValidation, req.DryRun = opts.FieldManager, opts.FieldValidation, lo.Compact(opts.DryRun) // in a query, what is empty is left out
	return r.sendForObject(ctx, req)
}

// Update implements dynamic.ResourceInterface.
func (r *resourceFace) Update(ctx context.Context, obj *unstructured.Unstructured, opts metav1.UpdateOptions, subresources ...string) (*unstructured.Unstructured, error) {
	if obj == nil {
		return nil, errors.New("object provided is nil")
	}
	req, err := r.request(VerbUpdate, obj.GetName(), false, subresources)
	if err != nil {
		return nil, err
	}
	if err := carry(req, obj); err != nil {
		return nil, err
	}
	req.FieldManager, req.FieldValidation, req.DryRun = opts.FieldManager, opts.FieldValidation, lo.Compact(opts.DryRun) // in a query, what is empty is left out
	return r.sendForObject(ctx, req)
}

// UpdateStatus implements dynamic.ResourceInterface.
func (r *resourceFace) UpdateStatus(ctx context.Context, obj *unstructured.Unstructured, opts metav1.UpdateOptions) (*unstructured.Unstructured, error) {
	return r.Update(ctx, obj, opts, "status")
}

// Patch implements dynamic.ResourceInterface.
func (r *resourceFace) Patch(ctx context.Context, name string, pt types.PatchType, data []byte, opts metav1.PatchOptions, subresources ...string) (*unstructured.Unstructured, error) {
	req, err := r.request(VerbPatch, name, false, subresources)
	if err != nil {
		return nil, err
	}
	req.Patch, req.PatchType, req.BodySize = append([]byte(nil), data...), pt, len(data)
	req.FieldManager, req.FieldValidation, req.DryRun = opts.FieldManager, opts.FieldValidation, lo.Compact(opts.DryRun) // in a query, what is empty is left out
	return r.sendForObject(ctx, req)
}

// Delete implements dynamic.ResourceInterface.
func (r *resourceFace) Delete(ctx context.Context, name string, opts metav1.DeleteOptions, subresources ...string) error {
	req, err := r.request(VerbDelete, name, false, subresources)
	if err != nil {
		return err
	}
	opts.DeepCopyInto(&req.Delete)
	req.DryRun = req.Delete.DryRun
	_, err = r.send(ctx, req)
	return err
}

// DeleteCollection implements dynamic.ResourceInterface.
func (r *resourceFace) DeleteCollection(ctx context.Context, opts metav1.DeleteOptions, list metav1.ListOptions) error {
	req, err := r.request(VerbDeleteCollection, "", true, nil)
	if err != nil {
		return err
	}
	opts.DeepCopyInto(&req.Delete)
	list.DeepCopyInto(&req.List)
	req.DryRun = req.Delete.DryRun
	_, err = r.send(ctx, req)
	return err
}

// Get implements dynamic.ResourceInterface.
func (r *resourceFace) Get(ctx context.Context, name string, opts metav1.GetOptions, subresources ...string) (*unstructured.Unstructured, error) {
	req, err := r.request(VerbGet, name, false, subresources)
	if err != nil {
		return nil, err
	}
	req.List.ResourceVersion = opts.ResourceVersion
	return r.sendForObject(ctx, req)
}

// List implements dynamic.ResourceInterface.
func (r *resourceFace) List(ctx context.Context, opts metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	req, err := r.request(VerbList, "", true, nil)
	if err != nil {
		return nil, err
	}
	opts.DeepCopyInto(&req.List)
	resp, err := r.send(ctx, req)
	if err != nil {
		return nil, err
	}
	if resp.List == nil {
		return nil, fmt.Errorf("the server answered %s without a list", resp)
	}
	return resp.List.DeepCopy(), nil
}

// Watch implements dynamic.ResourceInterface.
func (r *resourceFace) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	req, err := r.request(VerbWatch, "", true, nil)
	if err != nil {
		return nil, err
	}
	opts.DeepCopyInto(&req.List)
	resp, err := r.send(ctx, req)
	if err != nil {
		return nil, err
	}
	if resp.Watch == nil {
		return nil, fmt.Errorf("the server answered %s without a watch", resp)
	}
	return resp.Watch, nil
}

// Apply implements dynamic.ResourceInterface; it is not supported.
func (r *resourceFace) Apply(context.Context, string, *unstructured.Unstructured, metav1.ApplyOptions, ...string) (*unstructured.Unstructured, error) {
	return nil, apierrors.NewMethodNotSupported(r.gvr.GroupResource(), "apply")
}

// ApplyStatus implements dynamic.ResourceInterface; it is not supported.
func (r *resourceFace) ApplyStatus(context.Context, string, *unstructured.Unstructured, metav1.ApplyOptions) (*unstructured.Unstructured, error) {
	return nil, apierrors.NewMethodNotSupported(r.gvr.GroupResource(), "apply")
}
