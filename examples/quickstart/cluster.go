package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/samber/lo"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// config reads the kubeconfig. It returns the name of the context as well.
func (t target) config() (*rest.Config, string, error) {
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: t.kubeconfig}
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: t.context})
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, "", err
	}
	raw, err := loader.RawConfig()
	return config, cmp.Or(t.context, raw.CurrentContext), err
}

// clusterWorld makes a world of a namespace on a real cluster, or, with no name
// given, in a namespace that it makes. Until everything is known to be there
// that the story needs, it changes nothing; what it has made when it fails
// later is removed again.
func clusterWorld(ctx context.Context, config *rest.Config, name, namespace string) (*world, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = 100, 200 // the story's waits are many small reads
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	run := utilrand.String(5)
	w := &world{
		config:    config,
		client:    client,
		namespace: namespace,
		run:       run,
		patience:  time.Minute,
		pace:      100 * time.Millisecond,
		watch:     time.Second,
	}
	w.queue, w.runtime = w.ownName(), w.ownName()
	if namespace != "" {
		w.suffix = "-" + run
	}
	p := &preflight{config: config, client: client, namespace: namespace}
	if err := p.check(ctx); err != nil {
		return nil, fmt.Errorf("%w; nothing was changed", err)
	}
	w.cleanUp = w.removeAll
	if err := w.furnish(ctx, p.signs); err != nil {
		if left := w.cleanUp(context.WithoutCancel(ctx)); left != nil {
			return nil, errors.Join(err, left)
		}
		return nil, fmt.Errorf("%w; what this run had made is removed", err)
	}
	w.place = fmt.Sprintf("Here, all of that happens in namespace %s of the cluster %s. %s", w.namespace, name, w.cast.played())
	return w, nil
}

// ownName is the name of everything that a run makes once, the jobs aside.
func (w *world) ownName() string { return "kubehold-quickstart-" + w.run }

// furnish makes what the jobs of the story need, and finds out who is to be
// played.
func (w *world) furnish(ctx context.Context, known signs) error {
	if w.namespace == "" {
		ns := w.object(namespaces(), "Namespace", w.ownName(), map[string]any{})
		if err := w.make(ctx, namespaces(), w.client.Resource(namespaces()), ns); err != nil {
			return err
		}
		w.namespace = ns.GetName()
	}
	if err := w.createRuntime(ctx); err != nil {
		return err
	}
	runs, err := w.whoRuns(ctx, known)
	if err != nil {
		return fmt.Errorf("finding out whether Kueue and Trainer run: %w", err)
	}
	own := ownClient(w.client, w.run, lo.Map(jobNames(), func(name string, _ int) string { return w.job(name) }))
	if !runs.trainer {
		w.cast.playTrainer(own, w.namespace, "-"+w.run)
	}
	if !runs.kueue {
		w.cast.playKueue(own, w.namespace)
		return nil
	}
	return w.createQueue(ctx)
}

// createRuntime makes the TrainingRuntime of the jobs: two pods that sleep.
func (w *world) createRuntime(ctx context.Context) error {
	gvr := ofTrainer("trainingruntimes")
	container := map[string]any{
		"name": "node", "image": "busybox", "command": []any{"sleep", "1h"},
		"resources": map[string]any{"requests": map[string]any{"cpu": "10m"}},
	}
	runtime := w.object(gvr, "TrainingRuntime", w.runtime, map[string]any{
		"mlPolicy": map[string]any{"numNodes": int64(2)},
		"template": map[string]any{"spec": map[string]any{"replicatedJobs": []any{map[string]any{
			"name": "node",
			"template": map[string]any{
				"metadata": map[string]any{"labels": map[string]any{"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
				"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
					"containers": []any{container}, "terminationGracePeriodSeconds": int64(1),
				}}},
			},
		}}}},
	})
	return w.make(ctx, gvr, w.in(gvr), runtime)
}

// createQueue makes a LocalQueue, with a ClusterQueue and a ResourceFlavor of its
// own, for a Kueue that runs.
func (w *world) createQueue(ctx context.Context) error {
	flavors, shared, local := ofKueue("resourceflavors"), ofKueue("clusterqueues"), ofKueue("localqueues")
	flavor := w.object(flavors, "ResourceFlavor", w.queue, map[string]any{})
	if err := w.make(ctx, flavors, w.client.Resource(flavors), flavor); err != nil {
		return err
	}
	queue := w.object(shared, "ClusterQueue", w.queue, map[string]any{
		"namespaceSelector": map[string]any{"matchLabels": map[string]any{"kubernetes.io/metadata.name": w.namespace}},
		"resourceGroups": []any{map[string]any{
			"coveredResources": []any{"cpu"},
			"flavors": []any{map[string]any{
				"name":      w.queue,
				"resources": []any{map[string]any{"name": "cpu", "nominalQuota": "1"}},
			}},
		}},
	})
	if err := w.make(ctx, shared, w.client.Resource(shared), queue); err != nil {
		return err
	}
	return w.make(ctx, local, w.in(local), w.object(local, "LocalQueue", w.queue, map[string]any{"clusterQueue": w.queue}))
}
