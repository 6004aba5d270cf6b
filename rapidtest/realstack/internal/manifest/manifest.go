// Package manifest reads the manifests that projects ship in their Go modules
// and fits them to controllers that run outside a cluster.
package manifest

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	sigsyaml "sigs.k8s.io/yaml"
)

// An Object is one document of a manifest.
type Object = unstructured.Unstructured

// ReadFile returns the documents of one file.
func ReadFile(path string) ([]*Object, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var objects []*Object
	for reader := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data))); ; {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", path, err)
		}
		object := &Object{}
		if err := sigsyaml.Unmarshal(document, &object.Object); err != nil {
			return nil, fmt.Errorf("reading %s: %w", path, err)
		}
		if object.GetKind() != "" {
			objects = append(objects, object)
		}
	}
}

// ReadKind returns the documents of one kind that lie in the files of a folder.
func ReadKind(dir, kind string) ([]*Object, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return nil, err
	}
	var found []*Object
	for _, path := range paths {
		objects, err := ReadFile(path)
		if err != nil {
			return nil, err
		}
		for _, object := range objects {
			if object.GetKind() == kind {
				found = append(found, object)
			}
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("no %s in %s", kind, dir)
	}
	return found, nil
}

// Write writes objects as the YAML documents of one file.
func Write(path string, objects ...map[string]any) error {
	var documents [][]byte
	for _, object := range objects {
		document, err := sigsyaml.Marshal(object)
		if err != nil {
			return err
		}
		documents = append(documents, document)
	}
	return os.WriteFile(path, bytes.Join(documents, []byte("---\n")), 0o600)
}

// A Server is where a project's webhooks are served.
type Server struct {
	// Port is the port on the loopback address.
	Port int
	// CA is the certificate of the authority, PEM, that signed the server's.
	CA []byte
}

// clientConfig is how the apiserver finds a path on the server.
func (s Server) clientConfig(path string) map[string]any {
	return map[string]any{
		"url":      fmt.Sprintf("https://127.0.0.1:%d%s", s.Port, path),
		"caBundle": base64.StdEncoding.EncodeToString(s.CA),
	}
}

// ConvertedKinds returns the names of the CustomResourceDefinitions that a
// kustomization patches so that a webhook converts between their versions.
func ConvertedKinds(kustomization string) (map[string]bool, error) {
	data, err := os.ReadFile(kustomization)
	if err != nil {
		return nil, err
	}
	var file struct{ Patches []struct{ Path string } }
	if err := sigsyaml.Unmarshal(data, &file); err != nil {
		return nil, fmt.Errorf("reading %s: %w", kustomization, err)
	}
	names := map[string]bool{}
	for _, patch := range file.Patches {
		objects, err := ReadFile(filepath.Join(filepath.Dir(kustomization), patch.Path))
		if err != nil {
			return nil, err
		}
		for _, object := range objects {
			if _, found, _ := unstructured.NestedMap(object.Object, "spec", "conversion", "webhook"); found {
				names[object.GetName()] = true
			}
		}
	}
	return names, nil
}

// ConvertAt makes a CustomResourceDefinition convert between its versions at
// the server, where projects serve that as /convert.
func ConvertAt(crd *Object, s Server) error {
	return unstructured.SetNestedMap(crd.Object, map[string]any{
		"strategy": "Webhook",
		"webhook": map[string]any{
			"clientConfig":             s.clientConfig("/convert"),
			"conversionReviewVersions": []any{"v1"},
		},
	}, "spec", "conversion")
}

// ServeWebhooksAt points the webhooks of a configuration to the server instead
// of a Service of the cluster.
func ServeWebhooksAt(config *Object, s Server) error {
	return editWebhooks(config, func(webhook map[string]any) (bool, error) {
		path, found, err := unstructured.NestedString(webhook, "clientConfig", "service", "path")
		if err != nil || !found {
			return false, fmt.Errorf("webhook %v names no path of a service: %w", webhook["name"], err)
		}
		webhook["clientConfig"] = s.clientConfig(path)
		return true, nil
	})
}

// KeepWebhooks drops the webhooks of every API group that is not among groups.
func KeepWebhooks(config *Object, groups ...string) error {
	return editWebhooks(config, func(webhook map[string]any) (bool, error) {
		return slices.ContainsFunc(rules(webhook), func(rule map[string]any) bool {
			return overlaps(rule["apiGroups"], groups)
		}), nil
	})
}

// SelectObjects limits the webhooks of one resource to objects that carry a label.
func SelectObjects(config *Object, resource, label string) error {
	return editWebhooks(config, func(webhook map[string]any) (bool, error) {
		concerned := slices.ContainsFunc(rules(webhook), func(rule map[string]any) bool {
			return overlaps(rule["resources"], []string{resource})
		})
		if concerned {
			webhook["objectSelector"] = map[string]any{"matchExpressions": []any{
				map[string]any{"key": label, "operator": "Exists"},
			}}
		}
		return true, nil
	})
}

// editWebhooks lets edit change each webhook of a configuration and say whether
// to keep it.
func editWebhooks(config *Object, edit func(webhook map[string]any) (keep bool, err error)) error {
	webhooks, _, err := unstructured.NestedSlice(config.Object, "webhooks")
	if err != nil {
		return err
	}
	var kept []any
	for _, w := range webhooks {
		webhook, ok := w.(map[string]any)
		if !ok {
			return fmt.Errorf("%s: a webhook is a %T", config.GetName(), w)
		}
		keep, err := edit(webhook)
		if err != nil {
			return fmt.Errorf("%s: %w", config.GetName(), err)
		}
		if keep {
			kept = append(kept, webhook)
		}
	}
	return unstructured.SetNestedSlice(config.Object, kept, "webhooks")
}

func rules(webhook map[string]any) []map[string]any {
	list, _ := webhook["rules"].([]any)
	var found []map[string]any
	for _, r := range list {
		if rule, ok := r.(map[string]any); ok {
			found = append(found, rule)
		}
	}
	return found
}

func overlaps(list any, wanted []string) bool {
	values, _ := list.([]any)
	return slices.ContainsFunc(values, func(v any) bool {
		text, _ := v.(string)
		return slices.Contains(wanted, text)
	})
}
