package stack

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kubehold/kubehold/rapidtest/realstack/internal/manifest"
)

const setupPoll = 100 * time.Millisecond

// A setup puts into kube-apiserver what has to be there before a test begins.
type setup struct {
	layout    *layout
	client    dynamic.Interface
	discovery discovery.DiscoveryInterface
}

func newSetup(l *layout) (*setup, error) {
	config, err := l.restConfig(admin)
	if err != nil {
		return nil, err
	}
	config.QPS = -1                           // no limit
	config.WarningHandler = rest.NoWarnings{} // older versions are asked for on purpose
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	discovery, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	return &setup{layout: l, client: client, discovery: discovery}, nil
}

// installDefinitions installs the CustomResourceDefinitions of all projects and
// waits until all of them are served.
func (s *setup) installDefinitions(ctx context.Context, projects []project) error {
	var all []*manifest.Object
	for _, p := range projects {
		crds, err := p.definitions(s.layout)
		if err != nil {
			return err
		}
		all = append(all, crds...)
	}
	definitions := s.client.Resource(schema.GroupVersionResource{
		Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	for _, crd := range all {
		if err := s.install(ctx, definitions, crd); err != nil {
			return fmt.Errorf("installing %s: %w", crd.GetName(), err)
		}
	}
	for _, crd := range all {
		if err := s.waitServed(ctx, crd); err != nil {
			return err
		}
	}
	return nil
}

// install creates an object. An apiserver that has just started, on a busy machine
// and with a short request timeout, may need more than one request for it.
func (s *setup) install(ctx context.Context, resource dynamic.ResourceInterface, object *manifest.Object) error {
	var refused error
	err := s.poll(ctx, func(ctx context.Context) error {
		_, err := resource.Create(ctx, object, metav1.CreateOptions{})
		switch {
		case apierrors.IsAlreadyExists(err): // an earlier request did it
			return nil
		case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsForbidden(err):
			refused = err
			return nil
		}
		return err
	})
	return errors.Join(err, refused)
}

// waitServed waits until every version of a kind can be found and listed, which
// is a little later than when its definition says Established. A controller
// that started before would give up on a kind that it cannot find.
func (s *setup) waitServed(ctx context.Context, crd *manifest.Object) error {
	resources, err := servedResources(crd)
	if err != nil {
		return err
	}
	for _, resource := range resources {
		err := s.poll(ctx, func(ctx context.Context) error {
			_, err := s.client.Resource(resource).List(ctx, metav1.ListOptions{Limit: 1})
			return errors.Join(err, s.discover(resource))
		})
		if err != nil {
			return fmt.Errorf("waiting until %v is served: %w", resource, err)
		}
	}
	return nil
}

// discover looks a resource up in both of the ways that clients do: in the
// document of its group and version, and in that of the whole apiserver.
func (s *setup) discover(resource schema.GroupVersionResource) error {
	version, err := s.discovery.ServerResourcesForGroupVersion(resource.GroupVersion().String())
	if err != nil {
		return err
	}
	_, all, err := s.discovery.ServerGroupsAndResources()
	if err != nil {
		return err
	}
	for _, list := range [][]*metav1.APIResourceList{{version}, all} {
		if !slices.ContainsFunc(list, func(l *metav1.APIResourceList) bool { return names(l, resource) }) {
			return fmt.Errorf("%v cannot be discovered yet", resource)
		}
	}
	return nil
}

// names reports whether a list of resources has one that is called like that.
func names(list *metav1.APIResourceList, resource schema.GroupVersionResource) bool {
	return list.GroupVersion == resource.GroupVersion().String() &&
		slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == resource.Resource })
}

// servedResources are the resources that a definition defines.
func servedResources(crd *manifest.Object) ([]schema.GroupVersionResource, error) {
	group, _, groupErr := unstructured.NestedString(crd.Object, "spec", "group")
	plural, _, pluralErr := unstructured.NestedString(crd.Object, "spec", "names", "plural")
	versions, _, versionsErr := unstructured.NestedSlice(crd.Object, "spec", "versions")
	if err := errors.Join(groupErr, pluralErr, versionsErr); err != nil {
		return nil, fmt.Errorf("%s: %w", crd.GetName(), err)
	}
	var resources []schema.GroupVersionResource
	for _, v := range versions {
		version, _ := v.(map[string]any)
		name, _ := version["name"].(string)
		if served, _ := version["served"].(bool); served {
			resources = append(resources, schema.GroupVersionResource{Group: group, Version: name, Resource: plural})
		}
	}
	return resources, nil
}

func (s *setup) createNamespace(ctx context.Context, name string) error {
	object := &unstructured.Unstructured{}
	object.SetAPIVersion("v1")
	object.SetKind("Namespace")
	object.SetName(name)
	namespaces := s.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"})
	_, err := namespaces.Create(ctx, object, metav1.CreateOptions{})
	return err
}

// installWebhooks installs the webhooks of all projects, which have to be served
// by now, and waits until they have their say.
func (s *setup) installWebhooks(ctx context.Context, projects []project) error {
	for _, p := range projects {
		configs, err := p.webhookConfigurations(s.layout)
		if err != nil {
			return err
		}
		for _, config := range configs {
			resource := schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1",
				Resource: pluralOf(config.GetKind())}
			if _, err := s.client.Resource(resource).Create(ctx, config, metav1.CreateOptions{}); err != nil {
				return fmt.Errorf("installing %s: %w", config.GetName(), err)
			}
		}
	}
	return s.waitWebhooks(ctx)
}

func pluralOf(webhookKind string) string {
	if webhookKind == "MutatingWebhookConfiguration" {
		return "mutatingwebhookconfigurations"
	}
	return "validatingwebhookconfigurations"
}

// waitWebhooks waits until kube-apiserver asks the webhooks, which it does a
// moment after they are installed. Those of Kueue are installed last, and are
// noticed in that order, so a request that they change and one that they refuse
// are proof for all.
func (s *setup) waitWebhooks(ctx context.Context) error {
	changed := func(ctx context.Context) error {
		flavor, err := s.tryFlavor(ctx, "good")
		if err == nil && len(flavor.GetFinalizers()) == 0 {
			err = errors.New("no webhook has changed a ResourceFlavor yet")
		}
		return err
	}
	refused := func(ctx context.Context) error {
		_, err := s.tryFlavor(ctx, "not a label's value")
		if err == nil {
			return errors.New("no webhook has refused a ResourceFlavor yet")
		}
		if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
			return nil
		}
		return err
	}
	if err := s.poll(ctx, changed); err != nil {
		return fmt.Errorf("waiting for the webhooks: %w", err)
	}
	if err := s.poll(ctx, refused); err != nil {
		return fmt.Errorf("waiting for the webhooks: %w", err)
	}
	return nil
}

// tryFlavor asks what would become of a ResourceFlavor with a node label.
func (s *setup) tryFlavor(ctx context.Context, label string) (*unstructured.Unstructured, error) {
	flavor := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "kueue.x-k8s.io/v1beta2",
		"kind":       "ResourceFlavor",
		"metadata":   map[string]any{"name": "realstack-probe"},
		"spec":       map[string]any{"nodeLabels": map[string]any{"kubehold.dev/probe": label}},
	}}
	flavors := s.client.Resource(schema.GroupVersionResource{
		Group: "kueue.x-k8s.io", Version: "v1beta2", Resource: "resourceflavors"})
	return flavors.Create(ctx, flavor, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
}

// poll repeats try until it succeeds, and returns its last error if it does not
// within the health timeout.
func (s *setup) poll(ctx context.Context, try func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, setupPoll, s.layout.options.HealthTimeout, true,
		func(ctx context.Context) (bool, error) {
			last = try(ctx)
			return last == nil, nil
		})
	return errors.Join(err, last)
}
