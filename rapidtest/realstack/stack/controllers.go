package stack

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubehold/kubehold/rapidtest/realstack/internal/build"
	"github.com/kubehold/kubehold/rapidtest/realstack/internal/gotool"
	"github.com/kubehold/kubehold/rapidtest/realstack/internal/manifest"
)

// The modules of the projects, which hold their manifests beside their source.
const (
	jobSetModule  = "sigs.k8s.io/jobset"
	trainerModule = "github.com/kubeflow/trainer/v2"
	kueueModule   = "sigs.k8s.io/kueue"
	kwokModule    = "sigs.k8s.io/kwok"
)

// clientRate keeps the controllers' own rate limits out of the way.
const clientRate = 500

// kueueNamespace is where Kueue keeps what is its own.
const kueueNamespace = "kueue-system"

func configFile(l *layout, c Component) string { return l.path(c, "config.yaml") }

// managerConfig is the part of a controller manager's configuration that the
// three projects spell alike.
func managerConfig(l *layout, c Component, apiVersion string, healthPort, webhookPort int) map[string]any {
	return map[string]any{
		"apiVersion":       apiVersion,
		"kind":             "Configuration",
		"health":           map[string]any{"healthProbeBindAddress": loopback(healthPort)},
		"metrics":          map[string]any{"bindAddress": "0"},
		"leaderElection":   map[string]any{"leaderElect": false},
		"clientConnection": map[string]any{"qps": clientRate, "burst": clientRate},
		"webhook":          map[string]any{"host": "127.0.0.1", "port": webhookPort, "certDir": l.certDir(c)},
	}
}

func jobSet(v Versions) plan {
	port := func(l *layout) int { return l.ports.jobSetHealth }
	return plan{
		component: JobSet,
		recipe: build.Recipe{Name: string(JobSet), Module: jobSetModule, Version: v.JobSet,
			Package: jobSetModule, Takes: "a minute"},
		user:   "system:serviceaccount:jobset-system:jobset-controller-manager",
		port:   port,
		health: func(l *layout) string { return "http://" + loopback(port(l)) + "/readyz" },
		configure: func(_ context.Context, l *layout) error {
			config := managerConfig(l, JobSet, "config.jobset.x-k8s.io/v1alpha1", port(l), l.ports.jobSetWebhook)
			config["internalCertManagement"] = map[string]any{"enable": false}
			return manifest.Write(configFile(l, JobSet), config)
		},
		args: func(l *layout) []string { return []string{"--config=" + configFile(l, JobSet)} },
	}
}

func trainer(v Versions) plan {
	port := func(l *layout) int { return l.ports.trainerHealth }
	return plan{
		component: Trainer,
		recipe: build.Recipe{Name: string(Trainer), Module: trainerModule, Version: v.Trainer,
			Package: trainerModule + "/cmd/trainer-controller-manager", Takes: "a minute"},
		user:   "system:serviceaccount:kubeflow-system:kubeflow-trainer-controller-manager",
		port:   port,
		health: func(l *layout) string { return "http://" + loopback(port(l)) + "/readyz" },
		configure: func(_ context.Context, l *layout) error {
			config := managerConfig(l, Trainer, "config.trainer.kubeflow.org/v1alpha1", port(l), l.ports.trainerWebhook)
			config["certManagement"] = map[string]any{"enable": false}
			// It reads its certificate from the folder that is the default.
			unstructured.RemoveNestedField(config, "webhook", "certDir")
			return manifest.Write(configFile(l, Trainer), config)
		},
		args: func(l *layout) []string { return []string{"--config=" + configFile(l, Trainer)} },
	}
}

// metricsCertsVariable names the folder of the certificate of Kueue's metrics,
// which without its own certificate management is a fixed one below /etc that
// takes root to write to and that two stacks would share.
const metricsCertsVariable = "REALSTACK_METRICS_CERTS"

func kueue(v Versions) plan {
	port := func(l *layout) int { return l.ports.kueueHealth }
	return plan{
		component: Kueue,
		recipe: build.Recipe{Name: string(Kueue), Module: kueueModule, Version: v.Kueue,
			Package: kueueModule + "/cmd/kueue", Takes: "2 minutes",
			Patches: []build.Patch{{
				File: "cmd/kueue/main.go",
				Old:  `metricsCertPath := "/etc/kueue/metrics/certs"`,
				New:  fmt.Sprintf("metricsCertPath := os.Getenv(%q)", metricsCertsVariable),
			}}},
		user:   "system:serviceaccount:" + kueueNamespace + ":kueue-controller-manager",
		port:   port,
		health: func(l *layout) string { return "http://" + loopback(port(l)) + "/readyz" },
		configure: func(_ context.Context, l *layout) error {
			config := managerConfig(l, Kueue, "config.kueue.x-k8s.io/v1beta2", port(l), l.ports.kueueWebhook)
			config["namespace"] = kueueNamespace
			config["internalCertManagement"] = map[string]any{"enable": false}
			config["integrations"] = map[string]any{"frameworks": []any{
				"batch/job", "jobset.x-k8s.io/jobset", "trainer.kubeflow.org/trainjob",
			}}
			return manifest.Write(configFile(l, Kueue), config)
		},
		env: func(l *layout) []string { return []string{metricsCertsVariable + "=" + l.certDir(Kueue)} },
		args: func(l *layout) []string {
			return []string{"--config=" + configFile(l, Kueue), "--feature-gates=VisibilityOnDemand=false"}
		},
	}
}

func kwok(v Versions) plan {
	port := func(l *layout) int { return l.ports.kwok }
	return plan{
		component: Kwok,
		recipe: build.Recipe{Name: string(Kwok), Module: kwokModule, Version: v.Kwok,
			Package: kwokModule + "/cmd/kwok", Takes: "a minute"},
		user:   "system:serviceaccount:kube-system:kwok-controller",
		port:   port,
		health: func(l *layout) string { return "http://" + loopback(port(l)) + "/healthz" },
		configure: func(ctx context.Context, l *layout) error {
			modules, err := gotool.Download(ctx, kwokModule+"@"+v.Kwok)
			if err != nil {
				return err
			}
			stages, err := stages(modules[kwokModule].Dir, l.options.SlowPods)
			if err != nil {
				return err
			}
			return manifest.Write(configFile(l, Kwok), stages...)
		},
		args: func(l *layout) []string {
			return []string{
				"--kubeconfig=" + l.kubeconfig(Kwok),
				"--manage-all-nodes=true",
				"--node-ip=127.0.0.1",
				// Nobody plays a node until the lease of a killed kwok has run out.
				"--node-lease-duration-seconds=10",
				"--server-address=" + loopback(port(l)),
				"--config=" + configFile(l, Kwok),
			}
		},
	}
}

// EndsAfter is the annotation of a pod by which it takes another time to end than
// the stack's pods do, for example "12s".
const EndsAfter = "realstack.kubehold.dev/ends-after"

// stages returns what kwok makes of nodes and pods: a node is ready and a pod
// runs at once, and a deleted pod ends after a delay. A pod of a Job is never
// completed, so a job runs until someone ends it.
func stages(kwokDir string, slowPods time.Duration) ([]map[string]any, error) {
	root := filepath.Join(kwokDir, "kustomize", "stage")
	nodes, err := manifest.ReadKind(filepath.Join(root, "node", "fast"), "Stage")
	if err != nil {
		return nil, err
	}
	pods, err := manifest.ReadKind(filepath.Join(root, "pod", "fast"), "Stage")
	if err != nil {
		return nil, err
	}
	var kept []map[string]any
	for _, stage := range append(nodes, pods...) {
		if stage.GetName() == "pod-complete" {
			continue
		}
		if stage.GetName() == "pod-delete" {
			delay := map[string]any{
				"durationMilliseconds": slowPods.Milliseconds(),
				"durationFrom": map[string]any{"jq": map[string]any{
					"expression": fmt.Sprintf(".metadata.annotations[%q]", EndsAfter),
				}},
			}
			if err := unstructured.SetNestedMap(stage.Object, delay, "spec", "delay"); err != nil {
				return nil, err
			}
		}
		kept = append(kept, stage.Object)
	}
	return kept, nil
}
