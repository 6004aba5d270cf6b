//go:build e2e

package gatetest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kubehold/kubehold/rapidtest/realstack/cluster"
	"github.com/kubehold/kubehold/rapidtest/realstack/internal/gotool"
	"github.com/kubehold/kubehold/rapidtest/realstack/stack"
)

const (
	// slowPods is how long a deleted pod takes to end.
	slowPods = 3 * time.Second
	// parallel is how many jobs are held and released at the same time.
	parallel = 20
	// runtimeName is the runtime of all jobs: each execution is one pod.
	runtimeName = "sleep"
	// gateUser is the user as whom the gate runs. He may do what the gate's
	// manifest grants, and nothing else.
	gateUser = "user-a"
	// example is the folder of the gate's program.
	example = "../../../examples/readmission-gate"
	// patience bounds everything that a test waits for, on a machine that may
	// have more to do than this.
	patience = 3 * time.Minute
)

// shared is the stack that the tests share; set by TestMain.
var shared *world

// A world is a whole stack, with the gate's program beside it.
type world struct {
	stack   *stack.Stack
	cluster *cluster.Cluster
	program string
	dir     string
}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) (code int) {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "gatetest-*")
	if err == nil {
		defer os.RemoveAll(dir)
		shared = &world{dir: dir, program: filepath.Join(dir, "readmission-gate")}
		_, err = gotool.Run(ctx, example, dir, "build", "-o", shared.program, ".")
	}
	if err == nil {
		shared.stack, err = stack.Start(ctx, stack.Options{SlowPods: slowPods})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := shared.stack.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}()
	if err := shared.prepare(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

func (w *world) prepare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var err error
	if w.cluster, err = cluster.New(w.stack.RESTConfig()); err != nil {
		return err
	}
	if err := w.cluster.CreateNodes(ctx, 3); err != nil {
		return err
	}
	if err := w.cluster.CreateRuntime(ctx, cluster.Runtime{Name: runtimeName}); err != nil {
		return err
	}
	return w.grant(ctx)
}
