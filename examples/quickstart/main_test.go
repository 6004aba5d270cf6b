package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
)

func TestRun(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	empty, broken := file("empty", ""), file("broken", "{{{")
	for name, c := range map[string]struct {
		args   []string
		status int
		out    string
		errs   string
	}{
		"Model":             {args: nil, status: 0, out: "Every step came out as told"},
		"Help":              {args: []string{"-h"}, status: 0, errs: "-kubeconfig file"},
		"UnknownFlag":       {args: []string{"-fast"}, status: 2, errs: "not defined: -fast"},
		"Argument":          {args: []string{"now"}, status: 2, errs: `"now" was given`},
		"ContextAlone":      {args: []string{"-context", "x"}, status: 2, errs: "mean nothing without -kubeconfig"},
		"NamespaceAlone":    {args: []string{"-namespace", "x"}, status: 2, errs: "mean nothing without -kubeconfig"},
		"NoSuchKubeconfig":  {args: []string{"-kubeconfig", filepath.Join(dir, "none")}, status: 1, errs: "the kubeconfig cannot be used"},
		"EmptyKubeconfig":   {args: []string{"-kubeconfig", empty}, status: 1, errs: "the kubeconfig cannot be used"},
		"BrokenKubeconfig":  {args: []string{"-kubeconfig", broken}, status: 1, errs: "the kubeconfig cannot be used"},
		"NoSuchContextInIt": {args: []string{"-kubeconfig", empty, "-context", "x"}, status: 1, errs: "the kubeconfig cannot be used"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out, errs bytes.Buffer
				if got := run(t.Context(), c.args, &out, &errs); got != c.status {
					t.Errorf("exit status %d, want %d", got, c.status)
				}
				if !strings.Contains(out.String(), c.out) || !strings.Contains(errs.String(), c.errs) {
					t.Errorf("printed %q and %q, want %q and %q in them", out.String(), errs.String(), c.out, c.errs)
				}
			})
		})
	}
}
