package rapidtest

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"strconv"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// wireCopy copies v as a trip over the wire would: what comes back shares nothing with v and holds
// only the types that unstructured content may hold (nil, bool, string, int64, float64, []any,
// map[string]any). It also says roughly how many bytes v takes as JSON. Types that are not JSON
// trees already (an int, a []string, a struct) go through encoding/json.
func wireCopy(v any) (any, int, error) {
	switch v := v.(type) {
	case nil:
		return nil, 4, nil
	case bool:
		return v, 5, nil
	case string:
		return v, len(v) + 2, nil
	case int64:
		return v, 8, nil
	case int:
		return int64(v), 8, nil
	case int32:
		return int64(v), 8, nil
	case float64:
		return wireNumber(v), 8, nil
	case map[string]any:
		return wireCopyMap(v)
	case []any:
		return wireCopySlice(v)
	default:
		return wireCopyForeign(v)
	}
}

func wireCopyMap(m map[string]any) (any, int, error) {
	if m == nil {
		return nil, 4, nil
	}
	out := make(map[string]any, len(m))
	size := 2
	for k, v := range m {
		c, n, err := wireCopy(v)
		if err != nil {
			return nil, 0, err
		}
		out[k] = c
		size += len(k) + n + 4
	}
	return out, size, nil
}

func wireCopySlice(s []any) (any, int, error) {
	if s == nil {
		return nil, 4, nil
	}
	out := make([]any, len(s))
	size := 2
	for i, v := range s {
		c, n, err := wireCopy(v)
		if err != nil {
			return nil, 0, err
		}
		out[i] = c
		size += n + 1
	}
	return out, size, nil
}

// wireNumber reads a float as JSON would be read back: 3.0 is written as 3 and comes back whole.
func wireNumber(f float64) any {
	if f == math.Trunc(f) && math.Abs(f) < 1<<53 {
		return int64(f)
	}
	return f
}

func wireCopyForeign(v any) (any, int, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, 0, fmt.Errorf("encode %T: %w", v, err)
	}
	var out any
	if err := utiljson.Unmarshal(data, &out); err != nil {
		return nil, 0, fmt.Errorf("decode %T: %w", v, err)
	}
	return out, len(data), nil
}

// wireCopyObject is wireCopy for the content of an object.
func wireCopyObject(m map[string]any) (map[string]any, int, error) {
	v, size, err := wireCopy(m)
	if err != nil {
		return nil, 0, err
	}
	out, ok := v.(map[string]any)
	if !ok {
		out = map[string]any{}
	}
	return out, size, nil
}

// sameValue reports whether two JSON trees are equal. A missing and an empty map are different, as
// they are on disk.
func sameValue(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		return ok && sameMap(a, b)
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, sameValue)
	default:
		switch b.(type) {
		case map[string]any, []any:
			return false
		}
		return a == b
	}
}

func sameMap(a, b map[string]any) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		w, ok := b[k]
		if !ok || !sameValue(v, w) {
			return false
		}
	}
	return true
}

// sameMapBut is sameMap with one key left out of the comparison.
func sameMapBut(a, b map[string]any, key string) bool {
	count := func(m map[string]any) int {
		if _, ok := m[key]; ok {
			return len(m) - 1
		}
		return len(m)
	}
	if count(a) != count(b) {
		return false
	}
	for k, v := range a {
		if k == key {
			continue
		}
		w, ok := b[k]
		if !ok || !sameValue(v, w) {
			return false
		}
	}
	return true
}

// hasher is a 64 bit FNV-1a over canonical text: the same content has the same sum in every process.
type hasher struct {
	buf []byte
}

func (h *hasher) text(s string) {
	h.buf = strconv.AppendQuote(h.buf, s)
}

func (h *hasher) number(n uint64) {
	h.buf = append(strconv.AppendUint(h.buf, n, 10), ';')
}

func (h *hasher) value(v any) {
	switch v := v.(type) {
	case map[string]any:
		h.tree(v, nil)
	case []any:
		h.buf = append(h.buf, '[')
		for _, e := range v {
			h.value(e)
		}
		h.buf = append(h.buf, ']')
	case string:
		h.text(v)
	case int64:
		h.buf = append(strconv.AppendInt(h.buf, v, 10), ';')
	case float64:
		h.buf = append(strconv.AppendFloat(h.buf, v, 'g', -1, 64), ';')
	case bool:
		h.buf = append(strconv.AppendBool(h.buf, v), ';')
	default:
		h.buf = append(h.buf, 'n', ';')
	}
}

// tree writes a map in key order. The keys in masked are written without their values.
func (h *hasher) tree(m map[string]any, masked map[string]bool) {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	h.buf = append(h.buf, '{')
	for _, k := range keys {
		h.text(k)
		if !masked[k] {
			h.value(m[k])
		}
	}
	h.buf = append(h.buf, '}')
}

func (h *hasher) sum() uint64 {
	f := fnv.New64a()
	f.Write(h.buf)
	return f.Sum64()
}
