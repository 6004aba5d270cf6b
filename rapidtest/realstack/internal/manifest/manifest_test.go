package manifest_test

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubehold/kubehold/rapidtest/realstack/internal/manifest"
)

const webhooks = `
kind: MutatingWebhookConfiguration
metadata: {name: hooks}
webhooks:
- name: job
  clientConfig: {service: {name: s, namespace: n, path: /job}}
  rules: [{apiGroups: [batch], resources: [jobs]}]
- name: pod
  clientConfig: {service: {name: s, namespace: n, path: /pod}}
  rules: [{apiGroups: [""], resources: [pods]}]
---
# a document without a kind is none
---
kind: Other
metadata: {name: other}
`

// write puts files into a new folder.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func readConfig(t *testing.T) *manifest.Object {
	t.Helper()
	dir := write(t, map[string]string{"hooks.yaml": webhooks})
	objects, err := manifest.ReadKind(dir, "MutatingWebhookConfiguration")
	if err != nil || len(objects) != 1 {
		t.Fatalf("read %d objects, %v, want one", len(objects), err)
	}
	return objects[0]
}

func hooks(t *testing.T, config *manifest.Object) []any {
	t.Helper()
	list, _, err := unstructured.NestedSlice(config.Object, "webhooks")
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestReadKindWithoutAny(t *testing.T) {
	if _, err := manifest.ReadKind(t.TempDir(), "Stage"); err == nil {
		t.Error("a folder without the kind is no error")
	}
}

func TestServeWebhooksAt(t *testing.T) {
	config := readConfig(t)
	if err := manifest.ServeWebhooksAt(config, manifest.Server{Port: 9443, CA: []byte("ca")}); err != nil {
		t.Fatal(err)
	}
	for i, path := range []string{"/job", "/pod"} {
		hook, _ := hooks(t, config)[i].(map[string]any)
		want := map[string]any{
			"url":      "https://127.0.0.1:9443" + path,
			"caBundle": base64.StdEncoding.EncodeToString([]byte("ca")),
		}
		if diff := cmp.Diff(want, hook["clientConfig"]); diff != "" {
			t.Errorf("webhook %d (-want +got):\n%s", i, diff)
		}
	}
	if err := manifest.ServeWebhooksAt(config, manifest.Server{}); err == nil {
		t.Error("webhooks that name no service were pointed elsewhere")
	}
}

func TestKeepWebhooks(t *testing.T) {
	cases := map[string]struct {
		groups []string
		want   []string
	}{
		"OneGroup":  {groups: []string{"batch"}, want: []string{"job"}},
		"CoreGroup": {groups: []string{""}, want: []string{"pod"}},
		"Both":      {groups: []string{"", "batch"}, want: []string{"job", "pod"}},
		"None":      {},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			config := readConfig(t)
			if err := manifest.KeepWebhooks(config, tc.groups...); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, h := range hooks(t, config) {
				hook, _ := h.(map[string]any)
				name, _ := hook["name"].(string)
				got = append(got, name)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("kept (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSelectObjects(t *testing.T) {
	config := readConfig(t)
	if err := manifest.SelectObjects(config, "pods", "example.com/mine"); err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{false, true} {
		hook, _ := hooks(t, config)[i].(map[string]any)
		if _, got := hook["objectSelector"]; got != want {
			t.Errorf("webhook %v has a selector: %v, want %v", hook["name"], got, want)
		}
	}
}

func TestConvertedKinds(t *testing.T) {
	dir := write(t, map[string]string{
		"kustomization.yaml": "patches: [{path: patches/a.yaml}, {path: patches/b.yaml}]",
		"patches/a.yaml":     "kind: CRD\nmetadata: {name: converted}\nspec: {conversion: {webhook: {clientConfig: {}}}}",
		"patches/b.yaml":     "kind: CRD\nmetadata: {name: annotated}",
	})
	got, err := manifest.ConvertedKinds(filepath.Join(dir, "kustomization.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]bool{"converted": true}, got); diff != "" {
		t.Errorf("converted (-want +got):\n%s", diff)
	}
}

func TestWriteReadsBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "objects.yaml")
	one, two := map[string]any{"kind": "One"}, map[string]any{"kind": "Two"}
	if err := manifest.Write(path, one, two); err != nil {
		t.Fatal(err)
	}
	objects, err := manifest.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(objects) != 2 || objects[0].GetKind() != "One" || objects[1].GetKind() != "Two" {
		t.Errorf("read back %v", objects)
	}
}
