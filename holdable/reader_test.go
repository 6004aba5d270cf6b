package holdable

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// objects is a retry.Reader of what is in it.
type objects map[schema.GroupVersionResource][]*unstructured.Unstructured

func (o objects) Get(_ context.Context, resource schema.GroupVersionResource, namespace, name string) (*unstructured.Unstructured, error) {
	for _, obj := range o[resource] {
		if obj.GetNamespace() == namespace && obj.GetName() == name {
			return obj, nil
		}
	}
	return nil, apierrors.NewNotFound(resource.GroupResource(), name)
}

func (o objects) Each(_ context.Context, resource schema.GroupVersionResource, namespace, selector string, visit func(*unstructured.Unstructured) bool) error {
	matches, err := labels.Parse(selector)
	if err != nil {
		return err
	}
	for _, obj := range o[resource] {
		if obj.GetNamespace() == namespace && matches.Matches(labels.Set(obj.GetLabels())) && !visit(obj) {
			return nil
		}
	}
	return nil
}

// broken is a retry.Reader that cannot read.
type broken struct{}

var errBroken = errors.New("broken")

func (broken) Get(context.Context, schema.GroupVersionResource, string, string) (*unstructured.Unstructured, error) {
	return nil, errBroken
}

func (broken) Each(context.Context, schema.GroupVersionResource, string, string, func(*unstructured.Unstructured) bool) error {
	return errBroken
}
