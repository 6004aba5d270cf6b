package stack

import (
	"cmp"
	"strings"
)

// Versions names one version of each system, the way its Go module is tagged.
// An empty field means that of DefaultVersions.
type Versions struct {
	Kubernetes string // kube-apiserver, kube-controller-manager, kube-scheduler
	Etcd       string
	JobSet     string
	Trainer    string
	Kueue      string
	Kwok       string
}

// DefaultVersions is the combination that a stack runs unless told otherwise.
func DefaultVersions() Versions {
	return Versions{
		Kubernetes: "v1.37.2",
		Etcd:       "v3.7.3",
		JobSet:     "v0.11.1",
		Trainer:    "v2.2.0",
		Kueue:      "v0.17.0",
		Kwok:       "v0.8.0",
	}
}

// TestedVersions are the combinations that the tests of package e2e have passed
// with, the default first.
func TestedVersions() []Versions {
	older := DefaultVersions()
	older.Kueue, older.Trainer, older.JobSet = "v0.16.2", "v2.1.0", "v0.10.1"
	return []Versions{DefaultVersions(), older}
}

// withDefaults fills the empty fields.
func (v Versions) withDefaults() Versions {
	d := DefaultVersions()
	return Versions{
		Kubernetes: cmp.Or(v.Kubernetes, d.Kubernetes),
		Etcd:       cmp.Or(v.Etcd, d.Etcd),
		JobSet:     cmp.Or(v.JobSet, d.JobSet),
		Trainer:    cmp.Or(v.Trainer, d.Trainer),
		Kueue:      cmp.Or(v.Kueue, d.Kueue),
		Kwok:       cmp.Or(v.Kwok, d.Kwok),
	}
}

// staging is the version of the libraries that Kubernetes is published with:
// v1.37.2 comes with k8s.io/api v0.37.2 and so on.
func (v Versions) staging() string {
	return "v0" + strings.TrimPrefix(v.Kubernetes, "v1")
}
