//go:build e2e

package holdtest

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubehold/kubehold/rapidtest/realstack/cluster"
)

// registry is what the keys begin with under which kube-apiserver stores objects.
const registry = "/registry/"

// recorded are the resources whose versions a recorder keeps, by what their keys begin with.
func recorded() []string {
	return []string{podKeys, workloadKeys, trainJobKeys}
}

const (
	podKeys      = registry + "pods/"
	workloadKeys = registry + "kueue.x-k8s.io/workloads/"
	trainJobKeys = registry + "trainer.kubeflow.org/trainjobs/"
)

// A version is one version of an object, or its end, where object is nil.
type version struct {
	key      string
	revision int64
	seen     time.Time // a moment after it was committed
	object   *cluster.Object
}

// A recorder keeps every version of the recorded resources. It watches etcd, so
// that it sees all of what was committed, in order, whatever happens to
// kube-apiserver, which has to store everything as JSON.
type recorder struct {
	url string

	mu       sync.Mutex
	versions []version
	revision int64
}

// run records until ctx ends, from the first revision on.
func (r *recorder) run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := r.watch(ctx); err != nil && ctx.Err() == nil {
			time.Sleep(50 * time.Millisecond)
		}
	}
}

// An etcdEvent is a change as etcd's HTTP gateway tells it.
type etcdEvent struct {
	Type string `json:"type"`
	KV   struct {
		Key      []byte `json:"key"`
		Value    []byte `json:"value"`
		Revision string `json:"mod_revision"`
	} `json:"kv"`
}

func (r *recorder) watch(ctx context.Context) error {
	r.mu.Lock()
	from := r.revision + 1
	r.mu.Unlock()
	end := registry[:len(registry)-1] + string(registry[len(registry)-1]+1)
	body := fmt.Sprintf(`{"create_request": {"key": %q, "range_end": %q, "start_revision": "%d"}}`,
		base64.StdEncoding.EncodeToString([]byte(registry)), base64.StdEncoding.EncodeToString([]byte(end)), from)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+"/v3/watch", bytes.NewBufferString(body))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	stream := json.NewDecoder(response.Body)
	for {
		var message struct {
			Result struct {
				Canceled bool        `json:"canceled"`
				Reason   string      `json:"cancel_reason"`
				Events   []etcdEvent `json:"events"`
			} `json:"result"`
		}
		if err := stream.Decode(&message); err != nil {
			return err
		}
		if message.Result.Canceled {
			return fmt.Errorf("etcd has ended the watch: %s", message.Result.Reason)
		}
		if err := r.add(message.Result.Events); err != nil {
			return err
		}
	}
}

func (r *recorder) add(events []etcdEvent) error {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range events {
		revision, err := strconv.ParseInt(e.KV.Revision, 10, 64)
		if err != nil {
			return err
		}
		key := string(e.KV.Key)
		if slices.ContainsFunc(recorded(), func(keys string) bool { return strings.HasPrefix(key, keys) }) {
			v := version{key: key, revision: revision, seen: now}
			if e.Type != "DELETE" {
				v.object = &cluster.Object{}
				if err := json.Unmarshal(e.KV.Value, &v.object.Object); err != nil {
					return err
				}
			}
			r.versions = append(r.versions, v)
		}
		r.revision = revision
	}
	return nil
}

// under returns the versions so far of the objects whose keys begin like that,
// in the order of their commits.
func (r *recorder) under(keys string) []version {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []version
	for _, v := range r.versions {
		if strings.HasPrefix(v.key, keys) {
			found = append(found, v)
		}
	}
	return found
}

// catchUp waits until everything is recorded that was committed before the call:
// it commits something itself, and waits for that.
func (r *recorder) catchUp(ctx context.Context, c *cluster.Cluster) error {
	mark := &cluster.Object{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}
	mark.SetGenerateName("mark-")
	maps := c.Client().Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace(cluster.Namespace)
	var revision int64
	return cluster.Wait(ctx, "the recorder has caught up", func(ctx context.Context) (bool, any, error) {
		if revision == 0 {
			made, err := maps.Create(ctx, mark, metav1.CreateOptions{})
			if err != nil {
				return false, nil, err
			}
			if revision, err = strconv.ParseInt(made.GetResourceVersion(), 10, 64); err != nil {
				return false, nil, err
			}
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.revision >= revision, fmt.Sprintf("at %d of %d", r.revision, revision), nil
	})
}
