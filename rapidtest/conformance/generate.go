package conformance

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"pgregory.net/rapid"
)

// maxRequests is the longest that a drawn script is.
const maxRequests = 16

// Scripts draws scripts: creates, reads, updates of the object and of its status with the right, a
// stale, a missing or a malformed resourceVersion and UID, merge and JSON patches, deletes with
// finalizers, preconditions and propagation policies, pages of lists, dry runs, strict and lax field
// validation, and metadata that is odd or wrong.
//
// It stays within what a server without knowledge of a kind's schema can answer: it breaks no rule
// of the schema of a spec or a status, sends no managedFields and has one field manager, and asks
// for nothing that depends on how far a watch cache is behind.
func Scripts() *rapid.Generator[Script] {
	return rapid.Custom(func(t *rapid.T) Script {
		kind := rapid.SampledFrom(Kinds()).Draw(t, "kind")
		d := drawer{t: t, kind: kind}
		s := Script{Kind: kind.Kind, Requests: []Request{d.valid("a"), d.create("b")}}
		for range rapid.IntRange(3, maxRequests-2).Draw(t, "requests") {
			s.Requests = append(s.Requests, d.request())
		}
		return s
	})
}

// Generate is the script of a seed: the same seed gives the same script.
func Generate(seed int) Script { return Scripts().Example(seed) }

// drawer draws the parts of a script.
type drawer struct {
	t    *rapid.T
	kind Kind
	// ofStatus requests go to the status; one that is of another kind would be pruned only when it is read again
	ofStatus bool
}

// of draws one of some values.
func (d drawer) of(values ...string) string { return rapid.SampledFrom(values).Draw(d.t, "value") }

// oneIn is true once in n draws.
func (d drawer) oneIn(n int) bool { return rapid.IntRange(1, n).Draw(d.t, "one in") == n }

func (d drawer) name() string {
	return d.of("a", "a", "a", "a", "a", "a", "a", "a", "b", "b", "b", "c")
}

func (d drawer) request() Request {
	name := d.name()
	switch d.of(
		"valid", "create", "update", "update", "update", "update", "status", "status", "merge", "merge", "json", "json", "delete", "delete", "get", "list", "list",
		"collection",
	) {
	case "valid":
		return d.valid(name)
	case "create":
		return d.create(name)
	case "update":
		return d.update(name)
	case "status":
		return d.status(name)
	case "merge":
		return d.mergePatch(name)
	case "json":
		return d.jsonPatch(name)
	case "delete":
		return d.delete(name)
	case "list":
		return Request{Method: http.MethodGet, Query: d.listQuery()}
	case "collection":
		return d.deleteCollection()
	}
	return Request{Method: http.MethodGet, Path: name + d.of("", "", "", "/status")}
}

// valid draws a create that succeeds where the name is free.
func (d drawer) valid(name string) Request {
	return Request{Method: http.MethodPost, Base: BaseNew, Of: name, Edits: []Edit{
		{Path: []string{"metadata", "finalizers"}, Value: d.of(`["example.com/one"]`, "")}, d.metaEntry("labels", []string{"team"}, []string{"x", "y"}),
	}}
}

func (d drawer) create(name string) Request {
	r := Request{Method: http.MethodPost, Base: BaseNew, Of: name, Query: d.writeQuery()}
	if d.oneIn(10) {
		r.Base = d.of(BaseSeen, BaseStale)
	}
	for range rapid.IntRange(0, 2).Draw(d.t, "edits") {
		r.Edits = append(r.Edits, d.edit())
	}
	if d.oneIn(2) {
		r.Edits = append(r.Edits, d.finalizers())
	}
	return r
}

func (d drawer) update(name string) Request {
	r := Request{Method: http.MethodPut, Path: name, Of: name, Query: d.writeQuery()}
	r.Base = d.of(BaseSeen, BaseSeen, BaseSeen, BaseSeen, BaseSeen, BaseSeen, BaseStale, BaseNew)
	if r.Base != BaseSeen && d.oneIn(2) { // old content on the current version
		r.Edits = append(r.Edits, edit("{rv "+name+"}", "metadata", "resourceVersion"))
	}
	for range rapid.SampledFrom([]int{0, 1, 1, 1, 2, 3}).Draw(d.t, "edits") {
		r.Edits = append(r.Edits, d.edit())
	}
	if d.oneIn(6) {
		r.Edits = append(r.Edits, edit(nil, "metadata", "finalizers"))
	}
	if d.oneIn(5) {
		r.Edits = append(r.Edits, d.precondition(name))
	}
	if d.oneIn(25) { // the object of another name
		r.Of = d.name()
	}
	return r
}

func (d drawer) status(name string) Request {
	d.ofStatus = true
	r := d.update(name)
	r.Path = name + "/status"
	r.Edits = append(r.Edits, d.statusEdit())
	return r
}

// precondition draws what a write is bound to.
func (d drawer) precondition(name string) Edit {
	if d.oneIn(4) {
		return edit(d.of("{uid "+name+"}", "another-uid", "", "{uid b}"), "metadata", "uid")
	}
	if d.oneIn(4) {
		return Edit{Path: []string{"metadata", d.of("resourceVersion", "uid")}}
	}
	return edit(d.of(
		"{rv "+name+"}", "{stale "+name+"}", "{stale "+name+"}", "1", "0", "", "00", "01", "abc", "-1", "+1", " 1", "1.5", "0x10", "18446744073709551616",
		"9223372036854775807", "0{rv "+name+"}", "{rv b}",
	), "metadata", "resourceVersion")
}

// edit is an edit that writes a value, or takes away where it is nil.
func edit(value any, path ...string) Edit {
	if value == nil {
		return Edit{Path: path}
	}
	return Edit{Path: path, Value: jsonText(value)}
}

// jsonText is a value that can be encoded, in JSON.
func jsonText(value any) string {
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return "null"
	}
	return strings.TrimSpace(b.String())
}

// edit draws a change of an object. Most are valid.
func (d drawer) edit() Edit {
	switch d.of("field", "field", "number", "annotation", "annotation", "label", "finalizers", "finalizers", "owners", "odd annotation", "odd label", "server", "odd", "top") {
	case "field":
		return edit(d.oneIn(2), "spec", d.kind.Field)
	case "number":
		if d.kind.number == nil {
			return edit(d.oneIn(2), "spec", d.kind.Field)
		}
		return edit(rapid.IntRange(1, 3).Draw(d.t, "number"), d.kind.number...)
	case "annotation":
		return d.metaEntry("annotations", []string{"example.com/a", "b"}, []string{"", "x", "y"})
	case "label":
		return d.metaEntry("labels", []string{"team", "example.com/l"}, []string{"", "x", "y"})
	case "finalizers":
		return d.finalizers()
	case "owners":
		return d.owners()
	case "odd annotation":
		return d.metaEntry("annotations", oddKeys(), []string{"x", "é\n\"<&>\\", strings.Repeat("long ", 80), "{uid a}"})
	case "odd label":
		return d.metaEntry("labels", oddKeys(), []string{"x", "no spaces", "-x", "x-", "é", "a_B.c-9", strings.Repeat("x", 63), strings.Repeat("x", 64)})
	case "server":
		return d.serverField()
	case "odd":
		return d.oddField()
	}
	return d.topField()
}

func oddKeys() []string {
	return []string{
		"no spaces", "/x", "x/", "a/b/c", "-a", "a-", "UPPER", "UPPER.example.com/X", "example.com/é", "under_score/x", "..", strings.Repeat("k", 63),
		strings.Repeat("k", 64), strings.Repeat("p", 253) + "/k", strings.Repeat("p.", 126) + "p/k", strings.Repeat("p.", 127) + "p/k", "kubernetes.io/x", "",
	}
}

// metaEntry draws an edit of labels or annotations: of one, or of all of them.
func (d drawer) metaEntry(field string, keys, values []string) Edit {
	path := []string{"metadata", field, d.of(keys...)}
	switch d.of("set", "set", "set", "set", "set", "set", "remove", "null", "all away", "all null", "all empty") {
	case "remove":
		return Edit{Path: path}
	case "null":
		return Edit{Path: path, Value: "null"}
	case "all away":
		return Edit{Path: path[:2]}
	case "all null":
		return Edit{Path: path[:2], Value: "null"}
	case "all empty":
		return Edit{Path: path[:2], Value: "{}"}
	}
	return edit(d.of(values...), path...)
}

func (d drawer) finalizers() Edit {
	return Edit{Path: []string{"metadata", "finalizers"}, Value: d.of(
		`["example.com/one"]`, `["example.com/one"]`, `["example.com/one"]`, `["example.com/one","example.com/two"]`, `["example.com/two"]`, `["example.com/two","example.com/one"]`,
		`["example.com/one","example.com/one"]`, `[]`, `null`, "", `["unqualified"]`, `["no spaces"]`, `["orphan"]`, `["foregroundDeletion"]`, `["kubernetes"]`, `[""]`,
		`["example.com/"]`,
	)}
}

func (d drawer) owners() Edit {
	const (
		one   = `{"apiVersion":"v1","kind":"ConfigMap","name":"x","uid":"u1"}`
		two   = `{"apiVersion":"example.com/v1","kind":"Thing","name":"y","uid":"u2","controller":true,"blockOwnerDeletion":true}`
		three = `{"apiVersion":"example.com/v1","kind":"Thing","name":"z","uid":"u3","controller":true}`
		not   = `{"apiVersion":"v1","kind":"ConfigMap","name":"x","uid":"u1","controller":false}`
	)
	return Edit{Path: []string{"metadata", "ownerReferences"}, Value: d.of(
		"["+one+"]", "["+one+"]", "["+two+"]", "["+one+","+two+"]", "["+two+","+three+"]", "["+one+","+one+"]", "["+not+"]", "[]", "null", "",
		`[{"apiVersion":"v1","kind":"ConfigMap","name":"","uid":""}]`, `[{"kind":"ConfigMap","name":"x","uid":"u"}]`, `[{"apiVersion":"v1","name":"x","uid":"u"}]`,
		`[{"apiVersion":"a/b/c","kind":"ConfigMap","name":"x","uid":"u"}]`, `[{"apiVersion":"v1","kind":"Event","name":"x","uid":"u"}]`, `[{}]`,
		`[{"apiVersion":"v1","kind":"ConfigMap","name":"x","uid":"u","odd":1}]`, `[{"apiVersion":"v1","kind":"ConfigMap","name":"x","uid":"u","controller":null}]`,
	)}
}

// serverField draws a change of what only the server may change.
func (d drawer) serverField() Edit {
	switch field := d.of("generation", "creationTimestamp", "selfLink", "generateName"); field {
	case "generation":
		return Edit{Path: []string{"metadata", field}, Value: d.of("", "null", "0", "1", "7", "99", "-1")}
	case "creationTimestamp":
		return Edit{Path: []string{"metadata", field}, Value: d.of("", "null", `"2020-01-01T00:00:00Z"`, `"2020-01-01T01:00:00+01:00"`, `"2999-01-01T00:00:00Z"`)}
	default:
		return Edit{Path: []string{"metadata", field}, Value: d.of("", "null", `"x"`, `"x-"`, `""`)}
	}
}

// oddField draws metadata of the wrong type, an unknown field, or another place.
func (d drawer) oddField() Edit {
	switch d.of("type", "unknown", "place", "deeper") {
	case "type":
		field := d.of(
			"name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "labels", "annotations", "finalizers", "ownerReferences",
		)
		return Edit{Path: []string{"metadata", field}, Value: d.of(`5`, `true`, `{"a":5}`, `[5]`, `"text"`, `1.5`)}
	case "unknown":
		return Edit{Path: []string{"metadata", d.of("odd", "Name", "clusterName", "Labels")}, Value: d.of(`"x"`, `null`, `{}`, `1`)}
	case "deeper":
		return Edit{Path: []string{"metadata", d.of("labels", "annotations"), "a"}, Value: d.of(`5`, `true`, `{}`, `[]`, `1.5`)}
	}
	return Edit{Path: []string{"metadata", d.of("name", "namespace")}, Value: d.of("", "null", `""`, `"b"`, `"elsewhere"`, `"{namespace}"`)}
}

// topField draws a change of a field beside the metadata.
func (d drawer) topField() Edit {
	field := d.of("kind", "apiVersion", "unknown", "spec", "spec", "status", "status")
	if d.ofStatus && (field == "kind" || field == "apiVersion") {
		return Edit{Path: []string{field}, Value: d.of("", "null", `""`)}
	}
	switch field {
	case "kind":
		return Edit{Path: []string{"kind"}, Value: d.of("", "null", `""`, `"Other"`)}
	case "apiVersion":
		return Edit{Path: []string{"apiVersion"}, Value: d.of("", "null", `""`, `"other.example.com/v1"`, `"v1"`)}
	case "unknown":
		return Edit{Path: []string{d.of("odd", "Spec", "items")}, Value: d.of(`"x"`, "null", "{}", "[]", "1")}
	case "spec":
		return Edit{Path: []string{"spec", d.of(d.kind.Field, "odd", "zzz")}, Value: d.of("", "null", "true", "false")}
	}
	return d.statusEdit()
}

// statusEdit draws a valid change of the status.
func (d drawer) statusEdit() Edit {
	status := jsonText(d.kind.Status())
	return Edit{Path: []string{"status"}, Value: d.of(
		status, status, status, strings.ReplaceAll(status, `"True"`, `"False"`), strings.ReplaceAll(status, `"Suspended"`, `"Other"`), "", "null", `{"conditions":[]}`,
		`{"odd":1,"conditions":[]}`,
	)}
}

// writeQuery draws the options of a write.
func (d drawer) writeQuery() string {
	return d.of(append(slices.Repeat([]string{""}, 24),
		"dryRun=All", "dryRun=All", "dryRun=All", "dryRun=all", "dryRun=All&dryRun=All", "dryRun=", "fieldValidation=Strict", "fieldValidation=Strict", "fieldValidation=Warn",
		"fieldValidation=Ignore", "fieldValidation=strict", "fieldManager="+strings.Repeat("x", 129), "fieldManager=a\tb", "timeout=20s", "timeout=x", "pretty=false", "odd=1",
		"fieldValidation=Strict&dryRun=All",
	)...)
}

func (d drawer) mergePatch(name string) Request {
	d.ofStatus = d.oneIn(3)
	r := Request{Method: http.MethodPatch, Path: name, ContentType: "application/merge-patch+json", Query: d.writeQuery()}
	patch := map[string]any{}
	for range rapid.SampledFrom([]int{0, 1, 1, 2, 3}).Draw(d.t, "edits") {
		e := d.edit()
		if d.oneIn(6) {
			e = d.precondition(name)
		}
		setAt(patch, e.Path, rawJSON(e.Value), false)
	}
	r.Body = jsonText(patch)
	if d.ofStatus {
		r.Path += "/status"
		e := d.statusEdit()
		setAt(patch, e.Path, rawJSON(e.Value), false)
		r.Body = jsonText(patch)
	}
	if d.oneIn(12) {
		r.Body = d.of("", "null", "[]", "1", `"x"`, "{", "{}", `{"metadata":null}`, `{"metadata":{}}`, `{"metadata":5}`, `{"metadata":[]}`, `{"status":null}`, `{"a":1}{"b":2}`)
	}
	return r
}

// rawJSON is a JSON value to put into a patch; a merge patch takes away by null.
func rawJSON(text string) any {
	var value any
	if json.Unmarshal([]byte(text), &value) != nil {
		return nil
	}
	return value
}

func (d drawer) jsonPatch(name string) Request {
	r := Request{Method: http.MethodPatch, Path: name, ContentType: "application/json-patch+json", Query: d.writeQuery()}
	if d.ofStatus = d.oneIn(4); d.ofStatus {
		r.Path += "/status"
	}
	ops := []any{}
	for range rapid.IntRange(0, 3).Draw(d.t, "operations") {
		ops = append(ops, d.operation(name))
	}
	r.Body = jsonText(ops)
	if d.oneIn(12) {
		r.Body = d.of(
			"", "null", "{}", "1", "[", "[1]", `[{}]`, `[{"op":"add"}]`, `[{"op":"nonsense","path":"/a"}]`, `[{"op":"add","path":"/metadata/labels"}]`, `[{"op":"remove"}]`,
			`[{"op":"replace","path":"","value":{}}]`, `[{"op":"test","path":"","value":{}}]`, `[{"op":"remove","path":""}]`, `[{"op":"add","path":"metadata","value":{}}]`,
			`[{"op":"move","path":"/a"}]`, `[{"op":"copy","from":"/none","path":"/a"}]`,
		)
	}
	return r
}

func (d drawer) operation(name string) any {
	e := d.edit()
	if d.oneIn(6) {
		e = d.precondition(name)
	}
	op := map[string]any{"op": d.of("add", "add", "replace", "replace", "remove", "test", "copy", "move"), "path": pointerOf(e.Path), "value": rawJSON(e.Value)}
	if e.Value == "" && !d.oneIn(3) {
		op["op"] = "remove"
	}
	switch op["op"] {
	case "remove":
		delete(op, "value")
	case "copy", "move":
		delete(op, "value")
		op["path"] = d.of("/metadata/labels", "/metadata/annotations", "/metadata/annotations/b", "/metadata/labels/team", "/metadata/finalizers/-", "/metadata/none/deeper")
		op["from"] = d.of("/metadata/labels", "/metadata/annotations", "/metadata/annotations/b", "/metadata/finalizers/0", "/metadata/name", "/none", "/metadata/uid")
	}
	if d.oneIn(4) {
		op["path"] = d.of(
			"/metadata/finalizers/-", "/metadata/finalizers/0", "/metadata/finalizers/1", "/metadata/finalizers/9", "/metadata/finalizers/-1", "/metadata/finalizers/x", "/metadata/finalizers/01",
			"/metadata/labels/team", "/metadata/annotations/example.com~1a", "/metadata/annotations/b", "/metadata/none/deeper", "/metadata/name/deeper", "/metadata",
		)
		if op["value"] != nil {
			op["value"] = d.of("example.com/three", "x")
		}
	}
	return op
}

func pointerOf(path []string) string {
	escape := strings.NewReplacer("~", "~0", "/", "~1")
	var b strings.Builder
	for _, p := range path {
		b.WriteString("/" + escape.Replace(p))
	}
	return b.String()
}

func (d drawer) delete(name string) Request {
	r := Request{Method: http.MethodDelete, Path: name, Query: d.deleteQuery()}
	if d.oneIn(3) {
		return r
	}
	options := map[string]any{"kind": "DeleteOptions", "apiVersion": "v1"}
	if d.oneIn(10) {
		options = map[string]any{}
	}
	if d.oneIn(2) {
		options["preconditions"] = d.preconditions(name)
	}
	if d.oneIn(3) {
		options["propagationPolicy"] = d.of("Background", "Foreground", "Orphan", "Orphan", "Sideways", "")
	}
	if d.oneIn(6) {
		options["gracePeriodSeconds"] = rapid.SampledFrom([]int{-1, 0, 1, 30}).Draw(d.t, "grace")
	}
	if d.oneIn(8) {
		options["orphanDependents"] = d.oneIn(2)
	}
	if d.oneIn(8) {
		options["dryRun"] = []any{d.of("All", "All", "Some")}
	}
	r.Body = jsonText(options)
	if d.oneIn(15) {
		r.Body = d.of("null", "[]", "{", "{}", `{"preconditions":5}`, `{"kind":"Other","apiVersion":"v1"}`, `{"kind":"DeleteOptions"}`, `{"odd":1}`, `{"kind":"DeleteOptions","apiVersion":"meta.k8s.io/v1"}`)
	}
	return r
}

func (d drawer) preconditions(name string) map[string]any {
	out := map[string]any{}
	if d.oneIn(2) {
		out["uid"] = d.of("{uid "+name+"}", "{uid "+name+"}", "another-uid", "")
	}
	if d.oneIn(2) {
		out["resourceVersion"] = d.of("{rv "+name+"}", "{rv "+name+"}", "{stale "+name+"}", "abc", "", "0")
	}
	return out
}

func (d drawer) deleteQuery() string {
	return d.of(append(slices.Repeat([]string{""}, 10),
		"dryRun=All", "dryRun=Some", "propagationPolicy=Foreground", "propagationPolicy=Orphan", "propagationPolicy=Background", "propagationPolicy=x", "gracePeriodSeconds=0",
		"gracePeriodSeconds=x", "orphanDependents=true", "orphanDependents=x", "propagationPolicy=Orphan&orphanDependents=true",
	)...)
}

func (d drawer) deleteCollection() Request {
	query := "labelSelector=" + d.of("team=x", "team", "!team", "team in (x,y)", "")
	if d.oneIn(3) {
		query = "fieldSelector=metadata.name=" + d.name()
	}
	return Request{Method: http.MethodDelete, Query: query + d.of("", "", "&dryRun=All", "&propagationPolicy=Foreground", "&limit=1")}
}

func (d drawer) listQuery() string {
	var query []string
	if d.oneIn(2) {
		query = append(query, "limit="+d.of("1", "1", "2", "0", "100", "-1", "x"))
	}
	if d.oneIn(3) {
		query = append(query, "labelSelector="+d.of(
			"team=x", "team==x", "team!=x", "team", "!team", "team in (x,y)", "team notin (x)", "team=x,example.com/l", "team in ()", "team=", "a b", "=x", "team>1", "team=no spaces",
			",", "team in (x", "-a=b",
		))
	}
	if d.oneIn(4) {
		query = append(query, "fieldSelector="+d.of(
			"metadata.name=a", "metadata.name!=a", "metadata.namespace={namespace}", "metadata.namespace!={namespace}", "metadata.name=a,metadata.name=b", "spec.suspend=true", "metadata.uid=x",
			"metadata.name", "metadata.name==b", "=", "metadata.name=",
		))
	}
	if d.oneIn(3) {
		query = append(query, "continue="+d.of("{continue}", "{continue}", "{continue}", "nonsense", "e30", ""))
	}
	if d.oneIn(8) {
		query = append(query, "resourceVersion="+d.of("{rv a}", "{stale a}", "abc", "-1", "")+"&resourceVersionMatch="+d.of("Exact", "Exact", "Exact", "nonsense"))
	}
	if d.oneIn(20) {
		query = append(query, fmt.Sprintf("sendInitialEvents=%v", d.oneIn(2)))
	}
	return strings.Join(query, "&")
}
