package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kubehold/kubehold/rapidtest/realstack/internal/leaktest"
	"github.com/kubehold/kubehold/rapidtest/realstack/stack"
)

// A command is this program, built for one test, with folders of its own: the
// stack's temporary one, and a cache that has only the built programs in common
// with the user's.
type command struct{ path, tmp, cache string }

func newCommand(t *testing.T) command {
	t.Helper()
	must(t, stack.Build(t.Context(), stack.Options{APIServerOnly: true}))
	shared, err := stack.CacheDir()
	must(t, err)
	c := command{path: filepath.Join(t.TempDir(), "realstack"), tmp: t.TempDir(), cache: t.TempDir()}
	must(t, os.Symlink(filepath.Join(shared, "bin"), filepath.Join(c.cache, "bin")))
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", c.path, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	t.Cleanup(func() { _ = c.with("down").Run() })
	return c
}

// with returns the program with arguments, ready to run.
func (c command) with(args ...string) *exec.Cmd {
	cmd := exec.Command(c.path, args...)
	cmd.Env = append(os.Environ(), "TMPDIR="+c.tmp, stack.CacheVariable+"="+c.cache)
	return cmd
}

// start starts "up" and returns it with the kubeconfig that it names.
func (c command) start(t *testing.T, args ...string) (*exec.Cmd, string) {
	t.Helper()
	cmd := c.with(append([]string{"up", "-apiserver-only"}, args...)...)
	out, err := cmd.StdoutPipe()
	must(t, err)
	var progress bytes.Buffer
	cmd.Stderr = &progress
	must(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("up ended: %v, %v\n%s", err, cmd.Wait(), &progress)
	}
	return cmd, strings.TrimSpace(line)
}

// nothingLeft fails if a process or a file of a stack is there.
func (c command) nothingLeft(t *testing.T) {
	t.Helper()
	leaktest.NoProcesses(t, c.tmp)
	leaktest.NoProcesses(t, c.path)
	leaktest.NoFiles(t, c.tmp)
	for _, path := range leaktest.Folders(t, c.cache) {
		if name := filepath.Base(path); name != "bin" && filepath.Ext(name) != ".lock" {
			t.Errorf("%s was left behind", path)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestUpUntilInterrupted(t *testing.T) {
	c := newCommand(t)
	copied := filepath.Join(t.TempDir(), "kubeconfig")
	up, kubeconfig := c.start(t, "-kubeconfig-out", copied)
	if kubeconfig != copied {
		t.Errorf("up names %s, want the copy %s", kubeconfig, copied)
	}
	if data, err := os.ReadFile(copied); err != nil || !bytes.Contains(data, []byte("https://127.0.0.1:")) {
		t.Errorf("the copy is no kubeconfig: %v\n%s", err, data)
	}
	if out, err := c.with("up", "-apiserver-only").CombinedOutput(); err == nil || !bytes.Contains(out, []byte("up already")) {
		t.Errorf("a second up: %v\n%s", err, out)
	}
	must(t, up.Process.Signal(os.Interrupt))
	if err := up.Wait(); err != nil {
		t.Errorf("up, when interrupted: %v", err)
	}
	c.nothingLeft(t)
}

func TestUpDetachedUntilDown(t *testing.T) {
	c := newCommand(t)
	up, kubeconfig := c.start(t, "-detach")
	must(t, up.Wait())
	if _, err := os.Stat(kubeconfig); err != nil {
		t.Errorf("up has returned and there is no kubeconfig: %v", err)
	}
	if out, err := c.with("up", "-detach").CombinedOutput(); err == nil || !bytes.Contains(out, []byte("up already")) {
		t.Errorf("a second up: %v\n%s", err, out)
	}
	if out, err := c.with("down").CombinedOutput(); err != nil {
		t.Errorf("down: %v\n%s", err, out)
	}
	c.nothingLeft(t)
	if out, err := c.with("down").CombinedOutput(); err != nil || !bytes.Contains(out, []byte("no stack is up")) {
		t.Errorf("down with nothing up: %v\n%s", err, out)
	}
}

// Whoever kills "up" kills the stack, and the next command clears up.
func TestUpThatIsKilled(t *testing.T) {
	c := newCommand(t)
	up, _ := c.start(t)
	must(t, up.Process.Kill())
	_ = up.Wait() // says that it was killed
	leaktest.NoProcesses(t, c.tmp)
	must(t, c.with("down").Run())
	c.nothingLeft(t)
}

func TestDownWhileUpIsStarting(t *testing.T) {
	c := newCommand(t)
	up := c.with("up", "-apiserver-only")
	must(t, up.Start())
	for until := time.Now().Add(20 * time.Second); len(leaktest.Folders(t, c.tmp)) == 0 && time.Now().Before(until); {
		time.Sleep(5 * time.Millisecond)
	}
	must(t, c.with("down").Run())
	if err := up.Wait(); err == nil {
		t.Error("an up that was ended before its stack could be used says that all is well")
	}
	c.nothingLeft(t)
}

// A stack that does not come up says why, in the background too.
func TestUpThatFails(t *testing.T) {
	c := newCommand(t)
	for name, args := range map[string][]string{"Foreground": nil, "Detached": {"-detach"}} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"up", "-apiserver-only", "-etcd", "v3.0.999"}, args...)
			out, err := c.with(args...).CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || !bytes.Contains(out, []byte("etcd did not build")) {
				t.Errorf("up: %v\n%s", err, out)
			}
			c.nothingLeft(t)
		})
	}
}

func TestRunRefuses(t *testing.T) {
	cases := map[string]struct {
		args []string
		want string
	}{
		"Nothing":        {want: "no command"},
		"UnknownCommand": {args: []string{"sideways"}, want: "sideways"},
		"UnknownFlag":    {args: []string{"up", "-fast"}, want: "-fast"},
		"UpArgument":     {args: []string{"up", "now"}, want: "now"},
		"DownArgument":   {args: []string{"down", "now"}, want: "now"},
		"BuildDetached":  {args: []string{"build", "-detach"}, want: "-detach"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := run(t.Context(), tc.args, io.Discard, io.Discard)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("run: %v, want an error that names %q", err, tc.want)
			}
		})
	}
}

func TestHelp(t *testing.T) {
	var out bytes.Buffer
	must(t, run(t.Context(), []string{"help"}, &out, io.Discard))
	for _, command := range []string{"up", "down", "build"} {
		if !strings.Contains(out.String(), "\n  "+command) {
			t.Errorf("help says nothing about %s", command)
		}
	}
	if err := run(context.Background(), []string{"up", "-h"}, io.Discard, io.Discard); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("up -h: %v", err)
	}
}

// Nothing but the stack's own signals ends it: it has a session of its own.
func TestDetachedOutlivesItsTerminal(t *testing.T) {
	c := newCommand(t)
	up, _ := c.start(t, "-detach")
	must(t, up.Wait())
	for _, pid := range leaktest.Processes(t, c.path) {
		group, err := syscall.Getpgid(pid)
		must(t, err)
		if group != pid {
			t.Errorf("process %d belongs to the group %d of its parent", pid, group)
		}
	}
	must(t, c.with("down").Run())
}
