package retry

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

// A transmission is what the transport tells the engine of one request, through
// the request's context.
type transmission struct {
	count      atomic.Int32
	retryAfter atomic.Int64 // a time.Duration
}

type transmissionKey struct{}

func withTransmission(ctx context.Context) (context.Context, *transmission) {
	t := new(transmission)
	return context.WithValue(ctx, transmissionKey{}, t), t
}

// CountTransmission tells the engine, through the context that it gave a
// request, that this request is being transmitted. Whatever stands in for the
// transport, such as a model of an apiserver, calls it once for each time that
// the request goes out. Without the engine's context it does nothing.
func CountTransmission(ctx context.Context) {
	if t, ok := ctx.Value(transmissionKey{}).(*transmission); ok {
		t.count.Add(1)
	}
}

// errSecond is what a request gets that somebody tries to send again.
var errSecond = errors.New("not sent again: one request is one transmission")

// WithTransport returns a copy of cfg whose requests pass through the engine's
// transport (rule C7). For the engine's own requests it
//
//   - lets one request be transmitted once and counts it, so that the engine
//     knows what a 409 means;
//   - keeps the Retry-After of a 429 or 5xx from client-go, which would answer
//     it by sending the request again, and hands it to the engine;
//   - sends nothing once the deadline has passed, however long a rate limiter
//     kept the request waiting.
//
// It sits below every other wrapper of cfg, next to the wire. Requests of
// others that use the same config pass untouched. So would the engine's own if a
// wrapper replaced their context: it must pass on the one that it was given.
func WithTransport(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	ours := func(next http.RoundTripper) http.RoundTripper { return &onceTransport{next} }
	cfg.WrapTransport = transport.Wrappers(ours, cfg.WrapTransport)
	return cfg
}

type onceTransport struct{ next http.RoundTripper }

// WrappedRoundTripper lets client-go see through the wrapper.
func (o *onceTransport) WrappedRoundTripper() http.RoundTripper { return o.next }

func (o *onceTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	t, ok := req.Context().Value(transmissionKey{}).(*transmission)
	if !ok {
		return o.next.RoundTrip(req)
	}
	if err := admit(req.Context(), t); err != nil {
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, err
	}
	resp, err := o.next.RoundTrip(req)
	if err == nil && (resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500) {
		t.retryAfter.Store(int64(parseRetryAfter(resp.Header.Get("Retry-After"))))
		resp.Header.Del("Retry-After")
	}
	return resp, err
}

// admit counts a transmission, or says why it must not take place.
func admit(ctx context.Context, t *transmission) error {
	if err := expired(ctx); err != nil {
		return err
	}
	if !t.count.CompareAndSwap(0, 1) {
		return errSecond
	}
	return nil
}

// expired returns why no request may leave any more, nil if one may.
func expired(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if d, ok := ctx.Deadline(); ok && !time.Now().Before(d) {
		return context.DeadlineExceeded
	}
	return nil
}

// parseRetryAfter reads both forms of the header: seconds, or a date.
func parseRetryAfter(s string) time.Duration {
	const longest = 24 * 60 * 60
	if n, err := strconv.ParseInt(s, 10, 64); n > 0 && (err == nil || errors.Is(err, strconv.ErrRange)) {
		return time.Duration(min(n, longest)) * time.Second
	}
	at, _ := http.ParseTime(s) // what is no date is long past
	return max(0, time.Until(at))
}
