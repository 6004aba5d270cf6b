package rapidtest

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/samber/lo"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func (s *Server) delete(ctx context.Context, res *servedResource, req *Request) *Response {
	if errs := metavalidation.ValidateDeleteOptions(&req.Delete); len(errs) > 0 {
		return failure(apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "DeleteOptions"}, "", errs))
	}
	key := objectKey{req.GVR, req.Namespace, req.Name}
	for {
		old := s.load(key)
		if old == nil {
			return failure(apierrors.NewNotFound(res.groupResource(), req.Name))
		}
		if err := checkDeletePreconditions(res, req, old.obj); err != nil {
			return failure(err)
		}
		if err := s.validate(AdmissionRequest{Request: req, Operation: "DELETE", OldObject: old.obj}); err != nil {
			return failure(err)
		}
		resp, done := s.tryDelete(ctx, res, key, old, req)
		if done {
			return resp
		}
	}
}

func checkDeletePreconditions(res *servedResource, req *Request, old *unstructured.Unstructured) error {
	pre := req.Delete.Preconditions
	switch {
	case pre == nil:
		return nil
	case pre.UID != nil && *pre.UID != old.GetUID():
		return errDeletePrecondition(res, req.Name, "UID", string(*pre.UID), string(old.GetUID()), "The object might have been deleted and then recreated")
	case pre.ResourceVersion != nil && *pre.ResourceVersion != old.GetResourceVersion():
		return errDeletePrecondition(res, req.Name, "ResourceVersion", *pre.ResourceVersion, old.GetResourceVersion(), "The object might have been modified")
	}
	return nil
}

// tryDelete does what a delete comes to: mark the object, remove it, or both in turn. It reports
// false if the object changed meanwhile.
func (s *Server) tryDelete(ctx context.Context, res *servedResource, key objectKey, old *stored, req *Request) (*Response, bool) {
	marked, remove := res.markDeleted(old.obj, req.Delete, time.Now())
	dry := len(req.DryRun) > 0
	if !dry && ctx.Err() != nil {
		return failure(errRequestTimeout(ctx.Err())), true
	}
	if marked != nil && !dry && !sameMap(marked.Object, old.obj.Object) {
		if !s.swap(key, old, marked, req) {
			return nil, false
		}
		old = &stored{obj: marked} // if it is to go, it is this version that goes
	}
	if !remove {
		return &Response{Code: codeOfMarked(req.Delete), Object: lo.CoalesceOrEmpty(marked, old.obj)}, true
	}
	switch {
	case dry && marked == nil && len(old.obj.GetFinalizers()) > 0: // as the real server does, which forgets what it tried
		empty := &unstructured.Unstructured{}
		empty.SetGroupVersionKind(old.obj.GroupVersionKind())
		return &Response{Code: http.StatusOK, Object: empty}, true
	case !dry && !s.removeVersion(key, old, req):
		return nil, false
	}
	return removed(res, key, old.obj), true
}

// codeOfMarked is the status code of a delete that left the object there.
func codeOfMarked(opts metav1.DeleteOptions) int {
	//lint:ignore SA1019 the server still heeds it
	if opts.OrphanDependents != nil && !*opts.OrphanDependents {
		return http.StatusAccepted
	}
	return http.StatusOK
}

// removeVersion removes an object if it is still the given version.
func (s *Server) removeVersion(key objectKey, version *stored, req *Request) bool {
	current := s.load(key)
	if current == nil || current.obj.GetResourceVersion() != version.obj.GetResourceVersion() {
		return false
	}
	return s.swap(key, current, nil, req)
}

func removed(res *servedResource, key objectKey, obj *unstructured.Unstructured) *Response {
	if res.GracefulDelete != nil { // as pods do
		return &Response{Code: http.StatusOK, Object: obj}
	}
	return &Response{Code: http.StatusOK, Status: &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusSuccess,
		Details:  &metav1.StatusDetails{Name: key.name, Group: key.gvr.Group, Kind: key.gvr.Resource, UID: obj.GetUID()},
	}}
}

// markDeleted is the object as a delete leaves it, nil where it is not touched, and whether it is
// to be removed then.
func (r *servedResource) markDeleted(old *unstructured.Unstructured, opts metav1.DeleteOptions, now time.Time) (marked *unstructured.Unstructured, remove bool) {
	content := maps.Clone(old.Object)
	meta := maps.Clone(metaOf(old))
	content["metadata"] = meta
	obj := &unstructured.Unstructured{Object: content}

	grace, graceful, pending := r.grace(obj, opts, now)
	if pending {
		return nil, false
	}
	finalizers := finalizersFor(obj.GetFinalizers(), opts)
	if len(finalizers) == 0 {
		delete(meta, "finalizers")
	} else {
		meta["finalizers"] = lo.ToAnySlice(finalizers)
	}
	switch {
	case graceful:
		return obj, len(finalizers) == 0 && grace == 0
	case len(finalizers) == 0:
		return nil, true
	}
	if at := obj.GetDeletionTimestamp(); at == nil || at.After(now) {
		if at == nil {
			meta["generation"] = obj.GetGeneration() + 1
		}
		meta["deletionTimestamp"] = timestamp(now)
	}
	meta["deletionGracePeriodSeconds"] = int64(0)
	return obj, false
}

// grace settles the graceful deletion of a kind that has one, in obj's metadata. pending: it is
// under way already, and this delete does not shorten it.
func (r *servedResource) grace(obj *unstructured.Unstructured, opts metav1.DeleteOptions, now time.Time) (period int64, graceful, pending bool) {
	if r.GracefulDelete == nil {
		return 0, false, false
	}
	meta := metaOf(obj)
	at := obj.GetDeletionTimestamp()
	if at == nil {
		period = max(r.GracefulDelete(obj, opts.GracePeriodSeconds), 0)
		meta["deletionTimestamp"] = timestamp(now.Add(time.Duration(period) * time.Second))
		meta["deletionGracePeriodSeconds"] = period
		meta["generation"] = obj.GetGeneration() + 1
		return period, true, false
	}
	left, _ := meta["deletionGracePeriodSeconds"].(int64)
	if left == 0 {
		return 0, false, false
	}
	if opts.GracePeriodSeconds == nil || *opts.GracePeriodSeconds >= left {
		return 0, false, true
	}
	period = max(*opts.GracePeriodSeconds, 0)
	end := at.Add(time.Duration(period-left) * time.Second)
	if end.Before(now) {
		end, period = now, min(period, 1)
	}
	meta["deletionTimestamp"] = timestamp(end)
	meta["deletionGracePeriodSeconds"] = period
	return period, true, false
}

// finalizersFor adds and removes the finalizers through which the garbage collector is told what to
// do with dependents. Where the options say nothing, those that are there already decide.
func finalizersFor(old []string, opts metav1.DeleteOptions) []string {
	policy := lo.FromPtr(opts.PropagationPolicy)
	switch {
	//lint:ignore SA1019 the server still heeds it
	case opts.OrphanDependents != nil && *opts.OrphanDependents:
		policy = metav1.DeletePropagationOrphan
	//lint:ignore SA1019 the server still heeds it
	case opts.OrphanDependents != nil:
		policy = metav1.DeletePropagationBackground
	case opts.PropagationPolicy == nil:
		i := slices.IndexFunc(old, isPropagation)
		if i < 0 {
			return old
		}
		policy = metav1.DeletePropagationForeground
		if old[i] == metav1.FinalizerOrphanDependents {
			policy = metav1.DeletePropagationOrphan
		}
	}
	out := lo.Reject(old, func(f string, _ int) bool { return isPropagation(f) })
	switch policy {
	case metav1.DeletePropagationOrphan:
		out = append(out, metav1.FinalizerOrphanDependents)
	case metav1.DeletePropagationForeground:
		out = append(out, metav1.FinalizerDeleteDependents)
	}
	if sameSet(out, old) {
		return old
	}
	return out
}

func isPropagation(finalizer string) bool {
	return finalizer == metav1.FinalizerOrphanDependents || finalizer == metav1.FinalizerDeleteDependents
}

func sameSet(a, b []string) bool {
	left, right := lo.Difference(a, b)
	return len(left) == 0 && len(right) == 0
}

// deleteCollection deletes what a list finds, one object after the other.
func (s *Server) deleteCollection(ctx context.Context, res *servedResource, req *Request) *Response {
	listed := s.list(res, req)
	if listed.Code != http.StatusOK {
		return listed
	}
	for _, item := range listed.List.Items {
		one := req.With(func(r *Request) { r.Namespace, r.Name = item.GetNamespace(), item.GetName() })
		resp := s.delete(ctx, res, one)
		if resp.Code >= http.StatusBadRequest && resp.Code != http.StatusNotFound {
			return resp
		}
	}
	return listed
}
