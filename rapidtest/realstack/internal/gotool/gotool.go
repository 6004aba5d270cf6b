// Package gotool runs the go command on behalf of this program, in a way that
// does not depend on the settings of the module or workspace it is called from.
package gotool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/kubehold/kubehold/rapidtest/realstack/internal/proc"
)

// quitDelay is how long an interrupted go command may take to clean up.
const quitDelay = 10 * time.Second

// An Error is a go command that failed, with what it printed.
type Error struct {
	Args   []string
	Output string
	Err    error
}

func (e *Error) Error() string {
	return fmt.Sprintf("go %s: %v\n%s", strings.Join(e.Args, " "), e.Err, e.Output)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Run runs the go command in dir and returns its standard output. Temporary
// files of the command go to tmp, which the caller removes; an empty tmp means
// the system's own folder. When ctx ends, the command is interrupted, and it
// does not outlive this process.
func Run(ctx context.Context, dir, tmp string, args ...string) ([]byte, error) {
	var out, errOut bytes.Buffer
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &errOut
	cmd.Env = environment(tmp)
	cmd.SysProcAttr = proc.Attributes()
	cmd.Cancel = func() error { return interruptGroup(cmd.Process.Pid) }
	cmd.WaitDelay = quitDelay
	err := cmd.Run()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return out.Bytes(), &Error{Args: args, Output: errOut.String(), Err: err}
	}
	return out.Bytes(), nil
}

// interruptGroup interrupts a go command and the compilers that it runs, which
// share a process group that is theirs alone. The go command then clears up.
func interruptGroup(leader int) error { return syscall.Kill(-leader, syscall.SIGINT) }

// environment is the caller's, so that its proxy and caches apply, without the
// settings that would make the go command look at the caller's own module.
func environment(tmp string) []string {
	env := append(os.Environ(), "GOFLAGS=", "GOWORK=off", "CGO_ENABLED=0")
	if tmp != "" {
		env = append(env, "GOTMPDIR="+tmp)
	}
	return env
}

// A Module is one that the go command has put into the module cache.
type Module struct {
	Path, Version string
	// Dir is the unpacked source, which must not be written to.
	Dir string
	// GoMod is the module's go.mod file.
	GoMod string
	// Error is why there is no Dir; Download turns it into an error.
	Error string
}

// Download fetches modules, each named PATH@VERSION, and returns them by path.
func Download(ctx context.Context, modules ...string) (map[string]Module, error) {
	args := append([]string{"mod", "download", "-json"}, modules...)
	out, runErr := Run(ctx, os.TempDir(), "", args...)
	found := map[string]Module{}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var m Module
		err := decoder.Decode(&m)
		if errors.Is(err, io.EOF) {
			return found, runErr
		}
		if err != nil {
			return nil, errors.Join(runErr, fmt.Errorf("reading the answer of go mod download: %w", err))
		}
		if m.Error != "" {
			return nil, fmt.Errorf("downloading %s@%s: %s", m.Path, m.Version, m.Error)
		}
		found[m.Path] = m
	}
}

// A Requirement is one line of a go.mod file's require block.
type Requirement struct{ Path, Version string }

// Requirements reads the require blocks of a go.mod file.
func Requirements(ctx context.Context, goMod string) ([]Requirement, error) {
	out, err := Run(ctx, os.TempDir(), "", "mod", "edit", "-json", goMod)
	if err != nil {
		return nil, err
	}
	var file struct{ Require []Requirement }
	if err := json.Unmarshal(out, &file); err != nil {
		return nil, fmt.Errorf("reading %s: %w", goMod, err)
	}
	return file.Require, nil
}
