//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/kubehold/kubehold/rapidtest/realstack/cluster"
	"github.com/kubehold/kubehold/rapidtest/realstack/stack"
)

const (
	queueName   = "main"
	runtimeName = "sleep"
)

// waits bounds everything that a test waits for.
const waits = 2 * time.Minute

// testWriter shows a stack's progress in the log of a test.
type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Logf("%s", p)
	return len(p), nil
}

// allVersions is the environment variable that has the tests about the projects
// run with every tested combination of versions, if it is set to "all".
const allVersions = "KUBEHOLD_E2E_VERSIONS"

// eachVersion runs a test with the default versions or with all combinations.
func eachVersion(t *testing.T, test func(*testing.T, stack.Options)) {
	t.Helper()
	for i, v := range stack.TestedVersions() {
		if i > 0 && os.Getenv(allVersions) != "all" {
			return
		}
		t.Run(fmt.Sprintf("Kueue-%s-Trainer-%s", v.Kueue, v.Trainer), func(t *testing.T) {
			test(t, stack.Options{Versions: v})
		})
	}
}

// start starts a whole stack with one node and a runtime, and ends it with the
// test.
func start(t *testing.T, options stack.Options) (*stack.Stack, *cluster.Cluster) {
	t.Helper()
	options.Progress = testWriter{t}
	s, err := stack.Start(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	c, err := cluster.New(s.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	ctx := bounded(t)
	must(t, c.CreateNodes(ctx, 1))
	must(t, c.CreateRuntime(ctx, cluster.Runtime{Name: runtimeName}))
	return s, c
}

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waits)
	t.Cleanup(cancel)
	return ctx
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// runJob makes a TrainJob in the queue and waits until its pod runs.
func runJob(t *testing.T, c *cluster.Cluster, name string) *cluster.Object {
	t.Helper()
	ctx := bounded(t)
	job, err := c.CreateTrainJob(ctx, cluster.TrainJob{Name: name, Runtime: runtimeName, Queue: queueName})
	must(t, err)
	must(t, c.WaitPods(ctx, job, 1))
	return job
}

// setActive writes spec.active on a job's Workload.
func setActive(t *testing.T, c *cluster.Cluster, job *cluster.Object, active bool) *cluster.Object {
	t.Helper()
	ctx := bounded(t)
	workload, err := c.Workload(ctx, job)
	must(t, err)
	workload, err = c.Patch(ctx, cluster.Workloads(), workload, map[string]any{"spec": map[string]any{"active": active}})
	must(t, err)
	return workload
}

func suspended(job *cluster.Object) bool {
	spec, _ := job.Object["spec"].(map[string]any)
	value, _ := spec["suspend"].(bool)
	return value
}

func condition(kind, status, reason string) func(*cluster.Object) bool {
	return func(object *cluster.Object) bool {
		s, r := cluster.Condition(object, kind)
		return s == status && (reason == "" || r == reason)
	}
}
