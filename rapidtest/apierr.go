package rapidtest

import (
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The texts here are those of the real server, so that whoever reads them in a test reads what a
// user would.

// optimisticLock is the text of every conflict over a resourceVersion.
const optimisticLock = "the object has been modified; please apply your changes to the latest version and try again"

func errConflict(res *servedResource, name string, err error) error {
	return apierrors.NewConflict(res.groupResource(), name, err)
}

// errNoResourceVersion refuses an update without a resourceVersion. As in the real server the kind
// of its details is the resource.
func errNoResourceVersion(res *servedResource, name string) error {
	kind := res.groupKind()
	kind.Kind = res.GVR.Resource
	return apierrors.NewInvalid(kind, name, field.ErrorList{
		field.Invalid(field.NewPath("metadata", "resourceVersion"), uint64(0), "must be specified for an update"),
	})
}

// errOtherUID refuses a PUT whose body carries the UID of another object.
func errOtherUID(res *servedResource, name, key string, sent, stored types.UID) error {
	return errConflict(res, name, fmt.Errorf(
		"StorageError: invalid object, Code: 4, Key: %s, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: %s, UID in object meta: %s",
		key, sent, stored))
}

// errDeletePrecondition refuses a delete. As in the real server the kind of its details is the
// kind, not the resource.
func errDeletePrecondition(res *servedResource, name, what, sent, stored, hint string) error {
	gr := res.groupResource()
	gr.Resource = res.Kind
	return apierrors.NewConflict(gr, name, fmt.Errorf(
		"the %s in the precondition (%s) does not match the %s in record (%s). %s", what, sent, what, stored, hint))
}

func errUndecodable(res *servedResource, obj *unstructured.Unstructured, why string) error {
	gvk := obj.GroupVersionKind()
	return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %s", gvk.Kind, gvk.Version, res.Kind, why))
}

func errPatched(body, why string) error {
	return apierrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{field.Invalid(field.NewPath("patch"), body, why)})
}

func errMediaType(accepted ...string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: 415, Reason: metav1.StatusReasonUnsupportedMediaType,
		Message: "the body of the request was in an unknown format - accepted media types include: " + strings.Join(accepted, ", "),
	}}
}

// errPatchType names server-side apply too, as the real server does, though the model does not have it.
func errPatchType() error {
	return errMediaType(string(types.JSONPatchType), string(types.MergePatchType), string(types.ApplyYAMLPatchType))
}

// errUnrecognized refuses a body that is no object of the kind.
func errUnrecognized(kind, why string, body []byte) error {
	const shown = 30
	summary := string(body)
	switch {
	case len(body) == 0:
		summary = "<empty>"
	case len(body) > shown:
		summary = string(body[:shown]) + " ..."
	}
	return apierrors.NewBadRequest(fmt.Sprintf("the object provided is unrecognized (must be of type %s): %s (%s)", kind, why, summary))
}

func errRequestTimeout(cause error) error {
	return apierrors.NewTimeoutError(fmt.Sprintf("request did not complete within requested timeout - %v", cause), 0)
}

func errTooLargeResourceVersion(asked, current int64) error {
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", asked, current), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{
		{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"},
	}
	return err
}
