package main

import (
	"context"

	"github.com/samber/lo"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubehold/kubehold/rapidtest"
)

// The story loses a node. Where this program plays the nodes, it plays dead for
// one of them. No node of a real cluster is touched: there, a pod is made that
// counts as one of the job's and is bound to a node that does not exist. Nobody
// hears of such a pod either.

// goneNode is that node. keepsPod is a finalizer which keeps the garbage
// collector of pods from taking its pod away before the story does.
const (
	goneNode = "node-gone"
	keepsPod = runLabel + "-lost-node"
)

// lostNode is the name of the node that gets lost.
func (w *world) lostNode() string {
	return lo.Ternary(w.cast.kubelet != nil, w.cast.node(2), goneNode)
}

// loseNode loses a node with a pod of the job, and returns the name of the pod.
func (w *world) loseNode(ctx context.Context, job string) (string, error) {
	if w.cast.kubelet == nil {
		return w.createStrayPod(ctx, job)
	}
	w.cast.lose()
	pods, err := w.pods(ctx, job)
	if err != nil {
		return "", err
	}
	pod, ok := lo.Find(pods, func(p unstructured.Unstructured) bool { return nodeOf(p) == w.cast.node(2) })
	if !ok {
		return "", unlike("a pod on "+w.cast.node(2), places(pods))
	}
	return pod.GetName(), nil
}

func (w *world) createStrayPod(ctx context.Context, job string) (string, error) {
	pod := w.object(podsOf(), "Pod", w.job(job)+"-lost", map[string]any{
		"nodeName":   goneNode,
		"containers": []any{map[string]any{"name": "node", "image": "node"}},
	})
	pod.SetLabels(lo.Assign(pod.GetLabels(), map[string]string{rapidtest.JobSetNameLabel: w.job(job)}))
	pod.SetFinalizers([]string{keepsPod})
	_, err := w.in(podsOf()).Create(ctx, pod, metav1.CreateOptions{})
	return pod.GetName(), err
}

// reportLost writes what a controller writes on the pods of a node that does not
// answer. The played kubelet does that by itself.
func (w *world) reportLost(ctx context.Context, pod string) error {
	if w.cast.kubelet != nil {
		return nil
	}
	patch := `{"status":{"phase":"Failed","reason":"NodeLost"}}`
	_, err := w.in(podsOf()).Patch(ctx, pod, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	return err
}

// powerOff makes sure of the lost node, after which its pod may go.
func (w *world) powerOff(ctx context.Context, pod string) error {
	if w.cast.kubelet != nil {
		w.cast.powerOff()
		return nil
	}
	return w.force(ctx, podsOf(), pod)
}
