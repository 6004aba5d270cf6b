package probe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kubehold/kubehold/retry"
)

// longestStep is the most that one step of the probe may take.
const longestStep = 15 * time.Second

// A wire is the probe's way to the apiserver. All that goes over it has a
// deadline, is sent once, and is timed.
type wire struct {
	objects dynamic.Interface
	paths   rest.Interface
	engine  *retry.Engine
	seen    *timings
}

// newWire returns a wire to the apiserver of cfg, without the client's own rate
// limit: a probe is over after some dozens of requests.
func newWire(cfg *rest.Config, engine retry.Options) (*wire, error) {
	w := &wire{seen: new(timings)}
	cfg = dynamic.ConfigFor(cfg)
	cfg.QPS, cfg.RateLimiter = -1, nil
	cfg.WarningHandler, cfg.WarningHandlerWithContext = rest.NoWarnings{}, nil
	cfg.Wrap(w.seen.wrap)
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, err
	}
	if w.objects, err = dynamic.NewForConfigAndClient(cfg, client); err != nil {
		return nil, err
	}
	if w.paths, err = rest.UnversionedRESTClientForConfigAndClient(cfg, client); err != nil {
		return nil, err
	}
	w.engine, err = retry.New(cfg, engine)
	return w, err
}

// step returns the context of one step: it may take half of the time that is
// left, so that a step that hangs leaves time for the others, and for putting
// things back.
func step(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := longestStep
	if until, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(until)/2)
	}
	return context.WithTimeout(ctx, limit)
}

// get reads the JSON document at a path.
func (w *wire) get(ctx context.Context, path string, into any) error {
	ctx, cancel := step(ctx)
	defer cancel()
	body, err := w.paths.Get().AbsPath(path).DoRaw(ctx)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// in is a resource in a namespace, or in none.
func (w *wire) in(resource schema.GroupVersionResource, namespace string) dynamic.ResourceInterface {
	if namespace == "" {
		return w.objects.Resource(resource)
	}
	return w.objects.Resource(resource).Namespace(namespace)
}

// code returns the HTTP status that err carries, 0 if it carries none.
func code(err error) int32 {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return status.Status().Code
	}
	return 0
}

// refused reports whether err is a definite no, which another try would get
// again.
func refused(err error) bool {
	c := code(err)
	return c >= 400 && c < 500 && c != http.StatusTooManyRequests && c != http.StatusConflict
}

// timings are what the answers tell of the apiserver's speed and clock.
type timings struct {
	mu   sync.Mutex
	took []time.Duration
	// The apiserver's clock is at least low and at most high ahead of ours. A
	// Date header is cut to seconds, so that every answer narrows it down. Of
	// several apiservers whose clocks differ, high may come before low.
	low, high time.Duration
	dated     bool
}

func (t *timings) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		sent := time.Now()
		resp, err := next.RoundTrip(req)
		if err == nil {
			// The apiserver makes its OpenAPI documents when somebody asks, which
			// takes long and tells nothing of other requests.
			t.add(sent, time.Now(), resp.Header.Get("Date"), !strings.Contains(req.URL.Path, "/openapi/"))
			// It would make client-go wait, and send again by itself.
			resp.Header.Del("Retry-After")
		}
		return resp, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func (t *timings) add(sent, received time.Time, date string, typical bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if typical {
		t.took = append(t.took, received.Sub(sent))
	}
	at, err := http.ParseTime(date)
	if err != nil {
		return
	}
	low, high := at.Sub(received), at.Add(time.Second).Sub(sent)
	if !t.dated {
		t.low, t.high, t.dated = low, high, true
		return
	}
	t.low, t.high = max(t.low, low), min(t.high, high)
}

// skew returns by how much the apiserver's clock is ahead of ours, at least and
// at most.
func (t *timings) skew() (low, high time.Duration, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return min(t.low, t.high), max(t.low, t.high), t.dated
}

// latency returns how long answers took: the middle one, the slowest, and how
// many there were.
func (t *timings) latency() (median, slowest time.Duration, answers int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.took) == 0 {
		return 0, 0, 0
	}
	sorted := slices.Sorted(slices.Values(t.took))
	return sorted[len(sorted)/2], sorted[len(sorted)-1], len(sorted)
}
