package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/kubehold/kubehold/rapidtest"
)

// A cast plays the controllers that do not run in a world. A part that is nil is
// played by the real one.
type cast struct {
	kueue   *rapidtest.Kueue
	trainer *rapidtest.Trainer
	kubelet *rapidtest.Kubelet
	// suffix keeps the names of played nodes apart from those of real ones.
	suffix string
}

// node returns the name of a played node: there are two, and a third one that
// takes the place of the second when that is lost.
func (c *cast) node(n int) string { return fmt.Sprintf("node-%d%s", n, c.suffix) }

// playKueue and playTrainer give the cast a part. client shows it the objects of
// this run, and no others.
func (c *cast) playKueue(client dynamic.Interface, namespace string) {
	c.kueue = &rapidtest.Kueue{Client: client, Namespace: namespace}
}

func (c *cast) playTrainer(client dynamic.Interface, namespace, suffix string) {
	c.suffix = suffix
	c.trainer = &rapidtest.Trainer{
		Client: client, Namespace: namespace,
		Replicas: 2, Nodes: []string{c.node(1), c.node(2)}, Grace: time.Second,
	}
	c.kubelet = &rapidtest.Kubelet{Client: client, Namespace: namespace}
}

// act lets whoever is played do what there is to do.
func (c *cast) act(ctx context.Context) error {
	var actors []rapidtest.Actor
	if c.kueue != nil {
		actors = append(actors, c.kueue)
	}
	if c.trainer != nil {
		actors = append(actors, c.trainer, c.kubelet)
	}
	return rapidtest.Settle(ctx, actors...)
}

// lose loses the second node.
func (c *cast) lose() { c.kubelet.Lose(c.node(2)) }

// powerOff ends the second node for good; another takes its place.
func (c *cast) powerOff() {
	c.kubelet.Gone(c.node(2))
	c.trainer.Nodes = []string{c.node(1), c.node(3)}
}

// repair has the second node back for the next scene.
func (c *cast) repair() {
	if c.trainer != nil {
		c.kubelet.Return(c.node(2))
		c.trainer.Nodes = []string{c.node(1), c.node(2)}
	}
}

// played says who is, for the reader.
func (c *cast) played() string {
	switch {
	case c.kueue == nil && c.trainer == nil:
		return "Kueue and Trainer run there, and the story waits for them."
	case c.kueue == nil:
		return "Kueue runs there, and this program plays Trainer and the nodes."
	case c.trainer == nil:
		return "Trainer runs there, and this program plays Kueue."
	}
	return "This program plays Kueue, Trainer and the nodes."
}

// An onlyOurs is a dynamic client whose lists have nothing of anybody else's, so
// that actors who are let loose in a namespace leave the rest of it alone.
type onlyOurs struct {
	dynamic.Interface
	selectors map[schema.GroupVersionResource]string
}

// ownClient returns such a client for the run's jobs and their pods.
func ownClient(client dynamic.Interface, run string, jobs []string) dynamic.Interface {
	return onlyOurs{client, map[schema.GroupVersionResource]string{
		rapidtest.TrainJobs().GVR: runLabel + "=" + run,
		rapidtest.Pods().GVR:      fmt.Sprintf("%s in (%s)", rapidtest.JobSetNameLabel, strings.Join(slices.Sorted(slices.Values(jobs)), ",")),
	}}
}

// Resource implements dynamic.Interface.
func (o onlyOurs) Resource(gvr schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	all := o.Interface.Resource(gvr)
	if s := o.selectors[gvr]; s != "" {
		return onlyOursOf{all, s}
	}
	return all
}

type onlyOursOf struct {
	dynamic.NamespaceableResourceInterface
	selector string
}

// Namespace implements dynamic.NamespaceableResourceInterface.
func (o onlyOursOf) Namespace(namespace string) dynamic.ResourceInterface {
	return onlyOursIn{o.NamespaceableResourceInterface.Namespace(namespace), o.selector}
}

type onlyOursIn struct {
	dynamic.ResourceInterface
	selector string
}

// List implements dynamic.ResourceInterface.
func (o onlyOursIn) List(ctx context.Context, opts metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	opts.LabelSelector = strings.Trim(opts.LabelSelector+","+o.selector, ",")
	return o.ResourceInterface.List(ctx, opts)
}
