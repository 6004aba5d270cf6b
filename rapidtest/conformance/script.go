package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"k8s.io/client-go/rest"
)

// A Script is a sequence of requests that is data: it can be drawn at random, printed, and cut
// shorter. It names what only the server knows (UIDs, resourceVersions, continue tokens) by
// placeholders, so that it means the same on every server.
type Script struct {
	// Kind is the kind that it is played for, one of [Kinds].
	Kind string
	// Requests are made one after the other.
	Requests []Request
}

// A Request is one request of a [Script]. Its texts may contain these placeholders, where NAME is
// the name of an object:
//
//	{uid NAME}   the UID of the object as it was last seen
//	{rv NAME}    the resourceVersion that it was last seen with
//	{stale NAME} the resourceVersion that it was seen with before that
//	{namespace}  the namespace of the script
//	{continue}   the continue token of the latest list
//
// Where nothing was seen that a placeholder could stand for, it stands for the text "none", and one
// for a resourceVersion for "1", in a query for "0".
type Request struct {
	// Method is the HTTP method.
	Method string
	// Path is the path below the collection: "", "NAME" or "NAME/status".
	Path string `json:",omitempty"`
	// Query is the query, not yet escaped: "a=b&c=d".
	Query string `json:",omitempty"`
	// ContentType is the Content-Type header; application/json where it is empty.
	ContentType string `json:",omitempty"`
	// Base is where the body of a POST or PUT comes from: BaseNew, BaseSeen or BaseStale. Empty
	// means that Body is the body.
	Base string `json:",omitempty"`
	// Of is the name of the object that Base is taken from.
	Of string `json:",omitempty"`
	// Edits are made to the base, in order.
	Edits []Edit `json:",omitempty"`
	// Body is the body where there is no Base.
	Body string `json:",omitempty"`
}

// The bases of a body.
const (
	// BaseNew is a valid new object.
	BaseNew = "new"
	// BaseSeen is the object as it was last seen; a new one, with a resourceVersion, where it was not.
	BaseSeen = "seen"
	// BaseStale is the object as it was seen before that.
	BaseStale = "stale"
)

// An Edit changes one place of an object. What holds the place is made where it is missing.
type Edit struct {
	// Path is the place.
	Path []string
	// Value is what to write there, in JSON; empty takes away what is there.
	Value string `json:",omitempty"`
}

// String gives the script in JSON, one line for each request.
func (s Script) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", s.Kind)
	for i, r := range s.Requests {
		fmt.Fprintf(&b, "%3d %s\n", i+1, r)
	}
	return b.String()
}

// String gives the request in JSON.
func (r Request) String() string {
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(r); err != nil {
		return err.Error()
	}
	return strings.TrimSpace(b.String())
}

// Play plays a script in a namespace of the server that cfg names, and returns what was seen. The
// namespace has to be empty of objects of the script's kind, and is so again afterwards. An error
// means that the script could not be played; whatever a server answers is an observation.
func Play(ctx context.Context, cfg *rest.Config, namespace string, script Script) ([]Observation, error) {
	p, err := newPlayer(ctx, cfg, namespace, script)
	if err != nil {
		return nil, err
	}
	for i, r := range script.Requests {
		p.request(fmt.Sprintf("%3d %s", i+1, r), r)
	}
	p.player.cleanUp()
	return p.player.seen, p.player.err
}

func newPlayer(ctx context.Context, cfg *rest.Config, namespace string, script Script) (*scriptPlayer, error) {
	kind, err := kindNamed(script.Kind)
	if err != nil {
		return nil, err
	}
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, err
	}
	host, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, err
	}
	return &scriptPlayer{
		player: &player{
			ctx: ctx, client: client, host: host, namespace: namespace, kind: kind, sequence: "script", known: map[string]string{}, numbered: map[string]string{},
		},
		memory: newMemory(kind, namespace),
	}, nil
}

func kindNamed(name string) (Kind, error) {
	for _, k := range Kinds() {
		if k.Kind == name {
			return k, nil
		}
	}
	return Kind{}, fmt.Errorf("no kind %q to play a script for", name)
}

// scriptPlayer plays a script over HTTP.
type scriptPlayer struct {
	player *player
	memory *memory
}

func (p *scriptPlayer) request(name string, r Request) {
	body, err := p.memory.body(r)
	if err != nil {
		p.player.err = err
		return
	}
	c := call{method: r.Method, path: r.Path, query: escapeQuery(p.memory.fillOr(r.Query, "0")), contentType: r.ContentType}
	if body != "" || r.Method == http.MethodPost || r.Method == http.MethodPut || r.Method == http.MethodPatch {
		c.body = body
	}
	object, _, _ := strings.Cut(r.Path, "/")
	p.player.last = p.memory.seen(object)
	p.memory.learn(p.player.step(name, c))
}

// escapeQuery escapes the values of a query.
func escapeQuery(query string) string {
	if query == "" {
		return ""
	}
	parts := strings.Split(query, "&")
	for i, part := range parts {
		k, v, _ := strings.Cut(part, "=")
		parts[i] = url.QueryEscape(k) + "=" + url.QueryEscape(v)
	}
	return strings.Join(parts, "&")
}
