// Preflight asks an apiserver whether holds will work there, and says what to
// do where they will not:
//
//	go run ./examples/preflight -kubeconfig ~/.kube/config -mode kueue -kind TrainJob -namespace team-a
//
// Its exit status is 0 only if Hold is available, so that a deployment can wait
// for it. Without -kubeconfig it runs on a model of an apiserver, for a look at
// a report without a cluster; -fault breaks the model in one of the ways that
// clusters break:
//
//	go run ./examples/preflight -fault stripped
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/samber/lo"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/kinds"
	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/probe"
)

// The exit statuses.
const (
	exitAvailable    = 0
	exitNotAvailable = 1
	exitUsage        = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	status := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

// run does what the arguments say, and returns the exit status.
func run(ctx context.Context, args []string, out, complaints io.Writer) int {
	asked, err := parse(args, complaints)
	if errors.Is(err, flag.ErrHelp) {
		return exitAvailable
	}
	if err == nil {
		var report probe.Report
		if report, err = probe.Run(ctx, asked.config, asked.kind, asked.options); err == nil {
			err = print(out, report, asked.format)
		}
		if err == nil && report.State(meta.OpHold) != probe.Available {
			return exitNotAvailable
		}
	}
	if err != nil {
		fmt.Fprintln(complaints, "preflight:", err)
		return exitUsage
	}
	return exitAvailable
}

// A request is what the command line asks for.
type request struct {
	config  *rest.Config
	kind    holdable.Kind
	options probe.Options
	format  string
}

func parse(args []string, complaints io.Writer) (request, error) {
	set := flag.NewFlagSet("preflight", flag.ContinueOnError)
	set.SetOutput(complaints)
	kubeconfig := set.String("kubeconfig", "", "`file` that leads to the cluster; without it, a model of one is probed")
	mode := set.String("mode", "kueue", "how objects are held: kueue, by their Workload, or plain")
	kindName := set.String("kind", "TrainJob", "the `kind` of the objects")
	namespaces := set.String("namespace", "default", "the `namespaces` of the objects, separated by commas")
	format := set.String("o", "text", "the form of the report: text or json")
	dryRun := set.Bool("dry-run", false, "create nothing")
	timeout := set.Duration("timeout", probe.DefaultTimeout, "how long the probe may take")
	broken := set.String("fault", "none", "what is wrong with the model: "+strings.Join(faultNames(), ", "))
	if err := set.Parse(args); err != nil {
		return request{}, err
	}
	if set.NArg() > 0 || *format != "text" && *format != "json" {
		return request{}, fmt.Errorf("there are flags only, and -o is text or json; see -h")
	}
	kind, err := kindOf(*mode, *kindName)
	if err != nil {
		return request{}, err
	}
	r := request{kind: kind, format: *format, options: probe.Options{DryRun: *dryRun, Timeout: *timeout}}
	if !kind.Describe().ClusterScoped {
		r.options.Namespaces = strings.Split(*namespaces, ",")
	}
	if *kubeconfig != "" {
		r.config, err = clientcmd.BuildConfigFromFlags("", *kubeconfig)
		return r, err
	}
	r.options.Settle = 10 * time.Millisecond // no controller works on the model
	r.config, err = model(kind.Describe(), *broken)
	return r, err
}

// kindOf composes the descriptor of a kind and a mode.
func kindOf(mode, name string) (holdable.Kind, error) {
	kind, ok := lo.Find(kinds.All(), func(k holdable.Kind) bool { return strings.EqualFold(k.GroupVersionKind().Kind, name) })
	if !ok {
		known := lo.Map(kinds.All(), func(k holdable.Kind, _ int) string { return k.GroupVersionKind().Kind })
		return nil, fmt.Errorf("kind %q is not one of %s", name, strings.Join(known, ", "))
	}
	switch mode {
	case "plain":
		if name == "TrainJob" {
			return kinds.WithStartGate(kinds.TrainJob()), nil
		}
		return kind, nil
	case "kueue":
		return onKueue(kind), nil
	}
	return nil, fmt.Errorf("mode %q is neither kueue nor plain", mode)
}

// onKueue is Kueue mode for a kind of any pause field. A Workload is held by
// itself in either mode.
func onKueue(kind holdable.Kind) holdable.Kind {
	if kind.GroupVersionKind() == kinds.Workload().GroupVersionKind() {
		return kind
	}
	switch k := kind.(type) {
	case holdable.Holdable[bool]:
		return kinds.OnKueue(k)
	case holdable.Holdable[int64]:
		return kinds.OnKueue(k)
	case holdable.Holdable[string]:
		return kinds.OnKueue(k)
	}
	return kind
}

// print writes the report, and for people, what to apply if access is missing.
func print(out io.Writer, report probe.Report, format string) error {
	if format == "json" {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(report)
	}
	_, err := fmt.Fprint(out, report)
	if err == nil && report.Manifest != "" {
		_, err = fmt.Fprintf(out, "\nThe report's manifest, for kubectl apply -f -\n\n%s", report.Manifest)
	}
	return err
}
