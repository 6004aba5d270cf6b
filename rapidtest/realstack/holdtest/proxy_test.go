//go:build e2e

package holdtest

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// A harm is what a proxy does to a request. The zero value passes it on.
type harm struct {
	// delay is how long the request is kept before it goes on, whether or not
	// its client waits for it.
	delay time.Duration
	// cut breaks the client's connection instead of passing the request on.
	cut bool
	// drop breaks the client's connection when the answer is there.
	drop bool
}

// A proxy is what lies between a client and kube-apiserver: a process of its own
// would be no further away. Once a request has reached it, its client can no
// longer take it back.
type proxy struct {
	*httptest.Server
	upstream http.RoundTripper
	host     string

	mu   sync.Mutex
	harm func(*http.Request) harm // nil: none

	requests, delayed, cut, dropped atomic.Int64
}

// newProxy returns a proxy to the apiserver of cfg, and the way through it, for
// the user of cfg.
func newProxy(t *testing.T, cfg *rest.Config) (*proxy, *rest.Config) {
	t.Helper()
	upstream, err := rest.TransportFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{upstream: upstream, host: cfg.Host[len("https://"):]}
	p.Server = httptest.NewServer(p)
	t.Cleanup(p.Close)
	return p, &rest.Config{Host: p.URL, QPS: -1}
}

// does says what to do to requests from now on.
func (p *proxy) does(what func(*http.Request) harm) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.harm = what
}

func (p *proxy) harmOf(r *http.Request) harm {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.harm == nil {
		return harm{}
	}
	return p.harm(r)
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.requests.Add(1)
	body, err := io.ReadAll(r.Body)
	if err != nil {
		breakConnection(w)
		return
	}
	h := p.harmOf(r)
	if h.cut {
		p.cut.Add(1)
		breakConnection(w)
		return
	}
	if h.delay > 0 {
		p.delayed.Add(1)
		time.Sleep(h.delay)
	}
	answer, content, err := p.pass(r, body)
	if h.drop || err != nil {
		if h.drop {
			p.dropped.Add(1)
		}
		breakConnection(w)
		return
	}
	for key, values := range answer.Header {
		w.Header()[key] = values
	}
	w.WriteHeader(answer.StatusCode)
	_, _ = w.Write(content) // to a client that may have gone
}

// pass sends a request on. Its context is not the client's, so that it arrives
// even if the client has given up.
func (p *proxy) pass(r *http.Request, body []byte) (*http.Response, []byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out := r.Clone(ctx)
	out.URL.Scheme, out.URL.Host = "https", p.host
	out.RequestURI, out.Host = "", p.host
	out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	out.Header.Del("Accept-Encoding")
	answer, err := p.upstream.RoundTrip(out)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	content, err := io.ReadAll(answer.Body)
	return answer, content, err
}

// breakConnection ends a connection in the middle of a request.
func breakConnection(w http.ResponseWriter) {
	hijacker, ok := w.(http.Hijacker)
	if !ok {
		return
	}
	connection, _, err := hijacker.Hijack()
	if err != nil {
		return
	}
	if tcp, ok := connection.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // a reset, not a farewell
	}
	_ = connection.Close()
}

// some does that to a part of the requests, chosen at random.
func some(part float64, what func() harm) func(*http.Request) harm {
	return func(*http.Request) harm {
		if rand.Float64() >= part {
			return harm{}
		}
		return what()
	}
}
