package rapidtest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
)

// The moments at which the server looks for owners that are named twice.
const (
	asSent         = ""
	afterAdmission = " after mutating admission happens"
)

// dropDuplicateOwners drops owner references that are there already, and returns the warning about it.
func dropDuplicateOwners(obj *unstructured.Unstructured, when string) []string {
	owners, _ := metaOf(obj)["ownerReferences"].([]any)
	if len(owners) < 2 {
		return nil
	}
	var kept []any
	var dropped []string
	for _, o := range owners {
		if !slices.ContainsFunc(kept, func(k any) bool { return sameValue(k, o) }) {
			kept = append(kept, o)
			continue
		}
		owner, _ := o.(map[string]any)
		dropped = append(dropped, fmt.Sprint(owner["uid"]))
	}
	if len(dropped) == 0 {
		return nil
	}
	metaOf(obj)["ownerReferences"] = kept
	return []string{fmt.Sprintf(".metadata.ownerReferences contains duplicate entries%s; API server dedups owner references in 1.20+, "+
		"and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: %v", when, strings.Join(dropped, ", "))}
}

// finalizerWarnings are the warnings about the finalizers that obj has and old, which may be nil, has not. Built-in kinds have none.
func (r *servedResource) finalizerWarnings(obj, old *unstructured.Unstructured) []string {
	if !isCustom(r.GVR) {
		return nil
	}
	added := lo.Uniq(obj.GetFinalizers())
	if old != nil {
		added = lo.Without(added, old.GetFinalizers()...)
	}
	slices.Sort(added)
	var out []string
	for _, f := range added {
		say := func(what string) { out = append(out, fmt.Sprintf("metadata.finalizers: %q: %s", f, what)) }
		for _, msg := range utilvalidation.IsQualifiedName(f) {
			say(msg)
		}
		switch {
		case strings.Contains(f, "/") || isPropagation(f) || f == "kubernetes":
		case strings.Contains(f, "."):
			say("prefer a domain-qualified finalizer name including a path (/) to avoid accidental conflicts with other finalizer writers")
		default:
			say("prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers")
		}
	}
	return out
}

// mergeWarnings adds warnings that are not there yet.
func mergeWarnings(have, more []string) []string {
	return append(slices.Clip(have), lo.Without(more, have...)...)
}
