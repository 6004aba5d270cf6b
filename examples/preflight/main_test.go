package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/probe"
)

// The exit status is 0 only if Hold is available, and the report says in words
// what is wrong with the model.
func TestP3Preflight(t *testing.T) {
	for _, tt := range []struct {
		args   string
		status int
		says   []string
	}{
		{"", 0, []string{"TrainJob, held by its Workload", "available  Hold in default", "readmission gate", "Kueue 0.17.0 with Trainer 2.2.0"}},
		{"-mode plain", 0, []string{"available  Open in default", "no Kueue beside plain mode"}},
		{"-mode plain -kind job", 0, []string{"get jobs.batch in default"}},
		{"-mode kueue -kind JobSet -namespace a,b", 0, []string{"available  Hold in a", "available  Hold in b"}},
		{"-kind Workload", 0, []string{"Workload, asked as"}},
		{"-dry-run", 1, []string{"a hold and its release (dry run)", "no object to try it on"}},
		{"-fault none -timeout 10s", 0, nil},
		{"-fault no-permission", 1, []string{"unavailable  update workloads.kueue.x-k8s.io in default", "-> apply the report's manifest", "for kubectl apply -f -", "kind: RoleBinding"}},
		{"-fault stripped", 1, []string{"the hold was accepted, and something took out or changed", "kubehold.dev/hold-instance"}},
		{"-fault refused", 1, []string{`admission webhook "freeze.example.com" denied the request`}},
		{"-fault not-served", 1, []string{"not served in any version"}},
		{"-fault no-field", 1, []string{"spec.active in the schema", "the apiserver does not know it"}},
		{"-mode plain -fault no-field", 1, []string{"spec.suspend in the schema", "the apiserver does not know it"}},
	} {
		t.Run(tt.args, func(t *testing.T) {
			var out, complaints bytes.Buffer
			if status := run(t.Context(), strings.Fields(tt.args), &out, &complaints); status != tt.status {
				t.Errorf("exit status %d, not %d\n%s%s", status, tt.status, out.String(), complaints.String())
			}
			for _, words := range tt.says {
				if !strings.Contains(out.String(), words) {
					t.Errorf("does not say %q:\n%s", words, out.String())
				}
			}
			out.Reset()
			run(t.Context(), append(strings.Fields(tt.args), "-o", "json"), &out, &complaints)
			var r probe.Report
			if err := json.Unmarshal(out.Bytes(), &r); err != nil || (r.State(meta.OpHold) == probe.Available) != (tt.status == 0) {
				t.Errorf("as JSON: %v\n%s", err, out.String())
			}
		})
	}
}

// A mistake on the command line is status 2, with a word to it.
func TestUsage(t *testing.T) {
	noCluster := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(noCluster, []byte("no kubeconfig"), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, says := range map[string]string{
		"-mode gang":                   "neither kueue nor plain",
		"-kind Cat":                    "is not one of",
		"-fault fire":                  "is not one of",
		"-o yaml":                      "text or json",
		"more":                         "flags only",
		"-no-such-flag":                "not defined",
		"-namespace a,":                "namespace",
		"-kubeconfig " + noCluster:     "",
		"-kubeconfig /no/such/cluster": "no such file",
	} {
		var out, complaints bytes.Buffer
		if status := run(t.Context(), strings.Fields(args), &out, &complaints); status != exitUsage || !strings.Contains(complaints.String(), says) {
			t.Errorf("%s: exit status %d and %q", args, status, complaints.String())
		}
	}
	var out, complaints bytes.Buffer
	if status := run(t.Context(), []string{"-h"}, &out, &complaints); status != 0 || !strings.Contains(complaints.String(), "-fault") {
		t.Errorf("-h: exit status %d and %q", status, complaints.String())
	}
}
