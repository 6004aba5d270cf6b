package rapidtest

import (
	"context"
	"encoding/json"
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
		return failure(err).withWarnings(warnings)
	}
	meta := metaOf(obj)
	for _, f := range []string{"uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"} {
		delete(meta, f)
	}
	if err := res.checkPlace(obj, req); err != nil {
		return failure(err).withWarnings(warnings)
	}
	warnings = mergeWarnings(warnings, dropDuplicateOwners(obj, asSent))
	obj, err = s.mutate(res, AdmissionRequest{Request: req, Operation: "CREATE", Object: obj})
	if err != nil {
		return failure(err).withWarnings(warnings)
	}
	warnings = mergeWarnings(warnings, dropDuplicateOwners(obj, afterAdmission))
	created, more, err := s.createNamed(ctx, res, req, obj)
	warnings = mergeWarnings(warnings, more)
	if err != nil {
		return failure(err).withWarnings(warnings)
	}
	return &Response{Code: http.StatusCreated, Object: created, Warnings: warnings}
}

// createNamed stores obj under its name, or under the first generated one that is free, and returns warnings with it.
func (s *Server) createNamed(ctx context.Context, res *servedResource, req *Request, obj *unstructured.Unstructured) (*unstructured.Unstructured, []string, error) {
	base := textOf(obj, "generateName")
	if name := textOf(obj, "name"); name != "" || base == "" {
		created, warnings, err := s.createOne(ctx, res, req, obj)
		if apierrors.IsAlreadyExists(err) && base != "" {
			err = errGeneratedName(res, name, err)
		}
		return created, warnings, err
	}
	var created *unstructured.Unstructured
	var warnings []string
	var err error
	for range maxGenerateAttempts {
		candidate := obj.DeepCopy()
		candidate.SetName(s.generateName(base))
		created, warnings, err = s.createOne(ctx, res, req, candidate)
		if !apierrors.IsAlreadyExists(err) {
			return created, warnings, err
		}
		err = errGeneratedName(res, candidate.GetName(), err)
	}
	return nil, warnings, err
}

func (s *Server) createOne(ctx context.Context, res *servedResource, req *Request, obj *unstructured.Unstructured) (_ *unstructured.Unstructured, warnings []string, err error) {
	meta := metaOf(obj)
	meta["uid"] = string(s.nextUID())
	meta["creationTimestamp"] = timestamp(time.Now())
	meta["generation"] = int64(1)
	if res.StatusSubresource {
		delete(obj.Object, "status")
	}
	if errs := res.validateCreate(obj); len(errs) > 0 {
		return nil, nil, apierrors.NewInvalid(obj.GroupVersionKind().GroupKind(), obj.GetName(), errs)
	}
	warnings = res.finalizerWarnings(obj, nil)
	if err := s.validate(AdmissionRequest{Request: req, Operation: "CREATE", Object: obj}); err != nil {
		return nil, warnings, err
	}
	forStorage(obj)
	if rv, err := parseResourceVersion(textOf(obj, "resourceVersion")); err == nil && rv != 0 && len(req.DryRun) == 0 {
		return nil, warnings, errors.New("resourceVersion should not be set on objects to be created")
	}
	key := objectKey{req.GVR, textOf(obj, "namespace"), textOf(obj, "name")}
	if len(req.DryRun) > 0 {
		if old := s.load(key); old != nil {
			return nil, warnings, errExists(res, key, old)
		}
		return obj, warnings, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, warnings, errRequestTimeout(err)
	}
	for !s.swap(key, nil, obj, req) {
		if old := s.load(key); old != nil {
			return nil, warnings, errExists(res, key, old)
		}
	}
	return obj, warnings, nil
}

func errExists(res *servedResource, key objectKey, old *stored) error {
	err := apierrors.NewAlreadyExists(res.groupResource(), key.name)
	if old.obj.GetDeletionTimestamp() != nil {
		err.ErrStatus.Message = beingDeleted + err.ErrStatus.Message
	}
	return err
}

// errGeneratedName is the error of a create with a generateName whose name is taken, though it was not generated.
func errGeneratedName(res *servedResource, name string, taken error) error {
	err := apierrors.NewGenerateNameConflict(res.groupResource(), name, 1)
	if strings.HasPrefix(taken.Error(), beingDeleted) {
		err.ErrStatus.Message = beingDeleted + err.ErrStatus.Message
	}
	return err
}

// forStorage drops what the storage does not keep. The answer to the dry run of an update still shows it.
func forStorage(obj *unstructured.Unstructured) { delete(metaOf(obj), "selfLink") }

// beingDeleted begins the text of the error of a create whose name is taken by an object that is on its way out.
const beingDeleted = "object is being deleted: "

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
		return failure(err).withWarnings(u.warnings)
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
		default:
			return errPatchType()
		}
		if !json.Valid(u.req.Patch) {
			return apierrors.NewBadRequest("invalid JSON patch")
		}
		return nil
	}
	var err error
	if u.sent, u.warnings, err = u.res.decodeBody(u.req); err != nil {
		return err
	}
	if err := u.res.checkPlace(u.sent, u.req); err != nil {
		return err
	}
	u.warn(dropDuplicateOwners(u.sent, asSent))
	return nil
}

func (u *updating) warn(texts []string) { u.warnings = mergeWarnings(u.warnings, texts) }

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
	u.warn(dropDuplicateOwners(obj, afterAdmission))
	if err := u.checkResourceVersion(obj, old); err != nil {
		return nil, false, err
	}
	if err := checkHasVersion(obj); err != nil {
		return nil, false, err
	}
	obj = u.prepare(obj, old.obj)
	if errs := u.res.validateUpdate(obj, old.obj); len(errs) > 0 {
		return nil, false, apierrors.NewInvalid(obj.GroupVersionKind().GroupKind(), u.req.Name, errs)
	}
	if u.req.Subresource == "" {
		u.warn(u.res.finalizerWarnings(obj, old.obj))
	}
	if err := u.server.validate(AdmissionRequest{Request: u.req, Operation: "UPDATE", Object: obj, OldObject: old.obj}); err != nil {
		return nil, false, err
	}
	return u.store(ctx, obj, old)
}

// storageKey is how the storage names the object in errors. The one of dry runs leaves out where that begins.
func (u *updating) storageKey() string {
	if len(u.req.DryRun) > 0 {
		return strings.TrimPrefix(u.key.etcdKey(), "/registry")
	}
	return u.key.etcdKey()
}

// next is the object that the request asks for, given the stored one.
func (u *updating) next(old *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if u.sent == nil {
		obj, warnings, err := u.res.patched(u.req, old)
		u.warnings = warnings
		return obj, err
	}
	if uid := u.sent.GetUID(); uid != "" && uid != old.GetUID() {
		return nil, errOtherUID(u.res, u.req.Name, u.storageKey(), uid, old.GetUID())
	}
	return u.sent.DeepCopy(), nil
}

// parseResourceVersion reads a resourceVersion, which is a number to the server; none is 0.
func parseResourceVersion(text string) (uint64, error) {
	if text == "" {
		return 0, nil
	}
	return strconv.ParseUint(text, 10, 64)
}

func (u *updating) checkResourceVersion(obj *unstructured.Unstructured, old *stored) error {
	current := textOf(old.obj, "resourceVersion")
	sent := textOf(obj, "resourceVersion")
	if sent == current {
		return nil
	}
	switch rv, err := parseResourceVersion(sent); {
	case err != nil:
		return err // which makes a 500 of it, as in the real server
	case rv == 0 && !u.res.Unconditional:
		return errNoResourceVersion(u.res, u.req.Name)
	case rv == 0:
		metaOf(obj)["resourceVersion"] = current
	case rv != uint64(old.rv):
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
	if len(u.req.DryRun) > 0 {
		return obj, true, nil
	}
	if !remove { // what is only answered stays as it was sent
		forStorage(obj)
		setOrDelete(metaOf(obj), "resourceVersion", metaOf(old.obj)) // in the server's digits
	}
	switch {
	case !remove && sameMap(obj.Object, old.obj.Object):
		return old.obj, true, nil
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
