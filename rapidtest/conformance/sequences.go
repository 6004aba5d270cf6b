package conformance

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
)

// A Sequence is a row of the table: a name, and the requests that it makes one after the other.
type Sequence struct {
	Name string
	play func(*player)
}

// Sequences is the table.
func Sequences() []Sequence {
	out := creates()
	out = append(out, updates()...)
	out = append(out, statuses()...)
	out = append(out, deletes()...)
	out = append(out, patches()...)
	out = append(out, lists()...)
	out = append(out, oddities()...)
	return append(out, refusals()...)
}

func (p *player) post(name string, obj map[string]any, query ...string) map[string]any {
	return p.step(name, call{method: http.MethodPost, body: obj, query: strings.Join(query, "&")})
}

func (p *player) get(name, object string) map[string]any {
	return p.step(name, call{method: http.MethodGet, path: object})
}

func (p *player) put(name string, obj map[string]any, query ...string) map[string]any {
	object, _ := meta(obj, "name").(string)
	return p.step(name, call{method: http.MethodPut, path: object, body: obj, query: strings.Join(query, "&")})
}

func (p *player) putStatus(name string, obj map[string]any) map[string]any {
	object, _ := meta(obj, "name").(string)
	return p.step(name, call{method: http.MethodPut, path: object + "/status", body: obj})
}

func (p *player) delete(name, object string, options map[string]any, query ...string) map[string]any {
	c := call{method: http.MethodDelete, path: object, query: strings.Join(query, "&")}
	if options != nil {
		c.body = options
	}
	return p.step(name, c)
}

func (p *player) mergePatch(name, object, patch string, query ...string) map[string]any {
	return p.step(name, call{
		method: http.MethodPatch, path: object, contentType: "application/merge-patch+json", body: patch, query: strings.Join(query, "&"),
	})
}

func (p *player) jsonPatch(name, object, patch string) map[string]any {
	return p.step(name, call{method: http.MethodPatch, path: object, contentType: "application/json-patch+json", body: patch})
}

// made is the object "a", created.
func (p *player) made(changes ...change) map[string]any {
	return p.post("create", with(p.kind.object("a"), changes...))
}

// A change changes an object.
type change func(obj map[string]any)

// with is a changed copy of obj.
func with(obj map[string]any, changes ...change) map[string]any {
	var out map[string]any
	data, err := json.Marshal(obj)
	if err != nil || json.Unmarshal(data, &out) != nil || out == nil {
		out = map[string]any{}
	}
	for _, c := range changes {
		c(out)
	}
	return out
}

// inMeta sets a field of the metadata; nil removes it.
func inMeta(field string, value any) change {
	return func(obj map[string]any) {
		m, ok := obj["metadata"].(map[string]any)
		if !ok {
			m = map[string]any{}
			obj["metadata"] = m
		}
		if value == nil {
			delete(m, field)
			return
		}
		m[field] = value
	}
}

// inSpec sets a field of the spec.
func inSpec(field string, value any) change {
	return func(obj map[string]any) {
		if s, ok := obj["spec"].(map[string]any); ok {
			s[field] = value
		}
	}
}

// top sets a field of the object; nil removes it.
func top(field string, value any) change {
	return func(obj map[string]any) {
		if value == nil {
			delete(obj, field)
			return
		}
		obj[field] = value
	}
}

// stopped gives the kind's field the value that it was not created with.
func (k Kind) stopped() change { return inSpec(k.Field, !k.Running) }

func annotated(key, value string) change {
	return inMeta("annotations", map[string]any{key: value})
}

func creates() []Sequence {
	return []Sequence{
		{"CreateAndGet", func(p *player) {
			p.made(annotated("example.com/a", "b"))
			p.get("get", "a")
		}},
		{"CreateTwice", func(p *player) {
			p.made()
			p.post("again", p.kind.object("a"))
			p.post("again, dry run", p.kind.object("a"), "dryRun=All")
		}},
		{"CreateWithResourceVersion", func(p *player) {
			p.post("create", with(p.kind.object("a"), inMeta("resourceVersion", "1")))
		}},
		{"CreateWithGeneratedName", func(p *player) {
			p.post("create", with(p.kind.object(""), inMeta("name", nil), inMeta("generateName", "generated-")))
		}},
		{"CreateWithoutName", func(p *player) { p.post("create", with(p.kind.object(""), inMeta("name", nil))) }},
		{"CreateWithoutType", func(p *player) {
			p.post("neither", with(p.kind.object("a"), top("kind", nil), top("apiVersion", nil)))
			p.post("no kind", with(p.kind.object("a"), top("kind", nil)))
			p.post("no apiVersion", with(p.kind.object("a"), top("apiVersion", nil)))
			p.post("other kind", with(p.kind.object("a"), top("kind", "Other")))
		}},
		{"CreateIgnoresWhatTheServerOwns", func(p *player) {
			p.post("create", with(p.kind.object("a"), inMeta("uid", "mine"), inMeta("generation", int64(7)),
				inMeta("creationTimestamp", "2020-01-01T00:00:00Z"), inMeta("deletionTimestamp", "2020-01-01T00:00:00Z"),
				inMeta("deletionGracePeriodSeconds", int64(5)), inMeta("selfLink", "x"), top("status", p.kind.Status())))
		}},
		{"CreateDropsEmptyMetadata", func(p *player) {
			p.post("create", with(p.kind.object("a"), inMeta("annotations", map[string]any{}), inMeta("labels", map[string]any{}),
				inMeta("finalizers", []any{}), inMeta("ownerReferences", []any{})))
		}},
		{"CreateInAnotherNamespace", func(p *player) { p.post("create", with(p.kind.object("a"), inMeta("namespace", "elsewhere"))) }},
		{"CreateDryRun", func(p *player) {
			p.post("create", p.kind.object("a"), "dryRun=All")
			p.get("get", "a")
		}},
	}
}

func updates() []Sequence {
	return []Sequence{
		{"UpdateSpec", func(p *player) {
			obj := p.made()
			p.put("update", with(obj, p.kind.stopped()))
			p.get("get", "a")
		}},
		{"UpdateStale", func(p *player) {
			obj := p.made()
			p.put("update", with(obj, p.kind.stopped()))
			p.put("stale", with(obj, annotated("example.com/a", "b")))
		}},
		{"UpdateUnchanged", func(p *player) {
			obj := p.made(annotated("example.com/a", "b"))
			p.put("unchanged", obj)
			changed := p.put("update", with(obj, p.kind.stopped()))
			p.put("unchanged but stale", with(changed, inMeta("resourceVersion", meta(obj, "resourceVersion"))))
		}},
		{"UpdateWithoutResourceVersion", func(p *player) {
			obj := p.made()
			p.put("none", with(obj, p.kind.stopped(), inMeta("resourceVersion", nil)))
			p.put("zero", with(obj, p.kind.stopped(), inMeta("resourceVersion", "0")))
			p.put("no number", with(obj, p.kind.stopped(), inMeta("resourceVersion", "abc")))
		}},
		{"UpdateOtherUID", func(p *player) {
			obj := p.made()
			p.put("other", with(obj, p.kind.stopped(), inMeta("uid", "another-uid")))
			p.put("none", with(obj, p.kind.stopped(), inMeta("uid", nil)))
		}},
		{"UpdateOtherUIDAndStale", func(p *player) {
			obj := p.made()
			p.put("update", with(obj, inMeta("uid", "another-uid"), inMeta("resourceVersion", "1")))
		}},
		{"UpdateAnnotationsAndLabels", func(p *player) {
			obj := p.made()
			obj = p.put("annotate", with(obj, annotated("example.com/a", "b")))
			obj = p.put("label", with(obj, inMeta("labels", map[string]any{"a": "b"})))
			p.put("annotation away", with(obj, inMeta("annotations", map[string]any{})))
		}},
		{"UpdateIgnoresWhatTheServerOwns", func(p *player) {
			obj := p.made()
			p.put("update", with(obj, inMeta("generation", int64(99)), inMeta("creationTimestamp", "2020-01-01T00:00:00Z"), inMeta("selfLink", "x")))
			p.put("generation away", with(obj, inMeta("generation", nil), inMeta("creationTimestamp", nil)))
		}},
		{"UpdateDeletionTimestamp", func(p *player) {
			obj := p.made()
			p.put("update", with(obj, inMeta("deletionTimestamp", "2020-01-01T00:00:00Z")))
		}},
		{"UpdateMissingObject", func(p *player) { p.put("update", with(p.kind.object("a"), inMeta("resourceVersion", "1"))) }},
		{"UpdateOtherNames", func(p *player) {
			obj := p.made()
			p.step("other name", call{method: http.MethodPut, path: "b", body: obj})
			p.put("other namespace", with(obj, inMeta("namespace", "elsewhere")))
			p.put("no namespace", with(obj, inMeta("namespace", nil)))
			p.put("other kind", with(obj, top("kind", "Other")))
			p.put("other group", with(obj, top("apiVersion", "other.example.com/v1")))
			p.step("no name", call{method: http.MethodPut, path: "a", body: with(obj, inMeta("name", nil))})
		}},
		{"UpdateDryRun", func(p *player) {
			obj := p.made()
			p.put("update", with(obj, p.kind.stopped()), "dryRun=All")
			p.put("unchanged", obj, "dryRun=All")
			p.put("stale", with(obj, inMeta("resourceVersion", "1")), "dryRun=All")
			p.get("get", "a")
		}},
	}
}

func statuses() []Sequence {
	return []Sequence{
		{"UpdateStatus", func(p *player) {
			obj := p.made()
			obj = p.putStatus("update", with(obj, top("status", p.kind.Status()), p.kind.stopped(), annotated("example.com/a", "b"), inMeta("labels", map[string]any{"a": "b"})))
			p.putStatus("unchanged", obj)
			p.step("get", call{method: http.MethodGet, path: "a/status"})
			p.putStatus("away", with(obj, top("status", nil)))
		}},
		{"UpdateStatusStale", func(p *player) {
			obj := p.made()
			p.put("update", with(obj, p.kind.stopped()))
			p.putStatus("stale", with(obj, top("status", p.kind.Status())))
			p.putStatus("no resourceVersion", with(obj, top("status", p.kind.Status()), inMeta("resourceVersion", nil)))
			p.putStatus("other UID", with(obj, top("status", p.kind.Status()), inMeta("uid", "another-uid")))
		}},
		{"StatusThroughTheObject", func(p *player) {
			obj := p.made()
			p.put("set", with(obj, top("status", p.kind.Status())))
			obj = p.putStatus("status", with(obj, top("status", p.kind.Status())))
			p.put("away", with(obj, top("status", nil)))
			p.put("away with the spec", with(obj, top("status", nil), p.kind.stopped()))
		}},
		{"PatchStatus", func(p *player) {
			p.made()
			patch := with(map[string]any{"status": p.kind.Status()}, inMeta("annotations", map[string]any{"example.com/a": "b"}))
			data, _ := json.Marshal(patch)
			p.mergePatch("patch", "a/status", string(data))
			p.mergePatch("through the object", "a", `{"status":null}`)
		}},
		{"StatusOfMissingObject", func(p *player) {
			p.putStatus("update", with(p.kind.object("a"), inMeta("resourceVersion", "1")))
			p.step("get", call{method: http.MethodGet, path: "a/status"})
		}},
	}
}

func deletes() []Sequence {
	finalizer := inMeta("finalizers", []any{"example.com/one"})
	return []Sequence{
		{"Delete", func(p *player) {
			p.made()
			p.delete("delete", "a", nil)
			p.delete("again", "a", nil)
			p.get("get", "a")
		}},
		{"DeleteWithFinalizer", func(p *player) {
			p.made(finalizer)
			obj := p.delete("delete", "a", nil)
			p.delete("again", "a", nil)
			p.post("create while deleting", p.kind.object("a"))
			p.put("update while deleting", with(obj, annotated("example.com/a", "b")))
			obj = p.get("get", "a")
			p.put("deletionTimestamp away", with(obj, inMeta("deletionTimestamp", nil), inMeta("deletionGracePeriodSeconds", nil)))
			p.put("other grace period", with(obj, inMeta("deletionGracePeriodSeconds", int64(7))))
		}},
		{"AddFinalizerWhileDeleting", func(p *player) {
			p.made(finalizer)
			obj := p.delete("delete", "a", nil)
			p.put("update", with(obj, inMeta("finalizers", []any{"example.com/one", "example.com/two"})))
			p.put("replace", with(obj, inMeta("finalizers", []any{"example.com/two"})))
		}},
		{"DropLastFinalizer", func(p *player) {
			p.made(inMeta("finalizers", []any{"example.com/one", "example.com/two"}))
			obj := p.delete("delete", "a", nil)
			obj = p.put("drop one", with(obj, inMeta("finalizers", []any{"example.com/two"})))
			p.put("drop the last, stale", with(obj, inMeta("finalizers", nil), inMeta("resourceVersion", "1")))
			p.put("drop the last, dry run", with(obj, inMeta("finalizers", nil)), "dryRun=All")
			p.put("drop the last", with(obj, inMeta("finalizers", nil), p.kind.stopped()))
			p.get("get", "a")
		}},
		{"DropLastFinalizerByPatch", func(p *player) {
			p.made(finalizer)
			p.delete("delete", "a", nil)
			p.mergePatch("patch", "a", `{"metadata":{"finalizers":null}}`)
			p.get("get", "a")
		}},
		{"DropFinalizerByStatus", func(p *player) {
			p.made(finalizer)
			obj := p.delete("delete", "a", nil)
			p.putStatus("update", with(obj, inMeta("finalizers", nil)))
			p.get("get", "a")
		}},
		{"DeletePreconditions", func(p *player) {
			obj := p.made()
			precondition := func(field string, value any) map[string]any {
				return map[string]any{"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": map[string]any{field: value}}
			}
			p.delete("other UID", "a", precondition("uid", "another-uid"))
			p.delete("other resourceVersion", "a", precondition("resourceVersion", "1"))
			p.delete("right UID", "a", precondition("uid", meta(obj, "uid")), "dryRun=All")
			p.delete("right resourceVersion", "a", precondition("resourceVersion", meta(obj, "resourceVersion")))
		}},
		{"DeleteDryRun", func(p *player) {
			p.made()
			p.delete("delete", "a", nil, "dryRun=All")
			p.get("get", "a")
		}},
		{"DeleteDryRunWithFinalizer", func(p *player) {
			p.made(finalizer)
			p.delete("delete", "a", nil, "dryRun=All")
			p.get("get", "a")
		}},
		{"DeleteInForeground", func(p *player) {
			p.made()
			p.delete("delete, dry run", "a", nil, "propagationPolicy=Foreground", "dryRun=All")
			p.delete("delete with an unknown policy", "a", nil, "propagationPolicy=Sideways")
			p.delete("orphan, dry run", "a", nil, "propagationPolicy=Orphan", "dryRun=All")
			p.delete("in the background", "a", nil, "propagationPolicy=Background")
		}},
		{"DeleteMissingObject", func(p *player) { p.delete("delete", "a", nil) }},
		{"DeleteCollection", func(p *player) {
			for _, name := range []string{"a", "b", "c"} {
				p.post("create "+name, with(p.kind.object(name), inMeta("labels", map[string]any{"name": name})))
			}
			p.delete("delete", "", nil, "labelSelector="+url.QueryEscape("name in (a,b)"))
			p.step("list", call{method: http.MethodGet})
		}},
	}
}

func patches() []Sequence {
	return []Sequence{
		{"MergePatch", func(p *player) {
			p.made(inMeta("annotations", map[string]any{"example.com/keep": "1", "example.com/drop": "2"}))
			p.mergePatch("patch", "a", fmt.Sprintf(`{"metadata":{"annotations":{"example.com/drop":null,"example.com/new":"3"}},"spec":{%q:%v}}`, p.kind.Field, !p.kind.Running))
			p.mergePatch("unchanged", "a", `{"metadata":{"annotations":{"example.com/new":"3"}}}`)
			p.mergePatch("field away", "a", fmt.Sprintf(`{"spec":{%q:null}}`, p.kind.Field))
			p.mergePatch("empty", "a", `{}`)
		}},
		{"MergePatchWithResourceVersion", func(p *player) {
			obj := p.made()
			p.mergePatch("stale", "a", `{"metadata":{"resourceVersion":"1","annotations":{"example.com/a":"b"}}}`)
			p.mergePatch("unchanged but stale", "a", `{"metadata":{"resourceVersion":"1"}}`)
			p.mergePatch("current", "a", fmt.Sprintf(`{"metadata":{"resourceVersion":%q,"annotations":{"example.com/a":"b"}}}`, meta(obj, "resourceVersion")))
			p.mergePatch("removed", "a", `{"metadata":{"resourceVersion":null,"annotations":{"example.com/a":"c"}}}`)
		}},
		{"MergePatchOfWhatTheServerOwns", func(p *player) {
			p.made()
			p.mergePatch("UID", "a", `{"metadata":{"uid":"another-uid"}}`)
			p.mergePatch("name", "a", `{"metadata":{"name":"b"}}`)
			p.mergePatch("namespace", "a", `{"metadata":{"namespace":"elsewhere"}}`)
			p.mergePatch("generation", "a", `{"metadata":{"generation":99}}`)
			p.mergePatch("kind", "a", `{"kind":"Other"}`)
			p.mergePatch("no kind", "a", `{"kind":null}`)
			p.mergePatch("no apiVersion", "a", `{"apiVersion":null}`)
			p.mergePatch("no metadata", "a", `{"metadata":null}`)
			p.mergePatch("no spec", "a", `{"spec":null}`)
		}},
		{"MergePatchRefusals", func(p *player) {
			p.made()
			p.mergePatch("missing object", "b", `{}`)
			p.mergePatch("no JSON", "a", `{`)
			p.mergePatch("no object", "a", `[]`)
			p.mergePatch("dry run", "a", `{"metadata":{"annotations":{"example.com/a":"b"}}}`, "dryRun=All")
			p.get("get", "a")
		}},
		{"JSONPatch", func(p *player) {
			p.made(annotated("example.com/a", "b"))
			field := "/spec/" + p.kind.Field
			p.jsonPatch("patch", "a", fmt.Sprintf(`[{"op":"test","path":%q,"value":%v},{"op":"replace","path":%q,"value":%v},{"op":"remove","path":"/metadata/annotations/example.com~1a"}]`,
				field, p.kind.Running, field, !p.kind.Running))
			p.jsonPatch("failing test", "a", fmt.Sprintf(`[{"op":"test","path":%q,"value":%v}]`, field, p.kind.Running))
			p.jsonPatch("missing path", "a", `[{"op":"remove","path":"/metadata/annotations/none"}]`)
			p.jsonPatch("stale", "a", `[{"op":"replace","path":"/metadata/resourceVersion","value":"1"}]`)
			p.jsonPatch("no array", "a", `{}`)
		}},
		{"StrategicMergePatch", func(p *player) {
			p.made()
			p.step("patch", call{method: http.MethodPatch, path: "a", contentType: "application/strategic-merge-patch+json", body: `{}`})
			p.step("unknown type", call{method: http.MethodPatch, path: "a", contentType: "application/json", body: `{}`})
		}},
	}
}

func lists() []Sequence {
	return []Sequence{
		{"ListPages", func(p *player) {
			for _, name := range []string{"a", "b", "c", "d", "e"} {
				p.post("create "+name, p.kind.object(name))
			}
			first := p.step("first page", call{method: http.MethodGet, query: "limit=2"})
			p.delete("delete d", "d", nil)
			p.post("create f", p.kind.object("f"))
			second := p.step("second page", call{method: http.MethodGet, query: "limit=2&continue=" + continueOf(first)})
			p.step("third page", call{method: http.MethodGet, query: "limit=2&continue=" + continueOf(second)})
			p.step("list", call{method: http.MethodGet})
			p.step("continue with a resourceVersion", call{method: http.MethodGet, query: "limit=2&resourceVersion=1&continue=" + continueOf(first)})
			p.step("bad continue", call{method: http.MethodGet, query: "limit=2&continue=nonsense"})
		}},
		{"ListSelectors", func(p *player) {
			for _, name := range []string{"a", "b", "c", "d"} {
				p.post("create "+name, with(p.kind.object(name), inMeta("labels", map[string]any{"name": name, "half": fmt.Sprint(name < "c")})))
			}
			query := func(name string, values map[string]string) map[string]any {
				q := url.Values{}
				for k, v := range maps.All(values) {
					q.Set(k, v)
				}
				return p.step(name, call{method: http.MethodGet, query: q.Encode()})
			}
			query("in", map[string]string{"labelSelector": "name in (a,d)"})
			query("not in", map[string]string{"labelSelector": "name notin (a,d)"})
			query("absent", map[string]string{"labelSelector": "!half"})
			query("bad label selector", map[string]string{"labelSelector": "a in"})
			query("by name", map[string]string{"fieldSelector": "metadata.name=b"})
			query("by namespace", map[string]string{"fieldSelector": "metadata.namespace=elsewhere"})
			query("by another field", map[string]string{"fieldSelector": "spec.queueName=x"})
			first := query("page of a selection", map[string]string{"labelSelector": "half=true", "limit": "1"})
			query("next page of a selection", map[string]string{"labelSelector": "half=true", "limit": "1", "continue": continueOf(first)})
		}},
		{"Watch", func(p *player) {
			obj := p.made(inMeta("labels", map[string]any{"team": "x"}))
			from, _ := meta(obj, "resourceVersion").(string)
			obj = p.put("update", with(obj, p.kind.stopped()))
			obj = p.put("unchanged", obj)
			obj = p.putStatus("status", with(obj, top("status", p.kind.Status())))
			obj = p.put("other label", with(obj, inMeta("labels", map[string]any{"team": "y"})))
			p.put("first label", with(obj, inMeta("labels", map[string]any{"team": "x"}), inMeta("finalizers", []any{"example.com/one"})))
			p.put("drop the finalizer", with(p.delete("delete", "a", nil), inMeta("finalizers", nil)))
			query := "watch=1&timeoutSeconds=1&resourceVersion=" + from
			p.step("all events", call{method: http.MethodGet, query: query})
			p.step("events of a selection", call{method: http.MethodGet, query: query + "&labelSelector=team%3Dx"})
			p.step("events of an object", call{method: http.MethodGet, query: query + "&fieldSelector=metadata.name%3Da"})
			p.step("events of another object", call{method: http.MethodGet, query: query + "&fieldSelector=metadata.name%3Db"})
		}},
		{"AccessReview", func(p *player) {
			p.step("create", call{method: http.MethodPost, path: "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body: map[string]any{
				"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1",
				"spec": map[string]any{"resourceAttributes": map[string]any{
					"group": p.kind.GVR.Group, "resource": p.kind.GVR.Resource, "verb": "update", "namespace": p.namespace, "name": "a",
				}},
			}})
		}},
		{"ListOptions", func(p *player) {
			p.made()
			p.step("exact without a resourceVersion", call{method: http.MethodGet, query: "resourceVersionMatch=Exact"})
			p.step("exact at zero", call{method: http.MethodGet, query: "resourceVersionMatch=Exact&resourceVersion=0"})
			p.step("initial events", call{method: http.MethodGet, query: "sendInitialEvents=true"})
		}},
	}
}

func continueOf(list map[string]any) string {
	text, _ := meta(list, "continue").(string)
	return url.QueryEscape(text)
}

// oddities are requests that no careful client makes, and that a server answers all the same.
func oddities() []Sequence {
	owner := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "u1"}
	return []Sequence{
		{"ResourceVersionsAreNumbers", func(p *player) {
			obj := p.made()
			current, _ := meta(obj, "resourceVersion").(string)
			p.put("leading zero", with(obj, inMeta("resourceVersion", "0"+current)))
			p.put("leading zero, dry run", with(obj, inMeta("resourceVersion", "0"+current)), "dryRun=All")
			p.put("zeros", with(obj, inMeta("resourceVersion", "00")))
			p.put("sign", with(obj, inMeta("resourceVersion", "+5")))
			p.put("too large", with(obj, inMeta("resourceVersion", "18446744073709551616")))
			p.post("create with none", with(p.kind.object("b"), inMeta("resourceVersion", "0")))
			p.post("create with no number", with(p.kind.object("c"), inMeta("resourceVersion", "abc")))
		}},
		{"MetadataOfOtherTypes", func(p *player) {
			for _, field := range []string{"name", "uid", "resourceVersion", "generation", "creationTimestamp", "finalizers", "ownerReferences", "deletionGracePeriodSeconds"} {
				p.post("number as "+field, with(p.kind.object("a"), inMeta(field, 1.5)))
				p.post("true as "+field, with(p.kind.object("a"), inMeta(field, true)))
			}
			obj := p.post("nulls", with(p.kind.object("a"), inMeta("annotations", map[string]any{"a": nil}), inMeta("labels", map[string]any{"a": nil})))
			p.put("time in another zone", with(obj, inMeta("creationTimestamp", "2020-01-01T01:00:00+01:00")))
			p.mergePatch("array", "a", `{"metadata":[]}`)
			p.mergePatch("array to status", "a/status", `{"metadata":[]}`)
			p.mergePatch("null", "a", `null`)
			p.jsonPatch("null apiVersion", "a", `[{"op":"add","path":"/apiVersion","value":null}]`)
			p.mergePatch("no apiVersion and stale", "a", `{"apiVersion":"","metadata":{"resourceVersion":"1"}}`)
			p.put("null apiVersion on update", with(obj, func(o map[string]any) { o["apiVersion"] = nil }))
			p.post("no kind, ignore", with(p.kind.object("b"), top("kind", nil)), "fieldValidation=Ignore")
		}},
		{"UnknownMetadata", func(p *player) {
			p.post("null", with(p.kind.object("a"), func(o map[string]any) { o["metadata"].(map[string]any)["odd"] = nil }))
			p.put("of a missing object", with(p.kind.object("b"), inMeta("resourceVersion", "1"), inMeta("Labels", map[string]any{})))
			p.post("in an owner", with(p.kind.object("c"), inMeta("ownerReferences", []any{with(owner, top("odd", 1), top("controller", false))})))
			p.mergePatch("with another name", "a", `{"metadata":{"odd":1,"name":"b"}}`)
			p.post("of another version", with(p.kind.object("d"), top("apiVersion", "v1"), inMeta("odd", "x")))
		}},
		{"OwnersTwice", func(p *player) {
			obj := p.post("create", with(p.kind.object("a"), inMeta("ownerReferences", []any{owner, owner})))
			p.put("update", with(obj, inMeta("ownerReferences", []any{owner, owner, with(owner, top("name", "y"))})))
			p.mergePatch("patch", "a", fmt.Sprintf(`{"metadata":{"ownerReferences":[%[1]s,%[1]s]}}`, `{"apiVersion":"v1","kind":"ConfigMap","name":"z","uid":"u2"}`))
		}},
		{"FinalizersWithoutDomain", func(p *player) {
			obj := p.post("create", with(p.kind.object("a"), inMeta("finalizers", []any{"plain", "plain", "kubernetes"})))
			obj = p.put("add", with(obj, inMeta("finalizers", []any{"plain", "another"})))
			p.put("remove", with(obj, inMeta("finalizers", []any{"plain"})))
			p.put("refused", with(obj, inMeta("finalizers", []any{"no spaces"})))
		}},
		{"GenerateNameWithAName", func(p *player) {
			p.made(inMeta("finalizers", []any{"example.com/one"}))
			p.post("again", with(p.kind.object("a"), inMeta("generateName", "a-")))
			p.delete("delete", "a", nil)
			p.post("while deleting", with(p.kind.object("a"), inMeta("generateName", "a-")))
		}},
		{"SelfLink", func(p *player) {
			p.post("create, dry run", with(p.kind.object("a"), inMeta("selfLink", "x")), "dryRun=All")
			obj := p.made(inMeta("selfLink", "x"))
			p.put("dry run", with(obj, inMeta("selfLink", "x")), "dryRun=All")
			p.put("update", with(obj, inMeta("selfLink", "x")))
		}},
		{"OtherKindAndMetadata", func(p *player) {
			p.put("update", with(p.made(), top("kind", "Other"), annotated("no spaces", "")))
		}},
		{"OtherUIDDryRun", func(p *player) { p.put("update", with(p.made(), inMeta("uid", "another-uid")), "dryRun=All") }},
		{"OrphanDependents", func(p *player) {
			p.made()
			p.delete("false, dry run", "a", nil, "orphanDependents=false", "dryRun=All")
			p.delete("true", "a", nil, "orphanDependents=true")
			p.delete("again", "a", nil)
			p.delete("false, dry run again", "a", nil, "orphanDependents=false", "dryRun=All")
			p.delete("both", "a", nil, "orphanDependents=true", "propagationPolicy=Orphan")
			p.post("create b", with(p.kind.object("b"), inMeta("finalizers", []any{"example.com/one"})))
			p.delete("false", "b", nil, "orphanDependents=false")
		}},
		{"DeleteBodies", func(p *player) {
			p.made()
			for _, body := range []string{"{", "[]", `{"kind":"Other","apiVersion":"v1"}`, `{"preconditions":5}`, `{"dryRun":["Some"]}`} {
				p.step(body, call{method: http.MethodDelete, path: "a", body: body})
			}
			p.step("of another group", call{method: http.MethodDelete, path: "a", query: "dryRun=Some", body: `{"kind":"DeleteOptions","apiVersion":"meta.k8s.io/v1"}`})
		}},
		{"JSONPatchRefusals", func(p *player) {
			p.made(annotated("b", "x"), inMeta("finalizers", []any{"example.com/one"}))
			for _, op := range []string{
				`{}`, `{"op":"nonsense","path":"/a"}`, `{"op":"add"}`, `{"op":"remove"}`, `{"op":"replace"}`, `{"op":"test"}`, `{"op":"move","path":"/a"}`, `{"op":"copy","from":"/none","path":"/a/b"}`,
				`{"op":"add","path":"/metadata/labels"}`, `{"op":"add","path":"metadata","value":{}}`, `{"op":"add","path":"/metadata/none/a","value":1}`,
				`{"op":"remove","path":"/metadata/finalizers/9"}`, `{"op":"remove","path":"/metadata/finalizers/x"}`, `{"op":"add","path":"/metadata/finalizers/9","value":"x"}`,
				`{"op":"add","path":"/metadata/finalizers/x","value":"x"}`, `{"op":"replace","path":"/metadata/finalizers/9","value":"x"}`, `{"op":"replace","path":"","value":1}`,
				`{"op":"test","path":"/metadata/finalizers/9","value":"x"}`, `{"op":"test","path":"","value":{}}`, `{"op":"move","from":"/metadata/none","path":"/metadata/labels"}`,
				`{"op":"add","path":"/metadata/finalizers/-1","value":"example.com/two"}`, `{"op":"replace","path":"/metadata/annotations/none","value":"x"}`,
			} {
				p.jsonPatch(op, "a", "["+op+"]")
			}
			p.jsonPatch("no JSON, missing object", "b", "")
		}},
		{"ListOptionsTogether", func(p *player) {
			for _, query := range []string{
				"resourceVersion=1&resourceVersionMatch=nonsense", "resourceVersion=abc", "resourceVersion=-1&resourceVersionMatch=Exact", "labelSelector=a%20in&sendInitialEvents=true",
				"fieldSelector=spec.odd%3Dx&sendInitialEvents=true", "continue=nonsense&resourceVersion=1&resourceVersionMatch=Exact", "fieldSelector=%3D",
			} {
				p.step(query, call{method: http.MethodGet, query: query})
			}
		}},
	}
}

func refusals() []Sequence {
	return []Sequence{
		{"UnknownFields", func(p *player) {
			odd := with(p.kind.object("a"), inSpec("zzz", int64(1)), inSpec("aaa", int64(1)), top("odd", true), inMeta("odd", "x"))
			p.post("strict", odd, "fieldValidation=Strict")
			p.post("ignore", with(odd, inMeta("name", "b")), "fieldValidation=Ignore")
			obj := p.post("warn", odd)
			p.put("strict update", with(obj, inSpec("zzz", int64(1))), "fieldValidation=Strict")
			p.put("update", with(obj, inSpec("zzz", int64(1))))
			p.mergePatch("strict patch", "a", `{"spec":{"zzz":1}}`, "fieldValidation=Strict")
			p.mergePatch("patch", "a", `{"spec":{"zzz":1}}`)
			p.putStatus("update status", with(obj, top("status", map[string]any{"zzz": int64(1)})))
		}},
		{"InvalidMetadata", func(p *player) {
			p.post("name", with(p.kind.object("Not_A_Name")))
			p.post("name with a dot", with(p.kind.object("a.b")))
			p.post("long name", with(p.kind.object(strings.Repeat("a", 64))))
			p.post("longer name", with(p.kind.object(strings.Repeat("a", 254))))
			obj := p.made()
			p.put("annotation key", with(obj, annotated("no spaces", "")))
			p.put("label key", with(obj, inMeta("labels", map[string]any{"no spaces": ""})))
			p.put("label value", with(obj, inMeta("labels", map[string]any{"a": "no spaces"})))
			p.put("finalizer", with(obj, inMeta("finalizers", []any{"no spaces"})))
			p.put("owner", with(obj, inMeta("ownerReferences", []any{map[string]any{"apiVersion": "v1", "kind": "Pod", "name": "", "uid": "u"}})))
			p.mergePatch("annotation key by patch", "a", `{"metadata":{"annotations":{"no spaces":""}}}`)
			p.post("annotation key on create", with(p.kind.object("b"), annotated("no spaces", "")))
		}},
		{"LargeAnnotations", func(p *player) {
			obj := p.made()
			p.put("over the limit", with(obj, annotated("a", strings.Repeat("x", 256<<10))))
			p.put("at the limit", with(obj, annotated("a", strings.Repeat("x", 256<<10-1))))
		}},
		{"LargeBody", func(p *player) {
			obj := p.made()
			p.put("update", with(obj, annotated("a", strings.Repeat("x", 3<<20))))
		}},
		{"BadOptions", func(p *player) {
			obj := p.made()
			p.put("fieldValidation", obj, "fieldValidation=Nonsense")
			p.put("dryRun", obj, "dryRun=Some")
			p.put("fieldManager", obj, "fieldManager="+strings.Repeat("x", 129))
			p.post("on create", p.kind.object("b"), "fieldValidation=Nonsense")
			p.mergePatch("on patch", "a", `{}`, "fieldValidation=Nonsense")
			p.delete("on delete", "a", nil, "dryRun=Some")
			p.put("timeout", obj, "timeout=nonsense")
		}},
		{"NoRoute", func(p *player) {
			gvr := p.kind.GVR
			p.step("version", call{method: http.MethodGet, path: fmt.Sprintf("/apis/%s/v9/namespaces/%s/%s/a", gvr.Group, p.namespace, gvr.Resource)})
			p.step("resource", call{method: http.MethodGet, path: fmt.Sprintf("/apis/%s/%s/namespaces/%s/nonsenses/a", gvr.Group, gvr.Version, p.namespace)})
			p.step("group", call{method: http.MethodGet, path: fmt.Sprintf("/apis/nonsense.example.com/v1/namespaces/%s/a", p.namespace)})
			p.step("update without a namespace", call{method: http.MethodGet, path: fmt.Sprintf("/apis/%s/%s/%s/a", gvr.Group, gvr.Version, gvr.Resource)})
			p.step("subresource", call{method: http.MethodGet, path: "a/nonsense"})
			p.step("delete of a status", call{method: http.MethodDelete, path: "a/status"})
		}},
		{"BadBodies", func(p *player) {
			obj := p.made()
			p.step("empty", call{method: http.MethodPut, path: "a", body: ""})
			p.step("no JSON", call{method: http.MethodPut, path: "a", body: "{"})
			p.put("annotations that are none", with(obj, inMeta("annotations", []any{})))
			p.put("annotation that is no string", with(obj, inMeta("annotations", map[string]any{"a": int64(1)})))
			p.step("media type", call{method: http.MethodPut, path: "a", contentType: "text/plain", body: obj})
		}},
	}
}
