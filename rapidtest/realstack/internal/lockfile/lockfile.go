// Package lockfile holds a file lock for as long as a process lives.
//
// The kernel drops the lock when the process ends, however it ends, so a lock
// that can be taken is proof that its former owner is gone. A recorded process
// id proves no such thing, because ids are reused.
package lockfile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// ErrHeld says that another process (or another Lock of this one) holds it.
var ErrHeld = errors.New("lock is held")

const pollInterval = 200 * time.Millisecond

// A Lock is an exclusive lock on one file. Release it when done.
type Lock struct{ file *os.File }

// Try takes the lock on the file at path, creating the file where there is
// none, or returns ErrHeld at once.
func Try(path string) (*Lock, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return &Lock{file: file}, nil
	}
	_ = file.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, fmt.Errorf("%s: %w", path, ErrHeld)
	}
	return nil, fmt.Errorf("locking %s: %w", path, err)
}

// Wait takes the lock at path as soon as it is free, or returns the context's
// error. It calls busy once, before it first has to wait.
func Wait(ctx context.Context, path string, busy func()) (*Lock, error) {
	for first := true; ; first = false {
		lock, err := Try(path)
		if !errors.Is(err, ErrHeld) {
			return lock, err
		}
		if first {
			busy()
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pollInterval):
		}
	}
}

// Release gives the lock back; to do so again does nothing. The file stays: to
// remove it here would let two processes hold "the" lock on two different files
// of the same name.
func (l *Lock) Release() error {
	if err := l.file.Close(); !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}
