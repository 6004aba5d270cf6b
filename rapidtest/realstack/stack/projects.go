package stack

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/kubehold/kubehold/rapidtest/realstack/internal/gotool"
	"github.com/kubehold/kubehold/rapidtest/realstack/internal/manifest"
)

// A project is one whose kinds are installed in the stack.
type project struct {
	component Component
	module    gotool.Module
	// crds is the folder of its CustomResourceDefinitions, webhooks the file of
	// its webhook configurations and customization the file that says which
	// definitions it converts between versions ("" for none), all in the module.
	crds, webhooks, customization string
	// groups are the API groups whose webhooks it serves in this stack.
	groups []string
	port   int // of its webhooks
}

// projects finds the projects' modules, downloading them where necessary.
func projects(ctx context.Context, l *layout) ([]project, error) {
	v := l.options.Versions
	modules, err := gotool.Download(ctx, jobSetModule+"@"+v.JobSet, trainerModule+"@"+v.Trainer, kueueModule+"@"+v.Kueue)
	if err != nil {
		return nil, err
	}
	return []project{
		{
			component:     JobSet,
			module:        modules[jobSetModule],
			crds:          "config/components/crd/bases",
			webhooks:      "config/components/webhook/manifests.yaml",
			customization: "config/components/crd/kustomization.yaml",
			groups:        []string{"jobset.x-k8s.io", ""},
			port:          l.ports.jobSetWebhook,
		},
		{
			component: Trainer,
			module:    modules[trainerModule],
			crds:      "manifests/base/crds",
			webhooks:  "manifests/base/webhook/manifests.yaml",
			groups:    []string{"trainer.kubeflow.org"},
			port:      l.ports.trainerWebhook,
		},
		{
			component:     Kueue,
			module:        modules[kueueModule],
			crds:          "config/components/crd/bases",
			webhooks:      "config/components/webhook/manifests.yaml",
			customization: "config/components/crd/kustomization.yaml",
			groups:        []string{"kueue.x-k8s.io", "jobset.x-k8s.io", "trainer.kubeflow.org", "batch"},
			port:          l.ports.kueueWebhook,
		},
	}, nil
}

func (p project) server(l *layout) manifest.Server {
	return manifest.Server{Port: p.port, CA: l.authority.PEM}
}

// definitions returns the project's CustomResourceDefinitions. Where nobody
// would answer, they convert nothing.
func (p project) definitions(l *layout) ([]*manifest.Object, error) {
	crds, err := manifest.ReadKind(filepath.Join(p.module.Dir, p.crds), "CustomResourceDefinition")
	if err != nil || l.options.APIServerOnly || p.customization == "" {
		return crds, err
	}
	converted, err := manifest.ConvertedKinds(filepath.Join(p.module.Dir, p.customization))
	if err != nil {
		return nil, err
	}
	for _, crd := range crds {
		if !converted[crd.GetName()] {
			continue
		}
		if err := manifest.ConvertAt(crd, p.server(l)); err != nil {
			return nil, err
		}
	}
	return crds, nil
}

// webhookConfigurations returns the project's webhooks, as far as it serves
// them here. The projects all give theirs the same names, meant to be prefixed.
func (p project) webhookConfigurations(l *layout) ([]*manifest.Object, error) {
	configs, err := manifest.ReadFile(filepath.Join(p.module.Dir, p.webhooks))
	if err != nil {
		return nil, err
	}
	for _, config := range configs {
		if err := p.fit(config, p.server(l)); err != nil {
			return nil, fmt.Errorf("webhooks of %s: %w", p.component, err)
		}
	}
	return configs, nil
}

func (p project) fit(config *manifest.Object, server manifest.Server) error {
	config.SetName(fmt.Sprintf("%s-%s", p.component, config.GetName()))
	if err := manifest.KeepWebhooks(config, p.groups...); err != nil {
		return err
	}
	// What JobSet's own deployment adds: its webhooks see no pods but its own.
	if err := manifest.SelectObjects(config, "pods", "jobset.sigs.k8s.io/jobset-name"); err != nil {
		return err
	}
	return manifest.ServeWebhooksAt(config, server)
}
