//go:build e2e

package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kubehold/kubehold/rapidtest"
	"github.com/kubehold/kubehold/rapidtest/conformance"
	"github.com/kubehold/kubehold/rapidtest/realstack/stack"
)

const (
	// generatedRequests is how many drawn requests the model has to answer as the real apiserver does.
	generatedRequests = 10_000
	// generatedTime is the longest that their comparison may take.
	generatedTime = 10 * time.Minute
	// generatedPlayers is how many scripts are played at a time, each in a namespace of its own.
	generatedPlayers = 6
	// seedVariable is the environment variable that names the seed to begin with.
	seedVariable = "KUBEHOLD_SEED"
)

// The model answers drawn requests, ten thousand of them, as the real apiserver does. A difference is printed with the shortest script that
// shows it.
func TestModelConformsOnGeneratedRequests(t *testing.T) {
	seed, err := strconv.Atoi(cmp.Or(os.Getenv(seedVariable), "1"))
	if err != nil {
		t.Fatalf("%s: %v", seedVariable, err)
	}
	s, err := stack.Start(t.Context(), stack.Options{APIServerOnly: true, Progress: testWriter{t}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), generatedTime)
	defer cancel()
	cfg := rest.CopyConfig(s.RESTConfig())
	cfg.QPS = -1
	work := &comparison{ctx: ctx, real: cfg, next: seed}
	var players sync.WaitGroup
	for i := range generatedPlayers {
		namespace := fmt.Sprintf("scripts-%d", i)
		createNamespace(t, cfg, namespace)
		players.Go(func() { work.play(namespace) })
	}
	players.Wait()
	t.Logf("%d requests compared, in the scripts of the seeds %d to %d", work.compared, seed, work.next-1)
	if work.err != nil {
		t.Error(work.err)
	}
}

// A comparison plays script after script on both servers, until there were enough requests or something differed.
type comparison struct {
	ctx  context.Context
	real *rest.Config

	mu       sync.Mutex
	next     int // the next seed
	compared int
	err      error
}

// take returns the next seed; false where there is nothing left to do.
func (c *comparison) take() (int, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil || c.compared >= generatedRequests {
		return 0, false
	}
	c.next++
	return c.next - 1, true
}

// report takes down what came of a script.
func (c *comparison) report(requests int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.compared += requests
	c.err = errors.Join(c.err, err)
}

func (c *comparison) play(namespace string) {
	for seed, ok := c.take(); ok; seed, ok = c.take() {
		script := conformance.Generate(seed)
		diff, err := c.compare(namespace, script)
		if diff != "" {
			err = c.explain(namespace, seed, script, diff)
		}
		if err != nil {
			err = fmt.Errorf("seed %d: %w", seed, err)
		}
		c.report(len(script.Requests), err)
	}
}

// compare plays a script on both servers and says what differed.
func (c *comparison) compare(namespace string, script conformance.Script) (string, error) {
	want, err := conformance.Play(c.ctx, c.real, namespace, script)
	if err != nil {
		return "", err
	}
	model := rapidtest.NewServer(rapidtest.TrainJobs(), rapidtest.Workloads(), rapidtest.JobSets())
	got, err := conformance.Play(c.ctx, model.RESTConfig("admin"), namespace, script)
	if err != nil {
		return "", err
	}
	return conformance.Diff(want, got), nil
}

// explain is the error of a script on which the servers differed: the shortest that still shows it.
func (c *comparison) explain(namespace string, seed int, script conformance.Script, diff string) error {
	short := conformance.Shrink(script, func(s conformance.Script) bool {
		d, err := c.compare(namespace, s)
		if err != nil || d == "" {
			return false
		}
		diff = d
		return true
	})
	return fmt.Errorf("the servers differ (- real, + model; %s=%d draws it again)\n%s%s", seedVariable, seed, short, diff)
}
