package holdable_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/rapidtest"
)

// H6, from end to end: what a Hold(5) makes of each thing that others can do
// between its read and its update.
func TestH6WhatAConflictMeans(t *testing.T) {
	for name, tc := range map[string]struct {
		before  func(*cluster) // before the call
		between func(*cluster)
		did     holdable.Did
		kind    meta.Sentinel // for a failure
		seen    int64
		changed bool
		updates int
	}{
		"StatusWriter": {
			between: func(c *cluster) { c.condition(trainJobs(), "job", "Suspended") },
			did:     holdable.Placed, updates: 2,
		},
		"StatusWriterOverAnOlderHold": {
			before:  func(c *cluster) { c.place(trainJobs(), "job", 3) },
			between: func(c *cluster) { c.touch(trainJobs(), "job") },
			did:     holdable.Placed, updates: 2,
		},
		"Newer": {
			between: func(c *cluster) { c.place(trainJobs(), "job", 6) },
			kind:    meta.ErrStaleHold, seen: 6, changed: true, updates: 1,
		},
		"OlderWhereThereWasNone": {
			between: func(c *cluster) { c.place(trainJobs(), "job", 4) },
			kind:    meta.ErrStaleHold, seen: 4, changed: true, updates: 1,
		},
		"AnotherOlder": {
			before:  func(c *cluster) { c.place(trainJobs(), "job", 3) },
			between: func(c *cluster) { c.place(trainJobs(), "job", 4) },
			kind:    meta.ErrStaleHold, seen: 4, changed: true, updates: 1,
		},
		"TheOneSeenWasLifted": {
			before:  func(c *cluster) { c.place(trainJobs(), "job", 3) },
			between: func(c *cluster) { c.lift(trainJobs(), "job") },
			kind:    meta.ErrStaleHold, seen: 0, changed: true, updates: 1,
		},
		"TheSamePlaced": {
			between: func(c *cluster) { c.place(trainJobs(), "job", 5) },
			did:     holdable.InForce, updates: 1,
		},
		"TheSamePlacedAndResumed": {
			between: func(c *cluster) {
				c.place(trainJobs(), "job", 5)
				c.patch(trainJobs(), "job", `{"spec":{"suspend":false}}`)
			},
			did: holdable.Placed, updates: 2,
		},
		"H8GivenToKueue": {
			between: func(c *cluster) {
				c.patch(trainJobs(), "job", `{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":"main"}}}`)
			},
			kind: meta.ErrRejected, updates: 1,
		},
		"H11Deleted": {
			before: func(c *cluster) {
				c.patch(trainJobs(), "job", `{"metadata":{"finalizers":["example.com/wait"]}}`)
			},
			between: func(c *cluster) { c.remove(trainJobs(), "job") },
			kind:    meta.ErrRejected, updates: 1,
		},
		"Gone": {
			between: func(c *cluster) { c.remove(trainJobs(), "job") },
			kind:    meta.ErrMissing, updates: 1,
		},
		"C6Replaced": {
			between: func(c *cluster) {
				c.remove(trainJobs(), "job")
				c.create(trainJobs(), trainJob("job"))
			},
			kind: meta.ErrReplaced, updates: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				if tc.before != nil {
					tc.before(c)
				}
				c.before(rapidtest.VerbUpdate, 1, func() { tc.between(c) })
				r, err := c.client(plain()).Hold(t.Context(), job(), call(5))
				if n := c.updates(); n != tc.updates {
					t.Errorf("%d updates, want %d\n%s", n, tc.updates, c.plan.Timeline())
				}
				if tc.kind == "" {
					c.did(r, err, tc.did)
					if c.instance(trainJobs(), "job") != "5" || !c.suspended(trainJobs(), "job") {
						t.Errorf("stored: %v", c.stored(trainJobs(), "job"))
					}
					return
				}
				e := c.failed(err, tc.kind, meta.FateNone)
				if e.Seen != tc.seen || e.Changed != tc.changed || e.Instance != 5 || !errors.Is(err, meta.ErrRejected) {
					t.Errorf("seen %d, changed %v of %v", e.Seen, e.Changed, err)
				}
				if len(c.commits()) != 0 {
					t.Errorf("it wrote %v", c.commits())
				}
			})
		})
	}
}

// R8: after a conflict a Release goes on only under its own instance, and then
// looks at the pods again.
func TestR8WhatAConflictMeans(t *testing.T) {
	for name, tc := range map[string]struct {
		between func(*cluster)
		kind    meta.Sentinel // "" for success
		seen    int64
		lists   int
	}{
		"StatusWriter": {func(c *cluster) { c.touch(trainJobs(), "job") }, "", 0, 2},
		"APodTurnsUp": {func(c *cluster) {
			c.create(pods(), pod("late", "job"))
			c.touch(trainJobs(), "job")
		}, meta.ErrPodsRemain, 0, 2},
		"Newer":  {func(c *cluster) { c.place(trainJobs(), "job", 6) }, meta.ErrStaleHold, 6, 1},
		"Older":  {func(c *cluster) { c.place(trainJobs(), "job", 4) }, meta.ErrStaleHold, 4, 1},
		"Lifted": {func(c *cluster) { c.lift(trainJobs(), "job") }, meta.ErrStaleHold, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				h := c.client(plain())
				r, err := h.Hold(t.Context(), job(), call(5))
				c.did(r, err, holdable.Placed)
				c.before(rapidtest.VerbUpdate, 1, func() { tc.between(c) })
				r, err = h.Release(t.Context(), job(), call(5))
				lists := 0
				for _, e := range c.plan.Events() {
					if e.Request.Verb == rapidtest.VerbList {
						lists++
					}
				}
				if lists != tc.lists {
					t.Errorf("%d lists of pods, want %d", lists, tc.lists)
				}
				if tc.kind == "" {
					c.did(r, err, holdable.Lifted)
					return
				}
				e := c.failed(err, tc.kind, meta.FateNone)
				if tc.kind == meta.ErrStaleHold && (e.Seen != tc.seen || !e.Changed) {
					t.Errorf("seen %d, changed %v", e.Seen, e.Changed)
				}
				if len(c.commits()) != 1 {
					t.Errorf("it wrote %v", c.commits())
				}
			})
		})
	}
}

// R8, E3: where the answer to a Release is lost, a read that shows just what it
// would have written is its success; after a proxy has sent it twice it is not,
// but then the error does not claim that nothing was written.
func TestR8ReleaseInDoubt(t *testing.T) {
	for name, tc := range map[string]struct {
		fault rapidtest.Fault
		after func(*cluster) // after the commit
		kind  meta.Sentinel  // "" for success
	}{
		"Landed":            {rapidtest.LoseResponse(), func(*cluster) {}, ""},
		"LandedAndTouched":  {rapidtest.LoseResponse(), func(c *cluster) { c.touch(trainJobs(), "job") }, ""},
		"NotLanded":         {rapidtest.LoseRequest(), func(*cluster) {}, ""},
		"LandedAndHeld":     {rapidtest.LoseResponse(), func(c *cluster) { c.place(trainJobs(), "job", 6) }, meta.ErrStaleHold},
		"LandedAndPaused":   {rapidtest.LoseResponse(), func(c *cluster) { c.patch(trainJobs(), "job", `{"spec":{"suspend":true}}`) }, meta.ErrStaleHold},
		"SentTwiceByAProxy": {rapidtest.Duplicate(), func(*cluster) {}, meta.ErrStaleHold},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, rapidtest.Nth(2, rapidtest.Writes(), tc.fault))
				c.patch(trainJobs(), "job", `{"spec":{"suspend":true}}`)
				h := c.client(gated())
				_, err := h.Open(t.Context(), job(), call(0))
				c.check(err)
				c.place(trainJobs(), "job", 5)
				c.before(rapidtest.VerbUpdate, 2, func() { tc.after(c) })
				r, err := h.Release(t.Context(), job(), call(5))
				if tc.kind != "" {
					c.failed(err, tc.kind, meta.FateSettled)
					return
				}
				if r = c.did(r, err, holdable.Lifted); r.Executions != 2 || c.suspended(trainJobs(), "job") {
					t.Errorf("A is %d", r.Executions)
				}
				if n := len(c.commits()); n != 2 {
					t.Errorf("%d commits", n)
				}
			})
		})
	}
}

// C6: the UID that the caller has pinned is looked at with every read.
func TestC6APinnedUID(t *testing.T) {
	for name, kind := range map[string]holdable.Holdable[bool]{"Plain": plain(), "Kueue": kueue()} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newKueueCluster(t)
				h := c.clientWith(kind, holdable.Options{CheckPods: true}) // so that Kueue mode reads the named object, too
				other := job()
				other.UID = types.UID("5eed0000-0000-4000-8000-00000000dead")
				for op, do := range operations(h) {
					_, err := do(t.Context(), other, call(1))
					e := c.failed(err, meta.ErrReplaced, meta.FateNone)
					if !errors.Is(err, meta.ErrRejected) || e.Object.UID != other.UID || e.Op != op {
						t.Errorf("%+v", e)
					}
				}
				_, err := h.Inspect(t.Context(), other)
				c.failed(err, meta.ErrReplaced, meta.FateNone)
				if c.updates() != 0 {
					t.Error("it wrote")
				}
				other.UID = c.job
				r, err := h.Hold(t.Context(), other, call(1))
				c.did(r, err, holdable.Placed)
			})
		})
	}
}

// operations are Hold and Release by their names.
func operations(h holdable.Holder) map[meta.Op]func(context.Context, meta.Ref, meta.Call) (holdable.Receipt, error) {
	return map[meta.Op]func(context.Context, meta.Ref, meta.Call) (holdable.Receipt, error){
		meta.OpHold: h.Hold, meta.OpRelease: h.Release,
	}
}

// C6, T3: an object that is replaced while the fate of an update is open was not
// written by it after all, or was and is gone: that settles the fate.
func TestC6ReplacedWhileInDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, rapidtest.Nth(1, rapidtest.Writes(), rapidtest.CommitLater(time.Second)))
		c.before(rapidtest.VerbUpdate, 2, func() {
			c.remove(trainJobs(), "job")
			c.create(trainJobs(), trainJob("job"))
		})
		_, err := c.client(plain()).Hold(t.Context(), job(), call(1))
		e := c.failed(err, meta.ErrReplaced, meta.FateSettled)
		if e.Held.UID != "" && e.Held.UID != c.job || e.UID != c.job {
			t.Errorf("it names %s", e.UID)
		}
		time.Sleep(time.Hour)
		if len(c.commits()) != 0 {
			t.Errorf("it wrote %v", c.commits())
		}
	})
}

// T2: with k commits of others in the way a Hold takes k+1 updates, and after
// nine it is ErrConflict, in either mode.
func TestT2HoldsBesideOtherWriters(t *testing.T) {
	for name, tc := range map[string]struct {
		kind  holdable.Holdable[bool]
		touch func(*cluster)
	}{
		"Plain": {plain(), func(c *cluster) { c.touch(trainJobs(), "job") }},
		"Kueue": {kueue(), func(c *cluster) { c.touch(workloads(), "wl") }},
	} {
		for k := range 10 {
			t.Run(fmt.Sprint(name, k), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := newKueueCluster(t)
					for n := range k {
						c.before(rapidtest.VerbUpdate, n+1, func() { tc.touch(c) })
					}
					r, err := c.client(tc.kind).Hold(t.Context(), job(), call(1))
					if n := c.updates(); n != min(k+1, 9) {
						t.Errorf("%d updates", n)
					}
					if k < 9 {
						if r = c.did(r, err, holdable.Placed); r.Tries != k+1 {
							t.Errorf("%d tries", r.Tries)
						}
						return
					}
					c.failed(err, meta.ErrConflict, meta.FateNone)
					if !apierrors.IsConflict(err) {
						t.Errorf("not a conflict: %v", err)
					}
				})
			})
		}
	}
}

// A client serves many calls at once. Holds of one object, each newer than the
// last, leave the newest in force, whatever becomes of the others.
func TestAClientIsSafeForConcurrentUse(t *testing.T) {
	c := newKueueCluster(t)
	c.create(trainJobs(), trainJob("second"))
	h := c.client(plain())
	var calls sync.WaitGroup
	for i := range 8 {
		calls.Go(func() {
			ref := job()
			ref.Name = []string{"job", "second"}[i%2]
			r, err := h.Hold(context.Background(), ref, call(int64(1+i/2)))
			switch {
			case err == nil && (r.Held.Name != ref.Name || r.Object.Name != ref.Name):
				t.Errorf("got %+v", r)
			case err != nil && !errors.Is(err, meta.ErrStaleHold) && !errors.Is(err, meta.ErrConflict):
				t.Error(err)
			case err != nil && !strings.Contains(err.Error(), ref.Name):
				t.Errorf("%v is not about %s", err, ref.Name)
			}
		})
	}
	calls.Wait()
	for _, name := range []string{"job", "second"} {
		ref := job()
		ref.Name = name
		r, err := h.Hold(context.Background(), ref, call(4)) // the newest may have lost to a smaller one that was first
		if err != nil || r.Held.Name != name || c.instance(trainJobs(), name) != "4" {
			t.Errorf("%+v, %v", r, err)
		}
	}
}
