//go:build e2e

package holdtest

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kubehold/kubehold/rapidtest/realstack/cluster"
	"github.com/kubehold/kubehold/rapidtest/realstack/stack"
)

const (
	// requestTimeout is the --request-timeout of the stack's kube-apiserver.
	requestTimeout = 5 * time.Second
	// slowPods is how long a deleted pod takes to end.
	slowPods = 3 * time.Second
	// slowName is a runtime whose pods take slowerPods to end.
	slowName   = "slow"
	slowerPods = 10 * time.Second
	// runtimeName is a runtime that every job can be made from.
	runtimeName = "sleep"
	// waits bounds everything that a test waits for.
	waits = 2 * time.Minute
)

// A world is the stack that the tests share, and what watches it.
type world struct {
	stack    *stack.Stack
	cluster  *cluster.Cluster
	recorder *recorder
}

// shared is set by TestMain.
var shared *world

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) (code int) {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	s, err := stack.Start(ctx, stack.Options{
		SlowPods:      slowPods,
		APIServerArgs: []string{fmt.Sprintf("--request-timeout=%v", requestTimeout), "--storage-media-type=application/json"},
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := s.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}()
	if shared, err = newWorld(ctx, s); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

func newWorld(ctx context.Context, s *stack.Stack) (*world, error) {
	c, err := cluster.New(s.RESTConfig())
	if err != nil {
		return nil, err
	}
	w := &world{stack: s, cluster: c, recorder: &recorder{url: s.EtcdURL()}}
	go w.recorder.run(ctx)
	soon, cancel := context.WithTimeout(ctx, waits)
	defer cancel()
	if err := c.CreateNodes(soon, 3); err != nil {
		return nil, err
	}
	if err := c.CreateRuntime(soon, cluster.Runtime{Name: runtimeName}); err != nil {
		return nil, err
	}
	return w, c.CreateRuntime(soon, cluster.Runtime{Name: slowName,
		PodAnnotations: map[string]any{stack.EndsAfter: slowerPods.String()}})
}

// config is the way of a user who may do everything, without a limit of its own.
func (w *world) config() *rest.Config {
	cfg := w.stack.RESTConfig()
	cfg.QPS = -1
	return cfg
}
