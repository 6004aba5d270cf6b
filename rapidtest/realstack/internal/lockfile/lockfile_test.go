package lockfile_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/kubehold/kubehold/rapidtest/realstack/internal/lockfile"
)

func TestOneHolderAtATime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, err := lockfile.Try(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lockfile.Try(path); !errors.Is(err, lockfile.ErrHeld) {
		t.Fatalf("second Try: %v, want ErrHeld", err)
	}

	busy := make(chan struct{})
	go func() {
		<-busy
		_ = first.Release()
	}()
	second, err := lockfile.Wait(t.Context(), path, func() { close(busy) })
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // releasing again does nothing
		if err := second.Release(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWaitEndsWithItsContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	lock, err := lockfile.Try(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Release() }()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := lockfile.Wait(ctx, path, func() {}); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Wait: %v, want the context's error", err)
	}
}
