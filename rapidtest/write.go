package rapidtest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxGenerateAttempts is how often the real server tries another generated name.
const maxGenerateAttempts = 8

// checkWriteOptions refuses unknown values of the options of a create, an update or a patch.
func checkWriteOptions(req *Request, kind string) error {
	errs := metavalidation.ValidateFieldManager(req.FieldManager, field.NewPath("fieldManager"))
	errs = append(errs, metavalidation.ValidateDryRun(field.NewPath("dryRun"), req.DryRun)...)
	errs = append(errs, metavalidation.ValidateFieldValidation(field.NewPath("fieldValidation"), req.FieldValidation)...)
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: kind}, "", errs)
}

func (s *Server) create(ctx context.Context, res *servedResource, req *Request) *Response {
	if err := checkWriteOptions(req, "CreateOptions"); err != nil {
		return failure(err)
	}
	obj, warnings, err := res.decodeBody(req)
	if err != nil {
		return failure(err)
	}
	meta := metaOf(obj)
	for _, f := range []string{"uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"} {
		delete(meta, f)
	}
	if err := res.checkPlace(obj, req); err != nil {
		return failure(err)
	}
	obj, err = s.mutate(res, AdmissionRequest{Request: req, Operation: "CREATE", Object: obj})
	if err != nil {
		return failure(err).withWarnings(warnings)
	}
	created, err := s.createNamed(ctx, res, req, obj)
	if err != nil {
		return failure(err).withWarnings(warnings)
	}
	return &Response{Code: http.StatusCreated, Object: created, Warnings: warnings}
}

// createNamed stores obj under its name, or under the first generated one that is free.
func (s *Server) createNamed(ctx context.Context, res *servedResource, req *Request, obj *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	base := textOf(obj, "generateName")
	if textOf(obj, "name") != "" || base == "" {
		return s.createOne(ctx, res, req, obj)
	}
	var created *unstructured.Unstructured
	var err error
	for range maxGenerateAttempts {
		candidate := obj.DeepCopy()
		candidate.SetName(s.generateName(base))
		created, err = s.createOne(ctx, res, req, candidate)
		if !apierrors.IsAlreadyExists(err) {
			return created, err
		}
		err = apierrors.NewGenerateNameConflict(res.groupResource(), candidate.GetName(), 1)
	}
	return nil, err
}

func (s *Server) createOne(ctx context.Context, res *servedResource, req *Request, obj *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	meta := metaOf(obj)
	meta["uid"] = string(s.nextUID())
	meta["creationTimestamp"] = timestamp(time.Now())
	meta["generation"] = int64(1)
	if res.StatusSubresource {
		delete(obj.Object, "status")
	}
	if errs := res.validateCreate(obj); len(errs) > 0 {
		return nil, apierrors.NewInvalid(obj.GroupVersionKind().GroupKind(), obj.GetName(), errs)
	}
	if err := s.validate(AdmissionRequest{Request: req, Operation: "CREATE", Object: obj}); err != nil {
		return nil, err
	}
	if textOf(obj, "resourceVersion") != "" && len(req.DryRun) == 0 {
		return nil, errors.New("resourceVersion should not be set on objects to be created")
	}
	key := objectKey{req.GVR, textOf(obj, "namespace"), textOf(obj, "name")}
	if len(req.DryRun) > 0 {
		if old := s.load(key); old != nil {
			return nil, errExists(res, key, old)
		}
		return obj, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, errRequestTimeout(err)
	}
	for !s.swap(key, nil, obj, req) {
		if old := s.load(key); old != nil {
			return nil, errExists(res, key, old)
		}
	}
	return obj, nil
}

func errExists(res *servedResource, key objectKey, old *stored) error {
	err := apierrors.NewAlreadyExists(res.groupResource(), key.name)
	if old.obj.GetDeletionTimestamp() != nil {
		err.ErrStatus.Message = "object is being deleted: " + err.ErrStatus.Message
	}
	return err
}

func timestamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// nextUID makes UIDs that look like any other and are the same in every run.
func (s *Server) nextUID() types.UID {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.uids++
	return types.UID(fmt.Sprintf("5eed0000-0000-4000-8000-%012x", s.state.uids))
}

// generateName appends five characters, of those that the real server uses, to what it keeps of the
// base.
func (s *Server) generateName(base string) string {
	const letters, suffix, longest = "bcdfghjklmnpqrstvwxz2456789", 5, 63
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.names++
	var b strings.Builder
	b.WriteString(base[:min(len(base), longest-suffix)])
	// 7919 has no factor in common with the number of letters, so that names differ early and
	// repeat late
	for n, i := s.state.names*7919, 0; i < suffix; n, i = n/int64(len(letters)), i+1 {
		b.WriteByte(letters[n%int64(len(letters))])
	}
	return b.String()
}

func (s *Server) update(ctx context.Context, res *servedResource, req *Request) *Response {
	kind := "UpdateOptions"
	if req.Verb == VerbPatch {
		kind = "PatchOptions"
	}
	if err := checkWriteOptions(req, kind); err != nil {
		return failure(err)
	}
	u := &updating{server: s, res: res, req: req, key: objectKey{req.GVR, req.Namespace, req.Name}}
	if err := u.decode(); err != nil {
		return failure(err)
	}
	for {
		obj, done, err := u.try(ctx)
		switch {
		case err != nil:
			return failure(err).withWarnings(u.warnings)
		case done:
			return &Response{Code: http.StatusOK, Object: obj, Warnings: u.warnings}
		}
	}
}

// updating is one PUT or PATCH under way.
type updating struct {
	server   *Server
	res      *servedResource
	req      *Request
	key      objectKey
	sent     *unstructured.Unstructured // the body of a PUT; nil for a patch
	warnings []string
}

// decode reads the body of a PUT, and refuses a patch of an unknown kind.
func (u *updating) decode() error {
	if u.req.Verb == VerbPatch {
		switch u.req.PatchType {
		case types.JSONPatchType, types.MergePatchType:
			return nil
		}
		return errPatchType()
	}
	obj, warnings, err := u.res.decodeBody(u.req)
	if err != nil {
		return err
	}
	u.sent, u.warnings = obj, warnings
	return u.res.checkPlace(obj, u.req)
}

// try makes the new object from what is stored and stores it, unless what is stored changed on the way.
func (u *updating) try(ctx context.Context) (obj *unstructured.Unstructured, done bool, err error) {
	old := u.server.load(u.key)
	if old == nil {
		return nil, false, apierrors.NewNotFound(u.res.groupResource(), u.req.Name)
	}
	obj, err = u.next(old.obj)
	if err != nil {
		return nil, false, err
	}
	obj, err = u.server.mutate(u.res, AdmissionRequest{Request: u.req, Operation: "UPDATE", Object: obj, OldObject: old.obj})
	if err != nil {
		return nil, false, err
	}
	if err := u.checkResourceVersion(obj, old); err != nil {
		return nil, false, err
	}
	obj = u.prepare(obj, old.obj)
	if errs := u.res.validateUpdate(obj, old.obj); len(errs) > 0 {
		return nil, false, apierrors.NewInvalid(obj.GroupVersionKind().GroupKind(), u.req.Name, errs)
	}
	if err := u.server.validate(AdmissionRequest{Request: u.req, Operation: "UPDATE", Object: obj, OldObject: old.obj}); err != nil {
		return nil, false, err
	}
	return u.store(ctx, obj, old)
}

// next is the object that the request asks for, given the stored one.
func (u *updating) next(old *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if u.sent == nil {
		obj, warnings, err := u.res.patched(u.req, old)
		u.warnings = warnings
		return obj, err
	}
	if uid := u.sent.GetUID(); uid != "" && uid != old.GetUID() {
		return nil, errOtherUID(u.res, u.key, uid, old.GetUID())
	}
	return u.sent.DeepCopy(), nil
}

func (u *updating) checkResourceVersion(obj *unstructured.Unstructured, old *stored) error {
	sent := textOf(obj, "resourceVersion")
	switch {
	case sent == "" || sent == "0":
		if !u.res.Unconditional {
			return errNoResourceVersion(u.res, u.req.Name)
		}
		metaOf(obj)["resourceVersion"] = textOf(old.obj, "resourceVersion")
	case sent != textOf(old.obj, "resourceVersion"):
		if _, err := strconv.ParseUint(sent, 10, 64); err != nil {
			return err // which makes a 500 of it, as in the real server
		}
		return errConflict(u.res, u.req.Name, errors.New(optimisticLock))
	}
	return nil
}

// prepare takes back what the request may not change.
func (u *updating) prepare(obj, old *unstructured.Unstructured) *unstructured.Unstructured {
	if u.req.Subresource == "status" {
		return withStatusOf(old, obj)
	}
	if u.res.StatusSubresource {
		setOrDelete(obj.Object, "status", old.Object)
	}
	meta, oldMeta := metaOf(obj), metaOf(old)
	setOrDelete(meta, "generation", oldMeta)
	if !sameMapBut(obj.Object, old.Object, "metadata") {
		meta["generation"] = old.GetGeneration() + 1
	}
	setOrDelete(meta, "creationTimestamp", oldMeta)
	if _, ok := meta["uid"]; !ok {
		setOrDelete(meta, "uid", oldMeta)
	}
	if oldMeta["deletionTimestamp"] != nil {
		meta["deletionTimestamp"] = oldMeta["deletionTimestamp"]
	}
	if oldMeta["deletionGracePeriodSeconds"] != nil && meta["deletionGracePeriodSeconds"] == nil {
		meta["deletionGracePeriodSeconds"] = oldMeta["deletionGracePeriodSeconds"]
	}
	return obj
}

// withStatusOf is old with the status of obj.
func withStatusOf(old, obj *unstructured.Unstructured) *unstructured.Unstructured {
	out := old.DeepCopy()
	setOrDelete(out.Object, "status", obj.Object)
	return out
}

// setOrDelete makes key in one map what it is in another.
func setOrDelete(into map[string]any, key string, from map[string]any) {
	if v, ok := from[key]; ok {
		into[key] = v
	} else {
		delete(into, key)
	}
}

// store stores the prepared object, deletes where its last finalizer went, and does nothing where
// nothing changes.
func (u *updating) store(ctx context.Context, obj *unstructured.Unstructured, old *stored) (*unstructured.Unstructured, bool, error) {
	remove := deletesNow(obj, old.obj)
	switch {
	case !remove && sameMap(obj.Object, old.obj.Object):
		return old.obj, true, nil
	case len(u.req.DryRun) > 0:
		return obj, true, nil
	case ctx.Err() != nil:
		return nil, false, errRequestTimeout(ctx.Err())
	case remove:
		return obj, u.server.swap(u.key, old, nil, u.req), nil
	}
	return obj, u.server.swap(u.key, old, obj, u.req), nil
}

// deletesNow says whether an update takes the last finalizer from an object that is only waiting
// for that.
func deletesNow(obj, old *unstructured.Unstructured) bool {
	oldMeta := metaOf(old)
	if oldMeta["deletionTimestamp"] == nil || metaOf(obj)["finalizers"] != nil {
		return false
	}
	grace, _ := oldMeta["deletionGracePeriodSeconds"].(int64)
	return grace == 0
}

// mutate runs the mutating admission hooks over an object.
func (s *Server) mutate(res *servedResource, ar AdmissionRequest) (*unstructured.Unstructured, error) {
	s.mu.Lock()
	hooks := s.mutating
	s.mu.Unlock()
	for _, hook := range hooks {
		asked := ar
		asked.Object = ar.Object.DeepCopy()
		changed, err := hook(asked)
		if err != nil {
			return nil, admissionError(err)
		}
		if changed == nil {
			continue
		}
		content, _, err := wireCopyObject(changed.Object)
		if err != nil {
			return nil, apierrors.NewInternalError(err)
		}
		ar.Object = &unstructured.Unstructured{Object: content}
		if _, err := res.coerce(ar.Object); err != nil {
			return nil, apierrors.NewInternalError(err)
		}
	}
	return ar.Object, nil
}

// validate asks the validating admission hooks.
func (s *Server) validate(ar AdmissionRequest) error {
	s.mu.Lock()
	hooks := s.validating
	s.mu.Unlock()
	for _, hook := range hooks {
		asked := ar
		if ar.Object != nil {
			asked.Object = ar.Object.DeepCopy()
		}
		if err := hook(asked); err != nil {
			return admissionError(err)
		}
	}
	return nil
}

func admissionError(err error) error {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return &apierrors.StatusError{ErrStatus: status.Status()}
	}
	return apierrors.NewInternalError(err)
}
