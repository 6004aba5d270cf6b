// Quickstart tells what holds are for, step by step, and checks every step.
//
//	go run ./examples/quickstart
//
// tells it on a model of an apiserver, in memory. With -kubeconfig it tells the
// same story on a real cluster, on objects that it makes and removes again:
//
//	go run ./examples/quickstart -kubeconfig FILE [-context NAME] [-namespace NAME]
//
// Where Kueue and Trainer run there, the story waits for them; where one of them
// does not, this program plays its part. The exit status is 0 only if every step
// came out as told.
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
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second ctrl-C ends the program at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is the program. It returns the exit status: 0 for a story that came out as
// told, 1 for one that did not, 2 for a command line that means nothing.
func run(ctx context.Context, args []string, out, errs io.Writer) int {
	where, err := parse(args, errs)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		return 2
	}
	w, err := where.world(ctx)
	if err == nil {
		err = perform(ctx, w, out)
	}
	return status(err, errs)
}

// status is the exit status of a story that ended with err.
func status(err error, errs io.Writer) int {
	if err != nil {
		fmt.Fprintln(errs, "quickstart:", err)
		return 1
	}
	return 0
}

// A target is the cluster that the command line names; the zero target is the
// model.
type target struct{ kubeconfig, context, namespace string }

// world opens the world that the command line names.
func (t target) world(ctx context.Context) (*world, error) {
	if t.kubeconfig == "" {
		return modelWorld()
	}
	config, name, err := t.config()
	if err != nil {
		return nil, fmt.Errorf("the kubeconfig cannot be used: %w", err)
	}
	return clusterWorld(ctx, config, name, t.namespace)
}

func parse(args []string, errs io.Writer) (target, error) {
	var t target
	set := flag.NewFlagSet("quickstart", flag.ContinueOnError)
	set.SetOutput(errs)
	set.StringVar(&t.kubeconfig, "kubeconfig", "", "`file` that says how to reach a real cluster; without it the story takes place on a model")
	set.StringVar(&t.context, "context", "", "`name` of the kubeconfig's context to use; its current one without")
	set.StringVar(&t.namespace, "namespace", "", "`name` of a namespace to make the story's objects in; without it the story makes one, and removes it")
	if err := set.Parse(args); err != nil {
		return t, err
	}
	var err error
	switch {
	case set.NArg() > 0:
		err = fmt.Errorf("there are no arguments, but %q was given", set.Arg(0))
	case t.kubeconfig == "" && (t.context != "" || t.namespace != ""):
		err = errors.New("-context and -namespace mean nothing without -kubeconfig")
	}
	if err != nil {
		fmt.Fprintln(errs, "quickstart:", err)
	}
	return t, err
}
