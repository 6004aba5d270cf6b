package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/kubehold/kubehold/rapidtest/realstack/internal/lockfile"
)

const detachPoll = 200 * time.Millisecond

// upDetached runs "up" in a process of its own, shows what that says, and
// returns when its stack can be used.
func upDetached(ctx context.Context, at places, args []string, out, progress io.Writer) error {
	lock, err := lockfile.Try(at.lock)
	if errors.Is(err, lockfile.ErrHeld) {
		return errRunning
	}
	if err != nil {
		return err
	}
	log, err := os.Create(at.log)
	if err := errors.Join(err, lock.Release()); err != nil {
		return err
	}
	defer func() { _ = log.Close() }()

	program, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(program, append(append([]string{"up"}, args...), "-detach=false")...)
	cmd.Stderr = log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	return follow(ctx, at, cmd.Process, ended, out, progress)
}

// follow shows a detached process's log until its stack can be used.
func follow(ctx context.Context, at places, process *os.Process, ended <-chan error, out, progress io.Writer) error {
	log, err := os.Open(at.log)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	for {
		_, _ = io.Copy(progress, log)
		if r, err := at.recall(); err == nil && r.PID == process.Pid && r.Kubeconfig != "" {
			_, _ = io.Copy(progress, log)
			_, err := fmt.Fprintln(out, r.Kubeconfig)
			return err
		}
		select {
		case <-ended:
			_, _ = io.Copy(progress, log)
			return errors.New("the stack did not come up; see above")
		case <-ctx.Done():
			err := process.Signal(syscall.SIGTERM)
			<-ended
			return errors.Join(ctx.Err(), err)
		case <-time.After(detachPoll):
		}
	}
}
