package rapidtest

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/samber/lo"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func (s *Server) get(ctx context.Context, res *servedResource, req *Request) *Response {
	if err := ctx.Err(); err != nil {
		return failure(errRequestTimeout(err))
	}
	obj := s.read(objectKey{req.GVR, req.Namespace, req.Name}, req.List.ResourceVersion)
	if obj == nil {
		return failure(apierrors.NewNotFound(res.groupResource(), req.Name))
	}
	return &Response{Code: http.StatusOK, Object: obj}
}

// read finds an object, in the watch cache where the request is content with that.
func (s *Server) read(key objectKey, resourceVersion string) *unstructured.Unstructured {
	s.mu.Lock()
	defer s.mu.Unlock()
	if resourceVersion == "0" && s.state.cached > 0 {
		return s.state.at(key.gvr, s.state.cached)[key]
	}
	if v := s.state.objects[key]; v != nil {
		return v.obj
	}
	return nil
}

// selection is what the selectors and the namespace of a list or a watch let through.
type selection struct {
	namespace string
	labels    labels.Selector
	fields    fields.Selector
}

// selectionOf reads the selectors of a request. That those of a list go together with its other
// options is looked at between their syntax and the fields that they name, as in the real server.
func (r *servedResource) selectionOf(req *Request) (selection, error) {
	sel := selection{namespace: req.Namespace, labels: labels.Everything(), fields: fields.Everything()}
	var err error
	if req.List.LabelSelector != "" {
		if sel.labels, err = labels.Parse(req.List.LabelSelector); err != nil {
			return sel, apierrors.NewBadRequest(err.Error())
		}
	}
	if req.List.FieldSelector != "" {
		if sel.fields, err = fields.ParseSelector(req.List.FieldSelector); err != nil {
			return sel, apierrors.NewBadRequest(err.Error())
		}
	}
	if req.Verb != VerbWatch {
		if err := checkListOptions(req.List); err != nil {
			return sel, err
		}
	}
	for _, f := range sel.fields.Requirements() {
		if f.Field != "metadata.name" && (f.Field != "metadata.namespace" || !r.Namespaced) {
			return sel, apierrors.NewBadRequest("field label not supported: " + f.Field)
		}
	}
	return sel, nil
}

func (sel selection) everything() bool { return sel.labels.Empty() && sel.fields.Empty() }

func (sel selection) matches(obj *unstructured.Unstructured) bool {
	namespace, name := textOf(obj, "namespace"), textOf(obj, "name")
	if sel.namespace != "" && namespace != sel.namespace {
		return false
	}
	if !sel.fields.Empty() && !sel.fields.Matches(fields.Set{"metadata.name": name, "metadata.namespace": namespace}) {
		return false
	}
	return sel.labels.Empty() || sel.labels.Matches(labels.Set(obj.GetLabels()))
}

// checkListOptions refuses the combinations of list options that the real server refuses.
func checkListOptions(o metav1.ListOptions) error {
	var errs field.ErrorList
	match := field.NewPath("resourceVersionMatch")
	if o.ResourceVersionMatch != "" {
		if o.ResourceVersion == "" {
			errs = append(errs, field.Forbidden(match, "resourceVersionMatch is forbidden unless resourceVersion is provided"))
		}
		if o.Continue != "" {
			errs = append(errs, field.Forbidden(match, "resourceVersionMatch is forbidden when continue is provided"))
		}
		known := []metav1.ResourceVersionMatch{metav1.ResourceVersionMatchExact, metav1.ResourceVersionMatchNotOlderThan}
		if !slices.Contains(known, o.ResourceVersionMatch) {
			errs = append(errs, field.NotSupported(match, o.ResourceVersionMatch, append(known, "")))
		}
		if o.ResourceVersionMatch == metav1.ResourceVersionMatchExact && o.ResourceVersion == "0" {
			errs = append(errs, field.Forbidden(match, `resourceVersionMatch "exact" is forbidden for resourceVersion "0"`))
		}
	}
	if o.SendInitialEvents != nil {
		errs = append(errs, field.Forbidden(field.NewPath("sendInitialEvents"), "sendInitialEvents is forbidden for list"))
	}
	if len(errs) > 0 {
		return apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", errs)
	}
	return nil
}

// continueToken is the content of a continue token, as the real server writes it.
type continueToken struct {
	Version         string `json:"v"`
	ResourceVersion int64  `json:"rv"`
	Start           string `json:"start"`
}

func (t continueToken) encode() string {
	data, _ := json.Marshal(t)
	return base64.RawURLEncoding.EncodeToString(data)
}

func decodeContinue(text string) (continueToken, error) {
	var t continueToken
	data, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(data, &t)
	}
	switch {
	case err != nil:
		return t, apierrors.NewBadRequest(fmt.Sprintf("invalid continue token: continue key is not valid: %v", err))
	case t.Version != "meta.k8s.io/v1":
		return t, apierrors.NewBadRequest(fmt.Sprintf("invalid continue token: continue key is not valid: server does not recognize this encoded version %v", t.Version))
	case t.ResourceVersion == 0:
		return t, apierrors.NewBadRequest("invalid continue token: continue key is not valid: incorrect encoded start resourceVersion (version meta.k8s.io/v1)")
	case t.Start == "":
		return t, apierrors.NewBadRequest("invalid continue token: continue key is not valid: encoded start key empty (version meta.k8s.io/v1)")
	}
	return t, nil
}

// listPoint is where a list reads: the state of a moment, from a key on.
type listPoint struct {
	rv    int64
	start string
}

func (s *Server) list(res *servedResource, req *Request) *Response {
	sel, err := res.selectionOf(req)
	if err != nil {
		return failure(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at, err := s.state.listPoint(req.List, sel)
	if err != nil {
		return failure(err)
	}
	return &Response{Code: http.StatusOK, List: s.state.page(res, sel, at, req.List.Limit)}
}

// listPoint works out where a list reads, and whether that can still be read.
func (st *state) listPoint(o metav1.ListOptions, sel selection) (listPoint, error) {
	if o.Continue != "" {
		return st.continuePoint(o, sel)
	}
	if o.ResourceVersion == "" {
		return listPoint{rv: st.rv}, nil
	}
	parsed, err := strconv.ParseUint(o.ResourceVersion, 10, 64)
	rv := int64(min(parsed, math.MaxInt64))
	switch {
	case err != nil:
		return listPoint{}, apierrors.NewBadRequest("invalid resource version: " +
			field.Invalid(field.NewPath("resourceVersion"), o.ResourceVersion, err.Error()).Error())
	case rv > st.rv:
		return listPoint{}, errTooLargeResourceVersion(rv, st.rv)
	case o.ResourceVersionMatch != metav1.ResourceVersionMatchExact && st.cached > 0 && rv <= st.cached:
		return listPoint{rv: st.cached}, nil
	case o.ResourceVersionMatch != metav1.ResourceVersionMatchExact:
		return listPoint{rv: st.rv}, nil
	case rv < st.compacted:
		return listPoint{}, apierrors.NewResourceExpired("The resourceVersion for the provided list is too old.")
	}
	return listPoint{rv: rv}, nil
}

func (st *state) continuePoint(o metav1.ListOptions, sel selection) (listPoint, error) {
	t, err := decodeContinue(o.Continue)
	if err != nil {
		return listPoint{}, err
	}
	if o.ResourceVersion != "" && o.ResourceVersion != "0" {
		return listPoint{}, apierrors.NewBadRequest("specifying resource version is not allowed when using continue")
	}
	if t.ResourceVersion > 0 && t.ResourceVersion < st.compacted {
		expired := apierrors.NewResourceExpired(
			"The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, " +
				"or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an " +
				"inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.")
		t.ResourceVersion = -1
		expired.ErrStatus.Continue = t.encode()
		return listPoint{}, expired
	}
	at := listPoint{rv: t.ResourceVersion, start: t.Start}
	if at.rv < 0 {
		at.rv = st.rv
	}
	if sel.namespace != "" {
		at.start = sel.namespace + "/" + at.start
	}
	return at, nil
}

// page is one page of a list; all of it where limit is 0.
func (st *state) page(res *servedResource, sel selection, at listPoint, limit int64) *unstructured.UnstructuredList {
	objects := st.at(res.GVR, at.rv)
	keys := lo.Filter(lo.Keys(objects), func(k objectKey, _ int) bool {
		return k.path() >= at.start && (sel.namespace == "" || k.namespace == sel.namespace)
	})
	slices.SortFunc(keys, objectKey.compare)

	list := &unstructured.UnstructuredList{Object: map[string]any{"kind": res.listKind(), "apiVersion": res.apiVersion()}}
	list.SetResourceVersion(strconv.FormatInt(at.rv, 10))
	list.SetContinue("") // an empty one is there too
	list.Items = []unstructured.Unstructured{}
	for i, k := range keys {
		if !sel.matches(objects[k]) {
			continue
		}
		list.Items = append(list.Items, *objects[k])
		if limit > 0 && int64(len(list.Items)) == limit && i < len(keys)-1 {
			list.SetContinue(continueAfter(sel, k, at.rv))
			if left := int64(len(keys) - i - 1); sel.everything() {
				list.SetRemainingItemCount(&left)
			}
			break
		}
	}
	return list
}

func continueAfter(sel selection, last objectKey, rv int64) string {
	start := last.path()
	if sel.namespace != "" {
		start = strings.TrimPrefix(start, sel.namespace+"/")
	}
	return continueToken{Version: "meta.k8s.io/v1", ResourceVersion: rv, Start: start + "\x00"}.encode()
}
