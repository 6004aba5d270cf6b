// Package proc starts programs and ends them for certain: each by its own
// process id, and none outlives the program that started it.
package proc

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// A Spec says what to run.
type Spec struct {
	Path string
	Args []string
	// Env is the whole environment of the program; nothing is inherited.
	Env []string
	Dir string
	// Log is the file that its output is appended to.
	Log string
}

// A Process is a program that was started. It is safe for concurrent use.
type Process struct {
	cmd  *exec.Cmd
	log  string
	done chan struct{}
	err  error // how it ended; read it only when done is closed
}

// Start runs the program that spec describes.
func Start(spec Spec) (*Process, error) {
	log, err := os.OpenFile(spec.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()

	cmd := exec.Command(spec.Path, spec.Args...)
	cmd.Env = append([]string{}, spec.Env...) // nil would mean the parent's
	cmd.Dir = spec.Dir
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = Attributes()

	p := &Process{cmd: cmd, log: spec.Log, done: make(chan struct{})}
	started := make(chan error)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// run starts the program and waits for it, all on one thread that lives as long
// as the program: "the parent died", which ends the program, means to the
// kernel that the thread that started it ended.
func (p *Process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	p.err = p.cmd.Wait()
	close(p.done)
}

// PID is the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the program has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Running reports whether the program has not ended yet.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Exit says how a program ended. It is nil while the program runs.
func (p *Process) Exit() error {
	switch {
	case p.Running():
		return nil
	case p.err == nil:
		return errors.New("exit status 0")
	default:
		return p.err
	}
}

// Signal sends the program a signal. A program that has ended is os.ErrProcessDone.
func (p *Process) Signal(sig os.Signal) error { return p.cmd.Process.Signal(sig) }

// Kill ends the program at once and waits until it is gone.
func (p *Process) Kill() error { return p.end(syscall.SIGKILL, 0) }

// Stop asks the program to end, also when it is paused, kills it after grace,
// and waits until it is gone.
func (p *Process) Stop(grace time.Duration) error {
	if err := p.end(syscall.SIGTERM, grace); err != nil {
		return err
	}
	return p.Kill()
}

// end sends a signal and waits until the program has ended or, where grace is
// positive, for that long at most.
func (p *Process) end(sig syscall.Signal, grace time.Duration) error {
	for _, s := range []syscall.Signal{sig, syscall.SIGCONT} {
		if err := p.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("sending %v to process %d: %w", s, p.PID(), err)
		}
	}
	if grace <= 0 {
		<-p.done
		return nil
	}
	select {
	case <-p.done:
	case <-time.After(grace):
	}
	return nil
}

// Tail is the end of what the program has printed so far.
func (p *Process) Tail() string { return TailFile(p.log) }

const (
	tailLines = 25
	tailBytes = 16 << 10
)

// TailFile is the last few lines of a file, or nothing if it cannot be read.
func TailFile(path string) string {
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return ""
	}
	buf := make([]byte, min(info.Size(), tailBytes))
	n, _ := file.ReadAt(buf, max(0, info.Size()-tailBytes))
	return Tail(string(buf[:n]))
}

// Tail is the last few lines of a text.
func Tail(text string) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-tailLines):], "\n")
}
