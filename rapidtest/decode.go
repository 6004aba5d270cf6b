package rapidtest

import (
	"encoding/json"
	"fmt"
	"maps"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
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
// and metadata, prunes and sets defaults.
func (r *servedResource) decodeBody(req *Request) (*unstructured.Unstructured, []string, error) {
	if req.Object == nil {
		return nil, nil, errUnrecognized(r.Kind, "couldn't get version/kind; json parse error: unexpected end of JSON input", nil)
	}
	content, _, err := wireCopyObject(req.Object.Object)
	if err != nil {
		return nil, nil, apierrors.NewBadRequest(err.Error())
	}
	obj := &unstructured.Unstructured{Object: content}
	if err := r.checkType(content); err != nil {
		return nil, nil, err
	}
	unknown, err := r.coerce(obj)
	if err != nil {
		return nil, nil, errUndecodable(r, obj.GetKind(), err.Error())
	}
	if len(unknown) > 0 && req.FieldValidation == metav1.FieldValidationStrict {
		return nil, nil, errUndecodable(r, obj.GetKind(), strictMessage(unknown))
	}
	return obj, warnings(req, unknown), nil
}

// checkType refuses a body that does not say what it is, or is of another version.
func (r *servedResource) checkType(content map[string]any) error {
	if kind, _ := content["kind"].(string); kind == "" {
		body, _ := json.Marshal(content)
		return errUnrecognized(r.Kind, runtime.NewMissingKindErr(string(body)).Error(), body)
	}
	if v, _ := content["apiVersion"].(string); v != r.apiVersion() {
		return apierrors.NewBadRequest(fmt.Sprintf(
			"the API version in the data (%s) does not match the expected API version (%s)", v, r.apiVersion()))
	}
	return nil
}

func warnings(req *Request, unknown []string) []string {
	if req.FieldValidation == metav1.FieldValidationIgnore {
		return nil
	}
	return unknownFieldTexts(unknown)
}

// coerce gives an object the form in which it is stored: metadata checked and tidied, unknown
// fields pruned, defaults set.
func (r *servedResource) coerce(obj *unstructured.Unstructured) (unknown []string, err error) {
	if err := checkMetadata(obj.Object["metadata"]); err != nil {
		return nil, err
	}
	unknown = r.prune(obj.Object)
	tidyMetadata(obj.Object)
	if r.Default != nil {
		r.Default(obj)
	}
	return unknown, nil
}

// checkMetadata refuses metadata that does not decode.
func checkMetadata(metadata any) error {
	if metadata == nil {
		return nil
	}
	meta, ok := metadata.(map[string]any)
	if !ok {
		return fmt.Errorf("json: cannot unmarshal %s into Go value of type v1.ObjectMeta", jsonType(metadata))
	}
	for _, field := range []string{"labels", "annotations"} {
		values, ok := meta[field].(map[string]any)
		if !ok && meta[field] != nil {
			return fmt.Errorf("json: cannot unmarshal %s into Go struct field ObjectMeta.%s of type map[string]string", jsonType(meta[field]), field)
		}
		for _, v := range values {
			if _, ok := v.(string); !ok && v != nil {
				return fmt.Errorf("json: cannot unmarshal %s into Go struct field ObjectMeta.%s of type string", jsonType(v), field)
			}
		}
	}
	return nil
}

// jsonType names the type of a value as encoding/json does in its errors.
func jsonType(v any) string {
	switch v.(type) {
	case map[string]any:
		return "object"
	case []any:
		return "array"
	case string:
		return "string"
	case bool:
		return "bool"
	}
	return "number"
}

// tidyMetadata drops what would not survive a trip through ObjectMeta: nulls and empty values, and
// the fields that the model leaves out.
func tidyMetadata(content map[string]any) {
	meta, ok := content["metadata"].(map[string]any)
	if !ok {
		content["metadata"] = map[string]any{}
		return
	}
	delete(meta, "managedFields")
	delete(meta, "selfLink")
	maps.DeleteFunc(meta, func(_ string, v any) bool { return isEmpty(v) })
}

func isEmpty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return false
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
	var before []byte
	if req.FieldValidation == metav1.FieldValidationStrict {
		before, _ = json.Marshal(content) // the error shows the object with its unknown fields
	}
	unknown, err := r.coerce(obj)
	if err != nil {
		return nil, nil, errPatched(string(before), err.Error())
	}
	if len(unknown) > 0 && req.FieldValidation == metav1.FieldValidationStrict {
		return nil, nil, errPatched(string(before), strictMessage(unknown))
	}
	if err := r.checkPlace(obj, req); err != nil {
		return nil, nil, err
	}
	return obj, warnings(req, unknown), nil
}

// checkPatchedType refuses a patch that takes away what an object is.
func checkPatchedType(obj *unstructured.Unstructured) error {
	switch {
	case obj.GetKind() == "":
		body, _ := json.Marshal(obj.Object)
		return errPatched(string(body), runtime.NewMissingKindErr(string(body)).Error())
	case obj.GetAPIVersion() == "":
		return apierrors.NewInternalError(runtime.NewMissingVersionErr("object has no apiVersion field"))
	}
	return nil
}
