package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/samber/lo"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/probe"
	"github.com/kubehold/kubehold/rapidtest"
	"github.com/kubehold/kubehold/retry"
)

// A fault breaks a model: the resources that it serves, or the server.
type fault struct {
	resources func(holdable.Description, []rapidtest.Resource) []rapidtest.Resource
	server    func(holdable.Description, *rapidtest.Server)
}

func faults() map[string]fault {
	return map[string]fault{
		"none":          {},
		"no-permission": {server: forbidUpdates},
		"stripped":      {server: stripAnnotations},
		"refused":       {server: refuseUpdates},
		"not-served":    {resources: withoutHeld},
		"no-field":      {resources: withoutPauseField},
	}
}

func faultNames() []string { return slices.Sorted(maps.Keys(faults())) }

// model returns the way to an apiserver in memory that has all a kind needs,
// but for the fault.
func model(d holdable.Description, name string) (*rest.Config, error) {
	broken, ok := faults()[name]
	if !ok {
		return nil, fmt.Errorf("fault %q is not one of %s", name, strings.Join(faultNames(), ", "))
	}
	resources := resources(d)
	if broken.resources != nil {
		resources = broken.resources(d, resources)
	}
	server := rapidtest.NewServer(resources...)
	if err := furnish(server); err != nil {
		return nil, err
	}
	if broken.server != nil {
		broken.server(d, server)
	}
	cfg := server.RESTConfig("supervisor")
	cfg.QPS, cfg.Burst = 100, 200
	return cfg, nil
}

// resources are what the model serves: the kind, and what surrounds it.
func resources(d holdable.Description) []rapidtest.Resource {
	known := []rapidtest.Resource{
		rapidtest.TrainJobs(), rapidtest.JobSets(), rapidtest.Jobs(), rapidtest.Pods(),
		plain("Deployment", schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}),
	}
	if d.Resource.Group == "kueue.x-k8s.io" {
		queues := d.Resource
		queues.Resource = "clusterqueues"
		known = append(known, rapidtest.Workloads(), rapidtest.AdmissionChecks(), rapidtest.Resource{GVR: queues, Kind: "ClusterQueue"})
	}
	if !lo.ContainsBy(known, func(r rapidtest.Resource) bool { return r.GVR == d.Resource }) {
		held := plain(d.Kind, d.Resource)
		held.Namespaced = !d.ClusterScoped
		known = append(known, held)
	}
	if n := d.Named; n != nil && !lo.ContainsBy(known, func(r rapidtest.Resource) bool { return r.GVR == n.Resource }) {
		known = append(known, plain(n.Kind, n.Resource))
	}
	return known
}

// plain is a namespaced resource with a status and without a schema.
func plain(kind string, resource schema.GroupVersionResource) rapidtest.Resource {
	return rapidtest.Resource{GVR: resource, Kind: kind, Namespaced: true, StatusSubresource: true}
}

// furnish puts up what a probe looks at besides: the controllers' Deployments,
// and a readmission gate in every queue.
func furnish(server *rapidtest.Server) error {
	deployment := func(project, version string) map[string]any {
		return map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{
			"name": project, "namespace": project + "-system",
			"labels": map[string]any{"app.kubernetes.io/name": project, "app.kubernetes.io/version": version},
		}}
	}
	objects := []map[string]any{
		deployment("kueue", "v0.17.0"),
		deployment("trainer", "v2.2.0"),
		{
			"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "AdmissionCheck", "metadata": map[string]any{"name": "gate"},
			"spec":   map[string]any{"controllerName": probe.DefaultGate},
			"status": map[string]any{"conditions": []any{map[string]any{"type": "Active", "status": "True"}}},
		},
		{
			"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": map[string]any{"name": "main"},
			"spec": map[string]any{"admissionChecksStrategy": map[string]any{"admissionChecks": []any{map[string]any{"name": "gate"}}}},
		},
	}
	client := server.Dynamic("admin")
	for _, content := range objects {
		obj := &unstructured.Unstructured{Object: content}
		gvk := obj.GroupVersionKind()
		resource := gvk.GroupVersion().WithResource(strings.ToLower(gvk.Kind) + "s")
		at := client.Resource(resource).Namespace(obj.GetNamespace())
		made, err := at.Create(context.Background(), obj, metav1.CreateOptions{})
		if err != nil || content["status"] == nil {
			continue // a model without Kueue
		}
		made.Object["status"] = content["status"]
		if _, err := at.UpdateStatus(context.Background(), made, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// forbidUpdates takes the permission to update the held object.
func forbidUpdates(d holdable.Description, server *rapidtest.Server) {
	server.Authorize(func(a rapidtest.Access) bool {
		return a.Verb != rapidtest.VerbUpdate || a.GVR != d.Resource
	})
}

// stripAnnotations is a policy that knows better which annotations there may be.
func stripAnnotations(d holdable.Description, server *rapidtest.Server) {
	server.Admit(func(r rapidtest.AdmissionRequest) (*unstructured.Unstructured, error) {
		annotations := r.Object.GetAnnotations()
		maps.DeleteFunc(annotations, func(key, _ string) bool { return strings.HasPrefix(key, meta.DefaultPrefix+"/") })
		r.Object.SetAnnotations(annotations)
		return r.Object, nil
	})
}

// refuseUpdates is a webhook that has to be asked first.
func refuseUpdates(d holdable.Description, server *rapidtest.Server) {
	server.AdmitValidating(func(r rapidtest.AdmissionRequest) error {
		if r.Operation != "UPDATE" || r.Request.GVR != d.Resource {
			return nil
		}
		return rapidtest.Denied("freeze.example.com", 403, metav1.StatusReasonForbidden, "no changes before the release")
	})
}

// withoutHeld is a cluster whose CustomResourceDefinition was never installed.
func withoutHeld(d holdable.Description, all []rapidtest.Resource) []rapidtest.Resource {
	return lo.Reject(all, func(r rapidtest.Resource, _ int) bool { return r.GVR == d.Resource })
}

// withoutPauseField is a cluster whose CustomResourceDefinition is too old to
// have the pause field.
func withoutPauseField(d holdable.Description, all []rapidtest.Resource) []rapidtest.Resource {
	path := retry.PathString(d.PausePath)
	return lo.Map(all, func(r rapidtest.Resource, _ int) rapidtest.Resource {
		if r.GVR == d.Resource {
			r.Default = nil
			r.Fields = append(lo.Without(r.Fields, path), "status.*")
		}
		return r
	})
}
