package rapidtest

import (
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// conditionOf returns a condition of an object; nil where it has none of that type.
func conditionOf(obj *unstructured.Unstructured, kind string) map[string]any {
	conditions, _, _ := unstructured.NestedFieldNoCopy(obj.Object, "status", "conditions")
	list, _ := conditions.([]any)
	for _, c := range list {
		if c, ok := c.(map[string]any); ok && c["type"] == kind {
			return c
		}
	}
	return nil
}

func conditionIs(obj *unstructured.Unstructured, kind, status string) bool {
	c := conditionOf(obj, kind)
	return c != nil && c["status"] == status
}

func conditionReason(obj *unstructured.Unstructured, kind string) string {
	reason, _ := conditionOf(obj, kind)["reason"].(string)
	return reason
}

func conditionMessage(obj *unstructured.Unstructured, kind string) string {
	message, _ := conditionOf(obj, kind)["message"].(string)
	return message
}

// setCondition sets a condition; its transition time moves when its status changes.
func setCondition(obj *unstructured.Unstructured, kind, status, reason, message string) {
	next := map[string]any{
		"type": kind, "status": status, "reason": reason, "message": message,
		"observedGeneration": obj.GetGeneration(), "lastTransitionTime": timestamp(time.Now()),
	}
	found, _, _ := unstructured.NestedFieldNoCopy(obj.Object, "status", "conditions")
	old, _ := found.([]any)
	list := make([]any, 0, len(old)+1)
	placed := false
	for _, c := range old {
		if c, ok := c.(map[string]any); ok && c["type"] == kind {
			if c["status"] == status {
				next["lastTransitionTime"] = c["lastTransitionTime"]
			}
			list, placed = append(list, next), true
			continue
		}
		list = append(list, c)
	}
	if !placed {
		list = append(list, next)
	}
	statusOf(obj)["conditions"] = list
}

func removeCondition(obj *unstructured.Unstructured, kind string) {
	found, _, _ := unstructured.NestedFieldNoCopy(obj.Object, "status", "conditions")
	old, _ := found.([]any)
	list := make([]any, 0, len(old))
	for _, c := range old {
		if c, ok := c.(map[string]any); !ok || c["type"] != kind {
			list = append(list, c)
		}
	}
	statusOf(obj)["conditions"] = list
}

// statusOf returns the status of an object to write to.
func statusOf(obj *unstructured.Unstructured) map[string]any {
	status, ok := obj.Object["status"].(map[string]any)
	if !ok {
		status = map[string]any{}
		obj.Object["status"] = status
	}
	return status
}

// hasEnded says whether a job is over, whatever its kind calls that.
func hasEnded(job *unstructured.Unstructured) bool {
	for _, kind := range []string{"Complete", "Completed", "Failed"} {
		if conditionIs(job, kind, "True") {
			return true
		}
	}
	return false
}

// boolAt reads a bool; def where it is absent.
func boolAt(obj *unstructured.Unstructured, def bool, path ...string) bool {
	v, ok, err := unstructured.NestedBool(obj.Object, path...)
	if err != nil || !ok {
		return def
	}
	return v
}
