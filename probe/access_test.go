package probe_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/kinds"
	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/probe"
	"github.com/kubehold/kubehold/rapidtest"
	"github.com/kubehold/kubehold/retry"
)

// permission writes a request as the report does: "get jobs.batch".
func permission(verb, group, resource string) string {
	return strings.TrimSuffix(verb+" "+resource+"."+group, ".")
}

// What a kind says that its calls need is what they send, no less and no more:
// each call by itself, in every mode.
func TestP1NeedsAreWhatIsSent(t *testing.T) {
	checked := holdable.Options{CheckPods: true}
	for _, tt := range []struct {
		name string
		kind holdable.Kind
		opts holdable.Options
	}{
		{"Kueue", kinds.OnKueue(kinds.TrainJob()), holdable.Options{}},
		{"KueueWithPodCheck", kinds.OnKueue(kinds.TrainJob()), checked},
		{"Plain", kinds.Job(), holdable.Options{}},
		{"StartGate", kinds.WithStartGate(kinds.TrainJob()), holdable.Options{}},
		{"Workload", kinds.Workload(), holdable.Options{}},
		{"ClusterScoped", fleet(), holdable.Options{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sent := sentBy(t, tt.kind, tt.opts)
				needed := map[meta.Op][]string{}
				for _, n := range tt.kind.Describe().Needs(tt.opts) {
					for _, op := range n.Ops {
						needed[op] = append(needed[op], permission(n.Verb, n.Resource.Group, n.Resource.Resource))
					}
				}
				for _, all := range needed {
					slices.Sort(all)
				}
				if diff := cmp.Diff(sent, needed); diff != "" {
					t.Errorf("P1: what the calls send (-) and what the kind says (+):\n%s", diff)
				}
			})
		})
	}
}

// sentBy makes all the calls of a kind, as they go well and as they go badly,
// and returns what each sends.
func sentBy(t *testing.T, kind holdable.Kind, opts holdable.Options) map[meta.Op][]string {
	t.Helper()
	server := newServer(t)
	ref := meta.Ref{Name: "somebody"}
	if !kind.Describe().ClusterScoped {
		ref.Namespace = namespace
	}
	putWorkload(t, server, kind)
	sent := map[meta.Op]map[string]bool{}
	record := func(op meta.Op, call func(holdable.Holder) error) {
		plan := rapidtest.NewPlan()
		engine, err := retry.NewForClient(server.Dynamic("supervisor", plan.Middleware, replaced(t, server, kind)), retry.Options{})
		if err != nil {
			t.Fatal(err)
		}
		holder, err := kind.Connect(engine, opts)
		if err != nil {
			t.Fatal(err)
		}
		if err := call(holder); err != nil {
			t.Fatalf("%s: %v", op, err)
		}
		if sent[op] == nil {
			sent[op] = map[string]bool{}
		}
		for _, e := range plan.Events() {
			sent[op][permission(e.Request.Verb, e.Request.GVR.Group, e.Request.GVR.Resource)] = true
		}
	}
	about := func() meta.Call { return meta.Call{Instance: 1, Deadline: time.Now().Add(time.Minute)} }
	if kind.Describe().StartGate {
		hold(t, server, kind, ref) // created paused, opened later
		record(meta.OpOpen, func(h holdable.Holder) error { _, err := h.Open(t.Context(), ref, about()); return err })
	}
	record(meta.OpHold, func(h holdable.Holder) error { _, err := h.Hold(t.Context(), ref, about()); return err })
	record(meta.OpRelease, func(h holdable.Holder) error { _, err := h.Release(t.Context(), ref, about()); return err })
	record(meta.OpInspect, func(h holdable.Holder) error { _, err := h.Inspect(t.Context(), ref); return err })
	sorted := map[meta.Op][]string{}
	for op, all := range sent {
		sorted[op] = slices.Sorted(maps.Keys(all))
	}
	return sorted
}

// hold pauses an object by hand.
func hold(t *testing.T, server *rapidtest.Server, kind holdable.Kind, ref meta.Ref) {
	t.Helper()
	d := kind.Describe()
	at := server.Dynamic("admin").Resource(d.Resource).Namespace(ref.Namespace)
	obj, err := at.Get(t.Context(), ref.Name, metav1.GetOptions{})
	if err == nil {
		obj, err = retry.Apply(obj, []retry.Edit{retry.Set(d.Held, d.PausePath...)})
	}
	if err == nil {
		_, err = at.Update(t.Context(), obj, metav1.UpdateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// putWorkload gives somebody's object of a kind in Kueue mode its Workload.
func putWorkload(t *testing.T, server *rapidtest.Server, kind holdable.Kind) *unstructured.Unstructured {
	t.Helper()
	d := kind.Describe()
	if d.Named == nil {
		return nil
	}
	named, err := server.Dynamic("admin").Resource(d.Named.Resource).Namespace(namespace).Get(t.Context(), "somebody", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	name := "of-somebody-" + time.Now().UTC().Format("150405.000000000")
	workload := object(d.Resource, d.Kind, name, map[string]any{"spec": map[string]any{"active": true}})
	workload.SetNamespace(namespace)
	workload.SetLabels(map[string]string{d.Named.UIDLabel: string(named.GetUID())})
	create(t, server, d.Resource, workload)
	return workload
}

// replaced answers the first update of a Workload with a conflict, behind which
// the Workload was replaced by one of another name that carries the same hold.
func replaced(t *testing.T, server *rapidtest.Server, kind holdable.Kind) rapidtest.Middleware {
	done := kind.Describe().Named == nil
	return func(next rapidtest.RoundTrip) rapidtest.RoundTrip {
		return func(ctx context.Context, req *rapidtest.Request) (*rapidtest.Response, error) {
			if done || req.Verb != rapidtest.VerbUpdate {
				return next(ctx, req)
			}
			done = true
			time.Sleep(time.Second) // for another name
			admin := server.Dynamic("admin").Resource(req.GVR).Namespace(req.Namespace)
			old, err := admin.Get(ctx, req.Name, metav1.GetOptions{})
			if err == nil {
				err = admin.Delete(ctx, req.Name, metav1.DeleteOptions{})
			}
			if err != nil {
				return nil, err
			}
			fresh := putWorkload(t, server, kind)
			if held := old.GetAnnotations(); len(held) > 0 {
				fresh, err = admin.Get(ctx, fresh.GetName(), metav1.GetOptions{})
				if err != nil {
					return nil, err
				}
				held["kubehold.dev/hold-uid"] = string(fresh.GetUID())
				fresh.SetAnnotations(held)
				fresh.Object["spec"] = old.Object["spec"]
				if _, err := admin.Update(ctx, fresh, metav1.UpdateOptions{}); err != nil {
					return nil, err
				}
			}
			return rapidtest.Answer(409).Response, nil
		}
	}
}

// Each request is asked about in each namespace, once.
func TestP1AsksForEachNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(t)
		asked := map[rapidtest.Access]int{}
		server.Authorize(func(a rapidtest.Access) bool {
			if a.User == "probe" && a.Name == "" && a.Verb != "create" {
				asked[a]++
			}
			return a.Namespace != "team-b"
		})
		kind := kinds.OnKueue(kinds.TrainJob())
		opts := optionsFor(kind)
		opts.Namespaces = []string{namespace, "team-b", namespace} // one of them twice
		opts.DryRun = true
		r := mustRun(t, server.RESTConfig("probe"), kind, opts)
		if lines := len(r.Lines); lines != len(mustRun(t, server.RESTConfig("probe"), kind, probe.Options{Namespaces: opts.Namespaces[:2], DryRun: true}).Lines) {
			t.Errorf("a namespace that was named twice was probed twice: %d lines", lines)
		}
		for _, l := range r.Lines {
			if want := map[string]probe.State{namespace: probe.Available, "team-b": probe.Unavailable}[l.Namespace]; l.Theme == probe.Access && l.State != want {
				t.Errorf("%s in %s is %s", l.Capability, l.Namespace, l.State)
			}
		}
		for _, n := range kind.Describe().Needs(opts.Client) {
			for _, namespace := range opts.Namespaces {
				if asked[rapidtest.Access{User: "probe", Verb: n.Verb, GVR: n.Resource, Namespace: namespace}] == 0 {
					t.Errorf("%s %s in %s was not asked about", n.Verb, n.Resource.Resource, namespace)
				}
			}
		}
	})
}

// A review that fails leaves it unknown.
func TestP1AReviewThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reviews := rapidtest.OfResource("selfsubjectaccessreviews")
		plan := rapidtest.NewPlan(rapidtest.Nth(1, reviews, rapidtest.Answer(500)))
		kind := kinds.Job()
		r := mustRun(t, newServer(t).RESTConfig("probe", plan.Middleware), kind, optionsFor(kind))
		mustSay(t, r, probe.Access, "get jobs.batch", probe.Unknown, "the access review failed")
		if r.State(meta.OpHold) != probe.Unknown {
			t.Errorf("Hold is %s", r.State(meta.OpHold))
		}
	})
}

// A manifest grants what a probe with the same options asks for, each once, to
// the right subject and in the right scope; without any one of it, exactly that
// is missing.
func TestP1Manifest(t *testing.T) {
	for _, tt := range []struct {
		name string
		kind holdable.Kind
		opts probe.Options
	}{
		{"Kueue", kinds.OnKueue(kinds.TrainJob()), probe.Options{Namespaces: []string{namespace, "team-b"}}},
		{"KueueDryRun", kinds.OnKueue(kinds.TrainJob()), probe.Options{Namespaces: []string{namespace}, DryRun: true}},
		{"Plain", kinds.Job(), probe.Options{Namespaces: []string{namespace}}},
		{"ClusterScoped", fleet(), probe.Options{}},
		{"Gate", kinds.OnKueue(kinds.TrainJob()), probe.Options{Namespaces: []string{namespace}, AsGate: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				granted := grants(t, tt.kind, tt.opts)
				probed := func(drop string) map[string]bool {
					server := newServer(t)
					server.Authorize(func(a rapidtest.Access) bool {
						if a.User == "admin" {
							return true
						}
						resource := strings.TrimSuffix(a.GVR.Resource+"/"+a.Subresource, "/")
						grant := permission(a.Verb, a.GVR.Group, resource) + " in " + a.Namespace
						return grant != drop && slices.Contains(granted, grant)
					})
					missing := map[string]bool{}
					for _, l := range mustRun(t, server.RESTConfig("supervisor"), tt.kind, tt.opts).Lines {
						if l.Theme == probe.Access && l.State != probe.Available {
							missing[l.Capability+" in "+l.Namespace] = true
						}
					}
					return missing
				}
				if missing := probed(""); len(missing) > 0 {
					t.Errorf("the manifest is not enough: %v", missing)
				}
				for _, grant := range granted {
					if missing := probed(grant); !missing[grant] || len(missing) != 1 {
						t.Errorf("without %q, missing are %v", grant, missing)
					}
				}
			})
		})
	}
}

// grants are the permissions of a manifest, as "get jobs.batch in team-a".
func grants(t *testing.T, kind holdable.Kind, opts probe.Options) []string {
	t.Helper()
	manifest, err := probe.Manifest(kind, opts, "supervisor")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, document := range strings.Split(string(manifest), "---\n") {
		var role struct {
			Kind     string
			Metadata struct{ Name, Namespace string }
			Rules    []struct{ APIGroups, Resources, Verbs []string }
			RoleRef  struct{ Kind, Name string }
			Subjects []struct{ Kind, Name string }
		}
		if err := yaml.Unmarshal([]byte(document), &role); err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(role.Kind, "Cluster") != (role.Metadata.Namespace == "") {
			t.Errorf("%s %s is in namespace %q", role.Kind, role.Metadata.Name, role.Metadata.Namespace)
		}
		if strings.HasSuffix(role.Kind, "Binding") && (len(role.Subjects) != 1 || role.Subjects[0].Name != "supervisor" ||
			role.RoleRef.Name != role.Metadata.Name || role.RoleRef.Kind+"Binding" != role.Kind) {
			t.Errorf("%s binds %v to %v", role.Metadata.Name, role.RoleRef, role.Subjects)
		}
		for _, rule := range role.Rules {
			for _, verb := range rule.Verbs {
				all = append(all, permission(verb, rule.APIGroups[0], rule.Resources[0])+" in "+role.Metadata.Namespace)
			}
		}
	}
	if len(slices.Compact(slices.Sorted(slices.Values(all)))) != len(all) {
		t.Errorf("something is granted twice: %q", all)
	}
	return all
}

// A service account is bound as one, and a mistake is an error.
func TestP1ManifestSubjects(t *testing.T) {
	kind := kinds.Job()
	for subject, says := range map[string]string{
		"alice":                            "kind: User\n  name: alice\n",
		"system:serviceaccount:dispatch:d": "kind: ServiceAccount\n  name: d\n  namespace: dispatch\n",
		"":                                 "name: YOUR-IDENTITY\n",
	} {
		manifest, err := probe.Manifest(kind, optionsFor(kind), subject)
		if err != nil || !strings.Contains(string(manifest), says) {
			t.Errorf("of %q the manifest is\n%s\n%v", subject, manifest, err)
		}
	}
	for name, kind := range map[string]holdable.Kind{"descriptor": holdable.Holdable[bool]{}, "scope": fleet()} {
		if _, err := probe.Manifest(kind, optionsFor(kinds.Job()), "alice"); !errors.Is(err, meta.ErrInvalid) {
			t.Errorf("a mistake in the %s is %v", name, err)
		}
	}
	if _, err := probe.Manifest(nil, probe.Options{}, ""); !errors.Is(err, meta.ErrInvalid) {
		t.Errorf("no kind is %v", err)
	}
}

// The identity that the apiserver tells is the one that is bound.
func TestP1WhoAmI(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(t)
		forbid("update", "jobs")(server)
		cfg := answering(server.RESTConfig("probe"), map[string]string{"/apis/authentication.k8s.io/v1/selfsubjectreviews": `{
			"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1",
			"status": {"userInfo": {"username": "system:serviceaccount:dispatch:supervisor"}}}`})
		r := mustRun(t, cfg, kinds.Job(), optionsFor(kinds.Job()))
		if r.Identity != "system:serviceaccount:dispatch:supervisor" || !strings.Contains(r.Manifest, "namespace: dispatch") {
			t.Errorf("asked as %q, bound in\n%s", r.Identity, r.Manifest)
		}
		if r.Server != "v1.37.2" || !strings.Contains(fmt.Sprint(r), "asked as system:serviceaccount:dispatch:supervisor of Kubernetes v1.37.2") {
			t.Errorf("the report begins %.200s", r)
		}
	})
}
