// Realstack starts and ends the real systems that a hold meets, on one machine
// and without containers. See README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/kubehold/kubehold/rapidtest/realstack/stack"
)

const usage = `usage: realstack COMMAND [flags]

  up      build what is missing, start the stack, print the path of its
          kubeconfig, and stay until ctrl-C or "down"
  down    end the stack that "up" started
  build   build what is missing, and no more

"realstack COMMAND -h" lists the flags of a command.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "realstack:", err)
		stop()
		os.Exit(1)
	}
}

// run does what the arguments say. Results go to out, all else to progress.
func run(ctx context.Context, args []string, out, progress io.Writer) error {
	if len(args) == 0 {
		return errors.Join(errors.New("no command"), say(progress, usage))
	}
	switch command, rest := args[0], args[1:]; command {
	case "up":
		return up(ctx, rest, out, progress)
	case "down":
		return down(ctx, rest, progress)
	case "build":
		return buildOnly(ctx, rest, progress)
	case "help", "-h", "-help", "--help":
		return say(out, usage)
	default:
		return errors.Join(fmt.Errorf("unknown command %q", command), say(progress, usage))
	}
}

func say(to io.Writer, text string) error {
	_, err := io.WriteString(to, text)
	return err
}

// flags are the command line of "up" and "build".
type flags struct {
	options       stack.Options
	kubeconfigOut string
	detach, bare  bool
}

// parseFlags reads the flags of a command that starts or builds a stack.
func parseFlags(command string, args []string, progress io.Writer) (flags, error) {
	f := flags{options: stack.Options{Progress: progress}}
	o := &f.options
	set := flag.NewFlagSet(command, flag.ContinueOnError)
	set.SetOutput(progress)
	set.BoolVar(&o.APIServerOnly, "apiserver-only", false, "etcd and kube-apiserver with the CRDs, and no controllers")
	set.StringVar(&o.Versions.Kubernetes, "kubernetes", stack.DefaultVersions().Kubernetes, "`version` of Kubernetes")
	set.StringVar(&o.Versions.Etcd, "etcd", stack.DefaultVersions().Etcd, "`version` of etcd")
	set.StringVar(&o.Versions.JobSet, "jobset", stack.DefaultVersions().JobSet, "`version` of JobSet")
	set.StringVar(&o.Versions.Trainer, "trainer", stack.DefaultVersions().Trainer, "`version` of Trainer")
	set.StringVar(&o.Versions.Kueue, "kueue", stack.DefaultVersions().Kueue, "`version` of Kueue")
	set.StringVar(&o.Versions.Kwok, "kwok", stack.DefaultVersions().Kwok, "`version` of kwok")
	if command == "up" {
		set.DurationVar(&o.SlowPods, "slow-pods", 0, "how long a deleted pod takes to end")
		set.IntVar(&o.APIServerPort, "port", 0, "port of kube-apiserver; 0 is any that is free")
		set.StringVar(&f.kubeconfigOut, "kubeconfig-out", "", "`file` to copy the kubeconfig to")
		set.BoolVar(&f.bare, "bare", false, "make no node, queue and runtime in the whole stack")
		set.BoolVar(&f.detach, "detach", false, "return once the stack can be used; end it with down")
	}
	if err := set.Parse(args); err != nil {
		return f, err
	}
	if set.NArg() > 0 {
		return f, fmt.Errorf("%s takes flags only, not %q", command, set.Arg(0))
	}
	return f, nil
}

func buildOnly(ctx context.Context, args []string, progress io.Writer) error {
	f, err := parseFlags("build", args, progress)
	if err != nil {
		return err
	}
	return stack.Build(ctx, f.options)
}
