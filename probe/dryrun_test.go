package probe_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubehold/kubehold/kinds"
	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/probe"
	"github.com/kubehold/kubehold/rapidtest"
)

// A dry run writes nothing, asks for no more than it needs, and says what it
// was and what it did not show.
func TestP2DryRun(t *testing.T) {
	for _, m := range modes() {
		t.Run(m.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newServer(t)
				before := snapshot(t, server)
				server.OnCommit(func(c rapidtest.Commit) { t.Errorf("written: %s", c.Request) })
				opts := optionsFor(m.kind)
				opts.DryRun = true
				r := mustRun(t, server.RESTConfig("probe"), m.kind, opts)
				mustAllow(t, r)
				mustSay(t, r, probe.RoundTrip, "a hold and its release (dry run)", probe.Available, "somebody", "does not show that stale calls are refused")
				if diff := cmp.Diff(before, snapshot(t, server)); diff != "" {
					t.Errorf("P2: a dry run changed something (-before +after):\n%s", diff)
				}
			})
		})
	}
}

// What a dry run finds, and what it falls short of.
func TestP2DryRunFinds(t *testing.T) {
	kind := kinds.JobSet()
	for _, tt := range []struct {
		name   string
		breaks func(*rapidtest.Server)
		state  probe.State
		says   string
	}{
		{"Stripped", strip, probe.Unavailable, "took out or changed metadata.annotations[kubehold.dev/hold-instance]"},
		{"Refused", deny(func(r rapidtest.AdmissionRequest) bool { return r.Operation == "UPDATE" }), probe.Unavailable, "no changes today"},
		{"WebhooksWithoutDryRun", func(s *rapidtest.Server) {
			s.AdmitValidating(func(r rapidtest.AdmissionRequest) error {
				if len(r.Request.DryRun) > 0 {
					return rapidtest.Denied("old.example.com", 400, metav1.StatusReasonBadRequest, "admission webhook does not support dry run")
				}
				return nil
			})
		}, probe.Unknown, "could not be rehearsed"},
		{"MayNotList", forbid("list", "jobsets"), probe.Unknown, "no object to try it on"},
		{"NothingThere", func(s *rapidtest.Server) { remove(s, "jobsets") }, probe.Unknown, "no object to try it on"},
		{"OnlyOthersObjects", queue, probe.Unknown, "no object to try it on"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newServer(t)
				tt.breaks(server)
				opts := optionsFor(kind)
				opts.DryRun = true
				r := mustRun(t, server.RESTConfig("probe"), kind, opts)
				mustSay(t, r, probe.RoundTrip, "a hold and its release (dry run)", tt.state, tt.says)
				if r.State(meta.OpHold) != tt.state {
					t.Errorf("Hold is %s", r.State(meta.OpHold))
				}
			})
		})
	}
}

// remove removes somebody's object of a resource.
func remove(server *rapidtest.Server, name string) {
	r := kinds.JobSet().Resource
	r.Resource = name
	_ = server.Dynamic("admin").Resource(r).Namespace(namespace).Delete(context.Background(), "somebody", metav1.DeleteOptions{}) // the test says if it did not
}

// queue gives somebody's JobSet to Kueue.
func queue(server *rapidtest.Server) {
	at := server.Dynamic("admin").Resource(kinds.JobSet().Resource).Namespace(namespace)
	if obj, err := at.Get(context.Background(), "somebody", metav1.GetOptions{}); err == nil {
		obj.SetLabels(map[string]string{"kueue.x-k8s.io/queue-name": "main"})
		_, _ = at.Update(context.Background(), obj, metav1.UpdateOptions{}) // the test says if it did not
	}
}

// An identity that may not make a canary has a dry run instead; so has a
// cluster that refuses the canary itself.
func TestP2DryRunInstead(t *testing.T) {
	kind := kinds.JobSet()
	t.Run("NotAllowed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			server := newServer(t)
			forbid("create", "jobsets")(server)
			r := mustRun(t, server.RESTConfig("probe"), kind, optionsFor(kind))
			mustSay(t, r, probe.RoundTrip, "a hold and its release (dry run)", probe.Available, "this identity may not create jobsets.jobset.x-k8s.io")
			mustSay(t, r, probe.Access, "create jobsets", probe.Unavailable, "only the probe needs it")
		})
	})
	t.Run("Refused", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			server := newServer(t)
			deny(func(r rapidtest.AdmissionRequest) bool { return r.Operation == "CREATE" })(server)
			r := mustRun(t, server.RESTConfig("probe"), kind, optionsFor(kind))
			mustSay(t, r, probe.RoundTrip, "a hold and its release (dry run)", probe.Available, "the canary was refused", "no changes today")
		})
	})
	t.Run("RefusedAndNothingThere", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			server := rapidtest.NewServer(rapidtest.TrainJobs(), rapidtest.Pods())
			deny(func(r rapidtest.AdmissionRequest) bool { return r.Operation == "CREATE" })(server)
			kind := kinds.TrainJob()
			r := mustRun(t, server.RESTConfig("probe"), kind, optionsFor(kind))
			mustSay(t, r, probe.RoundTrip, "a hold and its release (dry run)", probe.Unknown, "the canary was refused", "no object to try it on")
		})
	})
}

// A canary that is given is used, and what it lacks to be one is put on it.
func TestP2ACanaryOfYourOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kind := pipeline()
		server := newServer(t)
		var made *unstructured.Unstructured
		server.OnCommit(func(c rapidtest.Commit) {
			if c.Previous == nil {
				made = c.Object
			}
		})
		opts := optionsFor(kind)
		opts.Canary = &unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"name": "mine", "namespace": "elsewhere", "labels": map[string]any{"team": "a"}},
			"spec":     map[string]any{"run": map[string]any{"policy": "Go"}, "copies": 3}, // an int, which is no JSON number
		}}
		given := fmt.Sprint(opts.Canary.Object)
		mustAllow(t, mustRun(t, server.RESTConfig("probe"), kind, opts))
		if made == nil || made.GetName() == "mine" || made.GetNamespace() != namespace || made.GetLabels()["team"] != "a" {
			t.Errorf("made was %v", made)
		}
		if now := fmt.Sprint(opts.Canary.Object); now != given {
			t.Errorf("the one that was given was changed to %s", now)
		}
		opts.Canary = &unstructured.Unstructured{Object: map[string]any{"spec": "of another shape"}}
		remove(server, "pipelines")
		r := mustRun(t, server.RESTConfig("probe"), kind, opts)
		if r.State(meta.OpHold) == probe.Available {
			t.Errorf("a canary of another shape is no matter:\n%s", r)
		}
	})
}

// The canary of a TrainJob names a runtime that is there.
func TestP2TheRuntimeOfACanary(t *testing.T) {
	kind := kinds.TrainJob()
	runtimes := func(name, kind string, namespaced bool) rapidtest.Resource {
		return rapidtest.Resource{GVR: resource("trainer.kubeflow.org", "v1alpha1", name), Kind: kind, Namespaced: namespaced}
	}
	for want, put := range map[string]func(*testing.T, *rapidtest.Server){
		"no-such-runtime": func(*testing.T, *rapidtest.Server) {},
		"of-the-namespace": func(t *testing.T, s *rapidtest.Server) {
			r := runtimes("trainingruntimes", "TrainingRuntime", true)
			obj := object(r.GVR, r.Kind, "of-the-namespace", map[string]any{})
			obj.SetNamespace(namespace)
			create(t, s, r.GVR, obj)
		},
		"of-the-cluster": func(t *testing.T, s *rapidtest.Server) {
			r := runtimes("clustertrainingruntimes", "ClusterTrainingRuntime", false)
			create(t, s, r.GVR, object(r.GVR, r.Kind, "of-the-cluster", map[string]any{}))
		},
	} {
		t.Run(want, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := rapidtest.NewServer(rapidtest.TrainJobs(), rapidtest.Pods(),
					runtimes("trainingruntimes", "TrainingRuntime", true), runtimes("clustertrainingruntimes", "ClusterTrainingRuntime", false))
				put(t, server)
				named := ""
				server.OnCommit(func(c rapidtest.Commit) {
					if c.GVR == kind.Resource {
						named, _, _ = unstructured.NestedString(c.Object.Object, "spec", "runtimeRef", "name")
					}
				})
				mustAllow(t, mustRun(t, server.RESTConfig("probe"), kind, optionsFor(kind)))
				if named != want {
					t.Errorf("it names %q", named)
				}
			})
		})
	}
}
