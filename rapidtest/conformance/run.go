package conformance

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"k8s.io/client-go/rest"
)

// Run plays all sequences for all kinds in a namespace of the server that cfg names, and returns
// what was seen. An error means that a sequence could not be played: a connection broke, or an
// object could not be made. Whatever a server answers to a step is an observation and no error.
func Run(ctx context.Context, cfg *rest.Config, namespace string) ([]Observation, error) {
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, err
	}
	host, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, err
	}
	var out []Observation
	for _, kind := range Kinds() {
		for _, seq := range Sequences() {
			p := &player{ctx: ctx, client: client, host: host, namespace: namespace, kind: kind, sequence: seq.Name, known: map[string]string{}}
			seq.play(p)
			p.cleanUp()
			if p.err != nil {
				return nil, fmt.Errorf("%s/%s: %w", kind.Kind, seq.Name, p.err)
			}
			out = append(out, p.seen...)
		}
	}
	return out, nil
}

// player plays one sequence for one kind. Its methods do nothing once one of them failed.
type player struct {
	ctx       context.Context
	client    *http.Client
	host      *url.URL
	namespace string
	kind      Kind
	sequence  string

	seen  []Observation
	err   error
	last  map[string]any    // the object of the latest answer that had one
	known map[string]string // texts that differ between servers, and what to write instead
	uids  int               // how many of them are UIDs
	// numbered are the resourceVersions seen, and what to write instead; nil leaves them out of bodies
	numbered map[string]string
}

// call is one request of a sequence.
type call struct {
	method, path string // path is relative to the collection
	query        string
	contentType  string
	body         any // marshalled, unless it is a string already
}

// url is where a call goes. A path that starts with a slash is absolute.
func (p *player) url(c call) string {
	u := *p.host
	if strings.HasPrefix(c.path, "/") {
		u.Path = c.path
	} else {
		gvr := p.kind.GVR
		u.Path = strings.TrimSuffix(fmt.Sprintf("/apis/%s/%s/namespaces/%s/%s/%s", gvr.Group, gvr.Version, p.namespace, gvr.Resource, c.path), "/")
	}
	u.RawQuery = c.query
	return u.String()
}

func (p *player) send(c call) (*http.Response, []byte, error) {
	var body io.Reader
	switch b := c.body.(type) {
	case nil:
	case string:
		body = strings.NewReader(b)
	default:
		data, err := json.Marshal(b)
		if err != nil {
			return nil, nil, err
		}
		body = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(p.ctx, c.method, p.url(c), body)
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set("Accept", "application/json")
	if body != nil {
		req.Header.Set("Content-Type", c.contentType)
		if c.contentType == "" {
			req.Header.Set("Content-Type", "application/json")
		}
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return resp, data, err
}

// step makes a call, writes down what it saw, and returns the body.
func (p *player) step(name string, c call) map[string]any {
	p.catchUp(c)
	if p.err != nil {
		return nil
	}
	resp, data, err := p.send(c)
	if err != nil {
		p.err = fmt.Errorf("%s: %w", name, err)
		return nil
	}
	o := Observation{
		Kind: p.kind.Kind, Sequence: p.sequence, Step: name, Code: resp.StatusCode,
		RetryAfter: resp.Header.Get("Retry-After"),
	}
	if strings.Contains(c.query, "watch=1") && resp.StatusCode == http.StatusOK {
		o.Body, p.err = p.events(data)
		p.seen = append(p.seen, o)
		return nil
	}
	var body map[string]any
	if json.Unmarshal(data, &body) != nil {
		o.Body = strings.TrimSpace(string(data))
		p.seen = append(p.seen, o)
		return nil
	}
	p.learn(body)
	for _, w := range warningsOf(resp.Header) {
		o.Warnings = append(o.Warnings, p.neutral(w))
	}
	if body["kind"] == "Status" {
		o.Reason, _ = body["reason"].(string)
		message, _ := body["message"].(string)
		o.Message = p.neutral(message)
	} else if body["kind"] == p.kind.Kind {
		o.ResourceVersionMoved = meta(body, "resourceVersion") != meta(p.last, "resourceVersion")
		o.GenerationMoved = meta(body, "generation") != meta(p.last, "generation")
		p.last = body
	}
	o.Body = p.neutralBody(body)
	if p.numbered != nil {
		sortCauses(&o)
	}
	p.seen = append(p.seen, o)
	return body
}

// catchUp waits, before an object is written, until the server's watch cache has it as it is
// stored. A real server begins a write with what lies in the cache, and begins anew if that turns
// out to be old; but the warnings of the first attempt stay in the answer, so that it would be a
// matter of milliseconds whether there are any.
func (p *player) catchUp(c call) {
	object, _, _ := strings.Cut(c.path, "/")
	if object == "" || c.method == http.MethodGet || c.method == http.MethodPost {
		return
	}
	for p.err == nil && p.versionOf(object, "") != p.versionOf(object, "resourceVersion=0") {
	}
}

// versionOf is the resourceVersion of an object as a get shows it, "" where it shows none.
func (p *player) versionOf(object, query string) string {
	_, data, err := p.send(call{method: http.MethodGet, path: object, query: query})
	p.err = cmp.Or(p.err, err)
	var body map[string]any
	if json.Unmarshal(data, &body) != nil || body["kind"] != p.kind.Kind {
		return ""
	}
	version, _ := meta(body, "resourceVersion").(string)
	return version
}

// sortCauses puts the causes of a refusal in order, and keeps of its message, which is made of them, the length. A server
// looks through labels in any order.
func sortCauses(o *Observation) {
	body, _ := o.Body.(map[string]any)
	details, _ := body["details"].(map[string]any)
	causes, _ := details["causes"].([]any)
	if len(causes) < 2 {
		return
	}
	slices.SortStableFunc(causes, func(a, b any) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	o.Message = fmt.Sprintf("<%d bytes about the causes>", len(o.Message))
	body["message"] = o.Message
}

// events reads the stream of a watch.
func (p *player) events(stream []byte) ([]any, error) {
	out := []any{}
	decoder := json.NewDecoder(bytes.NewReader(stream))
	for {
		var event map[string]any
		err := decoder.Decode(&event)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		out = append(out, p.neutralBody(event))
	}
}

func warningsOf(h http.Header) []string {
	var out []string
	for _, w := range h.Values("Warning") {
		out = append(out, strings.TrimPrefix(w, "299 - "))
	}
	slices.Sort(out)
	return out
}

func meta(obj map[string]any, field string) any {
	m, _ := obj["metadata"].(map[string]any)
	return m[field]
}

// learn remembers the texts in an answer that another server would have made otherwise.
func (p *player) learn(body map[string]any) {
	if uid, ok := meta(body, "uid").(string); ok && p.known[uid] == "" {
		p.known[uid] = fmt.Sprintf("<uid %d>", p.uids)
		p.uids++
	}
	if rv, ok := meta(body, "resourceVersion").(string); ok && rv != "" {
		p.known["("+rv+")"] = "(<rv>)"
	}
}

func (p *player) neutral(text string) string {
	for known, instead := range p.known {
		text = strings.ReplaceAll(text, known, instead)
	}
	text = regexp.MustCompile(`\b`+regexp.QuoteMeta(p.namespace)+`\b`).ReplaceAllString(text, "<namespace>")
	text = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`).ReplaceAllString(text, "<time>")
	text = regexp.MustCompile(`in record \(\d+\)`).ReplaceAllString(text, "in record (<rv>)")
	// refusals of patches show the whole object, managedFields and all
	text = regexp.MustCompile(`is missing in '\{.*\}'`).ReplaceAllString(text, "is missing in <object>")
	return regexp.MustCompile(`Invalid value: "\{.*\}"`).ReplaceAllString(text, "Invalid value: <object>")
}

// longText is the length from which only the length of a text is written down.
const longText = 10_000

// neutralBody drops from a body what differs between any two servers.
func (p *player) neutralBody(body map[string]any) any {
	if items, isList := body["items"].([]any); isList && p.numbered != nil {
		// a list's own resourceVersion is that of the latest write to anything
		return p.neutralValue(with(body, inMeta("resourceVersion", nil), top("items", items)), "")
	}
	return p.neutralValue(body, "")
}

// number names a resourceVersion by when it was first seen.
func (p *player) number(rv any) string {
	text := fmt.Sprint(rv)
	if p.numbered[text] == "" {
		p.numbered[text] = fmt.Sprintf("<rv %d>", len(p.numbered)+1)
	}
	return p.numbered[text]
}

func (p *player) neutralValue(v any, key string) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, e := range v {
			switch k {
			case "resourceVersion":
				if p.numbered != nil {
					out[k] = p.number(e)
				}
				continue
			case "continue":
				if p.numbered != nil {
					out[k] = "<continue>"
				}
				continue
			case "managedFields":
				continue
			case "uid", "creationTimestamp", "deletionTimestamp":
				out[k] = "<" + k + ">"
				continue
			}
			out[k] = p.neutralValue(e, k)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = p.neutralValue(e, key)
		}
		return out
	case string:
		if generated := strings.HasPrefix(v, "generated-") && len(v) == len("generated-")+5; generated && key == "name" {
			return "<generated name>"
		}
		if len(v) > longText {
			return fmt.Sprintf("<%d bytes>", len(v))
		}
		return p.neutral(v)
	}
	return v
}

// cleanUp removes what the sequence left.
func (p *player) cleanUp() {
	if p.err != nil {
		return
	}
	resp, data, err := p.send(call{method: http.MethodGet})
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("list what is left: %s", resp.Status)
	}
	if err != nil {
		p.err = err
		return
	}
	var list struct {
		Items []struct {
			Metadata struct {
				Name       string   `json:"name"`
				Finalizers []string `json:"finalizers"`
			} `json:"metadata"`
		} `json:"items"`
	}
	if err := json.Unmarshal(data, &list); err != nil {
		p.err = err
		return
	}
	for _, item := range list.Items {
		at := item.Metadata.Name
		_, _, delErr := p.send(call{method: http.MethodDelete, path: at})
		if len(item.Metadata.Finalizers) > 0 && delErr == nil {
			_, _, delErr = p.send(call{
				method: http.MethodPatch, path: at, contentType: "application/merge-patch+json", body: `{"metadata":{"finalizers":null}}`,
			})
		}
		if delErr != nil {
			p.err = delErr
			return
		}
	}
}
