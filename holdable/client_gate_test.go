package holdable_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/kinds"
	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/rapidtest"
)

// newGatedCluster has the TrainJob waiting at its start gate.
func newGatedCluster(t *testing.T, rules ...rapidtest.Rule) (*cluster, *holdable.Client[bool]) {
	t.Helper()
	c := newCluster(t, rules...)
	c.patch(trainJobs(), "job", `{"spec":{"suspend":true}}`)
	return c, c.client(gated())
}

// executions is A as it is written.
func (c *cluster) executions() string {
	c.Helper()
	count, _, _ := strings.Cut(c.stored(trainJobs(), "job").GetAnnotations()[meta.Keys{}.Executions()], " ")
	return count
}

// O1: an Open makes its mark, resumes and counts, in one update.
func TestO1Open(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, h := newGatedCluster(t)
		r, err := h.Open(t.Context(), job(), call(0))
		if c.did(r, err, holdable.Opened); r.Executions != 1 || c.executions() != "1" || c.suspended(trainJobs(), "job") || len(c.commits()) != 1 {
			t.Errorf("%+v, stored: %v", r, c.stored(trainJobs(), "job"))
		}
	})
}

// O1: pods of an earlier execution keep it shut.
func TestO1OpenWaitsForPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, h := newGatedCluster(t)
		c.create(pods(), pod("left", "job"))
		_, err := h.Open(t.Context(), job(), call(0))
		if e := c.failed(err, meta.ErrPodsRemain, meta.FateNone); cmp.Diff([]string{"left"}, e.Pods) != "" || len(c.commits()) != 0 {
			t.Errorf("%+v", e)
		}
	})
}

// O2: with a hold in force, also one that comes between the read and the
// update, an Open makes its mark and lifts nothing.
func TestO2OpenLiftsNoHold(t *testing.T) {
	for name, between := range map[string]bool{"Before": false, "Between": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, h := newGatedCluster(t)
				if between {
					c.before(rapidtest.VerbUpdate, 1, func() { c.place(trainJobs(), "job", 5) })
				} else {
					c.place(trainJobs(), "job", 5)
				}
				r, err := h.Open(t.Context(), job(), call(0))
				if c.did(r, err, holdable.MarkedOpen); !c.suspended(trainJobs(), "job") || c.instance(trainJobs(), "job") != "5" || c.executions() != "" {
					t.Errorf("stored: %v", c.stored(trainJobs(), "job"))
				}
				in, err := h.Inspect(t.Context(), job())
				if err != nil || !in.Opened || in.State != holdable.Held {
					t.Errorf("%+v, %v", in, err)
				}
			})
		})
	}
}

// O3: what is open is open; what has ended or is being deleted cannot be opened.
func TestO3OpenTwiceEndedOrDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, h := newGatedCluster(t)
		_, err := h.Open(t.Context(), job(), call(0))
		c.check(err)
		r, err := h.Open(t.Context(), job(), call(0))
		if c.did(r, err, holdable.AlreadyOpen); r.Executions != 1 || c.updates() != 1 {
			t.Errorf("%+v", r)
		}
	})
	for name, end := range map[string]func(*cluster){
		"Ended": func(c *cluster) { c.condition(trainJobs(), "job", "Failed") },
		"Deleted": func(c *cluster) {
			c.patch(trainJobs(), "job", `{"metadata":{"finalizers":["example.com/wait"]}}`)
			c.remove(trainJobs(), "job")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, h := newGatedCluster(t)
				end(c)
				_, err := h.Open(t.Context(), job(), call(0))
				c.failed(err, meta.ErrRejected, meta.FateNone)
				if c.updates() != 0 {
					t.Error("it wrote")
				}
			})
		})
	}
}

// O4: without a start gate, Kueue mode included, Open is ErrUnsupported, and
// nothing is sent.
func TestO4NoStartGate(t *testing.T) {
	for name, kind := range map[string]holdable.Holdable[bool]{
		"Plain": plain(), "Kueue": kueue(), "KueueOfAGatedKind": kinds.OnKueue(gated()), "Workload": kinds.Workload(),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newKueueCluster(t)
				_, err := c.client(kind).Open(t.Context(), job(), call(0))
				e := c.failed(err, meta.ErrUnsupported, meta.FateNone)
				if sent := c.wire.take(); len(sent) > 0 || e.Tries != 0 {
					t.Errorf("it sent %v", sent)
				}
			})
		})
	}
}

// H11: on an object that is being deleted Hold is refused, and a Release takes
// the annotations off and resumes nothing; no pods are asked for.
func TestH11AnObjectThatIsBeingDeleted(t *testing.T) {
	for name, tc := range map[string]struct {
		kind   holdable.Holdable[bool]
		remove func(*cluster) // the held object
	}{
		"Plain": {plain(), func(c *cluster) {
			c.patch(trainJobs(), "job", `{"metadata":{"finalizers":["example.com/wait"]}}`)
			c.remove(trainJobs(), "job")
		}},
		"Kueue": {kueue(), func(c *cluster) {
			c.patch(workloads(), "wl", `{"metadata":{"finalizers":["example.com/wait"]}}`)
			c.remove(workloads(), "wl")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newKueueCluster(t)
				h := c.client(tc.kind)
				r, err := h.Hold(t.Context(), job(), call(1))
				c.did(r, err, holdable.Placed)
				tc.remove(c)
				c.wire.take()
				for n := range int64(2) { // the instance in force as well
					_, err = h.Hold(t.Context(), job(), call(n+1))
					c.failed(err, meta.ErrRejected, meta.FateNone)
				}
				r, err = h.Release(t.Context(), job(), call(1))
				c.did(r, err, holdable.KeptPaused)
				for _, line := range c.wire.take() {
					if strings.Contains(line, "pods") {
						t.Errorf("it asked for pods: %s", line)
					}
				}
				in, err := h.Inspect(t.Context(), job())
				if err != nil || in.Hold != nil || in.State != holdable.Paused {
					t.Errorf("%+v, %v", in, err)
				}
			})
		})
	}
}

// I10: whatever the order of Hold, Open and Release, what is held or at its gate
// does not run, and A counts what runs.
func TestI10OpenAndReleaseInEveryOrder(t *testing.T) {
	steps := map[string]func(*holdable.Client[bool], context.Context) error{
		"hold": func(h *holdable.Client[bool], ctx context.Context) error {
			_, err := h.Hold(ctx, job(), call(1))
			return err
		},
		"release": func(h *holdable.Client[bool], ctx context.Context) error {
			_, err := h.Release(ctx, job(), call(1))
			return err
		},
		"open": func(h *holdable.Client[bool], ctx context.Context) error {
			_, err := h.Open(ctx, job(), call(0))
			return err
		},
	}
	for order, want := range map[string]struct {
		suspended  bool
		executions string
	}{
		"hold":                   {true, ""},
		"hold release":           {true, ""},
		"hold open":              {true, ""},
		"open hold":              {true, "1"},
		"hold open release":      {false, "1"},
		"hold release open":      {false, "1"},
		"open hold release":      {false, "2"},
		"open hold open release": {false, "2"},
	} {
		t.Run(order, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, h := newGatedCluster(t)
				for _, step := range strings.Fields(order) {
					c.check(steps[step](h, t.Context()))
				}
				if got := c.suspended(trainJobs(), "job"); got != want.suspended || c.executions() != want.executions {
					t.Errorf("suspended %v, A %q", got, c.executions())
				}
			})
		})
	}
}

// C5: what a probe has found unavailable is ErrUnsupported with the reason,
// before anything is sent; the client it was made from is as it was.
func TestC5WhatAProbeHasFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, h := newGatedCluster(t)
		limited := h.Use(lacking{theJob(), meta.OpRelease})
		_, err := limited.Release(t.Context(), job(), call(1))
		e := c.failed(err, meta.ErrUnsupported, meta.FateNone)
		if sent := c.wire.take(); len(sent) > 0 || e.Detail != "may not Release here" || e.Err != nil || e.Op != meta.OpRelease {
			t.Errorf("%v; it sent %v", err, sent)
		}
		_, err = limited.Use(lacking{theJob(), meta.OpInspect}).Inspect(t.Context(), job())
		c.failed(err, meta.ErrUnsupported, meta.FateNone)
		_, err = limited.Release(t.Context(), meta.Ref{}, call(1))
		c.failed(err, meta.ErrInvalid, meta.FateNone)
		r, err := limited.Hold(t.Context(), job(), call(1))
		c.did(r, err, holdable.Placed)
		r, err = h.Release(t.Context(), job(), call(1))
		c.did(r, err, holdable.KeptPaused)
	})
}

func theJob() meta.Object { return meta.Object{Kind: "TrainJob", Ref: job()} }

// lacking is a report of one capability that is not there, on one object.
type lacking struct {
	object meta.Object
	op     meta.Op
}

func (l lacking) Unavailable(object meta.Object, op meta.Op) string {
	if object != l.object || op != l.op {
		return ""
	}
	return fmt.Sprintf("may not %s here", op)
}

// I6, T7: a count that was stripped on the way is no success.
func TestT7TheCountIsLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, h := newGatedCluster(t)
		c.server.Admit(without(meta.Keys{}.Executions()))
		_, err := h.Open(t.Context(), job(), call(0))
		c.failed(err, meta.ErrRejected, meta.FateSettled)
		if !strings.Contains(err.Error(), meta.Keys{}.Executions()) || errors.Is(err, meta.ErrInDoubt) {
			t.Errorf("got %v", err)
		}
	})
}
