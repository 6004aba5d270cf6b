// Package build makes programs out of published Go modules and keeps them.
//
// Each program is built from a module of its own, generated for the purpose:
// the systems of one stack need different versions of the same libraries, and
// nothing of what they need should reach the module that tests with them.
package build

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/kubehold/kubehold/rapidtest/realstack/internal/gotool"
	"github.com/kubehold/kubehold/rapidtest/realstack/internal/lockfile"
)

// goVersion is the language version of the generated modules.
const goVersion = "1.26.0"

// A Recipe says how to build one program.
type Recipe struct {
	// Name is what the program is called in messages and in the cache.
	Name string
	// Module and Version say where the source comes from, Package which of its
	// commands to build.
	Module, Version, Package string
	// Staging is the version that stands for each requirement which the
	// module's own go.mod names as v0.0.0 and replaces by a folder of its
	// source tree. Kubernetes publishes itself like that.
	Staging string
	// LinkerFlags are added to the linker's command line.
	LinkerFlags []string
	// Patches change the source before it is built.
	Patches []Patch
	// Takes says how long a first build takes, for whoever waits for it.
	Takes string
}

// A Patch replaces a text, which must occur exactly once, in one source file.
type Patch struct{ File, Old, New string }

// sum tells apart recipes whose programs differ.
func (r Recipe) sum() (string, error) {
	r.Takes = ""
	data, err := json.Marshal([]any{r, runtime.GOOS, runtime.GOARCH})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", sha256.Sum256(data))[:12], nil
}

// A Cache is a folder of programs that were built before. Processes may share
// one: they take turns at building, and a program appears whole or not at all.
type Cache struct {
	// Dir is the folder; it is created where it does not exist.
	Dir string
	// Progress is told what is being built. It must not be nil.
	Progress io.Writer
}

// Program returns the path of the program that r describes, and builds it first
// if the cache has none.
func (c Cache) Program(ctx context.Context, r Recipe) (string, error) {
	sum, err := r.sum()
	if err != nil {
		return "", err
	}
	path := filepath.Join(c.Dir, "bin", fmt.Sprintf("%s-%s-%s", r.Name, r.Version, sum))
	if exists(path) {
		return path, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	lock, err := lockfile.Wait(ctx, filepath.Join(c.Dir, "build.lock"), func() {
		c.say("waiting for another build to end before %s %s", r.Name, r.Version)
	})
	if err != nil {
		return "", err
	}
	defer func() { _ = lock.Release() }()
	if exists(path) {
		return path, nil
	}
	return path, c.build(ctx, r, path)
}

// build makes the program in a folder that is thrown away, and then moves it to
// path. The caller holds the build lock.
func (c Cache) build(ctx context.Context, r Recipe, path string) (err error) {
	work := filepath.Join(c.Dir, "work")
	if err := os.RemoveAll(work); err != nil { // left by a build that was killed
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	tmp := filepath.Join(work, "tmp")
	if err := os.MkdirAll(tmp, 0o755); err != nil {
		return err
	}

	c.say("building %s %s (once, about %s) ...", r.Name, r.Version, r.Takes)
	began := time.Now()
	if err := c.generate(ctx, r, work); err != nil {
		return err
	}
	built := filepath.Join(work, r.Name)
	if _, err := gotool.Run(ctx, work, tmp, r.buildArgs(built)...); err != nil {
		return err
	}
	if err := os.Rename(built, path); err != nil {
		return err
	}
	c.say("built %s %s in %v", r.Name, r.Version, time.Since(began).Round(time.Second))
	return nil
}

func (r Recipe) buildArgs(out string) []string {
	flags := strings.Join(append([]string{"-s", "-w"}, r.LinkerFlags...), " ")
	// The linker drops what debuggers read; the compiler need not write it.
	return []string{"build", "-mod=mod", "-buildvcs=false", "-gcflags", "all=-dwarf=false", "-ldflags", flags, "-o", out, r.Package}
}

// generate writes the module that the program is built from.
func (c Cache) generate(ctx context.Context, r Recipe, dir string) error {
	var replaces []string
	if r.Staging != "" || len(r.Patches) > 0 {
		modules, err := gotool.Download(ctx, r.Module+"@"+r.Version)
		if err != nil {
			return err
		}
		source := modules[r.Module]
		if replaces, err = r.staging(ctx, source.GoMod); err != nil {
			return err
		}
		if len(r.Patches) > 0 {
			if err := r.patch(source.Dir, filepath.Join(dir, "src")); err != nil {
				return err
			}
			replaces = append(replaces, fmt.Sprintf("replace %s => ./src", r.Module))
		}
	}
	text := fmt.Sprintf("module kubehold.dev/realstack/%s\n\ngo %s\n\nrequire %s %s\n\n%s\n",
		r.Name, goVersion, r.Module, r.Version, strings.Join(replaces, "\n"))
	return os.WriteFile(filepath.Join(dir, "go.mod"), []byte(text), 0o644)
}

// staging returns the replace directives for the requirements without a version.
func (r Recipe) staging(ctx context.Context, goMod string) ([]string, error) {
	if r.Staging == "" {
		return nil, nil
	}
	requirements, err := gotool.Requirements(ctx, goMod)
	if err != nil {
		return nil, err
	}
	var replaces []string
	for _, q := range requirements {
		if q.Version == "v0.0.0" {
			replaces = append(replaces, fmt.Sprintf("replace %s => %s %s", q.Path, q.Path, r.Staging))
		}
	}
	return replaces, nil
}

// patch copies the module's source to dst, where it can be written to, and
// applies the patches there.
func (r Recipe) patch(src, dst string) error {
	if err := copyTree(src, dst); err != nil {
		return err
	}
	for _, p := range r.Patches {
		if err := p.apply(dst); err != nil {
			return err
		}
	}
	return nil
}

func (p Patch) apply(root string) error {
	path := filepath.Join(root, filepath.FromSlash(p.File))
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if n := strings.Count(string(text), p.Old); n != 1 {
		return fmt.Errorf("patching %s: found %d times, want once: %s", p.File, n, p.Old)
	}
	return os.WriteFile(path, []byte(strings.Replace(string(text), p.Old, p.New, 1)), 0o644)
}

// copyTree copies a source tree without its tests. Files of the module cache
// are read-only; the copies are not.
func copyTree(src, dst string) error {
	return filepath.WalkDir(src, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(src, path)
		if err != nil {
			return err
		}
		target := filepath.Join(dst, rel)
		if entry.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		if strings.HasSuffix(rel, "_test.go") {
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(target, data, 0o644)
	})
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func (c Cache) say(format string, args ...any) {
	_, _ = fmt.Fprintf(c.Progress, format+"\n", args...)
}
