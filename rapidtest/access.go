package rapidtest

import (
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// isAccessReview recognizes the one resource that every server serves, as every cluster does.
func isAccessReview(gvr schema.GroupVersionResource) bool {
	return gvr == schema.GroupVersionResource{Group: "authorization.k8s.io", Version: "v1", Resource: "selfsubjectaccessreviews"}
}

// An Access is what somebody wants to do, as authorization sees it. Name is empty for a create, a
// list and the like.
type Access struct {
	User, Verb                   string
	GVR                          schema.GroupVersionResource
	Subresource, Namespace, Name string
}

// Authorize has allow decide who may do what; nil lets everyone do everything. What it refuses is
// answered 403 before anything else is looked at. SelfSubjectAccessReviews are answered by it too,
// and open to everyone.
func (s *Server) Authorize(allow func(Access) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.authorizer = allow
}

func (s *Server) allows(a Access) bool {
	s.mu.Lock()
	allow := s.authorizer
	s.mu.Unlock()
	return allow == nil || allow(a)
}

func accessOf(req *Request) Access {
	a := Access{User: req.User, Verb: req.Verb, GVR: req.GVR, Subresource: req.Subresource, Namespace: req.Namespace, Name: req.Name}
	if req.Verb == VerbCreate {
		a.Name = ""
	}
	return a
}

func (s *Server) checkAccess(req *Request) error {
	a := accessOf(req)
	if s.allows(a) {
		return nil
	}
	resource := a.GVR.Resource
	if a.Subresource != "" {
		resource += "/" + a.Subresource
	}
	place := "at the cluster scope"
	if a.Namespace != "" {
		place = fmt.Sprintf("in the namespace %q", a.Namespace)
	}
	why := fmt.Sprintf("User %q cannot %s resource %q in API group %q %s", a.User, a.Verb, resource, a.GVR.Group, place)
	return apierrors.NewForbidden(a.GVR.GroupResource(), a.Name, errors.New(why))
}

// reviewAccess answers a SelfSubjectAccessReview; it stores nothing.
func (s *Server) reviewAccess(req *Request) *Response {
	if req.Verb != VerbCreate {
		return failure(apierrors.NewMethodNotSupported(req.GVR.GroupResource(), req.Verb))
	}
	if req.Object == nil {
		return failure(apierrors.NewBadRequest("a SelfSubjectAccessReview is needed"))
	}
	content, _, err := wireCopyObject(req.Object.Object)
	if err != nil {
		return failure(apierrors.NewBadRequest(err.Error()))
	}
	asked := func(field string) string {
		text, _, _ := unstructured.NestedString(content, "spec", "resourceAttributes", field)
		return text
	}
	allowed := s.allows(Access{
		User: req.User, Verb: asked("verb"), Subresource: asked("subresource"), Namespace: asked("namespace"), Name: asked("name"),
		GVR: schema.GroupVersionResource{Group: asked("group"), Version: asked("version"), Resource: asked("resource")},
	})
	out := &unstructured.Unstructured{Object: content}
	out.SetAPIVersion("authorization.k8s.io/v1")
	out.SetKind("SelfSubjectAccessReview")
	if _, ok := content["metadata"]; !ok {
		content["metadata"] = map[string]any{}
	}
	out.Object["status"] = map[string]any{"allowed": allowed}
	return &Response{Code: http.StatusCreated, Object: out}
}
