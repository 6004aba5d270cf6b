package rapidtest

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// metaOf returns the metadata of an object that has been through coerce, to read and, in a copy of
// the caller's own, to write.
func metaOf(obj *unstructured.Unstructured) map[string]any {
	meta, _ := obj.Object["metadata"].(map[string]any)
	return meta
}

// textOf reads a string of an object's metadata without a copy.
func textOf(obj *unstructured.Unstructured, field string) string {
	s, _ := metaOf(obj)[field].(string)
	return s
}

// decodeBody reads the body of a create or an update as the real server does: it checks its type
// and metadata, prunes and sets defaults. The warnings go with an error too.
func (r *servedResource) decodeBody(req *Request) (obj *unstructured.Unstructured, warned []string, err error) {
	if req.Object == nil {
		return nil, nil, errUnrecognized(r.Kind, "couldn't get version/kind; json parse error: unexpected end of JSON input", nil)
	}
	content, _, err := wireCopyObject(req.Object.Object)
	if err != nil {
		return nil, nil, apierrors.NewBadRequest(err.Error())
	}
	obj = &unstructured.Unstructured{Object: content}
	if err := r.checkKind(content, req.FieldValidation); err != nil {
		return nil, nil, err
	}
	unknown, err := r.coerce(obj)
	if err != nil {
		return nil, nil, errUndecodable(r, obj, err.Error())
	}
	if len(unknown) > 0 && req.FieldValidation == metav1.FieldValidationStrict {
		return nil, nil, errUndecodable(r, obj, strictMessage(unknown))
	}
	warned = warnings(req, unknown)
	if v := obj.GetAPIVersion(); v != r.apiVersion() {
		return nil, warned, apierrors.NewBadRequest(fmt.Sprintf(
			"the API version in the data (%s) does not match the expected API version (%s)", v, r.apiVersion()))
	}
	return obj, warned, nil
}

// checkKind refuses a body that does not say what it is. Where unknown fields are ignored, the server
// takes it for granted what was meant.
func (r *servedResource) checkKind(content map[string]any, fieldValidation string) error {
	if kind, _ := content["kind"].(string); kind != "" {
		return nil
	}
	body := jsonText(content)
	why := runtime.NewMissingKindErr(body).Error()
	if fieldValidation == metav1.FieldValidationIgnore {
		meant := &unstructured.Unstructured{}
		meant.SetGroupVersionKind(r.GVR.GroupVersion().WithKind(r.Kind))
		return errUndecodable(r, meant, why)
	}
	return errUnrecognized(r.Kind, why, []byte(body))
}

func warnings(req *Request, unknown []string) []string {
	if req.FieldValidation == metav1.FieldValidationIgnore {
		return nil
	}
	return unknownFieldTexts(unknown)
}

// coerce gives an object the form in which it is stored: metadata checked and tidied, unknown
// fields pruned, defaults set. One of another group or kind is left as it is, metadata aside.
func (r *servedResource) coerce(obj *unstructured.Unstructured) (unknown []string, err error) {
	for _, field := range []string{"kind", "apiVersion"} {
		if v, found := obj.Object[field]; found {
			if _, ok := v.(string); !ok {
				return nil, fmt.Errorf(".%s accessor error: %v is of the type %T, expected string", field, v, v)
			}
		}
	}
	gv, err := schema.ParseGroupVersion(obj.GetAPIVersion())
	if err != nil {
		return nil, err
	}
	unknown = unknownMetadata(obj.Object["metadata"])
	if err := coerceMetadata(obj.Object); err != nil {
		return nil, err
	}
	pruneMetadata(obj.Object)
	if gv.Group != r.GVR.Group || obj.GetKind() != r.Kind {
		return unknown, nil
	}
	unknown = append(unknown, r.prune(obj.Object)...)
	if r.Default != nil {
		r.Default(obj)
	}
	return unknown, nil
}

// checkPlace puts an object into the namespace of its request, and refuses one that belongs elsewhere.
func (r *servedResource) checkPlace(obj *unstructured.Unstructured, req *Request) error {
	meta := metaOf(obj)
	namespace, _ := meta["namespace"].(string)
	switch {
	case !r.Namespaced:
		delete(meta, "namespace")
	case namespace == "":
		meta["namespace"] = req.Namespace
	case namespace != req.Namespace:
		return apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	if req.Verb == VerbCreate {
		return nil
	}
	switch name := textOf(obj, "name"); {
	case name == "":
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s based on URL) was undeterminable: name must be provided", req.Name))
	case name != req.Name:
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", name, req.Name))
	}
	return nil
}

// patched applies the patch of a request to what is stored, and reads the outcome as a body.
func (r *servedResource) patched(req *Request, old *unstructured.Unstructured) (*unstructured.Unstructured, []string, error) {
	content, err := applyPatch(req.PatchType, req.Patch, old.DeepCopy().Object)
	if err != nil {
		return nil, nil, err
	}
	obj := &unstructured.Unstructured{Object: content}
	if err := checkPatchedType(obj); err != nil {
		return nil, nil, err
	}
	var before string
	if req.FieldValidation == metav1.FieldValidationStrict {
		before = jsonText(content) // the error shows the object with its unknown fields
	}
	unknown, err := r.coerce(obj)
	if err != nil { // which left it as it was
		return nil, nil, errPatched(jsonText(content), err.Error())
	}
	if len(unknown) > 0 && req.FieldValidation == metav1.FieldValidationStrict {
		return nil, nil, errPatched(before, strictMessage(unknown))
	}
	return obj, warnings(req, unknown), r.checkPlace(obj, req)
}

// checkPatchedType refuses a patch that takes away what an object is.
func checkPatchedType(obj *unstructured.Unstructured) error {
	if obj.GetKind() != "" {
		return nil
	}
	body := jsonText(obj.Object)
	return errPatched(body, runtime.NewMissingKindErr(body).Error())
}

// checkHasVersion refuses an object that a patch has left without an apiVersion.
func checkHasVersion(obj *unstructured.Unstructured) error {
	if obj.GetAPIVersion() == "" {
		return apierrors.NewInternalError(runtime.NewMissingVersionErr("object has no apiVersion field"))
	}
	return nil
}
