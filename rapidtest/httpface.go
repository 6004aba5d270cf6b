package rapidtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversionscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// modelHost is the host in the URLs of the model. No name server knows it: a request that left the
// process would fail.
const modelHost = "http://model.invalid"

// Transport returns an http.RoundTripper that carries the REST calls of user to the server without
// any network. As a network would, it gives up as soon as the request's context ends, whatever the
// server goes on to do. Its requests go through mws, which are this transport's own, and then
// through what [Server.Use] has put there.
func (s *Server) Transport(user string, mws ...Middleware) http.RoundTripper {
	return &httpFace{server: s, user: user, trip: chain(s.RoundTrip, mws)}
}

// RESTConfig returns a configuration with which client-go's own clients reach the server as user:
// the dynamic client, with its re-sends and everything, the typed and the discovery clients.
// Client-side rate limiting is off; set QPS and Burst to have it.
func (s *Server) RESTConfig(user string, mws ...Middleware) *rest.Config {
	return &rest.Config{Host: modelHost, Transport: s.Transport(user, mws...), QPS: -1}
}

// Handler returns an http.Handler that serves the same REST calls, for use with net/http/httptest.
// A fault that breaks the connection breaks it here too.
func (s *Server) Handler(user string, mws ...Middleware) http.Handler {
	return &httpHandler{face: httpFace{server: s, user: user, trip: chain(s.RoundTrip, mws)}}
}

type httpFace struct {
	server *Server
	user   string
	trip   RoundTrip
}

// RoundTrip implements http.RoundTripper.
func (f *httpFace) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := readBody(r)
	if err != nil {
		return nil, err
	}
	ctx := r.Context()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if found, ok := f.server.discover(r); ok {
		return httpResponse(ctx, r, found, 0), nil
	}
	req, refused := f.read(r, body)
	if refused != nil {
		return httpResponse(ctx, r, refused, 0), nil
	}
	req.ID = f.server.nextID()
	resp, err := within(ctx, f.trip, req)
	if err != nil {
		return nil, err
	}
	return httpResponse(ctx, r, resp, req.ID), nil
}

func readBody(r *http.Request) ([]byte, error) {
	if r.Body == nil {
		return nil, nil
	}
	defer r.Body.Close()
	return io.ReadAll(io.LimitReader(r.Body, maxBodySize+1))
}

// read makes a Request of an HTTP request, or the answer to one that is no request to an object.
func (f *httpFace) read(r *http.Request, body []byte) (*Request, *Response) {
	req, ok := parsePath(r.URL.Path)
	if !ok {
		return nil, noRoute()
	}
	req.User, req.UserAgent, req.BodySize = f.user, r.UserAgent(), len(body)
	query := r.URL.Query()
	if text := query.Get("timeout"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil {
			return nil, failure(apierrors.NewBadRequest("invalid timeout specified in the request URL - " + err.Error()))
		}
		req.Timeout = max(d, 0)
	}
	var err error
	switch r.Method {
	case http.MethodGet:
		err = readGet(req, query)
	case http.MethodPost, http.MethodPut:
		err = f.readObject(req, r, query, body)
	case http.MethodPatch:
		err = readPatch(req, r, query, body)
	case http.MethodDelete:
		err = readDelete(req, query, body)
	default:
		err = apierrors.NewMethodNotSupported(req.GVR.GroupResource(), strings.ToLower(r.Method))
	}
	if err != nil {
		return nil, failure(err)
	}
	return req, nil
}

// parsePath reads /api/v1/... and /apis/group/version/..., with or without a namespace.
func parsePath(path string) (*Request, bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	req := &Request{}
	switch {
	case len(parts) > 2 && parts[0] == "api":
		req.GVR.Version, parts = parts[1], parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		req.GVR.Group, req.GVR.Version, parts = parts[1], parts[2], parts[3:]
	default:
		return nil, false
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		req.Namespace, parts = parts[1], parts[2:]
	}
	req.GVR.Resource = parts[0]
	if len(parts) > 1 {
		req.Name = parts[1]
	}
	if len(parts) > 2 {
		req.Subresource = strings.Join(parts[2:], "/")
	}
	return req, true
}

func readGet(req *Request, query url.Values) error {
	if req.Name != "" {
		req.Verb, req.List.ResourceVersion = VerbGet, query.Get("resourceVersion")
		return nil
	}
	if err := metav1.Convert_url_Values_To_v1_ListOptions(&query, &req.List, nil); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	req.Verb = VerbList
	if req.List.Watch {
		req.Verb = VerbWatch
	}
	return nil
}

func (f *httpFace) readObject(req *Request, r *http.Request, query url.Values, body []byte) error {
	req.Verb = VerbCreate
	if r.Method == http.MethodPut {
		req.Verb = VerbUpdate
	}
	var opts metav1.UpdateOptions // those of a create are the same
	if err := metav1.Convert_url_Values_To_v1_UpdateOptions(&query, &opts, nil); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	req.FieldManager, req.FieldValidation, req.DryRun = opts.FieldManager, opts.FieldValidation, opts.DryRun
	if kind := contentType(r); kind != "" && kind != "application/json" {
		return errMediaType("application/json", "application/yaml", "application/vnd.kubernetes.protobuf")
	}
	if len(body) == 0 || len(body) > maxBodySize {
		return nil // the server refuses it
	}
	content := map[string]any{}
	if err := utiljson.Unmarshal(body, &content); err != nil {
		kind := "object"
		if res := f.server.resources[req.GVR]; res != nil {
			kind = res.Kind
		}
		return errUnrecognized(kind, "couldn't get version/kind; json parse error: "+err.Error(), body)
	}
	req.Object = &unstructured.Unstructured{Object: content}
	if req.Name == "" {
		req.Name = req.Object.GetName()
	}
	return nil
}

func contentType(r *http.Request) string {
	kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	return strings.TrimSpace(kind)
}

func readPatch(req *Request, r *http.Request, query url.Values, body []byte) error {
	req.Verb = VerbPatch
	var opts metav1.PatchOptions
	if err := metav1.Convert_url_Values_To_v1_PatchOptions(&query, &opts, nil); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	req.FieldManager, req.FieldValidation, req.DryRun = opts.FieldManager, opts.FieldValidation, opts.DryRun
	req.Patch, req.PatchType = body, types.PatchType(contentType(r))
	return nil
}

func readDelete(req *Request, query url.Values, body []byte) error {
	req.Verb = VerbDelete
	if req.Name == "" {
		req.Verb = VerbDeleteCollection
		if err := metav1.Convert_url_Values_To_v1_ListOptions(&query, &req.List, nil); err != nil {
			return apierrors.NewBadRequest(err.Error())
		}
	}
	var err error
	if len(body) > 0 && len(body) <= maxBodySize {
		err = decodeDeleteOptions(body, &req.Delete)
	} else {
		err = metav1.Convert_url_Values_To_v1_DeleteOptions(&query, &req.Delete, nil)
	}
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	req.DryRun = req.Delete.DryRun
	return nil
}

// decodeDeleteOptions reads the body of a delete, which may be of any group that has a DeleteOptions.
func decodeDeleteOptions(body []byte, into *metav1.DeleteOptions) error {
	codecs := metainternalversionscheme.Codecs
	info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeJSON)
	if !ok {
		return json.Unmarshal(body, into)
	}
	gvk := metav1.SchemeGroupVersion.WithKind("DeleteOptions")
	obj, _, err := codecs.DecoderToVersion(info.Serializer, gvk.GroupVersion()).Decode(body, &gvk, into)
	if err == nil && obj != runtime.Object(into) {
		return errors.New("decoded object cannot be converted to DeleteOptions")
	}
	return err
}

// httpResponse writes a Response down.
func httpResponse(ctx context.Context, r *http.Request, resp *Response, id int64) *http.Response {
	out := &http.Response{
		StatusCode: resp.Code, Status: fmt.Sprintf("%d %s", resp.Code, http.StatusText(resp.Code)),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{}, Request: r, ContentLength: -1,
	}
	out.Header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	out.Header.Set("Content-Type", "application/json")
	if id > 0 {
		out.Header.Set("Audit-Id", fmt.Sprintf("00000000-0000-4000-8000-%012x", id))
	}
	if seconds := resp.retryAfter(); seconds > 0 {
		out.Header.Set("Retry-After", strconv.Itoa(seconds))
	}
	for _, w := range resp.Warnings {
		out.Header.Add("Warning", fmt.Sprintf("299 - %q", w))
	}
	if resp.Watch != nil {
		out.Body = &watchBody{ctx: ctx, watch: resp.Watch}
		return out
	}
	data := encodeBody(resp, out.Header)
	out.ContentLength = int64(len(data))
	out.Body = io.NopCloser(bytes.NewReader(data))
	return out
}

func encodeBody(resp *Response, header http.Header) []byte {
	var data []byte
	var err error
	switch {
	case resp.Object != nil:
		data, err = json.Marshal(resp.Object.Object)
	case resp.List != nil:
		data, err = json.Marshal(resp.List.UnstructuredContent())
	case resp.Status != nil:
		data, err = json.Marshal(resp.Status)
	default:
		header.Set("Content-Type", "text/plain; charset=utf-8")
		return []byte(resp.Text)
	}
	if err != nil {
		header.Set("Content-Type", "text/plain; charset=utf-8")
		return []byte(err.Error())
	}
	return append(data, '\n')
}

// watchBody is the stream of a watch: one JSON document for each event.
type watchBody struct {
	ctx   context.Context
	watch watch.Interface
	rest  []byte
}

// Read implements io.Reader.
func (b *watchBody) Read(p []byte) (int, error) {
	if len(b.rest) == 0 {
		event, ok := <-b.watch.ResultChan()
		if !ok {
			if err := b.ctx.Err(); err != nil {
				return 0, err
			}
			return 0, io.EOF
		}
		data, err := encodeEvent(event)
		if err != nil {
			return 0, err
		}
		b.rest = data
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

// Close implements io.Closer.
func (b *watchBody) Close() error {
	b.watch.Stop()
	return nil
}

func encodeEvent(event watch.Event) ([]byte, error) {
	object := any(event.Object)
	if u, ok := event.Object.(*unstructured.Unstructured); ok {
		object = u.Object
	}
	data, err := json.Marshal(map[string]any{"type": event.Type, "object": object})
	return append(data, '\n'), err
}

// httpHandler serves what httpFace carries.
type httpHandler struct{ face httpFace }

// ServeHTTP implements http.Handler.
func (h *httpHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	resp, err := h.face.RoundTrip(r)
	if err != nil {
		hangUp(w, err)
		return
	}
	defer resp.Body.Close()
	for k, v := range resp.Header {
		w.Header()[k] = v
	}
	w.WriteHeader(resp.StatusCode)
	control := http.NewResponseController(w)
	buf := make([]byte, 32<<10)
	for {
		n, err := resp.Body.Read(buf)
		if _, werr := w.Write(buf[:n]); werr != nil || err != nil {
			return
		}
		_ = control.Flush() // a writer that cannot flush sends when it likes
	}
}

// hangUp breaks the connection instead of an answer, where the writer lets it.
func hangUp(w http.ResponseWriter, cause error) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, cause.Error(), http.StatusBadGateway)
		return
	}
	_ = conn.Close() // there is nobody to tell
}
