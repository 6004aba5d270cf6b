//go:build e2e

package probetest

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/probe"
)

// documents parses the documents of a manifest.
func documents(t *testing.T, manifest []byte) []*unstructured.Unstructured {
	t.Helper()
	var objects []*unstructured.Unstructured
	for _, document := range bytes.Split(manifest, []byte("---\n")) {
		obj := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, &obj.Object); err != nil {
			t.Fatal(err)
		}
		objects = append(objects, obj)
	}
	return objects
}

// A rule of a Role, as far as these tests go.
func rules(obj *unstructured.Unstructured) []map[string]any {
	list, _ := obj.Object["rules"].([]any)
	var rules []map[string]any
	for _, r := range list {
		rules = append(rules, r.(map[string]any))
	}
	return rules
}

// permission writes a verb of a rule as the probe does: "get jobs.batch".
func permission(rule map[string]any, verb any) string {
	group, resource := rule["apiGroups"].([]any)[0].(string), rule["resources"].([]any)[0].(string)
	return strings.TrimSuffix(verb.(string)+" "+resource+"."+group, ".")
}

// granted are the permissions in the manifest of a kind.
func granted(t *testing.T, kind holdable.Kind, opts probe.Options) []string {
	t.Helper()
	manifest, err := probe.Manifest(kind, opts, "somebody")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, obj := range documents(t, manifest) {
		for _, rule := range rules(obj) {
			for _, verb := range rule["verbs"].([]any) {
				all = append(all, permission(rule, verb))
			}
		}
	}
	if len(all) != len(slices.Compact(slices.Sorted(slices.Values(all)))) {
		t.Errorf("something is granted twice: %q", all)
	}
	return all
}

// without takes a permission out of a Role.
func without(obj *unstructured.Unstructured, drop string) {
	var kept []any
	for _, rule := range rules(obj) {
		rule["verbs"] = slices.DeleteFunc(rule["verbs"].([]any), func(verb any) bool { return permission(rule, verb) == drop })
		if len(rule["verbs"].([]any)) > 0 {
			kept = append(kept, rule)
		}
	}
	if obj.Object["rules"] != nil {
		obj.Object["rules"] = kept
	}
}
