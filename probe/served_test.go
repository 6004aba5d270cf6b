package probe_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"k8s.io/client-go/rest"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/kinds"
	"github.com/kubehold/kubehold/probe"
	"github.com/kubehold/kubehold/rapidtest"
)

// What is served of a kind in which version, with which verbs and scope.
func TestP1Served(t *testing.T) {
	older := rapidtest.Workloads()
	older.GVR.Version = "v1beta1"
	bare := rapidtest.JobSets()
	bare.StatusSubresource = false
	renamed := rapidtest.JobSets()
	renamed.Kind = "JobSets"
	wide := rapidtest.JobSets()
	wide.Namespaced = false
	for _, tt := range []struct {
		name       string
		serves     []rapidtest.Resource
		kind       holdable.Kind
		capability string
		state      probe.State
		says       []string
	}{
		{"AsTheDescriptorSays", []rapidtest.Resource{rapidtest.Workloads()}, kinds.Workload(), "workloads.kueue.x-k8s.io v1beta2", probe.Available, nil},
		{"InAnotherVersion", []rapidtest.Resource{older}, kinds.Workload(), "workloads.kueue.x-k8s.io v1beta2", probe.Unavailable, []string{"served as v1beta1 instead"}},
		{"AnotherKindOfTheGroup", []rapidtest.Resource{rapidtest.AdmissionChecks()}, kinds.Workload(), "workloads.kueue.x-k8s.io v1beta2", probe.Unavailable, []string{"not served in any version"}},
		{"NotAtAll", nil, kinds.Workload(), "workloads.kueue.x-k8s.io v1beta2", probe.Unavailable, []string{"not served in any version"}},
		{"OnlyTheWorkload", []rapidtest.Resource{rapidtest.Workloads()}, kinds.OnKueue(kinds.TrainJob()), "trainjobs.trainer.kubeflow.org v1alpha1", probe.Unavailable, []string{"not served"}},
		{"NoPods", []rapidtest.Resource{rapidtest.JobSets()}, kinds.JobSet(), "pods v1", probe.Unavailable, []string{"not served"}},
		{"Status", []rapidtest.Resource{rapidtest.JobSets()}, kinds.JobSet(), "status subresource", probe.Available, nil},
		{"NoStatus", []rapidtest.Resource{bare}, kinds.JobSet(), "status subresource", probe.Unavailable, []string{"more conflicts"}},
		{"AnotherKind", []rapidtest.Resource{renamed}, kinds.JobSet(), "jobsets.jobset.x-k8s.io v1alpha2", probe.Unavailable, []string{"its kind is JobSets, not JobSet"}},
		{"AnotherScope", []rapidtest.Resource{wide}, kinds.JobSet(), "jobsets.jobset.x-k8s.io v1alpha2", probe.Unavailable, []string{"it is cluster-scoped"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := mustRun(t, rapidtest.NewServer(tt.serves...).RESTConfig("probe"), tt.kind, optionsFor(tt.kind))
				mustSay(t, r, probe.Served, tt.capability, tt.state, tt.says...)
			})
		})
	}
}

// A resource that discovery lists without verbs is one whose definition is
// being deleted.
func TestP1ServedWithoutVerbs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := answering(newServer(t).RESTConfig("probe"), map[string]string{"/apis/jobset.x-k8s.io/v1alpha2": `{
			"kind": "APIResourceList", "groupVersion": "jobset.x-k8s.io/v1alpha2",
			"resources": [{"name": "jobsets", "kind": "JobSet", "namespaced": true, "verbs": ["get", "list", "watch", "delete"]}]}`})
		r := mustRun(t, cfg, kinds.JobSet(), optionsFor(kinds.JobSet()))
		mustSay(t, r, probe.Served, "jobsets.jobset.x-k8s.io v1alpha2", probe.Unavailable, "served without update")
	})
}

// The pause field in the schema that the apiserver publishes.
func TestP1ThePauseFieldInTheSchema(t *testing.T) {
	for _, tt := range []struct {
		name   string
		schema string
		state  probe.State
		says   []string
	}{
		{"There", `{"properties": {"spec": {"type": "object", "properties": {"suspend": {"type": "boolean"}}}}}`, probe.Available, nil},
		{"BehindAReference", `{"properties": {"spec": {"allOf": [{"$ref": "#/components/schemas/Spec"}], "default": {}}}}`, probe.Available, nil},
		{"BehindNothing", `{"properties": {"spec": {"$ref": "#/components/schemas/NotThere"}}}`, probe.Available, nil},
		{"Anything", `{"type": "object", "x-kubernetes-preserve-unknown-fields": true}`, probe.Available, nil},
		{"AnyKey", `{"properties": {"spec": {"type": "object", "additionalProperties": {"type": "boolean"}}}}`, probe.Available, nil},
		{"Lacking", `{"properties": {"spec": {"type": "object", "properties": {"other": {"type": "boolean"}}}}}`, probe.Unavailable, []string{"lacks it"}},
		{"NoSpec", `{"properties": {"status": {"type": "object"}}}`, probe.Unavailable, []string{"lacks it"}},
		{"OfAnotherType", `{"properties": {"spec": {"type": "object", "properties": {"suspend": {"type": "string"}}}}}`, probe.Unavailable, []string{"its type is string, and the descriptor's is boolean"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := mustRun(t, publishing(t, "v1alpha2", tt.schema), kinds.JobSet(), optionsFor(kinds.JobSet()))
				mustSay(t, r, probe.Served, "spec.suspend in the schema", tt.state, tt.says...)
			})
		})
	}
}

// The type of a number, and of one that is cluster-scoped.
func TestP1ThePauseFieldIsANumber(t *testing.T) {
	for jsonType, state := range map[string]probe.State{"integer": probe.Available, "string": probe.Unavailable} {
		synctest.Test(t, func(t *testing.T) {
			cfg := answering(newServer(t).RESTConfig("probe"), map[string]string{"/openapi/v3/apis/example.com/v1": `{"components": {"schemas": {
				"Ship": {"type": "object"},
				"Fleet": {"x-kubernetes-group-version-kind": [{"group": "example.com", "version": "v1", "kind": "Fleet"}],
					"properties": {"spec": {"type": "object", "properties": {"replicas": {"type": "` + jsonType + `"}}}}}}}}`})
			mustSay(t, mustRun(t, cfg, fleet(), probe.Options{}), probe.Served, "spec.replicas in the schema", state)
		})
	}
}

// openAPI is the document of a version of JobSet.
func openAPI(version, schema string) string {
	kind := fmt.Sprintf(`, "x-kubernetes-group-version-kind": [{"group": "jobset.x-k8s.io", "version": %q, "kind": "JobSet"}]}`, version)
	return `{"components": {"schemas": {
		"Spec": {"type": "object", "properties": {"suspend": {"type": "boolean"}, "again": {"$ref": "#/components/schemas/Spec"}}},
		"JobSet": ` + strings.TrimSuffix(strings.TrimSpace(schema), "}") + kind + `}}}`
}

// publishing is a model that publishes a schema of JobSet.
func publishing(t *testing.T, version, schema string) *rest.Config {
	t.Helper()
	return answering(newServer(t).RESTConfig("probe"), map[string]string{
		"/openapi/v3/apis/jobset.x-k8s.io/" + version: openAPI(version, schema),
	})
}

// Without a schema, a strict dry run tells whether the field is known.
func TestP1ThePauseFieldByDryRun(t *testing.T) {
	without := rapidtest.JobSets()
	without.Fields = []string{"spec.replicatedJobs[].*"}
	for _, tt := range []struct {
		name   string
		serves rapidtest.Resource
		breaks func(*rapidtest.Server)
		state  probe.State
		says   []string
	}{
		{"Known", rapidtest.JobSets(), nil, probe.Available, nil},
		{"NotKnown", without, nil, probe.Unavailable, []string{"does not know it"}},
		{"NotAllowed", rapidtest.JobSets(), forbid("create", "jobsets"), probe.Unknown, []string{"no schema to read", "a strict dry run was refused"}},
		{"Refused", rapidtest.JobSets(), deny(func(r rapidtest.AdmissionRequest) bool { return r.Operation == "CREATE" }), probe.Unknown, []string{"no changes today"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := rapidtest.NewServer(tt.serves, rapidtest.Pods())
				if tt.breaks != nil {
					tt.breaks(server)
				}
				r := mustRun(t, server.RESTConfig("probe"), kinds.JobSet(), optionsFor(kinds.JobSet()))
				mustSay(t, r, probe.Served, "spec.suspend in the schema", tt.state, tt.says...)
			})
		})
	}
}

// An update through a version that lacks what is stored drops it.
func TestP1StoredFields(t *testing.T) {
	const (
		poor = `{"type": "object", "properties": {"spec": {"type": "object", "properties": {"suspend": {"type": "boolean"}}}}}`
		rich = `{"type": "object", "properties": {"metadata": {"type": "object"}, "spec": {"type": "object", "properties": {
			"suspend": {"type": "boolean"}, "list": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}}}}}}`
		// What discovery says of objects that are stored in these versions.
		storedHere  = "KpiKgyjBCag="
		storedThere = "M430z1IM9ek="
	)
	definition := func(conversion, here, there string, storedHere bool) string {
		return fmt.Sprintf(`{"kind": "CustomResourceDefinition", "apiVersion": "apiextensions.k8s.io/v1", "metadata": {"name": "jobsets.jobset.x-k8s.io"},
			"spec": {"conversion": {"strategy": %q}, "versions": [
				{"name": "v1alpha2", "served": true, "storage": %v, "schema": {"openAPIV3Schema": %s}},
				{"name": "v1beta1", "served": true, "storage": %v, "schema": {"openAPIV3Schema": %s}}]}}`, conversion, storedHere, here, !storedHere, there)
	}
	for _, tt := range []struct {
		name        string
		hash        string
		here, there string
		definition  string
		state       probe.State
		says        []string
	}{
		{"StoredHere", storedHere, poor, rich, "", probe.Available, nil},
		{"StoredThere", storedThere, poor, rich, "", probe.Unknown, []string{"v1alpha2 lacks spec.list of v1beta1, in which objects are stored"}},
		{"StoredThereAndAllOfItHere", storedThere, rich, poor, "", probe.Available, nil},
		{"StoredSomewhere", "", poor, rich, "", probe.Unknown, []string{"in which objects may be stored"}},
		{"StoredSomewhereAndAllOfItHere", "", rich, rich, "", probe.Available, nil},
		{"SchemasUnknown", "", "", "", "", probe.Unknown, []string{"cannot be compared"}},
		{"DefinitionStoredHere", "", poor, rich, definition("None", poor, rich, true), probe.Available, nil},
		{"DefinitionStoredThere", storedThere, poor, rich, definition("None", poor, rich, false), probe.Unavailable, []string{"stored as v1beta1", "drops spec.list"}},
		{"DefinitionWithConversion", "", poor, rich, definition("Webhook", poor, rich, false), probe.Unknown, []string{"up to the conversion webhook"}},
		{"DefinitionAndAllOfItHere", "", rich, poor, definition("None", rich, rich, false), probe.Available, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				list := func(version string) string {
					return fmt.Sprintf(`{"kind": "APIResourceList", "groupVersion": "jobset.x-k8s.io/%s", "resources": [{"name": "jobsets", "kind": "JobSet",
						"namespaced": true, "verbs": ["get", "list", "update", "create", "delete"], "storageVersionHash": %q}]}`, version, tt.hash)
				}
				documents := map[string]string{
					"/apis/jobset.x-k8s.io": `{"kind": "APIGroup", "name": "jobset.x-k8s.io", "versions": [
						{"groupVersion": "jobset.x-k8s.io/v1beta1", "version": "v1beta1"}, {"groupVersion": "jobset.x-k8s.io/v1alpha2", "version": "v1alpha2"}]}`,
					"/apis/jobset.x-k8s.io/v1alpha2": list("v1alpha2"),
					"/apis/jobset.x-k8s.io/v1beta1":  list("v1beta1"),
				}
				if tt.here != "" {
					documents["/openapi/v3/apis/jobset.x-k8s.io/v1alpha2"] = openAPI("v1alpha2", tt.here)
					documents["/openapi/v3/apis/jobset.x-k8s.io/v1beta1"] = openAPI("v1beta1", tt.there)
				}
				if tt.definition != "" {
					documents["/apis/apiextensions.k8s.io/v1/customresourcedefinitions/jobsets.jobset.x-k8s.io"] = tt.definition
				}
				r := mustRun(t, answering(newServer(t).RESTConfig("probe"), documents), kinds.JobSet(), optionsFor(kinds.JobSet()))
				mustSay(t, r, probe.Served, "every stored field", tt.state, tt.says...)
			})
		})
	}
}

// Discovery that fails is no answer.
func TestP1DiscoveryFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := withTransport(newServer(t).RESTConfig("probe"), func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(req *http.Request) (*http.Response, error) {
				if req.URL.Path == "/apis/jobset.x-k8s.io/v1alpha2" {
					return answer(req, 503, "no"), nil
				}
				return next.RoundTrip(req)
			})
		})
		r := mustRun(t, cfg, kinds.JobSet(), optionsFor(kinds.JobSet()))
		mustSay(t, r, probe.Served, "jobsets.jobset.x-k8s.io v1alpha2", probe.Unknown, "discovery failed")
	})
}
