//go:build e2e

package probetest

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/kinds"
	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/probe"
)

const admissionGroup = "admissionregistration.k8s.io"

// A mutating webhook strips the annotations of a hold, with a 200 OK.
func TestP2AWebhookThatStripsAnnotations(t *testing.T) {
	w := newWorld(t, "stripped")
	kind := kinds.OnKueue(kinds.TrainJob())
	w.grant(kind, w.options(), "")
	w.probeUntil(kind, w.options(), lacksOnly())
	server := httptest.NewTLSServer(http.HandlerFunc(stripper))
	t.Cleanup(server.Close)
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	w.create(gvr(admissionGroup, "v1", "mutatingwebhookconfigurations"), object(admissionGroup+"/v1", "MutatingWebhookConfiguration", "", "strip", map[string]any{
		"webhooks": []any{map[string]any{
			"name":                    "strip.example.com",
			"admissionReviewVersions": []any{"v1"},
			"sideEffects":             "None",
			"clientConfig":            map[string]any{"url": server.URL, "caBundle": base64.StdEncoding.EncodeToString(certificate)},
			"namespaceSelector":       map[string]any{"matchLabels": map[string]any{"kubernetes.io/metadata.name": w.namespace}},
			"rules": []any{map[string]any{
				"apiGroups": []any{"*"}, "apiVersions": []any{"*"}, "resources": []any{"*"}, "operations": []any{"CREATE", "UPDATE"},
			}},
		}},
	}))
	r := w.probeUntil(kind, w.options(), blocked)
	mustSay(t, r, probe.RoundTrip, "a hold and its release", probe.Unavailable, "took out or changed", "kubehold.dev/hold-instance", "kubehold.dev/hold-uid")
	w.mustRefuse(kind, r, meta.OpHold, "took out or changed")
	w.mustLeaveNothing(kind)
	dry := w.options()
	dry.DryRun = true
	w.create(gvr("kueue.x-k8s.io", "v1beta2", "workloads"), workload(w.namespace, "somebody"))
	mustSay(t, w.probe(kind, dry), probe.RoundTrip, "a hold and its release (dry run)", probe.Unavailable, "took out or changed")
}

// blocked says whether the round trip of a report failed at the hold: what gets
// in the way may come into force in the middle of one.
func blocked(r probe.Report) string {
	for _, l := range r.Lines {
		if l.Theme == probe.RoundTrip && l.State == probe.Unavailable && strings.HasPrefix(l.Why, "the hold ") {
			return ""
		}
	}
	return "the hold went through"
}

// stripper answers admission reviews with a patch that removes the annotations.
func stripper(out http.ResponseWriter, in *http.Request) {
	var review struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Request    struct {
			UID    string `json:"uid"`
			Object struct {
				Metadata struct {
					Annotations map[string]string `json:"annotations"`
				} `json:"metadata"`
			} `json:"object"`
		} `json:"request"`
	}
	body, err := io.ReadAll(in.Body)
	if err == nil {
		err = json.Unmarshal(body, &review)
	}
	if err != nil {
		http.Error(out, err.Error(), http.StatusBadRequest)
		return
	}
	answer := map[string]any{"uid": review.Request.UID, "allowed": true}
	if len(review.Request.Object.Metadata.Annotations) > 0 {
		answer["patchType"] = "JSONPatch"
		answer["patch"] = []byte(`[{"op":"remove","path":"/metadata/annotations"}]`)
	}
	_ = json.NewEncoder(out).Encode(map[string]any{"apiVersion": review.APIVersion, "kind": review.Kind, "response": answer}) // the apiserver asks again
}

// A policy refuses the update of a hold.
func TestP2APolicyThatRefusesTheUpdate(t *testing.T) {
	w := newWorld(t, "refused")
	kind := kinds.TrainJob()
	w.grant(kind, w.options(), "")
	w.probeUntil(kind, w.options(), lacksOnly())
	w.create(gvr(admissionGroup, "v1", "validatingadmissionpolicies"), object(admissionGroup+"/v1", "ValidatingAdmissionPolicy", "", "freeze", map[string]any{
		"spec": map[string]any{
			"matchConstraints": map[string]any{"resourceRules": []any{map[string]any{
				"apiGroups": []any{"trainer.kubeflow.org"}, "apiVersions": []any{"*"}, "resources": []any{"trainjobs"}, "operations": []any{"UPDATE"},
			}}},
			"validations": []any{map[string]any{"expression": "false", "message": "no changes before the release"}},
		},
	}))
	w.create(gvr(admissionGroup, "v1", "validatingadmissionpolicybindings"), object(admissionGroup+"/v1", "ValidatingAdmissionPolicyBinding", "", "freeze", map[string]any{
		"spec": map[string]any{
			"policyName":        "freeze",
			"validationActions": []any{"Deny"},
			"matchResources":    map[string]any{"namespaceSelector": map[string]any{"matchLabels": map[string]any{"kubernetes.io/metadata.name": w.namespace}}},
		},
	}))
	r := w.probeUntil(kind, w.options(), blocked)
	mustSay(t, r, probe.RoundTrip, "a hold and its release", probe.Unavailable, "the hold was refused", "no changes before the release")
	w.mustRefuse(kind, r, meta.OpHold, "no changes before the release")
	w.mustLeaveNothing(kind)
}

// A kind whose CustomResourceDefinition lacks the pause field: the apiserver
// would drop it with a 200 OK.
func TestP1ASchemaThatLacksThePauseField(t *testing.T) {
	w := newWorld(t, "lacking")
	w.create(gvr("apiextensions.k8s.io", "v1", "customresourcedefinitions"), object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "backups.example.com", map[string]any{
		"spec": map[string]any{
			"group": "example.com", "scope": "Namespaced", "names": map[string]any{"kind": "Backup", "plural": "backups"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "properties": map[string]any{
					"spec": map[string]any{"type": "object", "properties": map[string]any{"target": map[string]any{"type": "string"}}},
				}}},
			}},
		},
	}))
	backup := holdable.Holdable[bool]{
		Kind:     "Backup",
		Resource: gvr("example.com", "v1", "backups"),
		Pause:    holdable.Pause[bool]{Path: holdable.Field("spec", "suspend"), Held: true},
	}
	w.grant(backup, w.options(), "")
	// First by a dry run, as long as the OpenAPI document is not there yet.
	r := w.probeUntil(backup, w.options(), func(r probe.Report) string {
		if l := find(t, r, probe.Served, "spec.suspend"); l.State != probe.Unavailable || !strings.Contains(l.Why, "schema lacks it") {
			return l.Why
		}
		return ""
	})
	w.mustRefuse(backup, r, meta.OpHold, "spec.suspend in the schema")
	mustSay(t, r, probe.Served, "status subresource", probe.Unavailable)
	w.mustLeaveNothing(backup)
}

// A version that is pinned although objects are stored in another, which has
// fields that it lacks. The apiserver alone converts between them by renaming.
func TestP1AVersionThatLacksStoredFields(t *testing.T) {
	w := newWorld(t, "versions")
	pinned := kinds.Workload()
	pinned.Resource.Version = "v1beta1"
	w.grant(pinned, w.options(), "")
	r := w.probeUntil(pinned, w.options(), lacksOnly())
	mustSay(t, r, probe.Served, "every stored field", probe.Unknown, "of v1beta2, in which objects are stored", "spec.priorityClassRef")
	w.user = "definitions"
	w.grant(pinned, w.options(), "")
	w.mayReadDefinitions()
	r = w.probeUntil(pinned, w.options(), func(r probe.Report) string {
		if l := find(t, r, probe.Served, "every stored field"); l.State == probe.Unknown {
			return l.Why
		}
		return ""
	})
	mustSay(t, r, probe.Served, "every stored field", probe.Unavailable, "stored as v1beta2", "drops", "spec.priorityClassRef")
	w.mustRefuse(pinned, r, meta.OpHold, "spec.priorityClassRef")
	if l := find(t, w.probe(kinds.Workload(), w.options()), probe.Served, "every stored field"); l.State != probe.Available {
		t.Errorf("of the storage version: %+v", l)
	}
	wrong := kinds.Workload()
	wrong.Resource.Version = "v1"
	mustSay(t, w.probe(wrong, w.options()), probe.Served, "workloads.kueue.x-k8s.io v1", probe.Unavailable, "served as v1beta2, v1beta1 instead")
}

func (w *world) mayReadDefinitions() {
	rbac := gvr("rbac.authorization.k8s.io", "v1", "clusterroles")
	w.create(rbac, object("rbac.authorization.k8s.io/v1", "ClusterRole", "", "definitions", map[string]any{"rules": []any{
		map[string]any{"apiGroups": []any{"apiextensions.k8s.io"}, "resources": []any{"customresourcedefinitions"}, "verbs": []any{"get"}},
	}}))
	rbac.Resource = "clusterrolebindings"
	w.create(rbac, object("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "", "definitions", map[string]any{
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "definitions"},
		"subjects": []any{map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": w.user}},
	}))
}

// A namespace in which nothing may be created: the update is rehearsed on what
// is there, and nothing changes.
func TestP2DryRun(t *testing.T) {
	w := newWorld(t, "dry-run")
	kind := kinds.OnKueue(kinds.TrainJob())
	opts := w.options()
	opts.DryRun = true
	w.grant(kind, opts, "")
	r := w.probeUntil(kind, opts, lacksOnly())
	mustSay(t, r, probe.RoundTrip, "a hold and its release (dry run)", probe.Unknown, "no object to try it on")
	w.create(gvr("kueue.x-k8s.io", "v1beta2", "workloads"), workload(w.namespace, "somebody"))
	before := w.snapshot(kind)
	r = w.probe(kind, opts)
	mustSay(t, r, probe.RoundTrip, "a hold and its release (dry run)", probe.Available, "somebody", "does not show")
	if r.State(meta.OpHold) != probe.Available {
		t.Errorf("Hold is %s in\n%s", r.State(meta.OpHold), r)
	}
	if after := w.snapshot(kind); after != before {
		t.Errorf("P2: a dry run changed\n%s\nto\n%s", before, after)
	}
}

// The canary leaves what is there as it was.
func TestP2NoTrace(t *testing.T) {
	w := newWorld(t, "no-trace")
	w.create(gvr("kueue.x-k8s.io", "v1beta2", "workloads"), workload(w.namespace, "somebody"))
	kind := kinds.Workload()
	w.grant(kind, w.options(), "")
	w.probeUntil(kind, w.options(), lacksOnly())
	before := w.snapshot(kind)
	if r := w.probe(kind, w.options()); r.State(meta.OpHold) != probe.Available {
		t.Errorf("Hold is %s in\n%s", r.State(meta.OpHold), r)
	}
	if after := w.snapshot(kind); after != before {
		t.Errorf("P2: a probe changed\n%s\nto\n%s", before, after)
	}
}

// The preflight command says the same by its exit status.
func TestP3Preflight(t *testing.T) {
	w := newWorld(t, "preflight")
	program := t.TempDir() + "/preflight"
	build := exec.CommandContext(w.bounded(), "go", "build", "-o", program, "./examples/preflight")
	build.Dir = "../../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	run := func(args ...string) (int, string) {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		var out bytes.Buffer
		command := exec.CommandContext(ctx, program, append([]string{"-kubeconfig", apiserver.Kubeconfig(), "-namespace", w.namespace}, args...)...)
		command.Stdout, command.Stderr = &out, &out
		_ = command.Run() // its status says it all
		return command.ProcessState.ExitCode(), out.String()
	}
	if status, out := run("-mode", "kueue", "-kind", "TrainJob"); status != 0 || !strings.Contains(out, "available  Hold") {
		t.Errorf("exit status %d of\n%s", status, out)
	}
	if status, out := run("-mode", "plain", "-kind", "JobSet", "-o", "json"); status != 0 || !json.Valid([]byte(out)) {
		t.Errorf("exit status %d of\n%s", status, out)
	}
	// A Job that is held by a Workload, in a namespace that is not there.
	if status, out := run("-mode", "kueue", "-kind", "Job", "-namespace", "no-such-namespace"); status != 1 {
		t.Errorf("exit status %d of\n%s", status, out)
	}
}
