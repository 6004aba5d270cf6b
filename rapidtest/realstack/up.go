package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/kubehold/kubehold/rapidtest/realstack/cluster"
	"github.com/kubehold/kubehold/rapidtest/realstack/internal/lockfile"
	"github.com/kubehold/kubehold/rapidtest/realstack/stack"
)

// errRunning says that there is a stack already, which "up" does not touch.
var errRunning = errors.New(`a stack is up already; "down" ends it`)

// downWait is how long a stack may take to end.
const downWait = time.Minute

// furnishWait is how long the objects of a fresh stack may take to be ready.
const furnishWait = time.Minute

// A record tells "down" about the stack that "up" has started.
type record struct {
	PID        int    `json:"pid"`
	Kubeconfig string `json:"kubeconfig"`
}

// places are the files by which "up" and "down" know of each other.
type places struct{ lock, record, log string }

func findPlaces() (places, error) {
	dir, err := stack.CacheDir()
	if err != nil {
		return places{}, err
	}
	p := places{
		lock:   filepath.Join(dir, "up.lock"),
		record: filepath.Join(dir, "up.json"),
		log:    filepath.Join(dir, "up.log"),
	}
	return p, os.MkdirAll(dir, 0o755)
}

// up runs a stack until ctx ends or one of its components dies.
func up(ctx context.Context, args []string, out, progress io.Writer) (err error) {
	f, err := parseFlags("up", args, progress)
	if err != nil {
		return err
	}
	at, err := findPlaces()
	if err != nil {
		return err
	}
	if f.detach {
		return upDetached(ctx, at, args, out, progress)
	}
	lock, err := lockfile.Try(at.lock)
	if errors.Is(err, lockfile.ErrHeld) {
		return errRunning
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Release()) }()

	me := record{PID: os.Getpid()}
	if err := at.remember(me); err != nil { // so that "down" can end it early
		return err
	}
	defer func() { err = errors.Join(err, at.forget()) }()
	s, err := stack.Start(ctx, f.options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	if !f.bare && !f.options.APIServerOnly {
		if err := furnish(ctx, s, progress); err != nil {
			return err
		}
	}
	me.Kubeconfig = s.Kubeconfig()
	if f.kubeconfigOut != "" {
		if me.Kubeconfig, err = copyFile(s.Kubeconfig(), f.kubeconfigOut); err != nil {
			return err
		}
	}
	if err := at.remember(me); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(out, me.Kubeconfig); err != nil {
		return err
	}
	return s.Wait(ctx)
}

// furnish makes what a TrainJob needs to run.
func furnish(ctx context.Context, s *stack.Stack, progress io.Writer) error {
	const queue, runtime = "main", "sleep"
	ctx, cancel := context.WithTimeout(ctx, furnishWait)
	defer cancel()
	c, err := cluster.New(s.RESTConfig())
	if err != nil {
		return err
	}
	if err := c.CreateNodes(ctx, 1); err != nil {
		return err
	}
	if err := c.CreateQueue(ctx, cluster.Queue{Name: queue}); err != nil {
		return err
	}
	if err := c.CreateRuntime(ctx, cluster.Runtime{Name: runtime}); err != nil {
		return err
	}
	_, err = fmt.Fprintf(progress, "one node, LocalQueue %q in namespace %q and ClusterTrainingRuntime %q are there\n",
		queue, cluster.Namespace, runtime)
	return err
}

// copyFile copies a file that is nobody else's business and returns the copy's
// absolute path.
func copyFile(from, to string) (string, error) {
	data, err := os.ReadFile(from)
	if err != nil {
		return "", err
	}
	if to, err = filepath.Abs(to); err != nil {
		return "", err
	}
	return to, os.WriteFile(to, data, 0o600)
}

// remember writes the record, whole or not at all.
func (p places) remember(r record) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	draft := p.record + ".new"
	return errors.Join(os.WriteFile(draft, data, 0o600), os.Rename(draft, p.record))
}

// forget removes what tells of a stack that is no more.
func (p places) forget() error {
	for _, path := range []string{p.record, p.log} {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

func (p places) recall() (record, error) {
	var r record
	data, err := os.ReadFile(p.record)
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(data, &r)
}

// down ends the stack that "up" started and waits until nothing is left of it.
func down(ctx context.Context, args []string, progress io.Writer) error {
	if len(args) > 0 {
		return fmt.Errorf("down takes no arguments, not %q", args[0])
	}
	at, err := findPlaces()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, downWait)
	defer cancel()
	running := false
	lock, err := lockfile.Wait(ctx, at.lock, func() {
		running = true
		at.interrupt(progress)
	})
	if err != nil {
		return fmt.Errorf("waiting for the stack to end: %w", err)
	}
	if !running {
		_, _ = fmt.Fprintln(progress, "no stack is up")
	}
	// Whoever was killed could not clear up; nobody runs now.
	return errors.Join(at.forget(), stack.Sweep(""), lock.Release())
}

// interrupt asks the process that holds the lock to end.
func (p places) interrupt(progress io.Writer) {
	r, err := p.recall()
	if err == nil {
		err = syscall.Kill(r.PID, syscall.SIGTERM)
	}
	if err != nil {
		_, _ = fmt.Fprintf(progress, "asking the stack to end: %v; waiting for it\n", err)
	}
}
