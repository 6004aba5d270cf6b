package rapidtest

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/watch"
)

// watchStream is one watch. Events wait in a queue without bound, so that no writer ever waits for
// a reader.
type watchStream struct {
	sel  selection
	res  *servedResource
	from int64
	// bookmarks are sent only where they were asked for.
	bookmarks bool

	mu     sync.Mutex
	queue  []watch.Event
	wake   chan struct{} // holds a token while there may be something to do
	done   chan struct{} // closed by Stop
	stop   sync.Once
	result chan watch.Event
}

// ResultChan implements watch.Interface.
func (w *watchStream) ResultChan() <-chan watch.Event { return w.result }

// Stop implements watch.Interface.
func (w *watchStream) Stop() { w.stop.Do(func() { close(w.done) }) }

func (s *Server) watch(ctx context.Context, res *servedResource, req *Request) *Response {
	if req.List.SendInitialEvents != nil { // as a server without the WatchList feature; clients fall back to list and watch
		return failure(apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", field.ErrorList{
			field.Forbidden(field.NewPath("sendInitialEvents"), "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"),
		}))
	}
	sel, err := res.selectionOf(req)
	if err != nil {
		return failure(err)
	}
	w := &watchStream{
		sel: sel, res: res, bookmarks: req.List.AllowWatchBookmarks,
		wake: make(chan struct{}, 1), done: make(chan struct{}), result: make(chan watch.Event),
	}
	if err := s.begin(w, req.List.ResourceVersion); err != nil {
		return failure(err)
	}
	var limit time.Duration
	if t := req.List.TimeoutSeconds; t != nil {
		limit = time.Duration(*t) * time.Second
	}
	go w.pump(ctx, limit, func() { s.forget(w) })
	return &Response{Code: http.StatusOK, Watch: w}
}

// begin fills the queue with what happened since rv, or with all there is where no rv is given, and
// follows the commits from there.
func (s *Server) begin(w *watchStream, rv string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if rv == "" || rv == "0" {
		for _, obj := range s.state.page(w.res, w.sel, listPoint{rv: s.state.rv}, 0).Items {
			w.push(watch.Added, &obj)
		}
		w.from = s.state.rv
		s.watches[w] = struct{}{}
		return nil
	}
	from, err := strconv.ParseInt(rv, 10, 64)
	if err != nil {
		return apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", field.ErrorList{
			field.Invalid(field.NewPath("resourceVersion"), rv, err.Error()),
		})
	}
	if from < s.state.compacted {
		expired := apierrors.NewResourceExpired("too old resource version: " + rv + " (" + strconv.FormatInt(s.state.compacted, 10) + ")")
		w.queue = append(w.queue, watch.Event{Type: watch.Error, Object: failure(expired).Status})
		w.Stop()
		return nil
	}
	w.from = from
	for _, c := range s.state.since(from) {
		w.commit(c)
	}
	s.watches[w] = struct{}{}
	return nil
}

func (s *Server) forget(w *watchStream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.watches, w)
}

// endWatches ends all watches, as an apiserver that goes away does. The caller holds the mutex.
func (s *Server) endWatches() {
	for w := range s.watches {
		w.Stop()
	}
}

// EndWatches ends all watches, as an apiserver that restarts does.
func (s *Server) EndWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endWatches()
}

// SendBookmarks sends the watches that asked for bookmarks one with the latest resourceVersion.
func (s *Server) SendBookmarks() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.watches {
		if !w.bookmarks {
			continue
		}
		mark := &unstructured.Unstructured{Object: map[string]any{"kind": w.res.Kind, "apiVersion": w.res.apiVersion()}}
		mark.SetResourceVersion(strconv.FormatInt(s.state.rv, 10))
		w.push(watch.Bookmark, mark)
	}
}

// commit queues what a commit looks like through the watch's selectors.
func (w *watchStream) commit(c *Commit) {
	if c.GVR != w.res.GVR || c.ResourceVersion <= w.from {
		return
	}
	was := c.Previous != nil && w.sel.matches(c.Previous)
	is := c.Type != watch.Deleted && w.sel.matches(c.Object)
	switch {
	case is && was:
		w.push(watch.Modified, c.Object)
	case is:
		w.push(watch.Added, c.Object)
	case was:
		w.push(watch.Deleted, withResourceVersion(c.Previous, c.ResourceVersion))
	}
}

func (w *watchStream) push(kind watch.EventType, obj *unstructured.Unstructured) {
	w.mu.Lock()
	w.queue = append(w.queue, watch.Event{Type: kind, Object: obj})
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *watchStream) pop() (watch.Event, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) == 0 {
		return watch.Event{}, false
	}
	e := w.queue[0]
	w.queue = w.queue[1:]
	return e, true
}

// pump hands the queue to the reader until the watch is stopped, its context ends, or its time is
// over. What is stopped is drained of what it has only if that is an error.
func (w *watchStream) pump(ctx context.Context, limit time.Duration, forget func()) {
	defer close(w.result)
	defer forget()
	var over <-chan time.Time
	if limit > 0 {
		t := time.NewTimer(limit)
		defer t.Stop()
		over = t.C
	}
	for {
		e, ok := w.pop()
		if !ok {
			select {
			case <-w.wake:
				continue
			case <-w.done:
			case <-ctx.Done():
			case <-over:
			}
			return
		}
		done := w.done
		if e.Type == watch.Error {
			done = nil
		} else {
			e.Object = e.Object.DeepCopyObject()
		}
		select {
		case w.result <- e:
		case <-done:
			return
		case <-ctx.Done():
			return
		case <-over:
			return
		}
	}
}
