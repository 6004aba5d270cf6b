package stack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kubehold/kubehold/rapidtest/realstack/internal/build"
	"github.com/kubehold/kubehold/rapidtest/realstack/internal/gotool"
	"github.com/kubehold/kubehold/rapidtest/realstack/internal/proc"
)

// stopGrace is how long a component may take to end by itself.
const stopGrace = 10 * time.Second

// ErrUnknownComponent is a component that the stack does not have, for example
// Kueue where only the apiserver runs.
var ErrUnknownComponent = errors.New("the stack has no such component")

// ErrPortTaken says that somebody else listens where a component should.
var ErrPortTaken = errors.New("port is taken")

// A Stack is a running stack. It is safe for concurrent use.
type Stack struct {
	folder   *folder
	layout   *layout
	plans    []plan
	programs map[Component]string
	failed   chan error // gets the first component that died by itself

	mu      sync.Mutex
	running map[Component]*proc.Process
}

// Build makes the programs that Start would need, so that it need not wait.
func Build(ctx context.Context, options Options) error {
	options, err := options.withDefaults()
	if err != nil {
		return err
	}
	_, err = programs(ctx, options, plans(options))
	return err
}

// Start builds what has to be built, starts a stack and waits until it can be
// used. The context bounds that only: a started stack runs until Stop, or until
// the program ends. If Start fails it leaves nothing running and no files but
// the built programs.
func Start(ctx context.Context, options Options) (*Stack, error) {
	options, err := options.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Stack{
		plans:   plans(options),
		failed:  make(chan error, 1),
		running: map[Component]*proc.Process{},
	}
	if s.programs, err = programs(ctx, options, s.plans); err != nil {
		return nil, err
	}
	if err := Sweep(options.Dir); err != nil {
		return nil, err
	}
	if s.folder, err = newFolder(options.Dir); err != nil {
		return nil, err
	}
	if s.layout, err = newLayout(s.folder.path, options); err == nil {
		err = s.bringUp(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// programs builds the programs of plans, one after the other: each keeps all
// processors busy by itself.
func programs(ctx context.Context, options Options, plans []plan) (map[Component]string, error) {
	cache := build.Cache{Dir: options.Cache, Progress: options.Progress}
	paths := map[Component]string{}
	for _, p := range plans {
		path, err := cache.Program(ctx, p.recipe)
		if err != nil {
			return nil, buildError(p.component, err)
		}
		paths[p.component] = path
	}
	return paths, nil
}

func buildError(c Component, err error) error {
	var failed *gotool.Error
	if errors.As(err, &failed) {
		return &ComponentError{Component: c, Op: "build", Log: proc.Tail(failed.Output), Err: failed.Err}
	}
	return &ComponentError{Component: c, Op: "build", Err: err}
}

// bringUp takes the stack from an empty folder to its full height.
func (s *Stack) bringUp(ctx context.Context) error {
	if err := s.writeFiles(ctx); err != nil {
		return err
	}
	projects, err := projects(ctx, s.layout)
	if err != nil {
		return err
	}
	if err := s.startAll(ctx, s.plans[:2]); err != nil {
		return err
	}
	setup, err := newSetup(s.layout)
	if err != nil {
		return err
	}
	if err := setup.installDefinitions(ctx, projects); err != nil || s.layout.options.APIServerOnly {
		return err
	}
	if err := setup.createNamespace(ctx, kueueNamespace); err != nil {
		return err
	}
	if err := s.startTogether(ctx, s.plans[2:]); err != nil {
		return err
	}
	return setup.installWebhooks(ctx, projects)
}

// writeFiles writes what the components read.
func (s *Stack) writeFiles(ctx context.Context) error {
	l := s.layout
	masters := map[string]bool{admin: true}
	users := append([]string{admin}, l.options.Users...)
	for _, p := range s.plans {
		if p.user != "" {
			users = append(users, p.user)
			masters[p.user] = true
		}
	}
	for _, user := range users {
		if err := l.addUser(user); err != nil {
			return err
		}
	}
	for _, p := range s.plans {
		if err := l.makeRoom(p); err != nil {
			return err
		}
		if p.configure == nil {
			continue
		}
		if err := p.configure(ctx, l); err != nil {
			return err
		}
	}
	return errors.Join(l.writeTokens(l.tokenFile(), masters), l.writeKubeconfig(s.Kubeconfig(), admin))
}

// startAll starts components, each when the one before it is healthy.
func (s *Stack) startAll(ctx context.Context, plans []plan) error {
	for _, p := range plans {
		if err := s.start(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// startTogether starts components that do not wait for each other. When one
// fails the others are given up, and its error is the one that counts.
func (s *Stack) startTogether(ctx context.Context, plans []plan) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan error)
	for _, p := range plans {
		go func() { results <- s.start(ctx, p) }()
	}
	var first error
	for range plans {
		if err := <-results; err != nil && first == nil {
			first = err
			cancel()
		}
	}
	return first
}

// start starts one component and waits until it is healthy. A component that
// does not get there is ended.
func (s *Stack) start(ctx context.Context, p plan) error {
	process, err := s.launch(p)
	if err != nil {
		return &ComponentError{Component: p.component, Op: "start", Err: err}
	}
	if err := s.waitHealthy(ctx, p, process); err != nil {
		s.forget(p.component, process)
		failed := &ComponentError{Component: p.component, Op: "become healthy", Log: process.Tail(), Err: err}
		if err := process.Kill(); err != nil {
			return errors.Join(failed, err)
		}
		return failed
	}
	go s.watch(p.component, process)
	return nil
}

func (s *Stack) launch(p plan) (*proc.Process, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running[p.component] != nil {
		return nil, errors.New("it is running already")
	}
	if err := s.checkPort(p.port(s.layout)); err != nil {
		return nil, err
	}
	process, err := proc.Start(proc.Spec{
		Path: s.programs[p.component],
		Args: p.args(s.layout),
		Env:  s.layout.environment(p),
		Dir:  s.layout.path(p.component),
		Log:  s.layout.logFile(p.component),
	})
	if err == nil {
		s.running[p.component] = process
	}
	return process, err
}

// checkPort fails where a component would, before it does so less clearly.
func (s *Stack) checkPort(port int) error {
	listener, err := net.Listen("tcp", loopback(port))
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%s: %w", loopback(port), ErrPortTaken)
	}
	if err != nil {
		return err
	}
	return listener.Close()
}

// watch reports a component that ends although nobody asked it to.
func (s *Stack) watch(c Component, process *proc.Process) {
	<-process.Done()
	if !s.forget(c, process) {
		return
	}
	select {
	case s.failed <- &ComponentError{Component: c, Op: "stay up", Log: process.Tail(), Err: process.Exit()}:
	default: // it is the first one that counts
	}
}

// forget takes a process off the list of those that should run, and reports
// whether it was on it.
func (s *Stack) forget(c Component, process *proc.Process) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running[c] != process {
		return false
	}
	delete(s.running, c)
	return true
}

// take takes a component's process off the list, or returns nil if it does not run.
func (s *Stack) take(c Component) *proc.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	process := s.running[c]
	delete(s.running, c)
	return process
}

// Wait waits until ctx ends, which it returns nil for, or until a component dies
// that nobody ended, which is a *ComponentError.
func (s *Stack) Wait(ctx context.Context) error {
	select {
	case err := <-s.failed:
		return err
	case <-ctx.Done():
		return nil
	}
}

// Stop ends all components, those that others depend on last, and removes the
// stack's folder. It may be called again.
func (s *Stack) Stop() error {
	var failed []error
	if len(s.plans) > 2 {
		failed = append(failed, s.stopTogether(s.plans[2:]))
	}
	for _, p := range []Component{APIServer, Etcd} {
		failed = append(failed, s.stop(p))
	}
	return errors.Join(append(failed, s.folder.remove())...)
}

func (s *Stack) stopTogether(plans []plan) error {
	results := make(chan error)
	for _, p := range plans {
		go func() { results <- s.stop(p.component) }()
	}
	var failed []error
	for range plans {
		failed = append(failed, <-results)
	}
	return errors.Join(failed...)
}

func (s *Stack) stop(c Component) error {
	if process := s.take(c); process != nil {
		return process.Stop(stopGrace)
	}
	return nil
}

// Kubeconfig is the path of a kubeconfig file of a user who may do everything.
func (s *Stack) Kubeconfig() string { return filepath.Join(s.folder.path, "kubeconfig") }

// RESTConfig is the way to kube-apiserver of a user who may do everything. It
// is a new copy each time, with client-go's default rate limits.
func (s *Stack) RESTConfig() *rest.Config {
	config, _ := s.layout.restConfig(admin) // who has been added before anybody could ask
	return config
}

// RESTConfigFor is the way of one of the Users in the Options, who may do
// nothing that all users may not, until a test gives them a role.
func (s *Stack) RESTConfigFor(user string) (*rest.Config, error) { return s.layout.restConfig(user) }

// EtcdURL is where etcd answers, in the clear and to anybody on this machine:
// for tests that want every version of an object, also those that were made
// while kube-apiserver was about to die.
func (s *Stack) EtcdURL() string { return "http://" + loopback(s.layout.ports.etcd) }

// Components are those that the stack has, in the order in which they started.
func (s *Stack) Components() []Component {
	var components []Component
	for _, p := range s.plans {
		components = append(components, p.component)
	}
	return components
}

// LogFile is the path of the file that a component prints to. It is removed
// with the stack.
func (s *Stack) LogFile(c Component) string { return s.layout.logFile(c) }

// Kill ends a component without warning, as a crash would, and waits until it is
// gone. Killing one that does not run does nothing.
func (s *Stack) Kill(c Component) error {
	if _, err := s.plan(c); err != nil {
		return err
	}
	if process := s.take(c); process != nil {
		return process.Kill()
	}
	return nil
}

// Restart starts a component again, on its old port and with its old data, and
// waits until it is healthy. One that still runs is asked to end first.
func (s *Stack) Restart(ctx context.Context, c Component) error {
	p, err := s.plan(c)
	if err != nil {
		return err
	}
	if err := s.stop(c); err != nil {
		return err
	}
	return s.start(ctx, p)
}

// Pause stops a component in its tracks, as a long garbage collection or a lost
// network would: it keeps its connections and answers nobody, until Resume.
func (s *Stack) Pause(c Component) error { return s.signal(c, syscall.SIGSTOP) }

// Resume lets a paused component go on.
func (s *Stack) Resume(c Component) error { return s.signal(c, syscall.SIGCONT) }

func (s *Stack) signal(c Component, sig os.Signal) error {
	if _, err := s.plan(c); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	process := s.running[c]
	if process == nil {
		return fmt.Errorf("%s: %w", c, os.ErrProcessDone)
	}
	return process.Signal(sig)
}

func (s *Stack) plan(c Component) (plan, error) {
	for _, p := range s.plans {
		if p.component == c {
			return p, nil
		}
	}
	return plan{}, fmt.Errorf("%s: %w", c, ErrUnknownComponent)
}
