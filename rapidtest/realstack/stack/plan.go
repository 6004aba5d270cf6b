package stack

import (
	"context"
	"fmt"
	"strings"

	"github.com/kubehold/kubehold/rapidtest/realstack/internal/build"
	"github.com/kubehold/kubehold/rapidtest/realstack/internal/pki"
)

// A plan says how one component is built, started and known to be healthy.
type plan struct {
	component Component
	recipe    build.Recipe
	// user is who the component is to kube-apiserver, where it has to do with it.
	user string
	// port is the one it is asked on whether it is healthy, at the URL health.
	port   func(*layout) int
	health func(*layout) string
	// configure writes its configuration; nil where it has none.
	configure func(context.Context, *layout) error
	// env is added to its environment; nil where nothing is.
	env  func(*layout) []string
	args func(*layout) []string
}

// plans returns those of the stack's components, in the order they start.
func plans(o Options) []plan {
	base := []plan{etcd(o.Versions), apiServer(o.Versions)}
	if o.APIServerOnly {
		return base
	}
	return append(base, controllerManager(o.Versions), scheduler(o.Versions),
		jobSet(o.Versions), trainer(o.Versions), kueue(o.Versions), kwok(o.Versions))
}

func etcd(v Versions) plan {
	const module = "go.etcd.io/etcd/server/v3"
	return plan{
		component: Etcd,
		recipe:    build.Recipe{Name: string(Etcd), Module: module, Version: v.Etcd, Package: module, Takes: "a minute"},
		port:      func(l *layout) int { return l.ports.etcd },
		health:    func(l *layout) string { return "http://" + loopback(l.ports.etcd) + "/health" },
		args: func(l *layout) []string {
			client, peer := "http://"+loopback(l.ports.etcd), "http://"+loopback(l.ports.etcdPeer)
			return []string{
				"--name=realstack",
				"--data-dir=" + l.path(Etcd, "data"),
				"--listen-client-urls=" + client,
				"--advertise-client-urls=" + client,
				"--listen-peer-urls=" + peer,
				"--initial-advertise-peer-urls=" + peer,
				"--initial-cluster=realstack=" + peer,
				"--log-level=warn",
				// A killed process loses nothing that it has written; only a
				// power failure would, and after that the stack is gone anyway.
				"--unsafe-no-fsync",
			}
		},
	}
}

// kubernetes is the recipe of one of the programs of Kubernetes itself.
func kubernetes(c Component, v Versions, takes string) build.Recipe {
	const (
		module = "k8s.io/kubernetes"
		stamp  = "-X k8s.io/component-base/version."
	)
	major, rest, _ := strings.Cut(strings.TrimPrefix(v.Kubernetes, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	return build.Recipe{
		Name:    string(c),
		Module:  module,
		Version: v.Kubernetes,
		Package: module + "/cmd/" + string(c),
		Staging: v.staging(),
		LinkerFlags: []string{
			stamp + "gitVersion=" + v.Kubernetes, // without it clients refuse to talk to it
			stamp + "gitMajor=" + major,
			stamp + "gitMinor=" + minor,
		},
		Takes: takes,
	}
}

func apiServer(v Versions) plan {
	return plan{
		component: APIServer,
		recipe:    kubernetes(APIServer, v, "4 minutes"),
		port:      func(l *layout) int { return l.ports.apiServer },
		health:    func(l *layout) string { return l.server() + "/readyz" },
		configure: func(_ context.Context, l *layout) error {
			return pki.WriteSigningKey(l.path(APIServer, "accounts.key"), l.path(APIServer, "accounts.pub"))
		},
		args: func(l *layout) []string {
			cert, key := l.certFiles(APIServer)
			return append([]string{
				"--etcd-servers=http://" + loopback(l.ports.etcd),
				"--bind-address=127.0.0.1",
				"--advertise-address=127.0.0.1",
				"--endpoint-reconciler-type=none", // nobody reaches it as a Service
				fmt.Sprintf("--secure-port=%d", l.ports.apiServer),
				"--tls-cert-file=" + cert,
				"--tls-private-key-file=" + key,
				"--cert-dir=" + l.certDir(APIServer),
				"--token-auth-file=" + l.tokenFile(),
				"--authorization-mode=RBAC",
				"--service-account-issuer=https://kubernetes.default.svc",
				"--service-account-signing-key-file=" + l.path(APIServer, "accounts.key"),
				"--service-account-key-file=" + l.path(APIServer, "accounts.pub"),
				"--service-cluster-ip-range=10.0.0.0/24",
				"--allow-privileged=true",
				// Pods need no ServiceAccount of their own then.
				"--disable-admission-plugins=ServiceAccount",
			}, l.options.APIServerArgs...)
		},
	}
}

func (l *layout) tokenFile() string { return l.path(APIServer, "tokens.csv") }

// controlLoops are the arguments that kube-controller-manager and
// kube-scheduler have in common.
func controlLoops(l *layout, c Component, port int) []string {
	cert, key := l.certFiles(c)
	return []string{
		"--kubeconfig=" + l.kubeconfig(c),
		"--leader-elect=false",
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", port),
		"--tls-cert-file=" + cert,
		"--tls-private-key-file=" + key,
		"--authentication-skip-lookup=true",
	}
}

func controllerManager(v Versions) plan {
	port := func(l *layout) int { return l.ports.controllerManager }
	return plan{
		component: ControllerManager,
		recipe:    kubernetes(ControllerManager, v, "a minute"),
		user:      "system:kube-controller-manager",
		port:      port,
		health:    func(l *layout) string { return "https://" + loopback(port(l)) + "/healthz" },
		args: func(l *layout) []string {
			return append(controlLoops(l, ControllerManager, port(l)),
				"--controllers=job-controller,garbage-collector-controller,namespace-controller,"+
					"pod-garbage-collector-controller,node-lifecycle-controller,taint-eviction-controller,"+
					"clusterrole-aggregation-controller")
		},
	}
}

func scheduler(v Versions) plan {
	port := func(l *layout) int { return l.ports.scheduler }
	return plan{
		component: Scheduler,
		recipe:    kubernetes(Scheduler, v, "a minute"),
		user:      "system:kube-scheduler",
		port:      port,
		health:    func(l *layout) string { return "https://" + loopback(port(l)) + "/healthz" },
		args:      func(l *layout) []string { return controlLoops(l, Scheduler, port(l)) },
	}
}
