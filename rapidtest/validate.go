package rapidtest

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateCreate is the validation of a new object.
func (r *servedResource) validateCreate(obj *unstructured.Unstructured) field.ErrorList {
	if errs := r.validateType(obj); len(errs) > 0 {
		return errs
	}
	errs := validation.ValidateObjectMetaAccessor(obj, r.Namespaced, validation.NameIsDNSSubdomain, field.NewPath("metadata"))
	return append(errs, r.validateRules(errs, obj, nil)...)
}

// validateRules has a kind's own rules looked at, unless what was found before is too basic for that.
func (r *servedResource) validateRules(found field.ErrorList, obj, old *unstructured.Unstructured) field.ErrorList {
	if r.Rules && slices.ContainsFunc(found, isBasic) {
		return field.ErrorList{field.Invalid(nil, nil,
			"some validation rules were not checked because the object was invalid; correct the existing errors to complete validation")}
	}
	if r.Validate == nil {
		return nil
	}
	return r.Validate(obj, old)
}

func isBasic(err *field.Error) bool {
	switch err.Type {
	case field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid:
		return true
	}
	return false
}

// validateUpdate is the validation of a new version of an object. Metadata that cannot be wrong,
// because it was there before, is not looked at again: this is what most writes spend most of their
// time on.
func (r *servedResource) validateUpdate(obj, old *unstructured.Unstructured) field.ErrorList {
	var errs field.ErrorList
	typeErrs := r.validateType(obj)
	if !plainMetadata(metaOf(obj), metaOf(old)) {
		errs = r.validateMetadataUpdate(obj, old, len(typeErrs) == 0)
	}
	if errs = append(errs, typeErrs...); len(typeErrs) > 0 {
		return errs
	}
	return append(errs, r.validateRules(errs, obj, old)...)
}

// validateMetadataUpdate checks metadata in the order of the real server, which looks at some of it
// more than once and says so; once less where the type is wrong.
func (r *servedResource) validateMetadataUpdate(obj, old *unstructured.Unstructured, rightType bool) field.ErrorList {
	at := field.NewPath("metadata")
	errs := validation.ValidateObjectMetaAccessor(obj, r.Namespaced, pathSegment, at)
	errs = append(errs, validation.ValidateObjectMetaAccessorUpdate(obj, old, at)...)
	if !rightType {
		return errs
	}
	return append(errs, validation.ValidateObjectMetaAccessorUpdate(obj, old, at)...)
}

// pathSegment checks the name of an object that exists: it may be any that fits into a path.
func pathSegment(name string, prefix bool) []string {
	if prefix {
		return content.IsPathSegmentPrefix(name)
	}
	return content.IsPathSegmentName(name)
}

func (r *servedResource) validateType(obj *unstructured.Unstructured) field.ErrorList {
	var errs field.ErrorList
	if kind := obj.GetKind(); kind != r.Kind {
		errs = append(errs, field.Invalid(field.NewPath("kind"), kind, fmt.Sprintf("must be %v", r.Kind)))
	}
	if v := obj.GetAPIVersion(); v != r.apiVersion() {
		errs = append(errs, field.Invalid(field.NewPath("apiVersion"), v, fmt.Sprintf("must be %v", r.apiVersion())))
	}
	return errs
}

// plainMetadata says whether metadata differs from valid older metadata in nothing but valid
// annotations and what the server sets.
func plainMetadata(meta, old map[string]any) bool {
	for _, k := range []string{
		"name", "namespace", "uid", "generateName", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds",
		"labels", "finalizers", "ownerReferences",
	} {
		if !sameValue(meta[k], old[k]) {
			return false
		}
	}
	annotations, _ := meta["annotations"].(map[string]any)
	known, _ := old["annotations"].(map[string]any)
	size := 0
	for k, v := range annotations {
		text, _ := v.(string)
		size += len(k) + len(text)
		if _, ok := known[k]; !ok && len(utilvalidation.IsQualifiedName(strings.ToLower(k))) > 0 {
			return false
		}
	}
	return size <= validation.TotalAnnotationSizeLimitB
}
