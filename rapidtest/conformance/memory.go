package conformance

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// memory is what a player of a script has seen of one server, for the placeholders of its requests.
type memory struct {
	kind      Kind
	namespace string
	versions  map[string][]map[string]any // by name, without repetitions
	token     string
	holes     *regexp.Regexp
}

func newMemory(kind Kind, namespace string) *memory {
	return &memory{
		kind: kind, namespace: namespace, versions: map[string][]map[string]any{},
		holes: regexp.MustCompile(`\{(uid|rv|stale|namespace|continue)( [^{}]*)?\}`),
	}
}

// learn remembers what an answer shows of objects.
func (m *memory) learn(body map[string]any) {
	if items, ok := body["items"].([]any); ok {
		m.token, _ = meta(body, "continue").(string)
		for _, item := range items {
			if obj, ok := item.(map[string]any); ok {
				m.learnObject(obj)
			}
		}
		return
	}
	if body["kind"] == m.kind.Kind {
		m.learnObject(body)
	}
}

// learnObject remembers a version of an object, unless it was a dry run's that was never stored, or one known already.
func (m *memory) learnObject(obj map[string]any) {
	name, _ := meta(obj, "name").(string)
	rv, _ := meta(obj, "resourceVersion").(string)
	versions := m.versions[name]
	if rv == "" || (len(versions) > 0 && meta(versions[len(versions)-1], "resourceVersion") == rv) {
		return
	}
	// managedFields are the server's own record; a body without them leaves them as they are
	m.versions[name] = append(versions, with(obj, inMeta("managedFields", nil)))
}

// seen is the object as it was last seen; nil where it was not.
func (m *memory) seen(name string) map[string]any {
	if versions := m.versions[name]; len(versions) > 0 {
		return versions[len(versions)-1]
	}
	return nil
}

// stale is the object as it was seen before it was last seen.
func (m *memory) stale(name string) map[string]any {
	if versions := m.versions[name]; len(versions) > 1 {
		return versions[len(versions)-2]
	}
	return nil
}

// fill puts what was seen in the place of placeholders.
func (m *memory) fill(text string) string { return m.fillOr(text, "1") }

// fillOr puts what was seen in the place of placeholders, and none where there was no resourceVersion.
func (m *memory) fillOr(text, none string) string {
	return m.holes.ReplaceAllStringFunc(text, func(hole string) string {
		what, name, _ := strings.Cut(strings.Trim(hole, "{}"), " ")
		switch what {
		case "uid":
			return textOr(meta(m.seen(name), "uid"), "none")
		case "rv":
			return textOr(meta(m.seen(name), "resourceVersion"), none)
		case "stale":
			return textOr(meta(m.stale(name), "resourceVersion"), none)
		case "continue":
			return textOr(m.token, "none")
		}
		return m.namespace
	})
}

func textOr(value any, otherwise string) string {
	if s, ok := value.(string); ok && s != "" {
		return s
	}
	return otherwise
}

// body is the body of a request.
func (m *memory) body(r Request) (string, error) {
	if r.Base == "" {
		return m.fill(r.Body), nil
	}
	obj := m.base(r)
	for _, e := range r.Edits {
		var value any
		if e.Value != "" {
			if err := json.Unmarshal([]byte(m.fill(e.Value)), &value); err != nil {
				return "", fmt.Errorf("the value of %v: %w", e.Path, err)
			}
		}
		setAt(obj, e.Path, value, e.Value == "")
	}
	data, err := json.Marshal(obj)
	return string(data), err
}

func (m *memory) base(r Request) map[string]any {
	var obj map[string]any
	switch r.Base {
	case BaseSeen:
		obj = m.seen(r.Of)
	case BaseStale:
		obj = m.stale(r.Of)
	}
	switch {
	case obj != nil:
		return with(obj)
	case r.Base == BaseNew:
		return m.kind.object(r.Of)
	}
	return with(m.kind.object(r.Of), inMeta("resourceVersion", "1"))
}

// setAt writes to a place in nested maps, or removes it. Nothing happens where something else than
// a map is on the way.
func setAt(obj map[string]any, path []string, value any, remove bool) {
	for _, key := range path[:len(path)-1] {
		if obj[key] == nil {
			obj[key] = map[string]any{}
		}
		next, ok := obj[key].(map[string]any)
		if !ok {
			return
		}
		obj = next
	}
	if last := path[len(path)-1]; remove {
		delete(obj, last)
	} else {
		obj[last] = value
	}
}
