// Package leaktest finds what a test left running.
package leaktest

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// patience is how long a process may take to be gone that was told to go.
const patience = 5 * time.Second

// Processes returns the ids of the processes whose command line mentions text.
func Processes(t *testing.T, text string) []int {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var found []int
	for _, path := range paths {
		line, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(line), text) {
			continue // gone meanwhile, or none of ours
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, pid)
	}
	return found
}

// NoProcesses fails the test if a process stays whose command line mentions text.
func NoProcesses(t *testing.T, text string) {
	t.Helper()
	for until := time.Now().Add(patience); len(Processes(t, text)) > 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("processes %v are still there, with %q in their command line", Processes(t, text), text)
		}
	}
}

// NoFiles fails the test if the folder dir has anything in it.
func NoFiles(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		t.Errorf("%s was left behind", filepath.Join(dir, entry.Name()))
	}
}

// Folders returns what lies in dir, which need not exist.
func Folders(t *testing.T, dir string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return paths
}
