//go:build e2e

package gatetest

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/rapidtest/realstack/cluster"
	"github.com/kubehold/kubehold/rapidtest/realstack/internal/manifest"
	"github.com/kubehold/kubehold/rapidtest/realstack/internal/proc"
)

func kueueResource(name string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "kueue.x-k8s.io", Version: "v1beta2", Resource: name}
}

// grant makes the gate's ClusterRole and its AdmissionCheck from its manifests,
// and binds the role to the gate's user.
func (w *world) grant(ctx context.Context) error {
	rbac := schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1"}
	role, err := w.create(ctx, rbac.GroupVersion().WithResource("clusterroles"), "rbac.yaml", "ClusterRole")
	if err != nil {
		return err
	}
	binding := &cluster.Object{Object: map[string]any{
		"apiVersion": rbac.GroupVersion().String(), "kind": "ClusterRoleBinding",
		"metadata": map[string]any{"name": role.GetName()},
		"roleRef":  map[string]any{"apiGroup": rbac.Group, "kind": "ClusterRole", "name": role.GetName()},
		"subjects": []any{map[string]any{"apiGroup": rbac.Group, "kind": "User", "name": gateUser}},
	}}
	_, err = w.cluster.Client().Resource(rbac.GroupVersion().WithResource("clusterrolebindings")).Create(ctx, binding, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	_, err = w.create(ctx, kueueResource("admissionchecks"), "queue.yaml", "AdmissionCheck")
	return err
}

// create makes an object of one of the gate's manifests.
func (w *world) create(ctx context.Context, resource schema.GroupVersionResource, file, kind string) (*cluster.Object, error) {
	all, err := manifest.ReadFile(filepath.Join(example, "manifests", file))
	if err != nil {
		return nil, err
	}
	for _, obj := range all {
		if obj.GetKind() == kind {
			return w.cluster.Client().Resource(resource).Create(ctx, obj, metav1.CreateOptions{})
		}
	}
	return nil, fmt.Errorf("%s has no %s", file, kind)
}

// kubeconfig writes a kubeconfig of the gate's user, and returns its path.
func (w *world) kubeconfig() (string, error) {
	cfg, err := w.stack.RESTConfigFor(gateUser)
	if err != nil {
		return "", err
	}
	path := filepath.Join(w.dir, "kubeconfig")
	return path, clientcmd.WriteToFile(kubeconfigOf(cfg), path)
}

func kubeconfigOf(cfg *rest.Config) clientcmdapi.Config {
	const name = "gate"
	return clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{name: {
			Server: cfg.Host, CertificateAuthority: cfg.CAFile, CertificateAuthorityData: cfg.CAData,
		}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{name: {
			Token: cfg.BearerToken, ClientCertificateData: cfg.CertData, ClientKeyData: cfg.KeyData,
			ClientCertificate: cfg.CertFile, ClientKey: cfg.KeyFile,
		}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	}
}

// A replica is one process of the gate.
type replica struct {
	*testing.T
	process *proc.Process
	health  string
}

// startGate starts a replica, which is ended with the test at the latest.
func (w *world) startGate(t *testing.T) *replica {
	t.Helper()
	kubeconfig, err := w.kubeconfig()
	must(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0") // to find a port that is free
	must(t, err)
	r := &replica{T: t, health: listener.Addr().String()}
	must(t, listener.Close())
	log := filepath.Join(w.dir, fmt.Sprintf("gate-%s.log", strings.ReplaceAll(r.health, ":", "-")))
	r.process, err = proc.Start(proc.Spec{
		Path: w.program, Args: []string{"-kubeconfig", kubeconfig, "-health", r.health}, Dir: w.dir, Log: log,
	})
	must(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the gate's log ends with\n%s", r.process.Tail())
		}
		if err := r.process.Kill(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// ready waits until the replica says so.
func (r *replica) ready() {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	must(r.T, cluster.Wait(ctx, "the gate is ready", func(ctx context.Context) (bool, any, error) {
		if !r.process.Running() {
			r.Fatalf("the gate has ended: %v\n%s", r.process.Exit(), r.process.Tail())
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.health+"/readyz", nil)
		if err != nil {
			return false, nil, err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return false, nil, err
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusOK, resp.Status, nil
	}))
}

// kill ends the replica as a crash does.
func (r *replica) kill() {
	r.Helper()
	must(r.T, r.process.Kill())
}

// The gate has to look after the check before Kueue admits anything through it,
// and does; told to stop, it stops in good order.
func TestTheGateStartsAndStops(t *testing.T) {
	s := newScene(t)
	r := shared.startGate(t)
	s.makeQueue(10, holdable.DefaultGateCheck)
	r.ready()
	job := s.makeJob("job", nil)
	s.runs(job, "")
	must(t, r.process.Stop(10*time.Second))
	if how := r.process.Exit(); how.Error() != "exit status 0" {
		t.Errorf("it ended with %v\n%s", how, r.process.Tail())
	}
	// While no gate runs, nothing is admitted, and what runs goes on.
	second := s.makeJob("second", nil)
	time.Sleep(3 * time.Second)
	if s.watcher.newest(second) != nil {
		t.Error("a job ran while no gate did")
	}
	if pod := s.watcher.newest(job); pod == nil || pod.GetDeletionTimestamp() != nil {
		t.Error("a running job was stopped")
	}
	shared.startGate(t)
	s.runs(second, "")
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
