package probe

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/samber/lo"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/retry"
)

// Names of the capabilities that the apiserver serves.
const (
	statusSubresource = "status subresource"
	storedFields      = "every stored field survives an update"
)

// served looks at what the apiserver serves of the resources that the calls
// name (rule P1), and at the schema of the one that they write.
func (p *prober) served(ctx context.Context) []Line {
	var lines []Line
	asked := map[schema.GroupVersionResource]bool{}
	for _, need := range p.what.Needs(p.opts.Client) {
		if asked[need.Resource] {
			continue
		}
		asked[need.Resource] = true
		l, found := p.servedResource(ctx, need.Resource)
		lines = append(lines, l)
		if found != nil && need.Resource == p.what.Resource {
			lines = append(lines, p.statusLine(*found), p.pauseLine(ctx), p.storedLine(ctx, *found))
		}
	}
	return lines
}

// resourceText is, for example, "workloads.kueue.x-k8s.io v1beta2".
func resourceText(r schema.GroupVersionResource) string {
	return r.GroupResource().String() + " " + r.Version
}

// verbsOn returns the verbs and the calls that need a resource.
func (p *prober) verbsOn(resource schema.GroupVersionResource) (verbs []string, ops []meta.Op) {
	for _, n := range p.what.Needs(p.opts.Client) {
		if n.Resource == resource {
			verbs, ops = append(verbs, n.Verb), append(ops, n.Ops...)
		}
	}
	return verbs, lo.Uniq(ops)
}

// A servedVersion is what discovery says of one resource in one version.
type servedVersion struct {
	metav1.APIResource
	status bool
}

// servedResource reports whether a resource is served as the kind says.
func (p *prober) servedResource(ctx context.Context, resource schema.GroupVersionResource) (Line, *servedVersion) {
	verbs, ops := p.verbsOn(resource)
	l := Line{Theme: Served, Capability: resourceText(resource), State: Available, Ops: ops}
	found, err := p.discover(ctx, resource)
	switch {
	case err != nil:
		l.State, l.Why = Unknown, fmt.Sprintf("discovery failed: %v", err)
		l.Remedy = "see that the apiserver can be reached"
		return l, nil
	case found == nil:
		l.State = Unavailable
		l.Why, l.Remedy = p.elsewhere(ctx, resource)
		return l, nil
	}
	isHeld := resource == p.what.Resource
	lacks, _ := lo.Difference(verbs, found.Verbs)
	switch {
	case len(lacks) > 0:
		l.State, l.Why = Unavailable, "served without "+strings.Join(lacks, ", ")
		l.Remedy = "see whether its CustomResourceDefinition is being deleted"
	case isHeld && found.Kind != p.what.Kind:
		l.State, l.Why = Unavailable, fmt.Sprintf("its kind is %s, not %s", found.Kind, p.what.Kind)
		l.Remedy = "name the right kind in the descriptor"
	case isHeld && found.Namespaced == p.what.ClusterScoped:
		l.State, l.Why = Unavailable, lo.Ternary(found.Namespaced, "it is namespaced", "it is cluster-scoped")+", and the descriptor says otherwise"
		l.Remedy = "set ClusterScoped in the descriptor right"
	}
	return l, found
}

// elsewhere says in which other versions a resource is served.
func (p *prober) elsewhere(ctx context.Context, resource schema.GroupVersionResource) (why, remedy string) {
	others := slices.DeleteFunc(p.versions(ctx, resource), func(v string) bool { return v == resource.Version })
	if len(others) == 0 {
		return "not served in any version", fmt.Sprintf("install what brings %s, or hold another kind", resource.GroupResource())
	}
	return "served as " + strings.Join(others, ", ") + " instead", "name that version in the descriptor: Resource.Version = \"" + others[0] + "\""
}

// discover returns what is served of a resource in its version, nil if nothing
// is.
func (p *prober) discover(ctx context.Context, resource schema.GroupVersionResource) (*servedVersion, error) {
	var list metav1.APIResourceList
	err := p.get(ctx, groupPath(resource.Group)+"/"+resource.Version, &list)
	if code(err) == http.StatusNotFound {
		return nil, nil
	}
	if err == nil && list.GroupVersion != resource.GroupVersion().String() {
		err = fmt.Errorf("the answer is about %q", list.GroupVersion)
	}
	if err != nil {
		return nil, err
	}
	main, ok := lo.Find(list.APIResources, func(r metav1.APIResource) bool { return r.Name == resource.Resource })
	if !ok {
		return nil, nil
	}
	status := lo.ContainsBy(list.APIResources, func(r metav1.APIResource) bool { return r.Name == resource.Resource+"/status" })
	return &servedVersion{main, status}, nil
}

func groupPath(group string) string {
	if group == "" {
		return "/api"
	}
	return "/apis/" + group
}

// versions returns the versions in which a resource is served, the apiserver's
// favourite first.
func (p *prober) versions(ctx context.Context, resource schema.GroupVersionResource) []string {
	var group metav1.APIGroup
	if resource.Group == "" || p.get(ctx, groupPath(resource.Group), &group) != nil {
		return nil
	}
	return lo.FilterMap(group.Versions, func(v metav1.GroupVersionForDiscovery, _ int) (string, bool) {
		found, err := p.discover(ctx, resource.GroupResource().WithVersion(v.Version))
		return v.Version, err == nil && found != nil
	})
}

// statusLine is advice: nothing here writes a status, but an update that goes
// out without a status subresource carries the one that was read.
func (p *prober) statusLine(found servedVersion) Line {
	l := Line{Theme: Served, Capability: statusSubresource, State: Available}
	if !found.status {
		l.State, l.Why = Unavailable, "an update of "+p.what.Kind+" carries its status as well: its controller's status writes make more conflicts"
		l.Remedy = "add subresources.status to its CustomResourceDefinition, if its controller can do with it"
	}
	return l
}

// pauseLine looks for the pause field in the schema, and where there is none to
// be read, asks the apiserver to check an object with it.
func (p *prober) pauseLine(ctx context.Context) Line {
	path := retry.PathString(p.what.PausePath)
	l := Line{Theme: Served, Capability: path + " in the schema", State: Available, Ops: p.writes()}
	if p.what.PausePath[0] == "metadata" {
		return l
	}
	s, err := p.shape(ctx, p.what.Resource)
	if err != nil {
		l.State, l.Why, l.Remedy = p.tryField(ctx, err)
		return l
	}
	is, kept := s.typeAt(p.what.PausePath)
	want := jsonTypeOf(p.what.Held)
	switch {
	case !kept:
		l.State, l.Why = Unavailable, "the schema lacks it: the apiserver would drop it without a word"
		l.Remedy = "install a " + p.what.Kind + " CustomResourceDefinition that has it, or name another version or path in the descriptor"
	case is != "" && is != want:
		l.State, l.Why = Unavailable, fmt.Sprintf("its type is %s, and the descriptor's is %s", is, want)
		l.Remedy = "name the right type in the descriptor"
	}
	return l
}

// errNoShape says that the apiserver publishes no schema of a kind.
var errNoShape = errors.New("the apiserver publishes no OpenAPI v3 schema of it")

// shape returns the schema of a resource.
func (p *prober) shape(ctx context.Context, resource schema.GroupVersionResource) (shape, error) {
	kind := p.what.Kind
	if n := p.what.Named; n != nil && resource.GroupResource() == n.Resource.GroupResource() {
		kind = n.Kind
	}
	var d document
	err := p.get(ctx, "/openapi/v3"+groupPath(resource.Group)+"/"+resource.Version, &d)
	if err != nil {
		return shape{}, err
	}
	s, ok := d.shapeOf(resource.GroupVersion().WithKind(kind))
	if !ok {
		return shape{}, errNoShape
	}
	return s, nil
}

// tryField finds out with a dry run whether the pause field is known.
func (p *prober) tryField(ctx context.Context, noSchema error) (State, string, string) {
	namespace := places(p.what, p.opts.Namespaces)[0]
	_, err := p.rehearse(ctx, p.canary(ctx, namespace))
	path := retry.PathString(p.what.PausePath)
	switch {
	case err == nil: // what became of it on the way is the round trip's to say
		return Available, "", ""
	case refused(err) && strings.Contains(err.Error(), `unknown field "`+path+`"`):
		return Unavailable, "the apiserver does not know it", "install a " + p.what.Kind + " that has it, or name another version or path in the descriptor"
	}
	return Unknown, fmt.Sprintf("no schema to read (%v), and a strict dry run was refused: %v", noSchema, err),
		"let this identity read the apiserver's OpenAPI, or create " + p.what.Resource.Resource + " with dryRun=All"
}

// storedLine says whether an update through the version of the kind can drop
// fields that are stored (rule I11).
func (p *prober) storedLine(ctx context.Context, found servedVersion) Line {
	l := Line{Theme: Served, Capability: storedFields, State: Available, Ops: p.writes()}
	version := p.what.Resource.Version
	others := slices.DeleteFunc(p.versions(ctx, p.what.Resource), func(v string) bool { return v == version })
	stored := storageVersion(found.StorageVersionHash, p.what, append(others, version))
	if stored == version {
		return l
	}
	if definition, err := p.definition(ctx); err == nil {
		l.State, l.Why, l.Remedy = definition.judge(version)
		return l
	}
	if stored != "" {
		others = []string{stored}
	}
	mine, err := p.shape(ctx, p.what.Resource)
	for _, other := range others {
		theirs, theirErr := p.shape(ctx, p.what.Resource.GroupResource().WithVersion(other))
		lost := mine.lost(theirs)
		switch err = cmp.Or(err, theirErr); {
		case err != nil:
			l.State, l.Why = Unknown, fmt.Sprintf("served as %s as well, and the schemas cannot be compared: %v", other, err)
		case len(lost) > 0:
			l.State, l.Why = Unknown, fmt.Sprintf("%s lacks %s of %s, %s: an update drops it unless the conversion keeps it", version, some(lost), other,
				lo.Ternary(stored == "", "in which objects may be stored", "in which objects are stored"))
		default:
			continue
		}
		l.Remedy = "name " + other + " in the descriptor, or let this identity get customresourcedefinitions"
		return l
	}
	return l
}

// storageVersion returns the version in which a kind is stored, as far as
// discovery tells it: by a hash that is to be compared and no more. "" if it is
// that of none of versions.
func storageVersion(hash string, d holdable.Description, versions []string) string {
	stored, _ := lo.Find(versions, func(version string) bool {
		sum := sha256.Sum256([]byte(d.Resource.Group + "/" + version + "/" + d.Kind))
		return base64.StdEncoding.EncodeToString(sum[:8]) == hash
	})
	return stored
}

// some names a few of many.
func some(names []string) string {
	const few = 3
	if len(names) <= few {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), len(names)-few)
}

// A definition is a CustomResourceDefinition, as far as versions go.
type definition struct {
	Spec struct {
		Conversion struct {
			Strategy string `json:"strategy"`
		} `json:"conversion"`
		Versions []definedVersion `json:"versions"`
	} `json:"spec"`
}

type definedVersion struct {
	Name    string `json:"name"`
	Storage bool   `json:"storage"`
	Schema  struct {
		Root *node `json:"openAPIV3Schema"`
	} `json:"schema"`
}

// definition reads the CustomResourceDefinition of the held kind, where there
// is one and this identity may.
func (p *prober) definition(ctx context.Context) (*definition, error) {
	ctx, cancel := step(ctx)
	defer cancel()
	definitions := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	obj, err := p.objects.Resource(definitions).Get(ctx, p.what.Resource.GroupResource().String(), metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return readDefinition(obj)
}

func readDefinition(obj *unstructured.Unstructured) (*definition, error) {
	data, err := obj.MarshalJSON()
	if err != nil {
		return nil, err
	}
	d := new(definition)
	return d, json.Unmarshal(data, d)
}

// judge says what an update through a version does to what is stored.
func (d *definition) judge(version string) (state State, why, remedy string) {
	mine, ok := lo.Find(d.Spec.Versions, func(v definedVersion) bool { return v.Name == version })
	stored, stores := lo.Find(d.Spec.Versions, func(v definedVersion) bool { return v.Storage })
	if !ok || !stores || mine.Storage {
		return Available, "", ""
	}
	lost := shape{root: mine.Schema.Root}.lost(shape{root: stored.Schema.Root})
	remedy = "name " + stored.Name + " in the descriptor"
	switch {
	case len(lost) == 0:
		return Available, "", ""
	case d.Spec.Conversion.Strategy == "Webhook":
		return Unknown, fmt.Sprintf("objects are stored as %s, and %s lacks %s: it is up to the conversion webhook whether that survives",
			stored.Name, version, some(lost)), remedy
	}
	return Unavailable, fmt.Sprintf("objects are stored as %s, and an update through %s drops %s", stored.Name, version, some(lost)), remedy
}
