package proc_test

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kubehold/kubehold/rapidtest/realstack/internal/leaktest"
	"github.com/kubehold/kubehold/rapidtest/realstack/internal/proc"
)

// shell starts a shell script whose command line mentions the log's folder, and
// waits until it has printed "ready".
func shell(t *testing.T, script string) (*proc.Process, string) {
	t.Helper()
	log := filepath.Join(t.TempDir(), "log")
	p, err := proc.Start(proc.Spec{Path: "/bin/sh", Args: []string{"-c", script, log}, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Kill() })
	for p.Running() && !strings.Contains(p.Tail(), "ready") {
		time.Sleep(5 * time.Millisecond)
	}
	return p, log
}

func TestStop(t *testing.T) {
	const forever = "while :; do sleep 0.05; done"
	cases := map[string]struct {
		script string
		before syscall.Signal // sent before Stop
		want   string         // in how the program ended
	}{
		"Obedient":     {script: `trap 'exit 3' TERM; echo ready; ` + forever, want: "exit status 3"},
		"Deaf":         {script: `trap '' TERM; echo ready; ` + forever, want: "killed"},
		"Paused":       {script: `trap 'exit 3' TERM; echo ready; ` + forever, before: syscall.SIGSTOP, want: "exit status 3"},
		"EndedAlready": {script: `echo ready`, want: "exit status 0"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, log := shell(t, tc.script)
			if tc.before != 0 {
				if err := p.Signal(tc.before); err != nil {
					t.Fatal(err)
				}
			}
			if err := p.Stop(time.Second); err != nil {
				t.Fatal(err)
			}
			if p.Running() || !strings.Contains(p.Exit().Error(), tc.want) {
				t.Errorf("running: %v, ended with %v, want %s", p.Running(), p.Exit(), tc.want)
			}
			leaktest.NoProcesses(t, log)
		})
	}
}

func TestKillDoesNotAsk(t *testing.T) {
	p, log := shell(t, `trap '' TERM; echo ready; while :; do sleep 0.05; done`)
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	leaktest.NoProcesses(t, log)
}

func TestNothingIsInherited(t *testing.T) {
	t.Setenv("KUBECONFIG", "/somebody/elses")
	p, _ := shell(t, `echo "kubeconfig=$KUBECONFIG"; echo ready`)
	<-p.Done()
	if !strings.Contains(p.Tail(), "kubeconfig=\n") {
		t.Errorf("the program sees a variable of its parent: %s", p.Tail())
	}
}

func TestStartFails(t *testing.T) {
	dir := t.TempDir()
	if _, err := proc.Start(proc.Spec{Path: filepath.Join(dir, "none"), Log: filepath.Join(dir, "log")}); err == nil {
		t.Error("a program that does not exist was started")
	}
	if _, err := proc.Start(proc.Spec{Path: "/bin/sh", Log: filepath.Join(dir, "none", "log")}); err == nil {
		t.Error("a program was started without a log")
	}
}

func TestTail(t *testing.T) {
	lines := strings.Repeat("line\n", 100) + "last\n"
	got := strings.Split(proc.Tail(lines), "\n")
	if len(got) >= 100 || got[len(got)-1] != "last" {
		t.Errorf("Tail keeps %d lines, the last of them %q", len(got), got[len(got)-1])
	}
	if got := proc.TailFile(filepath.Join(t.TempDir(), "none")); got != "" {
		t.Errorf("TailFile of no file is %q", got)
	}
}
