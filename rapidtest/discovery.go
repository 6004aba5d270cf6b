package rapidtest

import (
	"net/http"
	"strings"

	"github.com/samber/lo"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
)

// serverVersion is the Kubernetes version that the model was compared with.
func serverVersion() version.Info {
	return version.Info{Major: "1", Minor: "37", GitVersion: "v1.37.2", Platform: "model"}
}

// discover answers the requests from which clients learn what is served. It is open to everyone and
// passes no middleware.
func (s *Server) discover(r *http.Request) (*Response, bool) {
	if r.Method != http.MethodGet {
		return nil, false
	}
	path := strings.Trim(r.URL.Path, "/")
	parts := strings.Split(path, "/")
	gv, isGroupVersion := gvOf(parts)
	switch {
	case path == "version":
		info := serverVersion()
		return found(&info), true
	case path == "api":
		return found(&metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions", APIVersion: "v1"}, Versions: s.versionsOf("")}), true
	case path == "apis":
		return found(&metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: s.groups()}), true
	case len(parts) == 2 && parts[0] == "apis":
		group, ok := lo.Find(s.groups(), func(g metav1.APIGroup) bool { return g.Name == parts[1] })
		if !ok {
			return noRoute(), true
		}
		group.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
		return found(&group), true
	case isGroupVersion:
		return s.discoverResources(gv), true
	}
	return nil, false
}

// found makes a response of anything that has a JSON form.
func found(v any) *Response {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(v)
	if err != nil {
		return failure(err)
	}
	return &Response{Code: http.StatusOK, Object: &unstructured.Unstructured{Object: content}}
}

// served lists all resources, the review that every server answers among them.
func (s *Server) served() []Resource {
	review := Resource{Kind: "SelfSubjectAccessReview"}
	review.GVR = schema.GroupVersionResource{Group: "authorization.k8s.io", Version: "v1", Resource: "selfsubjectaccessreviews"}
	return append(lo.Map(s.order, func(gvr schema.GroupVersionResource, _ int) Resource { return s.resources[gvr].Resource }), review)
}

func (s *Server) versionsOf(group string) []string {
	inGroup := lo.Filter(s.served(), func(r Resource, _ int) bool { return r.GVR.Group == group })
	return lo.Uniq(lo.Map(inGroup, func(r Resource, _ int) string { return r.GVR.Version }))
}

func (s *Server) groups() []metav1.APIGroup {
	names := lo.Uniq(lo.Map(s.served(), func(r Resource, _ int) string { return r.GVR.Group }))
	return lo.FilterMap(names, func(name string, _ int) (metav1.APIGroup, bool) {
		versions := lo.Map(s.versionsOf(name), func(v string, _ int) metav1.GroupVersionForDiscovery {
			return metav1.GroupVersionForDiscovery{GroupVersion: name + "/" + v, Version: v}
		})
		return metav1.APIGroup{Name: name, Versions: versions, PreferredVersion: versions[0]}, name != ""
	})
}

func (s *Server) discoverResources(gv schema.GroupVersion) *Response {
	list := &metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv.String()}
	for _, r := range s.served() {
		if r.GVR.GroupVersion() == gv {
			list.APIResources = append(list.APIResources, r.discovery()...)
		}
	}
	if len(list.APIResources) == 0 {
		return noRoute()
	}
	return found(list)
}

func (r Resource) discovery() []metav1.APIResource {
	main := metav1.APIResource{
		Name: r.GVR.Resource, SingularName: strings.ToLower(r.Kind), Namespaced: r.Namespaced, Kind: r.Kind,
		Verbs: metav1.Verbs{VerbDelete, VerbDeleteCollection, VerbGet, VerbList, VerbPatch, VerbCreate, VerbUpdate, VerbWatch},
	}
	if isAccessReview(r.GVR) {
		main.Verbs = metav1.Verbs{VerbCreate}
	}
	if !r.StatusSubresource {
		return []metav1.APIResource{main}
	}
	status := metav1.APIResource{
		Name: r.GVR.Resource + "/status", Namespaced: r.Namespaced, Kind: r.Kind, Verbs: metav1.Verbs{VerbGet, VerbPatch, VerbUpdate},
	}
	return []metav1.APIResource{main, status}
}

// gvOf is the group and version of a discovery path.
func gvOf(parts []string) (schema.GroupVersion, bool) {
	switch {
	case len(parts) == 2 && parts[0] == "api":
		return schema.GroupVersion{Version: parts[1]}, true
	case len(parts) == 3 && parts[0] == "apis":
		return schema.GroupVersion{Group: parts[1], Version: parts[2]}, true
	}
	return schema.GroupVersion{}, false
}
