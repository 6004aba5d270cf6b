package conformance

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/samber/lo"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// PlayThrough plays a script through a client, and returns what came of each request: an object, a
// list, nothing, or an error. It makes those requests that the client has a call for: bodies are
// objects and options well-formed, and the name in an object's body is the one in the path. It is
// for servers with more than one client, which have to agree.
func PlayThrough(ctx context.Context, client dynamic.Interface, namespace string, script Script) ([]Observation, error) {
	kind, err := kindNamed(script.Kind)
	if err != nil {
		return nil, err
	}
	p := &clientPlayer{
		ctx: ctx, client: client.Resource(kind.GVR).Namespace(namespace), memory: newMemory(kind, namespace),
		player: &player{namespace: namespace, kind: kind, known: map[string]string{}, numbered: map[string]string{}},
	}
	var out []Observation
	for i, r := range script.Requests {
		o, made, err := p.request(r)
		if err != nil {
			return nil, fmt.Errorf("request %d: %w", i+1, err)
		}
		if made {
			o.Kind, o.Sequence, o.Step = kind.Kind, "script", fmt.Sprintf("%3d %s", i+1, r)
			out = append(out, o)
		}
	}
	return out, nil
}

// clientPlayer plays a script through a client.
type clientPlayer struct {
	ctx    context.Context
	client dynamic.ResourceInterface
	memory *memory
	player *player // for what it makes of an answer
}

// request makes a request, and says whether there was a call for it.
func (p *clientPlayer) request(r Request) (Observation, bool, error) {
	body, err := p.memory.body(r)
	if err != nil {
		return Observation{}, false, err
	}
	query, err := url.ParseQuery(escapeQuery(p.memory.fillOr(r.Query, "0")))
	if err != nil {
		return Observation{}, false, err
	}
	name, subresource, _ := strings.Cut(r.Path, "/")
	var subresources []string
	if subresource != "" {
		subresources = []string{subresource}
	}
	call := clientCall{name: name, subresources: subresources, query: query, body: []byte(body), patch: types.PatchType(r.ContentType)}
	answer, made, err := p.make(r.Method, call)
	if !made {
		return Observation{}, false, nil
	}
	return p.observe(answer, err), true, nil
}

// clientCall is what a call of a client is made of.
type clientCall struct {
	name         string
	subresources []string
	query        url.Values
	body         []byte
	patch        types.PatchType
}

// object reads the body; false where it is no object of the name.
func (c clientCall) object(name string) (*unstructured.Unstructured, bool) {
	obj := &unstructured.Unstructured{}
	if obj.UnmarshalJSON(c.body) != nil {
		return nil, false
	}
	found, _, err := unstructured.NestedString(obj.Object, "metadata", "name")
	return obj, err == nil && (name == "" || found == name)
}

// make makes the call for a method, if there is one.
func (p *clientPlayer) make(method string, c clientCall) (runtime.Object, bool, error) {
	switch {
	case method == http.MethodPost:
		var opts metav1.CreateOptions
		obj, ok := c.object("")
		if !ok || metav1.Convert_url_Values_To_v1_CreateOptions(&c.query, &opts, nil) != nil {
			return nil, false, nil
		}
		return answered(p.client.Create(p.ctx, obj, opts))
	case method == http.MethodPut:
		var opts metav1.UpdateOptions
		obj, ok := c.object(c.name)
		if !ok || metav1.Convert_url_Values_To_v1_UpdateOptions(&c.query, &opts, nil) != nil {
			return nil, false, nil
		}
		return answered(p.client.Update(p.ctx, obj, opts, c.subresources...))
	case method == http.MethodPatch:
		var opts metav1.PatchOptions
		if metav1.Convert_url_Values_To_v1_PatchOptions(&c.query, &opts, nil) != nil {
			return nil, false, nil
		}
		return answered(p.client.Patch(p.ctx, c.name, c.patch, c.body, opts, c.subresources...))
	case method == http.MethodDelete:
		return p.makeDelete(c)
	case c.name != "":
		return answered(p.client.Get(p.ctx, c.name, metav1.GetOptions{}, c.subresources...))
	}
	var opts metav1.ListOptions
	if metav1.Convert_url_Values_To_v1_ListOptions(&c.query, &opts, nil) != nil {
		return nil, false, nil
	}
	list, err := p.client.List(p.ctx, opts)
	if err != nil {
		return nil, true, err
	}
	return list, true, nil
}

func (p *clientPlayer) makeDelete(c clientCall) (runtime.Object, bool, error) {
	var opts metav1.DeleteOptions
	if len(c.body) > 0 || metav1.Convert_url_Values_To_v1_DeleteOptions(&c.query, &opts, nil) != nil {
		if runtime.DecodeInto(unstructured.UnstructuredJSONScheme, c.body, &unstructured.Unstructured{}) != nil {
			return nil, false, nil
		}
		content := &unstructured.Unstructured{}
		if content.UnmarshalJSON(c.body) != nil || runtime.DefaultUnstructuredConverter.FromUnstructured(content.Object, &opts) != nil {
			return nil, false, nil
		}
	}
	opts.TypeMeta = metav1.TypeMeta{}
	if c.name != "" {
		return nil, true, p.client.Delete(p.ctx, c.name, opts, c.subresources...)
	}
	var list metav1.ListOptions
	if metav1.Convert_url_Values_To_v1_ListOptions(&c.query, &list, nil) != nil {
		return nil, false, nil
	}
	return nil, true, p.client.DeleteCollection(p.ctx, opts, list)
}

func answered(obj *unstructured.Unstructured, err error) (runtime.Object, bool, error) {
	if err != nil {
		return nil, true, err
	}
	return obj, true, nil
}

// observe writes down what came of a call.
func (p *clientPlayer) observe(answer runtime.Object, err error) Observation {
	var status apierrors.APIStatus
	var content map[string]any
	o := Observation{}
	switch {
	case errors.As(err, &status):
		s := status.Status()
		o.Code, o.Reason, o.Message = int(s.Code), string(s.Reason), p.player.neutral(s.Message)
		if s.Details != nil {
			causes := lo.Map(s.Details.Causes, func(c metav1.StatusCause, _ int) any { return p.player.neutral(fmt.Sprint(c)) })
			o.Body = map[string]any{"details": map[string]any{"causes": causes}}
			sortCauses(&o)
		}
		return o
	case err != nil:
		o.Message = p.player.neutral(err.Error())
		return o
	}
	switch a := answer.(type) {
	case *unstructured.Unstructured:
		content = a.Object
		last := p.memory.seen(a.GetName())
		o.ResourceVersionMoved = meta(last, "resourceVersion") != meta(content, "resourceVersion")
		o.GenerationMoved = fmt.Sprint(meta(last, "generation")) != fmt.Sprint(meta(content, "generation"))
	case *unstructured.UnstructuredList:
		content = a.UnstructuredContent()
	default:
		return o
	}
	content = with(content)
	p.player.learn(content)
	p.memory.learn(content)
	o.Body = p.player.neutralBody(content)
	return o
}
