package rapidtest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// firstResourceVersion is where a server starts to count. The first writes are 9, 10, 11, ...: code
// that compares them as text, or takes them apart, trips at once.
const firstResourceVersion = 8

// objectKey is where an object is stored.
type objectKey struct {
	gvr             schema.GroupVersionResource
	namespace, name string
}

func (k objectKey) compare(o objectKey) int {
	return cmp.Or(
		cmp.Compare(k.gvr.Group, o.gvr.Group),
		cmp.Compare(k.gvr.Version, o.gvr.Version),
		cmp.Compare(k.gvr.Resource, o.gvr.Resource),
		cmp.Compare(k.path(), o.path()),
	)
}

// path orders the objects of a resource as etcd does.
func (k objectKey) path() string {
	if k.namespace == "" {
		return k.name
	}
	return k.namespace + "/" + k.name
}

// etcdKey is how the real server names the object in the text of storage errors.
func (k objectKey) etcdKey() string {
	if !isCustom(k.gvr) {
		return "/registry/" + k.gvr.Resource + "/" + k.path()
	}
	return "/registry/" + k.gvr.Group + "/" + k.gvr.Resource + "/" + k.path()
}

// isCustom tells custom resources from built-in ones.
func isCustom(gvr schema.GroupVersionResource) bool { return strings.Contains(gvr.Group, ".") }

// stored is one version of an object. Once stored it is never changed: versions, snapshots and
// answers share it.
type stored struct {
	obj *unstructured.Unstructured
	rv  int64
	// sum is the hash of the content, made when it is first asked for; guarded by the server's mutex.
	sum    uint64
	summed bool
}

// A Commit is one write as it was stored. What it points to is shared and must not be changed.
type Commit struct {
	// ResourceVersion is the write's place in the one order of all writes.
	ResourceVersion int64
	// Time is when it was stored.
	Time time.Time
	// Type is Added, Modified or Deleted.
	Type watch.EventType
	// GVR, Namespace and Name say which object was written.
	GVR             schema.GroupVersionResource
	Namespace, Name string
	// Object is the object as stored. Of a delete it is the last state, with the resourceVersion of
	// the delete.
	Object *unstructured.Unstructured
	// Previous is the object as it was before; nil for a create.
	Previous *unstructured.Unstructured
	// Request is the request that did it.
	Request *Request

	prev *Commit
}

// String gives the commit in one line, for timelines.
func (c Commit) String() string {
	return fmt.Sprintf("rv=%d %s %s %s (%s)", c.ResourceVersion, c.Type, c.GVR.Resource, objectKey{c.GVR, c.Namespace, c.Name}.path(), c.Request)
}

// state is all that a server has stored. Copying it is cheap: the map is copied only when one of
// the two copies is written to.
type state struct {
	objects   map[objectKey]*stored
	shared    bool
	rv        int64
	compacted int64
	cached    int64 // where the watch cache stands; 0 where it keeps up
	uids      int64
	names     int64
	last      *Commit
}

func newState() state {
	return state{objects: map[objectKey]*stored{}, rv: firstResourceVersion}
}

// own makes the map safe to write to.
func (st *state) own() {
	if st.shared {
		st.objects, st.shared = maps.Clone(st.objects), false
	}
}

// put stores obj as the next version of key, or removes key where obj is nil, and returns the commit.
func (st *state) put(key objectKey, obj *unstructured.Unstructured, req *Request) *Commit {
	st.own()
	st.rv++
	c := &Commit{
		ResourceVersion: st.rv, Time: time.Now(), Type: watch.Modified, GVR: key.gvr, Namespace: key.namespace, Name: key.name,
		Object: obj, Request: req, prev: st.last,
	}
	old := st.objects[key]
	switch {
	case obj == nil:
		c.Type, c.Previous, c.Object = watch.Deleted, old.obj, withResourceVersion(old.obj, st.rv)
		delete(st.objects, key)
	case old == nil:
		c.Type = watch.Added
	default:
		c.Previous = old.obj
	}
	if obj != nil {
		obj.SetResourceVersion(strconv.FormatInt(st.rv, 10))
		st.objects[key] = &stored{obj: obj, rv: st.rv}
	}
	st.last = c
	return c
}

// since returns the commits after rv in order.
func (st *state) since(rv int64) []*Commit {
	var out []*Commit
	for c := st.last; c != nil && c.ResourceVersion > rv; c = c.prev {
		out = append(out, c)
	}
	slices.Reverse(out)
	return out
}

// at returns the objects of a resource as they were at rv.
func (st *state) at(gvr schema.GroupVersionResource, rv int64) map[objectKey]*unstructured.Unstructured {
	out := map[objectKey]*unstructured.Unstructured{}
	for k, v := range st.objects {
		if k.gvr == gvr {
			out[k] = v.obj
		}
	}
	for c := st.last; c != nil && c.ResourceVersion > rv; c = c.prev {
		if c.GVR != gvr {
			continue
		}
		key := objectKey{c.GVR, c.Namespace, c.Name}
		if c.Previous == nil {
			delete(out, key)
		} else {
			out[key] = c.Previous
		}
	}
	return out
}

// withResourceVersion is obj with another resourceVersion; it shares everything else with obj.
func withResourceVersion(obj *unstructured.Unstructured, rv int64) *unstructured.Unstructured {
	return withVersionText(obj, strconv.FormatInt(rv, 10))
}

func withVersionText(obj *unstructured.Unstructured, rv string) *unstructured.Unstructured {
	content := maps.Clone(obj.Object)
	meta, _ := content["metadata"].(map[string]any)
	meta = maps.Clone(meta)
	meta["resourceVersion"] = rv
	content["metadata"] = meta
	return &unstructured.Unstructured{Object: content}
}

// contentHash hashes an object without what differs between two histories that come to the same:
// its resourceVersion and generation, and the moments (not the presence) of its creation and
// deletion.
func (s *stored) contentHash() uint64 {
	if s.summed {
		return s.sum
	}
	content := maps.Clone(s.obj.Object)
	meta, _ := content["metadata"].(map[string]any)
	delete(content, "metadata")
	h := &hasher{}
	h.tree(content, nil)
	h.tree(meta, map[string]bool{"resourceVersion": true, "generation": true, "creationTimestamp": true, "deletionTimestamp": true})
	s.sum, s.summed = h.sum(), true
	return s.sum
}

// hash hashes the whole state; see Server.StateHash.
func (st *state) hash(remembered []string) uint64 {
	keys := lo.Keys(st.objects)
	slices.SortFunc(keys, objectKey.compare)
	h := &hasher{}
	current := make(map[string]int, len(keys))
	for i, k := range keys {
		v := st.objects[k]
		h.text(k.etcdKey())
		h.number(v.contentHash())
		current[strconv.FormatInt(v.rv, 10)] = i
	}
	stale := map[string]int{}
	for _, rv := range remembered {
		if i, ok := current[rv]; ok {
			h.number(uint64(i))
			continue
		}
		if _, ok := stale[rv]; !ok {
			stale[rv] = len(stale)
		}
		h.buf = append(h.buf, 's')
		h.number(uint64(stale[rv]))
	}
	return h.sum()
}

// A Snapshot is all that a server had stored at one moment, its history included. It stays as it is
// whatever happens later.
type Snapshot struct {
	state state
}

// Snapshot remembers what the server has stored now, at next to no cost.
func (s *Server) Snapshot() Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.shared = true
	return Snapshot{state: s.state}
}

// Restore puts the server back to a snapshot of it or of another server with the same resources.
// Watches end; requests under way find what they find. What is no part of the store (middlewares,
// hooks, the numbers of requests) stays as it is.
func (s *Server) Restore(snap Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state = snap.state
	if s.state.objects == nil {
		s.state = newState()
	}
	s.state.shared = true
	s.endWatches()
}

// Clone returns a server of its own with the same resources, rules, hooks and content, and no watches.
func (s *Server) Clone() *Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.shared = true
	out := &Server{
		RequestTimeout: s.RequestTimeout,
		resources:      s.resources,
		order:          s.order,
		state:          s.state,
		watches:        map[*watchStream]struct{}{},
		middlewares:    slices.Clone(s.middlewares),
		authorizer:     s.authorizer,
		mutating:       slices.Clone(s.mutating),
		validating:     slices.Clone(s.validating),
		commitHooks:    slices.Clone(s.commitHooks),
	}
	out.ids.Store(s.ids.Load())
	out.rechain()
	return out
}

// StateHash hashes what is stored: two servers with equal hashes answer alike from now on, as far
// as optimistic concurrency goes. It takes no account of what only history decides: the numbers of
// resourceVersions, generations, and the times of creation and deletion. resourceVersions that a
// client still remembers go into remembered, in an order of the caller's own; what counts of each
// is which object it is current for, if any, and which of the others it equals. The hash is the
// same in every process.
func (s *Server) StateHash(remembered ...string) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.hash(remembered)
}

// History returns every commit so far, in order. The commits are shared and must not be changed.
func (s *Server) History() []Commit {
	s.mu.Lock()
	defer s.mu.Unlock()
	return lo.Map(s.state.since(0), func(c *Commit, _ int) Commit { return *c })
}

// HistoryOf returns the commits of one object in order.
func (s *Server) HistoryOf(gvr schema.GroupVersionResource, namespace, name string) []Commit {
	return lo.Filter(s.History(), func(c Commit, _ int) bool {
		return c.GVR == gvr && c.Namespace == namespace && c.Name == name
	})
}

// Stored returns the object as it is stored now, for tests to look at, past all middlewares and
// authorization; nil where there is none. It is shared and must not be changed.
func (s *Server) Stored(gvr schema.GroupVersionResource, namespace, name string) *unstructured.Unstructured {
	if v := s.load(objectKey{gvr, namespace, name}); v != nil {
		return v.obj
	}
	return nil
}

// StoredAll returns all objects of a resource as they are stored now, ordered by namespace and
// name. They are shared and must not be changed.
func (s *Server) StoredAll(gvr schema.GroupVersionResource) []*unstructured.Unstructured {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys := lo.Filter(lo.Keys(s.state.objects), func(k objectKey, _ int) bool { return k.gvr == gvr })
	slices.SortFunc(keys, objectKey.compare)
	return lo.Map(keys, func(k objectKey, _ int) *unstructured.Unstructured { return s.state.objects[k].obj })
}

// ResourceVersion is the resourceVersion of the latest write.
func (s *Server) ResourceVersion() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.rv
}

// ExpireContinueTokens compacts the store: every continue token handed out so far, and every watch
// or list that would start from an earlier resourceVersion, is answered 410 Expired from now on.
// [Server.History] stays complete.
func (s *Server) ExpireContinueTokens() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.rv++ // as the writes of other resources do, so that a token of this very moment is too old as well
	s.state.compacted = s.state.rv
}

// FreezeCache has the server's watch cache stand still: gets and lists that leave the
// resourceVersion to the server ("0"), or ask for one that the cache has, are answered from what is
// stored now, however much is written meanwhile. Real ones lag by moments. Reads that give no
// resourceVersion are answered from what is stored when they arrive, as always.
func (s *Server) FreezeCache() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.cached = s.state.rv
}

// ThawCache has the watch cache keep up again.
func (s *Server) ThawCache() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.cached = 0
}

func (s *Server) load(key objectKey) *stored {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.objects[key]
}

// swap stores obj (nil removes) if what is stored is still old, and tells watches and hooks. Like
// etcd's transaction it either happens whole or reports false.
func (s *Server) swap(key objectKey, old *stored, obj *unstructured.Unstructured, req *Request) bool {
	s.commitMu.Lock()
	defer s.commitMu.Unlock()
	c, hooks := s.swapLocked(key, old, obj, req)
	if c == nil {
		return false
	}
	for _, hook := range hooks {
		hook(*c)
	}
	return true
}

func (s *Server) swapLocked(key objectKey, old *stored, obj *unstructured.Unstructured, req *Request) (*Commit, []func(Commit)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state.objects[key] != old {
		return nil, nil
	}
	c := s.state.put(key, obj, req)
	for w := range s.watches {
		w.commit(c)
	}
	return c, s.commitHooks
}
