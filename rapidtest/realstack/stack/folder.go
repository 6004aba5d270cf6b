package stack

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/kubehold/kubehold/rapidtest/realstack/internal/lockfile"
)

// A folder holds all that a stack writes. It is locked for as long as the
// stack's owner lives.
type folder struct {
	path string
	lock *lockfile.Lock
}

const (
	folderPattern = "kubehold-realstack-*"
	ownerFile     = "owner.lock"
)

// newFolder makes a folder. Its lock gets its name only when it is held, so
// that a sweep never finds one that is about to be.
func newFolder(parent string) (*folder, error) {
	path, err := os.MkdirTemp(parent, folderPattern)
	if err != nil {
		return nil, err
	}
	draft := filepath.Join(path, "new.lock")
	lock, err := lockfile.Try(draft)
	if err == nil {
		err = os.Rename(draft, filepath.Join(path, ownerFile))
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(path))
	}
	return &folder{path: path, lock: lock}, nil
}

func (f *folder) remove() error { return errors.Join(os.RemoveAll(f.path), f.lock.Release()) }

// Sweep removes the folders that stacks left in dir, or in the system's folder
// for temporary files where dir is empty, because their owners were killed.
// Start does so too.
func Sweep(dir string) error {
	if dir == "" {
		dir = os.TempDir()
	}
	paths, err := filepath.Glob(filepath.Join(dir, folderPattern))
	if err != nil {
		return err
	}
	var failed []error
	for _, path := range paths {
		failed = append(failed, sweepFolder(path))
	}
	return errors.Join(failed...)
}

// sweepFolder removes a folder unless somebody owns it.
func sweepFolder(path string) error {
	owner := filepath.Join(path, ownerFile)
	if _, err := os.Stat(owner); err != nil {
		return nil // not a stack's, or just being made
	}
	lock, err := lockfile.Try(owner)
	if err != nil {
		return nil // in use, or another user's
	}
	return (&folder{path: path, lock: lock}).remove()
}
