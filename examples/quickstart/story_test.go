package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/rapidtest"
)

// told is a story as a reader sees it: what was printed, the exit status, and
// what was printed beside it.
type told struct {
	text, errs string
	status     int
}

func tellOn(t *testing.T, server *rapidtest.Server, change func(*world)) told {
	t.Helper()
	w, err := worldOn(server)
	if err != nil {
		t.Fatal(err)
	}
	w.pace = time.Second // as nothing happens in between
	if change != nil {
		change(w)
	}
	var out, errs bytes.Buffer
	code := status(perform(t.Context(), w, &out), &errs)
	return told{out.String(), errs.String(), code}
}

func TestStoryOnTheModel(t *testing.T) {
	var first, second string
	synctest.Test(t, func(t *testing.T) {
		server := modelServer()
		server.OnCommit(func(c rapidtest.Commit) {
			for _, job := range jobNames() {
				if e := server.Executions("demo", job); len(e) > 1 {
					t.Errorf("%s: two executions of %s side by side: %v", c, job, e)
				}
			}
		})
		got := tellOn(t, server, nil)
		if got.status != 0 || got.errs != "" {
			t.Errorf("exit status %d: %s", got.status, got.errs)
		}
		for _, want := range []string{
			"Hold(1), on another line   placed, rv ",
			"drained: no",
			"takes over: Hold(2)        placed, rv ",
			"Release(1), too late       refused: stale hold: instance 2 is in force",
			"the stuck Hold(1) arrives  409: it is bound to rv ",
			"refused: stale hold: instance 2 is in force, which is newer",
			"Release(2), too early      refused: pods remain: llm-",
			"drained: yes",
			"Release(2)                 lifted, execution 2, rv ",
			"kept paused, rv ",
			"Open, under the hold       marked open, rv ",
			"deactivated: execution time limit; no hold",
			"paused: by someone else; no hold",
			"Every step came out as told",
		} {
			if !strings.Contains(got.text, want) {
				t.Errorf("the story lacks %q", want)
			}
		}
		checkLayout(t, got.text)
		if first = got.text; t.Failed() {
			t.Log("\n" + first)
		}
	})
	synctest.Test(t, func(t *testing.T) { second = tellOn(t, modelServer(), nil).text })
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("the story is not the same each time:\n%s", diff)
	}
}

// checkLayout checks that steps are numbered, and that no line is too long or
// ends in space.
func checkLayout(t *testing.T, text string) {
	t.Helper()
	number := regexp.MustCompile(`^ {0,3}(\d+)  \S`)
	steps := 0
	for line := range strings.SplitSeq(text, "\n") {
		if utf8.RuneCountInString(line) > pageWidth {
			t.Errorf("line of more than %d characters: %q", pageWidth, line)
		}
		if strings.TrimRight(line, " ") != line {
			t.Errorf("line with space at its end: %q", line)
		}
		if m := number.FindStringSubmatch(line); m != nil {
			if steps++; m[1] != fmt.Sprint(steps) {
				t.Errorf("step %s comes where step %d should", m[1], steps)
			}
		}
	}
	if want := fmt.Sprintf("%d of %d.", steps, steps); !strings.Contains(text, want) {
		t.Errorf("the story does not say that there were %s", want)
	}
}

// stripHolds is an admission that takes the annotations of holds off, as a schema
// would that does not know them.
func stripHolds(a rapidtest.AdmissionRequest) (*unstructured.Unstructured, error) {
	kept := map[string]string{}
	for key, value := range a.Object.GetAnnotations() {
		if !strings.HasPrefix(key, meta.DefaultPrefix) {
			kept[key] = value
		}
	}
	a.Object.SetAnnotations(kept)
	return a.Object, nil
}

// resumeHeld is an admission that never lets a TrainJob be suspended again.
func resumeHeld(a rapidtest.AdmissionRequest) (*unstructured.Unstructured, error) {
	if a.Operation == "UPDATE" && a.Object.GetKind() == "TrainJob" {
		return a.Object, unstructured.SetNestedField(a.Object.Object, false, "spec", "suspend")
	}
	return a.Object, nil
}

// denyUpdates is a webhook that answers every update of the library with a code.
func denyUpdates(code int32, reason metav1.StatusReason) func(rapidtest.AdmissionRequest) (*unstructured.Unstructured, error) {
	return func(a rapidtest.AdmissionRequest) (*unstructured.Unstructured, error) {
		if a.Operation == "UPDATE" && a.Request.FieldManager == "kubehold" {
			return nil, rapidtest.Denied("deny.example.com", code, reason, "not today")
		}
		return a.Object, nil
	}
}

// withoutPreconditions is a server that lets every update of a TrainJob through,
// whatever it was decided on.
func withoutPreconditions(server *rapidtest.Server) rapidtest.Middleware {
	return func(next rapidtest.RoundTrip) rapidtest.RoundTrip {
		return func(ctx context.Context, req *rapidtest.Request) (*rapidtest.Response, error) {
			if now := server.Stored(req.GVR, req.Namespace, req.Name); now != nil && req.Verb == rapidtest.VerbUpdate && req.Subresource == "" {
				req.Object.SetResourceVersion(now.GetResourceVersion())
			}
			return next(ctx, req)
		}
	}
}

// forgetInstances is a server on which every hold has the number 1.
func forgetInstances(a rapidtest.AdmissionRequest) (*unstructured.Unstructured, error) {
	key := meta.Keys{}.Instance()
	if annotations := a.Object.GetAnnotations(); annotations[key] != "" {
		annotations[key] = "1"
		a.Object.SetAnnotations(annotations)
	}
	return a.Object, nil
}

// hidePods is a server that shows no pods to the library.
func hidePods(next rapidtest.RoundTrip) rapidtest.RoundTrip {
	return func(ctx context.Context, req *rapidtest.Request) (*rapidtest.Response, error) {
		if req.GVR == podsOf() && req.Verb == rapidtest.VerbList && req.List.Limit > 0 {
			req = req.With(func(r *rapidtest.Request) { r.List.LabelSelector = "none=such" })
		}
		return next(ctx, req)
	}
}

// A story that goes wrong says where, and the exit status is 1.
func TestStoryThatGoesWrong(t *testing.T) {
	for name, c := range map[string]struct {
		server func(*rapidtest.Server)
		world  func(*world)
		says   string
	}{
		"AnnotationsAreStripped": {
			server: func(s *rapidtest.Server) { s.Admit(stripHolds) },
			says:   "step 2 (red: Open) did not come out as told: told: opened; seen: ",
		},
		"SuspensionIsUndone": {
			server: func(s *rapidtest.Server) { s.Admit(resumeHeld) },
			says:   "step 6 (red: Hold(1), on another line) did not come out as told",
		},
		"UpdatesAreForbidden": {
			server: func(s *rapidtest.Server) { s.Admit(denyUpdates(403, metav1.StatusReasonForbidden)) },
			says:   "step 2 (red: Open) did not come out as told",
		},
		"UpdatesAreAnswered409": {
			server: func(s *rapidtest.Server) { s.Admit(denyUpdates(409, metav1.StatusReasonConflict)) },
			says:   "step 2 (red: Open) did not come out as told",
		},
		"NoPreconditions": {
			server: func(s *rapidtest.Server) { s.Use(withoutPreconditions(s)) },
			says: "step 10 (red: the stuck Hold(1) arrives) did not come out as told: " +
				"told: refused: stale hold; seen: the call succeeded",
		},
		"InstancesAreForgotten": {
			server: func(s *rapidtest.Server) { s.Admit(forgetInstances) },
			says:   "step 8 (blue: takes over: Hold(2)) did not come out as told",
		},
		"PodsAreHidden": {
			server: func(s *rapidtest.Server) { s.Use(hidePods) },
			says:   "step 7 (Trainer: deletes its pods) did not come out as told: told: not drained",
		},
		"TrainerDoesNotStop": {
			world: func(w *world) {
				w.cast.trainer.Stuck = func(*unstructured.Unstructured) bool { return true }
			},
			says: "step 7 (Trainer: deletes its pods) did not come out as told: told: one pod is left",
		},
		"KueueIsMissing": {
			world: func(w *world) { w.cast.kueue = nil },
			says:  "step 22 (ana: creates it, in a queue) did not come out as told: told: Workload admitted, TrainJob not suspended; seen: ",
		},
		"TrainerIsMissing": {
			world: func(w *world) { w.cast = cast{kueue: w.cast.kueue} },
			says:  "step 3 (Trainer: starts its pods) did not come out as told: told: two pods run, and no other; seen: no pod, for 10s",
		},
		"KueueHasNoQuota": {
			world: func(w *world) {
				w.cast.kueue.Quota = func(*unstructured.Unstructured) bool { return false }
			},
			says: "step 22 (ana: creates it, in a queue) did not come out as told",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := modelServer()
				if c.server != nil {
					c.server(server)
				}
				got := tellOn(t, server, c.world)
				if got.status != 1 || !strings.Contains(got.errs, c.says) {
					t.Errorf("exit status %d, %q; want 1 and %q", got.status, got.errs, c.says)
				}
				if !strings.Contains(got.text, "NOT AS TOLD") || strings.Contains(got.text, "Every step") {
					t.Errorf("the story does not say that it went wrong:\n%s", got.text)
				}
			})
		})
	}
}

// A story that nobody can read to the end has not been told.
func TestStoryWithoutAPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, err := worldOn(modelServer())
		if err != nil {
			t.Fatal(err)
		}
		if err := perform(t.Context(), w, tornPage{}); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("error %v, want %v", err, io.ErrClosedPipe)
		}
	})
}

type tornPage struct{}

func (tornPage) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestWrap(t *testing.T) {
	for _, c := range []struct {
		text string
		want string
	}{
		{"", ""},
		{"one two", "one two"},
		{"one two three", "one two\nthree"},
		{"one\ntwo", "one\ntwo"},
		{"überlänge passt", "überlänge\npasst"},
		{"averyverylongword x", "averyverylongword\nx"},
	} {
		if got := strings.Join(wrap(c.text, 9), "\n"); got != c.want {
			t.Errorf("wrap(%q) = %q, want %q", c.text, got, c.want)
		}
	}
}
