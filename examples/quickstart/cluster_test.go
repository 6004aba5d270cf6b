package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/samber/lo"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubehold/kubehold/kinds"
	"github.com/kubehold/kubehold/rapidtest"
)

func webhookConfigurations() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingwebhookconfigurations"}
}

// clusterResources are what a cluster with the CRDs of Kueue and Trainer serves.
func clusterResources() []rapidtest.Resource {
	return []rapidtest.Resource{
		rapidtest.TrainJobs(), rapidtest.Workloads(), rapidtest.Pods(),
		{GVR: ofTrainer("trainingruntimes"), Kind: "TrainingRuntime", Namespaced: true},
		{GVR: ofKueue("localqueues"), Kind: "LocalQueue", Namespaced: true},
		{GVR: ofKueue("clusterqueues"), Kind: "ClusterQueue"},
		{GVR: ofKueue("resourceflavors"), Kind: "ResourceFlavor"},
		{GVR: namespaces(), Kind: "Namespace"},
		{GVR: webhookConfigurations(), Kind: "ValidatingWebhookConfiguration"},
	}
}

func clusterServer() *rapidtest.Server { return rapidtest.NewServer(clusterResources()...) }

// tellOnCluster runs the program as for a real cluster.
func tellOnCluster(ctx context.Context, server *rapidtest.Server, namespace string) told {
	var out, errs bytes.Buffer
	w, err := clusterWorld(ctx, server.RESTConfig("you"), "test", namespace)
	if err == nil {
		err = perform(ctx, w, &out)
	}
	code := status(err, &errs)
	return told{out.String(), errs.String(), code}
}

// stored lists all that a server has.
func stored(server *rapidtest.Server) []string {
	return lo.FlatMap(clusterResources(), func(r rapidtest.Resource, _ int) []string {
		return lo.Map(server.StoredAll(r.GVR), func(obj *unstructured.Unstructured, _ int) string {
			return strings.Join([]string{r.Kind, obj.GetNamespace(), obj.GetName(), obj.GetResourceVersion()}, " ")
		})
	})
}

func create(t *testing.T, server *rapidtest.Server, gvr schema.GroupVersionResource, namespace string, content map[string]any) {
	t.Helper()
	content["apiVersion"] = gvr.GroupVersion().String()
	_, err := server.Dynamic("somebody").Resource(gvr).Namespace(namespace).
		Create(t.Context(), &unstructured.Unstructured{Object: content}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// furnished is a cluster with a namespace in which others have a job in a queue,
// one that runs, a pod that starts and one that ends.
func furnished(t *testing.T) *rapidtest.Server {
	server := clusterServer()
	create(t, server, namespaces(), "", map[string]any{"kind": "Namespace", "metadata": map[string]any{"name": "team"}})
	create(t, server, trainJobs(), "team", map[string]any{"kind": "TrainJob", "metadata": map[string]any{
		"name": "queued", "labels": map[string]any{kinds.QueueNameLabel: "theirs"}}, "spec": map[string]any{"suspend": true}})
	create(t, server, trainJobs(), "team", map[string]any{"kind": "TrainJob", "metadata": map[string]any{"name": "running"}, "spec": map[string]any{}})
	create(t, server, podsOf(), "team", map[string]any{"kind": "Pod", "metadata": map[string]any{
		"name": "running-0", "labels": map[string]any{rapidtest.JobSetNameLabel: "running"},
		"ownerReferences": []any{map[string]any{"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "name": "x", "uid": "gone", "controller": true}},
	}, "spec": map[string]any{"nodeName": "node-1", "containers": []any{map[string]any{"name": "main"}}}})
	create(t, server, workloads(), "team", map[string]any{"kind": "Workload", "metadata": map[string]any{
		"name": "theirs", "labels": map[string]any{rapidtest.JobUIDLabel: "another"}}, "spec": map[string]any{"active": true}})
	return server
}

// On a cluster whose controllers do not run, the story plays their parts, and
// leaves everything as it was.
func TestStoryOnAClusterWithoutControllers(t *testing.T) {
	for _, namespace := range []string{"", "team"} {
		t.Run("Namespace="+namespace, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := furnished(t)
				before := stored(server)
				got := tellOnCluster(t.Context(), server, namespace)
				if got.status != 0 || !strings.Contains(got.text, "Every step") || !strings.Contains(got.text, "made ... it is gone.") {
					t.Errorf("exit status %d: %s\n%s", got.status, got.errs, got.text)
				}
				checkLayout(t, got.text)
				if diff := cmp.Diff(before, stored(server)); diff != "" {
					t.Errorf("the cluster is not as it was:\n%s", diff)
				}
				for _, c := range server.History() {
					if c.Request.User == "you" && namespace == "" && c.Namespace == "team" {
						t.Errorf("written in somebody else's namespace: %s", c)
					}
				}
			})
		})
	}
}

// Where it cannot take place, the story says why in a sentence, and nothing is
// written.
func TestStoryThatCannotTakePlace(t *testing.T) {
	without := func(gvr schema.GroupVersionResource) *rapidtest.Server {
		return rapidtest.NewServer(lo.Reject(clusterResources(), func(r rapidtest.Resource, _ int) bool { return r.GVR == gvr })...)
	}
	deny := func(verb string, gvr schema.GroupVersionResource, subresource string) *rapidtest.Server {
		server := clusterServer()
		server.Authorize(func(a rapidtest.Access) bool {
			return a.Verb != verb || a.GVR != gvr || a.Subresource != subresource
		})
		return server
	}
	for name, c := range map[string]struct {
		server    *rapidtest.Server
		namespace string
		says      string
	}{
		"NoTrainJobs": {server: without(trainJobs()), says: "the cluster does not serve trainjobs.trainer.kubeflow.org in version v1alpha1"},
		"NoWorkloads": {server: without(workloads()), says: "the cluster does not serve workloads.kueue.x-k8s.io in version v1beta2"},
		"NoRuntimes":  {server: without(ofTrainer("trainingruntimes")), says: "the cluster does not serve trainingruntimes.trainer.kubeflow.org"},
		"NoNamespace": {server: clusterServer(), namespace: "nowhere", says: `there is no namespace "nowhere"`},
		"MayNotCreateTrainJobs": {
			server: deny("create", trainJobs(), ""),
			says:   "this identity may not create trainjobs.trainer.kubeflow.org in the whole cluster",
		},
		"MayNotUpdateWorkloads": {
			server: deny("update", workloads(), ""),
			says:   "this identity may not update workloads.kueue.x-k8s.io in the whole cluster",
		},
		"MayNotPlayTheNodes": {
			server: deny("update", podsOf(), "status"),
			says:   "this identity may not update pods/status in the whole cluster",
		},
		"MayNotMakeNamespaces": {
			server: deny("create", namespaces(), ""),
			says:   "this identity may not create namespaces in the whole cluster",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got := tellOnCluster(t.Context(), c.server, c.namespace)
				if got.status != 1 || got.text != "" {
					t.Errorf("exit status %d, text %q; want 1 and none", got.status, got.text)
				}
				if !strings.HasPrefix(got.errs, "quickstart: "+c.says) || !strings.HasSuffix(got.errs, "; nothing was changed\n") ||
					strings.Count(got.errs, "\n") != 1 {
					t.Errorf("told was %q, want one sentence that begins with %q", got.errs, c.says)
				}
				if commits := c.server.History(); len(commits) > 0 {
					t.Errorf("something was written: %v", commits)
				}
			})
		})
	}
}

// In somebody's namespace, rights in that namespace are enough.
func TestStoryNeedsRightsInItsNamespaceOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := furnished(t)
		server.Authorize(func(a rapidtest.Access) bool { return a.User != "you" || a.Namespace == "team" })
		if got := tellOnCluster(t.Context(), server, "team"); got.status != 0 {
			t.Errorf("exit status %d: %s\n%s", got.status, got.errs, got.text)
		}
	})
}

// However far a story has come when it is interrupted, it leaves nothing behind.
func TestInterruptedStoryLeavesNothing(t *testing.T) {
	const preflight, furnished, end = 20, 50, 1000
	points := append(lo.RangeFrom[int64](preflight, furnished-preflight), lo.RangeWithSteps[int64](furnished, end, 331)...)
	for _, n := range points {
		t.Run(fmt.Sprintf("BeforeRequest=%d", n), func(t *testing.T) { interruptAt(t, n, false) })
		t.Run(fmt.Sprintf("BeforeAnswer=%d", n), func(t *testing.T) { interruptAt(t, n, true) })
	}
}

// interruptAt interrupts a story at its n-th request: before it is executed, or
// after that and before it is answered.
func interruptAt(t *testing.T, n int64, executed bool) {
	synctest.Test(t, func(t *testing.T) {
		server := furnished(t)
		before := stored(server)
		ctx, interrupt := context.WithCancel(t.Context())
		defer interrupt()
		var count atomic.Int64
		server.Use(func(next rapidtest.RoundTrip) rapidtest.RoundTrip {
			return func(ctx context.Context, req *rapidtest.Request) (*rapidtest.Response, error) {
				if count.Add(1) != n {
					return next(ctx, req)
				}
				defer interrupt()
				if executed {
					return next(context.WithoutCancel(ctx), req)
				}
				return nil, context.Canceled
			}
		})
		if got := tellOnCluster(ctx, server, ""); got.status != 1 {
			t.Errorf("exit status %d, of %d requests", got.status, count.Load())
		}
		synctest.Wait()
		if diff := cmp.Diff(before, stored(server)); diff != "" {
			t.Errorf("the cluster is not as it was:\n%s", diff)
		}
	})
}

func TestStoryThatGoesWrongOnAClusterLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := furnished(t)
		before := stored(server)
		server.Admit(stripHolds)
		got := tellOnCluster(t.Context(), server, "team")
		if got.status != 1 || !strings.Contains(got.errs, "step 2 (red: Open) did not come out as told") {
			t.Errorf("exit status %d: %s", got.status, got.errs)
		}
		if diff := cmp.Diff(before, stored(server)); diff != "" {
			t.Errorf("the cluster is not as it was:\n%s", diff)
		}
	})
}

// What cannot be removed is named.
func TestStoryThatCannotBeRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := furnished(t)
		server.AdmitValidating(func(a rapidtest.AdmissionRequest) error {
			if a.Operation == "DELETE" && a.OldObject.GetKind() == "TrainingRuntime" {
				return rapidtest.Denied("keep.example.com", 403, metav1.StatusReasonForbidden, "it stays")
			}
			return nil
		})
		got := tellOnCluster(t.Context(), server, "team")
		if got.status != 1 || !strings.Contains(got.errs, "not all that this run has made could be removed; it has the label "+runLabel+"=") {
			t.Errorf("exit status %d: %s", got.status, got.errs)
		}
		if !strings.Contains(got.text, "made ... NOT DONE") {
			t.Errorf("the story says that all is well:\n%s", got.text)
		}
	})
}

// webhook is the configuration that a controller comes with.
func webhook(t *testing.T, server *rapidtest.Server, name, group string, resources ...any) {
	t.Helper()
	create(t, server, webhookConfigurations(), "", map[string]any{
		"kind": "ValidatingWebhookConfiguration", "metadata": map[string]any{"name": name},
		"webhooks": []any{map[string]any{"name": name, "rules": []any{
			map[string]any{"apiGroups": []any{group}, "resources": resources},
		}}},
	})
}

// Who runs is known by webhooks, or else by what happens to a job.
func TestWhoIsPlayed(t *testing.T) {
	for name, c := range map[string]struct {
		kueueHook, trainerHook bool
		kueueRuns, trainerRuns bool
		want                   string
	}{
		"NobodyRuns":         {want: "This program plays Kueue, Trainer and the nodes."},
		"BothHaveWebhooks":   {kueueHook: true, trainerHook: true, want: "Kueue and Trainer run there, and the story waits for them."},
		"BothReact":          {kueueRuns: true, trainerRuns: true, want: "Kueue and Trainer run there, and the story waits for them."},
		"OnlyTrainerReacts":  {trainerRuns: true, want: "Trainer runs there, and this program plays Kueue."},
		"KueueHasAWebhook":   {kueueHook: true, want: "Kueue runs there, and this program plays Trainer and the nodes."},
		"HookAndReaction":    {kueueRuns: true, trainerHook: true, want: "Kueue and Trainer run there, and the story waits for them."},
		"OnlyKueueReacts":    {kueueRuns: true, want: "Kueue runs there, and this program plays Trainer and the nodes."},
		"TrainerHasAWebhook": {trainerHook: true, want: "Trainer runs there, and this program plays Kueue."},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := clusterServer()
				if c.kueueHook {
					webhook(t, server, "kueue", "kueue.x-k8s.io", "clusterqueues", "workloads")
				}
				if c.trainerHook {
					webhook(t, server, "trainer", "trainer.kubeflow.org", "trainingruntimes")
				}
				webhook(t, server, "jobs", "trainer.kubeflow.org", "trainjobs") // Kueue's, or anybody's
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				client := server.Dynamic("controllers")
				if c.kueueRuns {
					go rapidtest.Run(ctx, time.Second, &rapidtest.Kueue{Client: client})
				}
				if c.trainerRuns {
					go rapidtest.Run(ctx, time.Second, &rapidtest.Trainer{Client: client, Replicas: 2, Nodes: []string{"a"}})
				}
				w, err := clusterWorld(t.Context(), server.RESTConfig("you"), "test", "")
				if err != nil {
					t.Fatal(err)
				}
				if !strings.HasSuffix(w.place, w.namespace+" of the cluster test. "+c.want) {
					t.Errorf("place is %q, want %q at its end", w.place, c.want)
				}
				queues := len(server.StoredAll(ofKueue("localqueues")))
				if want := lo.Ternary(c.kueueHook || c.kueueRuns, 1, 0); queues != want {
					t.Errorf("%d queues were made, want %d", queues, want)
				}
			})
		})
	}
}
