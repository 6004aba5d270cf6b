package probe_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/kinds"
	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/probe"
	"github.com/kubehold/kubehold/rapidtest"
	"github.com/kubehold/kubehold/retry"
)

// A cluster in order: everything is available for every kind of pause field,
// and nothing is left of the canary.
func TestP1P2P3AClusterInOrder(t *testing.T) {
	for _, m := range modes() {
		t.Run(m.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newServer(t)
				before := snapshot(t, server)
				r := mustRun(t, server.RESTConfig("probe"), m.kind, optionsFor(m.kind))
				mustAllow(t, r)
				mustSay(t, r, probe.RoundTrip, "a hold and its release", probe.Available, "held, read back, stale calls refused, released")
				for _, l := range r.Lines {
					if l.State != probe.Available && l.Theme != probe.Environment && l.Capability != "status subresource" {
						t.Errorf("%s is %s: %s", l.Capability, l.State, l.Why)
					}
				}
				if r.Manifest != "" {
					t.Errorf("something to apply, though nothing is missing:\n%s", r.Manifest)
				}
				if diff := cmp.Diff(before, snapshot(t, server)); diff != "" {
					t.Errorf("P2: a probe left something (-before +after):\n%s", diff)
				}
			})
		})
	}
}

// What is wrong with a cluster, and what the report says of it.
func TestP1P2P3WhatIsWrong(t *testing.T) {
	for _, tt := range []struct {
		name       string
		kind       holdable.Kind
		breaks     func(*rapidtest.Server)
		theme      probe.Theme
		capability string
		says       []string
		blocked    []meta.Op
	}{{
		name: "NoUpdate", kind: kinds.OnKueue(kinds.TrainJob()),
		breaks: forbid("update", "workloads"),
		theme:  probe.Access, capability: "update workloads.kueue.x-k8s.io", says: []string{"may not"},
		blocked: []meta.Op{meta.OpHold, meta.OpRelease},
	}, {
		name: "NoPods", kind: kinds.TrainJob(),
		breaks: forbid("list", "pods"),
		theme:  probe.Access, capability: "list pods", says: []string{"may not"},
		blocked: []meta.Op{meta.OpRelease, meta.OpInspect},
	}, {
		name: "NoNamedObject", kind: kinds.OnKueue(kinds.Job()),
		breaks: forbid("get", "jobs"),
		theme:  probe.Access, capability: "get jobs.batch", says: []string{"may not"},
		blocked: []meta.Op{meta.OpHold, meta.OpRelease, meta.OpInspect},
	}, {
		name: "Stripped", kind: kinds.OnKueue(kinds.TrainJob()),
		breaks: strip,
		theme:  probe.RoundTrip, capability: "a hold and its release",
		says:    []string{"the hold was accepted", "took out or changed", "kubehold.dev/hold-instance", "kubehold.dev/hold-uid"},
		blocked: []meta.Op{meta.OpHold, meta.OpRelease},
	}, {
		name: "RenumberedOnTheWay", kind: kinds.JobSet(),
		breaks: renumber,
		theme:  probe.RoundTrip, capability: "a hold and its release",
		says:    []string{"took out or changed kubehold.dev/hold-instance"},
		blocked: []meta.Op{meta.OpHold, meta.OpRelease},
	}, {
		name: "HoldRefused", kind: kinds.Job(),
		breaks: deny(func(r rapidtest.AdmissionRequest) bool { return r.Operation == "UPDATE" }),
		theme:  probe.RoundTrip, capability: "a hold and its release",
		says:    []string{"the hold was refused", `webhook "freeze.example.com"`, "no changes today"},
		blocked: []meta.Op{meta.OpHold, meta.OpRelease},
	}, {
		name: "ReleaseRefused", kind: kinds.Workload(),
		breaks: deny(func(r rapidtest.AdmissionRequest) bool {
			return r.Operation == "UPDATE" && r.Object.GetAnnotations()["kubehold.dev/hold-instance"] == ""
		}),
		theme: probe.RoundTrip, capability: "a hold and its release",
		says:    []string{"the release was refused", "no changes today"},
		blocked: []meta.Op{meta.OpHold, meta.OpRelease},
	}, {
		name: "CanaryWouldRun", kind: kinds.JobSet(),
		breaks: func(s *rapidtest.Server) {
			s.Admit(func(r rapidtest.AdmissionRequest) (*unstructured.Unstructured, error) {
				return r.Object, unstructured.SetNestedField(r.Object.Object, false, "spec", "suspend")
			})
		},
		theme: probe.RoundTrip, capability: "a hold and its release",
		says:    []string{"no canary was made", "spec.suspend would not read true"},
		blocked: []meta.Op{meta.OpHold, meta.OpRelease},
	}, {
		name: "CanaryIsTaken", kind: kinds.WithStartGate(kinds.TrainJob()),
		breaks: func(s *rapidtest.Server) {
			s.Admit(func(r rapidtest.AdmissionRequest) (*unstructured.Unstructured, error) {
				r.Object.SetLabels(map[string]string{"kueue.x-k8s.io/queue-name": "default"})
				return r.Object, nil
			})
		},
		theme: probe.RoundTrip, capability: "a hold and its release",
		says:    []string{"no canary was made", "Kueue owns it", "use Kueue mode"},
		blocked: []meta.Op{meta.OpHold, meta.OpRelease, meta.OpOpen},
	}} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newServer(t)
				tt.breaks(server)
				before := snapshot(t, server)
				r := mustRun(t, server.RESTConfig("probe"), tt.kind, optionsFor(tt.kind))
				mustSay(t, r, tt.theme, tt.capability, probe.Unavailable, tt.says...)
				for _, op := range []meta.Op{meta.OpHold, meta.OpRelease, meta.OpOpen, meta.OpInspect} {
					why := r.Unavailable(meta.Object{Kind: tt.kind.GroupVersionKind().Kind, Ref: meta.Ref{Namespace: namespace}}, op)
					if blocked := slices.Contains(tt.blocked, op); blocked != (why != "") {
						t.Errorf("%s is held back: %v, because of %q", op, blocked, why)
					}
				}
				if access := tt.theme == probe.Access; access != (r.Manifest != "") {
					t.Errorf("the manifest is %q", r.Manifest)
				}
				if diff := cmp.Diff(before, snapshot(t, server)); diff != "" {
					t.Errorf("P2: a probe left something (-before +after):\n%s", diff)
				}
			})
		})
	}
}

func forbid(verb, resource string) func(*rapidtest.Server) {
	return func(s *rapidtest.Server) {
		s.Authorize(func(a rapidtest.Access) bool {
			return a.User == "admin" || a.Verb != verb || a.GVR.Resource != resource
		})
	}
}

func strip(s *rapidtest.Server) {
	s.Admit(func(r rapidtest.AdmissionRequest) (*unstructured.Unstructured, error) {
		r.Object.SetAnnotations(nil)
		return r.Object, nil
	})
}

func renumber(s *rapidtest.Server) {
	s.Admit(func(r rapidtest.AdmissionRequest) (*unstructured.Unstructured, error) {
		if annotations := r.Object.GetAnnotations(); annotations["kubehold.dev/hold-instance"] != "" {
			annotations["kubehold.dev/hold-instance"] = "1"
			r.Object.SetAnnotations(annotations)
		}
		return r.Object, nil
	})
}

func deny(which func(rapidtest.AdmissionRequest) bool) func(*rapidtest.Server) {
	return func(s *rapidtest.Server) {
		s.AdmitValidating(func(r rapidtest.AdmissionRequest) error {
			if which(r) {
				return rapidtest.Denied("freeze.example.com", 403, metav1.StatusReasonForbidden, "no changes today")
			}
			return nil
		})
	}
}

// A controller that undoes the pause some time after it was made.
func TestP2AControllerThatUndoesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(t)
		kind := kinds.JobSet()
		ctx, stop := context.WithCancel(t.Context())
		stopped := make(chan struct{})
		go func() { defer close(stopped); resume(ctx, server) }()
		r := mustRun(t, server.RESTConfig("probe"), kind, optionsFor(kind))
		stop()
		<-stopped
		mustSay(t, r, probe.RoundTrip, "a hold and its release", probe.Unavailable, "undone within 1s", "spec.suspend")
		// One that is not looked for is not found.
		opts := optionsFor(kind)
		opts.Settle = -1
		mustAllow(t, mustRun(t, server.RESTConfig("probe"), kind, opts))
	})
}

// resume sets every JobSet to run, again and again.
func resume(ctx context.Context, server *rapidtest.Server) {
	at := server.Dynamic("controller").Resource(kinds.JobSet().Resource).Namespace(namespace)
	tick := time.NewTicker(300 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		list, err := at.List(ctx, metav1.ListOptions{})
		if err != nil {
			return
		}
		for i := range list.Items {
			_ = unstructured.SetNestedField(list.Items[i].Object, false, "spec", "suspend") // its spec is a map
			_, _ = at.Update(ctx, &list.Items[i], metav1.UpdateOptions{})                   // it may be gone
		}
	}
}

// What was found unavailable is refused before anything is sent, with the
// reason; and nothing else is.
func TestC5Use(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(t)
		server.Authorize(func(a rapidtest.Access) bool {
			return a.Verb != "update" || a.Namespace != namespace && a.Namespace != "team-b"
		})
		kind := kinds.TrainJob()
		opts := optionsFor(kind)
		opts.Namespaces = []string{"team-b", "team-c"}
		r := mustRun(t, server.RESTConfig("probe"), kind, opts)
		if r.State(meta.OpHold) != probe.Unavailable {
			t.Errorf("Hold is %s in\n%s", r.State(meta.OpHold), r)
		}
		plan := rapidtest.NewPlan()
		client, err := holdable.NewForClient(kind, server.Dynamic("supervisor", plan.Middleware), retry.Options{}, holdable.Options{})
		if err != nil {
			t.Fatal(err)
		}
		holder := client.Use(kept(t, r))
		call := meta.Call{Instance: 1, Deadline: time.Now().Add(time.Minute)}
		in := func(namespace string) meta.Ref { return meta.Ref{Namespace: namespace, Name: "somebody"} }

		_, err = holder.Hold(t.Context(), in("team-b"), call)
		if failed := new(meta.Error); !errors.Is(err, meta.ErrUnsupported) || !errors.As(err, &failed) || failed.Tries != 0 {
			t.Errorf("C5: Hold is %v", err)
		}
		for _, words := range []string{"update trainjobs.trainer.kubeflow.org in team-b", "this identity may not do it", "apply the report's manifest"} {
			if err == nil || !strings.Contains(err.Error(), words) {
				t.Errorf("C5: %v does not say %q", err, words)
			}
		}
		if sent := plan.Events(); len(sent) != 0 {
			t.Errorf("C5: sent before it was refused:\n%s", plan.Timeline())
		}
		// Nothing was found against other calls and in other namespaces.
		if _, err := holder.Inspect(t.Context(), in("team-b")); !errors.Is(err, meta.ErrMissing) {
			t.Errorf("Inspect is %v", err)
		}
		if _, err := holder.Hold(t.Context(), in("team-c"), call); !errors.Is(err, meta.ErrMissing) {
			t.Errorf("Hold in another namespace is %v", err)
		}
		if _, err := holder.Hold(t.Context(), in(namespace), call); !errors.Is(err, meta.ErrForbidden) {
			t.Errorf("Hold in a namespace that was not probed is %v", err)
		}
		if why := r.Unavailable(meta.Object{Kind: "Job", Ref: in("team-b")}, meta.OpHold); why != "" {
			t.Errorf("another kind is held back: %s", why)
		}
	})
}

// kept is a report that was written as JSON and read again.
func kept(t *testing.T, r probe.Report) probe.Report {
	t.Helper()
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var again probe.Report
	if err := json.Unmarshal(text, &again); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r, again); diff != "" {
		t.Errorf("P3: a report changes when it is kept as JSON (-before +after):\n%s", diff)
	}
	return again
}

// What cannot be found out is unknown, and held against nothing.
func TestP3Unknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(t)
		kind := kinds.OnKueue(kinds.TrainJob())
		down := withTransport(server.RESTConfig("probe"), func(http.RoundTripper) http.RoundTripper {
			return roundTripper(func(*http.Request) (*http.Response, error) { return nil, errors.New("connection refused") })
		})
		r := mustRun(t, down, kind, optionsFor(kind))
		for _, l := range r.Lines {
			if l.Theme != probe.Environment && l.State != probe.Unknown {
				t.Errorf("%s is %s, and nobody answered", l.Capability, l.State)
			}
			if l.State != probe.Available && l.Theme != probe.Calls && !strings.Contains(l.Why, "connection refused") && l.Theme != probe.Environment {
				t.Errorf("%s does not say why: %q", l.Capability, l.Why)
			}
		}
		if why := r.Unavailable(meta.Object{Kind: "TrainJob", Ref: meta.Ref{Namespace: namespace}}, meta.OpHold); why != "" {
			t.Errorf("C5: what is unknown is held against Hold: %s", why)
		}
	})
}

// A mistake of the caller's is an error, and nothing is sent.
func TestInvalid(t *testing.T) {
	namespaced, wide := kinds.Job(), fleet()
	for _, tt := range []struct {
		name string
		kind holdable.Kind
		opts probe.Options
	}{
		{"NoKind", nil, probe.Options{Namespaces: []string{namespace}}},
		{"KindWithAMistake", holdable.Holdable[bool]{}, probe.Options{Namespaces: []string{namespace}}},
		{"NoNamespace", namespaced, probe.Options{}},
		{"EmptyNamespace", namespaced, probe.Options{Namespaces: []string{namespace, ""}}},
		{"NamespaceOfAClusterScopedKind", wide, probe.Options{Namespaces: []string{namespace}}},
		{"NegativeTimeout", namespaced, probe.Options{Namespaces: []string{namespace}, Timeout: -1}},
		{"NegativeDeadline", namespaced, probe.Options{Namespaces: []string{namespace}, Deadline: -1}},
		{"Prefix", namespaced, probe.Options{Namespaces: []string{namespace}, Client: holdable.Options{Prefix: "no prefix"}}},
		{"CallBound", namespaced, probe.Options{Namespaces: []string{namespace}, Engine: retry.Options{CallBound: time.Second}}},
		{"CanaryThatIsNoJSON", namespaced, probe.Options{Namespaces: []string{namespace}, Canary: &unstructured.Unstructured{Object: map[string]any{"spec": func() {}}}}},
		{"GateOfPlainMode", namespaced, probe.Options{Namespaces: []string{namespace}, AsGate: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := rapidtest.NewServer().RESTConfig("probe")
			cfg.Transport = roundTripper(func(*http.Request) (*http.Response, error) {
				t.Error("something was sent")
				return nil, errors.New("not sent")
			})
			if _, err := probe.Run(t.Context(), cfg, tt.kind, tt.opts); !errors.Is(err, meta.ErrInvalid) {
				t.Errorf("it is %v", err)
			}
		})
	}
	if _, err := probe.Run(t.Context(), nil, namespaced, optionsFor(namespaced)); !errors.Is(err, meta.ErrInvalid) {
		t.Errorf("without a config it is %v", err)
	}
}
