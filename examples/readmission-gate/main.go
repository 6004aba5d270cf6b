// Readmission-gate is the controller that keeps Kueue from running a job beside
// the pods of its earlier execution, and from readmitting one that is held:
//
//	go run ./examples/readmission-gate -kubeconfig ~/.kube/config -kinds TrainJob,Job
//
// It answers the AdmissionChecks of the controller kubehold.dev/readmission-gate.
// Name one of them in every ClusterQueue (manifests/queue.yaml), give the
// controller its permissions (manifests/rbac.yaml), and run it
// (manifests/deployment.yaml); two replicas need no leader. Kueue asks the check
// before every admission, and nothing runs until it is answered: while no replica
// runs, nothing is admitted, and what runs goes on.
//
// All that decides is in holdable.Gate. What is here calls it whenever something
// has changed: it is level-triggered and keeps nothing, so that it can be killed
// at any time.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/kinds"
	"github.com/kubehold/kubehold/retry"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "readmission-gate:", err)
		os.Exit(1)
	}
}

// A request is what the command line asks for.
type request struct {
	kubeconfig string
	kinds      []holdable.Holdable[bool]
	options    options
	health     string
}

func parse(args []string, complaints io.Writer) (request, error) {
	var r request
	flags := flag.NewFlagSet("readmission-gate", flag.ContinueOnError)
	flags.SetOutput(complaints)
	flags.StringVar(&r.kubeconfig, "kubeconfig", "", "kubeconfig file; empty: the service account of the pod")
	names := flags.String("kinds", "TrainJob", "the kinds of jobs in the guarded queues, of TrainJob, Job and JobSet, separated by commas")
	flags.StringVar(&r.options.prefix, "prefix", "", "prefix of the annotations; empty: the default one, which holders use too")
	flags.StringVar(&r.options.namespace, "namespace", "", "guard the jobs of this namespace only; empty: all")
	flags.IntVar(&r.options.workers, "workers", 8, "jobs that are looked at at the same time")
	flags.StringVar(&r.health, "health", "127.0.0.1:8081", "address of /healthz and /readyz")
	if err := flags.Parse(args); err != nil {
		return r, err
	}
	if flags.NArg() > 0 || r.options.workers < 1 {
		return r, fmt.Errorf("cannot make sense of %q with %d workers", flags.Args(), r.options.workers)
	}
	known := map[string]holdable.Holdable[bool]{"TrainJob": kinds.TrainJob(), "Job": kinds.Job(), "JobSet": kinds.JobSet()}
	for name := range strings.SplitSeq(*names, ",") {
		kind, ok := known[strings.TrimSpace(name)]
		if !ok {
			return r, fmt.Errorf("kind %q is none of TrainJob, Job and JobSet", name)
		}
		r.kinds = append(r.kinds, kinds.OnKueue(kind))
	}
	return r, nil
}

// run does what the arguments say until ctx ends.
func run(ctx context.Context, args []string, logs io.Writer) error {
	r, err := parse(args, logs)
	if err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", r.kubeconfig)
	if err != nil {
		return err
	}
	c, err := connect(config, r, slog.New(slog.NewTextHandler(logs, nil)))
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", r.health)
	if err != nil {
		return err
	}
	stopServing := serveHealth(listener, c.ready)
	defer stopServing()
	return c.run(ctx)
}

// connect makes the controller's two clients: one for what it watches, and the
// engine's, whose requests are not sent twice.
func connect(config *rest.Config, r request, log *slog.Logger) (*controller, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = 100, 200
	watcher, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	engine, err := retry.New(config, retry.Options{})
	if err != nil {
		return nil, err
	}
	return newController(watcher, engine, r.kinds, r.options, log), nil
}
