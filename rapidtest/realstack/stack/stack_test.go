package stack_test

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kubehold/kubehold/rapidtest/realstack/internal/leaktest"
	"github.com/kubehold/kubehold/rapidtest/realstack/stack"
)

// testWriter shows a stack's progress in the log of a test.
type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Logf("%s", p)
	return len(p), nil
}

// apiServerOnly are options for a stack whose folder is a test's own, so that
// the test can see what is left.
func apiServerOnly(t *testing.T) stack.Options {
	t.Helper()
	return stack.Options{APIServerOnly: true, Dir: t.TempDir(), Progress: testWriter{t}}
}

func start(t *testing.T, options stack.Options) *stack.Stack {
	t.Helper()
	s, err := stack.Start(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, s, options.Dir) })
	return s
}

// stop ends a stack and checks that nothing is left of it.
func stop(t *testing.T, s *stack.Stack, dir string) {
	t.Helper()
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
	nothingLeft(t, dir)
}

func nothingLeft(t *testing.T, dir string) {
	t.Helper()
	leaktest.NoProcesses(t, dir)
	leaktest.NoFiles(t, dir)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// resources are the resources called name in the default namespace, as a user sees them.
func resources(t *testing.T, config *rest.Config, group, version, name string) dynamic.ResourceInterface {
	t.Helper()
	client, err := dynamic.NewForConfig(config)
	must(t, err)
	return client.Resource(schema.GroupVersionResource{Group: group, Version: version, Resource: name}).Namespace("default")
}

func configMap(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name},
	}}
}

func TestAPIServerOnly(t *testing.T) {
	s := start(t, apiServerOnly(t))
	t.Run("ServesTheKindsOfAllProjects", func(t *testing.T) { servesTheKinds(t, s) })
	t.Run("AUserHasNoRightsUntilGivenSome", func(t *testing.T) { userHasNoRights(t, s) })
	t.Run("ForgetsNothingWhenKilled", func(t *testing.T) { forgetsNothing(t, s) })
	t.Run("HangsWhilePaused", func(t *testing.T) { hangsWhilePaused(t, s) })
	t.Run("HasNoOtherComponents", func(t *testing.T) { hasNoOthers(t, s) })
}

func servesTheKinds(t *testing.T, s *stack.Stack) {
	for _, kind := range []schema.GroupVersionResource{
		{Group: "jobset.x-k8s.io", Version: "v1alpha2", Resource: "jobsets"},
		{Group: "trainer.kubeflow.org", Version: "v1alpha1", Resource: "trainjobs"},
		{Group: "kueue.x-k8s.io", Version: "v1beta1", Resource: "workloads"},
		{Group: "kueue.x-k8s.io", Version: "v1beta2", Resource: "workloads"},
	} {
		_, err := resources(t, s.RESTConfig(), kind.Group, kind.Version, kind.Resource).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Errorf("%v: %v", kind, err)
		}
	}
}

func userHasNoRights(t *testing.T, s *stack.Stack) {
	config, err := s.RESTConfigFor("user-a")
	must(t, err)
	asUser := resources(t, config, "", "v1", "configmaps")
	if _, err := asUser.List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("list without rights: %v, want Forbidden", err)
	}
	const group = "rbac.authorization.k8s.io"
	for resource, object := range map[string]map[string]any{
		"roles": {"kind": "Role", "rules": []any{map[string]any{
			"apiGroups": []any{""}, "resources": []any{"configmaps"}, "verbs": []any{"list"}}}},
		"rolebindings": {"kind": "RoleBinding",
			"roleRef":  map[string]any{"apiGroup": group, "kind": "Role", "name": "reader"},
			"subjects": []any{map[string]any{"apiGroup": group, "kind": "User", "name": "user-a"}}},
	} {
		object["apiVersion"], object["metadata"] = group+"/v1", map[string]any{"name": "reader"}
		_, err := resources(t, s.RESTConfig(), group, "v1", resource).Create(t.Context(),
			&unstructured.Unstructured{Object: object}, metav1.CreateOptions{})
		must(t, err)
	}
	eventually(t, func() error {
		_, err := asUser.List(t.Context(), metav1.ListOptions{})
		return err
	})
	if _, err := s.RESTConfigFor("nobody"); err == nil {
		t.Error("there is a way to the apiserver for a user whom nobody asked for")
	}
}

func forgetsNothing(t *testing.T, s *stack.Stack) {
	maps := resources(t, s.RESTConfig(), "", "v1", "configmaps")
	_, err := maps.Create(t.Context(), configMap("kept"), metav1.CreateOptions{})
	must(t, err)
	for _, c := range s.Components() {
		must(t, s.Kill(c))
		must(t, s.Kill(c)) // which does nothing
		must(t, s.Restart(t.Context(), c))
		eventually(t, func() error {
			_, err := maps.Get(t.Context(), "kept", metav1.GetOptions{})
			return err
		})
	}
	must(t, s.Restart(t.Context(), stack.APIServer)) // while it runs
	if err := s.Wait(endedContext()); err != nil {
		t.Errorf("components that were killed on purpose are reported: %v", err)
	}
}

func hangsWhilePaused(t *testing.T, s *stack.Stack) {
	maps := resources(t, s.RESTConfig(), "", "v1", "configmaps")
	must(t, s.Pause(stack.APIServer))
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := maps.List(ctx, metav1.ListOptions{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("list from a paused apiserver: %v", err)
	}
	must(t, s.Resume(stack.APIServer))
	eventually(t, func() error {
		_, err := maps.List(t.Context(), metav1.ListOptions{})
		return err
	})
}

func hasNoOthers(t *testing.T, s *stack.Stack) {
	for name, act := range map[string]func(stack.Component) error{
		"Kill":    s.Kill,
		"Restart": func(c stack.Component) error { return s.Restart(t.Context(), c) },
		"Pause":   s.Pause,
		"Resume":  s.Resume,
	} {
		if err := act(stack.Kueue); !errors.Is(err, stack.ErrUnknownComponent) {
			t.Errorf("%s: %v, want ErrUnknownComponent", name, err)
		}
	}
}

// eventually repeats try until it succeeds.
func eventually(t *testing.T, try func() error) {
	t.Helper()
	const patience = 20 * time.Second
	for until := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(until) {
			t.Fatal(err)
		}
	}
}

func endedContext() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func TestStopTwice(t *testing.T) {
	options := apiServerOnly(t)
	s := start(t, options)
	stop(t, s, options.Dir)
	stop(t, s, options.Dir)
}

// asComponentError fails unless err is a ComponentError of c that failed to op.
func asComponentError(t *testing.T, err error, c stack.Component, op string) *stack.ComponentError {
	t.Helper()
	var failed *stack.ComponentError
	if !errors.As(err, &failed) {
		t.Fatalf("%v is no ComponentError", err)
	}
	if failed.Component != c || failed.Op != op {
		t.Fatalf("%s did not %s, want that %s did not %s", failed.Component, failed.Op, c, op)
	}
	lastLine := failed.Log[strings.LastIndex(failed.Log, "\n")+1:]
	if !strings.Contains(err.Error(), string(c)) || !strings.Contains(err.Error(), lastLine) {
		t.Errorf("the error names no component or does not end with its log: %v", err)
	}
	return failed
}

func TestAComponentThatDiesIsReported(t *testing.T) {
	options := apiServerOnly(t)
	s := start(t, options)
	for _, pid := range leaktest.Processes(t, "--data-dir="+filepath.Dir(s.LogFile(stack.Etcd))) {
		must(t, syscall.Kill(pid, syscall.SIGKILL))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	asComponentError(t, s.Wait(ctx), stack.Etcd, "stay up")
}

func TestAComponentThatDiesAtOnce(t *testing.T) {
	options := apiServerOnly(t)
	options.APIServerArgs = []string{"--no-such-flag"}
	_, err := stack.Start(t.Context(), options)
	failed := asComponentError(t, err, stack.APIServer, "become healthy")
	if !strings.Contains(failed.Log, "no-such-flag") {
		t.Errorf("the log does not say why: %s", failed.Log)
	}
	nothingLeft(t, options.Dir)
}

func TestAComponentThatIsNeverHealthy(t *testing.T) {
	options := apiServerOnly(t)
	options.HealthTimeout = time.Millisecond
	_, err := stack.Start(t.Context(), options)
	asComponentError(t, err, stack.Etcd, "become healthy")
	nothingLeft(t, options.Dir)
}

func TestAPortThatIsTaken(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer func() { _ = listener.Close() }()
	options := apiServerOnly(t)
	options.APIServerPort = listener.Addr().(*net.TCPAddr).Port
	_, err = stack.Start(t.Context(), options)
	asComponentError(t, err, stack.APIServer, "start")
	if !errors.Is(err, stack.ErrPortTaken) {
		t.Errorf("%v, want ErrPortTaken", err)
	}
	nothingLeft(t, options.Dir)
}

func TestAVersionThatDoesNotExist(t *testing.T) {
	options := apiServerOnly(t)
	options.Versions.Etcd = "v3.0.999"
	_, err := stack.Start(t.Context(), options)
	asComponentError(t, err, stack.Etcd, "build")
	nothingLeft(t, options.Dir)
}

// A start that is given up leaves nothing behind, at whatever point that is.
func TestAStartThatIsGivenUp(t *testing.T) {
	for name, sign := range map[string]string{"WithEtcd": "/etcd", "WithTheAPIServer": "/kube-apiserver"} {
		t.Run(name, func(t *testing.T) {
			options := apiServerOnly(t)
			must(t, stack.Build(t.Context(), options))
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() {
				_, err := stack.Start(ctx, options)
				ended <- err
			}()
			awaitProcess(t, options.Dir, sign)
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("Start: %v, want context.Canceled", err)
			}
			nothingLeft(t, options.Dir)
		})
	}
}

// awaitProcess waits for a process of the stack in dir.
func awaitProcess(t *testing.T, dir, sign string) {
	t.Helper()
	eventually(t, func() error {
		entries := leaktest.Folders(t, dir)
		if len(entries) == 1 && len(leaktest.Processes(t, entries[0]+sign)) > 0 {
			return nil
		}
		return errors.New("no process of the stack shows up")
	})
}

// A build that is given up ends its compilers, too.
func TestABuildThatIsGivenUp(t *testing.T) {
	options := apiServerOnly(t)
	options.Cache = t.TempDir()
	options.Versions.Etcd = "v3.6.11" // which nobody has built before
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- stack.Build(ctx, options) }()
	eventually(t, func() error {
		if len(leaktest.Processes(t, options.Cache)) == 0 {
			return errors.New("no build shows up")
		}
		return nil
	})
	cancel()
	err := <-ended
	asComponentError(t, err, stack.Etcd, "build")
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Build: %v, want context.Canceled", err)
	}
	leaktest.NoProcesses(t, options.Cache)
	if left := leaktest.Folders(t, options.Cache+"/work"); len(left) > 0 {
		t.Errorf("the build left %v", left)
	}
}
