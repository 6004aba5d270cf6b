package probe

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/samber/lo"

	"github.com/kubehold/kubehold/holdable"
)

// Manifest returns the YAML of the Roles that grant subject what a probe with
// these options asks for, and of their bindings, ready for kubectl apply.
//
// They are minimal: take out any rule and the probe names what is missing. The
// Role of the mode and kind is by itself, since it is needed as long as objects
// are held. The one that the canary takes, named probe, is needed only while a
// probe runs, and is left out under Options.DryRun. What is needed in no
// namespace becomes a ClusterRole.
//
// What is wrong with kind or opts is ErrInvalid.
//
// subject is the name of a user, or system:serviceaccount:NAMESPACE:NAME, as in
// Report.Identity.
func Manifest(kind holdable.Kind, opts Options, subject string) ([]byte, error) {
	if err := checkKind(kind); err != nil {
		return nil, err
	}
	d, opts := kind.Describe(), opts.withDefaults()
	if err := opts.check(d); err != nil {
		return nil, err
	}
	var documents [][]byte
	for _, set := range required(d, opts) {
		name := strings.ToLower(joined("-", "kubehold", set.name, kind.GroupVersionKind().Kind))
		if d.Named != nil {
			name += "-" + strings.ToLower(d.Kind)
		}
		for _, namespace := range lo.Ternary(set.clusterWide, []string{""}, opts.Namespaces) {
			for _, object := range grant(name, namespace, rulesOf(set.needs), subjectOf(subject)) {
				document, err := yaml.Marshal(object)
				if err != nil {
					return nil, err
				}
				documents = append(documents, document)
			}
		}
	}
	return bytes.Join(documents, []byte("---\n")), nil
}

const rbacGroup = "rbac.authorization.k8s.io"

// The types of RBAC, as far as a manifest needs them.
type (
	policyRule struct {
		APIGroups []string `json:"apiGroups"`
		Resources []string `json:"resources"`
		Verbs     []string `json:"verbs"`
	}
	role struct {
		APIVersion string       `json:"apiVersion"`
		Kind       string       `json:"kind"`
		Metadata   metadata     `json:"metadata"`
		Rules      []policyRule `json:"rules"`
	}
	roleBinding struct {
		APIVersion string    `json:"apiVersion"`
		Kind       string    `json:"kind"`
		Metadata   metadata  `json:"metadata"`
		RoleRef    reference `json:"roleRef"`
		Subjects   []subject `json:"subjects"`
	}
	metadata struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace,omitempty"`
	}
	reference struct {
		APIGroup string `json:"apiGroup"`
		Kind     string `json:"kind"`
		Name     string `json:"name"`
	}
	subject struct {
		APIGroup  string `json:"apiGroup,omitempty"`
		Kind      string `json:"kind"`
		Name      string `json:"name"`
		Namespace string `json:"namespace,omitempty"`
	}
)

// grant returns a Role with its binding, or a ClusterRole in no namespace.
func grant(name, namespace string, rules []policyRule, to subject) []any {
	prefix := lo.Ternary(namespace == "", "Cluster", "")
	version := rbacGroup + "/v1"
	at := metadata{Name: name, Namespace: namespace}
	return []any{
		role{version, prefix + "Role", at, rules},
		roleBinding{version, prefix + "RoleBinding", at, reference{rbacGroup, prefix + "Role", name}, []subject{to}},
	}
}

// rulesOf makes one rule for each resource, in the order of the needs.
func rulesOf(needs []holdable.Need) []policyRule {
	var rules []policyRule
	for _, n := range needs {
		resource := joined("/", n.Resource.Resource, n.Subresource)
		i := slices.IndexFunc(rules, func(r policyRule) bool {
			return r.APIGroups[0] == n.Resource.Group && r.Resources[0] == resource
		})
		if i < 0 {
			i = len(rules)
			rules = append(rules, policyRule{APIGroups: []string{n.Resource.Group}, Resources: []string{resource}})
		}
		rules[i].Verbs = append(rules[i].Verbs, n.Verb)
	}
	return rules
}

// subjectOf reads a name as the apiserver gives it.
func subjectOf(name string) subject {
	if account, ok := strings.CutPrefix(name, "system:serviceaccount:"); ok {
		namespace, name, _ := strings.Cut(account, ":")
		return subject{Kind: "ServiceAccount", Name: name, Namespace: namespace}
	}
	return subject{APIGroup: rbacGroup, Kind: "User", Name: cmp.Or(name, "YOUR-IDENTITY")}
}

// onKueue reports whether the kind is held by its Workload.
func onKueue(d holdable.Description) bool {
	return d.Resource.Group == kueueGroup && d.Resource.Resource == "workloads"
}

const kueueGroup = "kueue.x-k8s.io"

// gateNeeds are what the readmission gate sends (rules G1 to G3). It watches all
// namespaces, and so takes a ClusterRole.
func gateNeeds(d holdable.Description) requirements {
	checks := d.Resource
	checks.Resource = "admissionchecks"
	needs := []holdable.Need{
		{Verb: "get", Resource: d.Resource},
		{Verb: "list", Resource: d.Resource},
		{Verb: "watch", Resource: d.Resource},
		{Verb: "update", Resource: d.Resource, Subresource: "status"},
		{Verb: "list", Resource: checks},
		{Verb: "watch", Resource: checks},
		{Verb: "update", Resource: checks, Subresource: "status"},
		{Verb: "list", Resource: podsResource()},
		{Verb: "watch", Resource: podsResource()},
	}
	if d.Named != nil {
		needs = append(needs,
			holdable.Need{Verb: "get", Resource: d.Named.Resource},
			holdable.Need{Verb: "update", Resource: d.Named.Resource})
	}
	for _, m := range d.Makes {
		if m.Selector == nil {
			needs = append(needs, holdable.Need{Verb: "get", Resource: m.Resource})
		}
		needs = append(needs,
			holdable.Need{Verb: "list", Resource: m.Resource},
			holdable.Need{Verb: "watch", Resource: m.Resource})
	}
	return requirements{name: "gate", needs: needs, clusterWide: true}
}

func podsResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: "pods"}
}
