package holdable_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/rapidtest"
)

const otherUID = types.UID("5eed0000-0000-4000-8000-0000000000ff")

// finished is w with its condition.
func finished(w *unstructured.Unstructured) *unstructured.Unstructured {
	w.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Finished", "status": "True"}}}
	return w
}

// unlabelled is w without its label.
func unlabelled(w *unstructured.Unstructured) *unstructured.Unstructured {
	w.SetLabels(nil)
	return w
}

// controlledBy is w with another controller.
func controlledBy(w *unstructured.Unstructured, uid types.UID) *unstructured.Unstructured {
	refs := w.GetOwnerReferences()
	refs[0].UID = uid
	w.SetOwnerReferences(refs)
	return w
}

// H7: which Workload is held, whatever its name, or why none is.
func TestH7TheWorkloadThatIsHeld(t *testing.T) {
	of := func(name string, job types.UID) *unstructured.Unstructured { return workload(name, job) }
	type wl = *unstructured.Unstructured
	for name, tc := range map[string]struct {
		make   func(job types.UID) []wl
		held   string
		kind   meta.Sentinel // "" for success
		naming string
	}{
		"Label": {make: func(u types.UID) []wl { return []wl{of("a", u), of("b", otherUID)} }, held: "a"},
		"LabelWithoutController": {make: func(u types.UID) []wl {
			a := of("a", u)
			a.SetOwnerReferences(nil)
			return []wl{a}
		}, held: "a"},
		"Controller":              {make: func(u types.UID) []wl { return []wl{unlabelled(of("a", u)), unlabelled(of("b", otherUID))} }, held: "a"},
		"LabelBeforeController":   {make: func(u types.UID) []wl { return []wl{unlabelled(of("a", u)), of("b", u)} }, held: "b"},
		"ControlledByAnother":     {make: func(u types.UID) []wl { return []wl{controlledBy(of("a", u), otherUID)} }, kind: meta.ErrMissing},
		"AnotherAndTheRightOne":   {make: func(u types.UID) []wl { return []wl{controlledBy(of("a", u), otherUID), unlabelled(of("b", u))} }, held: "b"},
		"NamedLikeTheJob":         {make: func(u types.UID) []wl { return []wl{unlabelled(of("trainjob-job", otherUID))} }, kind: meta.ErrMissing},
		"None":                    {make: func(types.UID) []wl { return nil }, kind: meta.ErrMissing},
		"TwoUnfinished":           {make: func(u types.UID) []wl { return []wl{of("a", u), of("b", u)} }, kind: meta.ErrRejected, naming: "a, b"},
		"TwoUnfinishedControlled": {make: func(u types.UID) []wl { return []wl{unlabelled(of("a", u)), unlabelled(of("b", u))} }, kind: meta.ErrRejected, naming: "a, b"},
		"OneIsFinished":           {make: func(u types.UID) []wl { return []wl{finished(of("a", u)), of("b", u), finished(of("c", u))} }, held: "b"},
		"OnlyFinished":            {make: func(u types.UID) []wl { return []wl{finished(of("a", u))} }, held: "a"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				for _, w := range tc.make(c.job) {
					c.create(workloads(), w)
				}
				r, err := c.client(kueue()).Hold(t.Context(), job(), call(1))
				if tc.kind == "" {
					if c.did(r, err, holdable.Placed); r.Held.Name != tc.held || c.instance(workloads(), tc.held) != "1" {
						t.Errorf("it held %v, want %s", r.Held, tc.held)
					}
					return
				}
				c.failed(err, tc.kind, meta.FateNone)
				if !errors.Is(err, meta.ErrRejected) || len(c.commits()) != 0 {
					t.Errorf("%v, commits %v", err, c.commits())
				}
				if !strings.Contains(err.Error(), tc.naming) {
					t.Errorf("%q does not name %s", err, tc.naming)
				}
			})
		})
	}
}

// H7: of several that have finished, the newest is the one.
func TestH7TheNewestFinished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		for _, name := range []string{"m", "z", "a"} {
			c.create(workloads(), finished(workload(name, c.job)))
			time.Sleep(time.Minute)
		}
		in, err := c.client(kueue()).Inspect(t.Context(), job())
		if err != nil || in.Held.Name != "a" || in.State != holdable.Ended {
			t.Errorf("got %+v, %v", in, err)
		}
	})
}

// H6, H7: every try looks the Workload up again. One that Kueue has recreated
// meanwhile is another object, on which the comparison starts afresh, and which
// the updates of the first cannot reach.
func TestH7ARecreatedWorkload(t *testing.T) {
	later := rapidtest.CommitLater(5 * time.Second)
	for name, tc := range map[string]struct {
		heir   string // its name
		before int64  // what is in force on the first
		after  int64  // what is in force on the heir
		fault  rapidtest.Fault
		kind   meta.Sentinel // "" for success
		fate   meta.Fate
	}{
		"SameName":          {heir: "wl"},
		"AnotherName":       {heir: "wl-2"},
		"WithoutTheOlder":   {heir: "wl", before: 3},
		"WithAnotherOlder":  {heir: "wl-2", before: 3, after: 2},
		"WithTheSame":       {heir: "wl-2", before: 3, after: 5},
		"WithANewer":        {heir: "wl", after: 9, kind: meta.ErrStaleHold, fate: meta.FateNone},
		"InDoubtSameName":   {heir: "wl", fault: later},
		"InDoubtOtherName":  {heir: "wl-2", fault: later},
		"InDoubtWithANewer": {heir: "wl", after: 9, fault: later, kind: meta.ErrStaleHold, fate: meta.FateSettled},
		"LandedAndLost":     {heir: "wl-2", fault: rapidtest.LoseResponse()},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newKueueCluster(t, rapidtest.Nth(1, rapidtest.Writes(), tc.fault))
				if tc.before > 0 {
					c.place(workloads(), "wl", tc.before)
				}
				conflict := 1
				if tc.fault.Name != "" {
					conflict = 2 // the first gets no answer, and its repetition a 409
				}
				c.before(rapidtest.VerbUpdate, conflict, func() { c.touch(workloads(), "wl") })
				c.before(rapidtest.VerbList, 2, func() {
					c.remove(workloads(), "wl")
					c.create(workloads(), workload(tc.heir, c.job))
					if tc.after > 0 {
						c.place(workloads(), tc.heir, tc.after)
					}
				})
				r, err := c.client(kueue()).Hold(t.Context(), job(), call(5))
				time.Sleep(time.Hour) // what was held back has arrived
				if tc.kind != "" {
					e := c.failed(err, tc.kind, tc.fate)
					if e.Changed || e.Seen != tc.after {
						t.Errorf("seen %d, changed %v: it is another object", e.Seen, e.Changed)
					}
					return
				}
				did := holdable.Placed
				if tc.after == 5 {
					did = holdable.InForce
				}
				if c.did(r, err, did); r.Held.Name != tc.heir || c.instance(workloads(), tc.heir) != "5" {
					t.Errorf("it held %v", r.Held)
				}
			})
		})
	}
}

// H6: a change counts in whichever try it was seen, also in one that got no
// further. Here these are tries that find another Workload than was written to,
// and cannot look at that one.
func TestH6ATryThatGotNoFurther(t *testing.T) {
	for looks := 1; looks < 4; looks++ { // that fail
		for lookup := 2; lookup <= looks+3; lookup++ { // before which the hold comes
			for _, goes := range []bool{false, true} { // before the next one
				t.Run(fmt.Sprintf("Looks%dLookup%dGoes%t", looks, lookup, goes), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						look := func(r *rapidtest.Request) bool { return r.Verb == rapidtest.VerbGet && r.Name == "wl" }
						c := newKueueCluster(t, rapidtest.Span(1, looks, look, rapidtest.Answer(http.StatusServiceUnavailable)))
						c.before(rapidtest.VerbUpdate, 1, func() {
							c.condition(workloads(), "wl", "Finished")
							c.create(workloads(), workload("heir", c.job))
						})
						c.before(rapidtest.VerbList, lookup, func() { c.place(workloads(), "heir", 2) })
						if goes {
							c.before(rapidtest.VerbList, lookup+1, func() { c.lift(workloads(), "heir") })
						}
						r, err := c.client(kueue()).Hold(t.Context(), job(), call(5))
						seen := lookup <= looks+2            // by any lookup
						first := lookup == 2                 // by the first of the heir
						wentSeen := goes && lookup < looks+2 // it was seen and gone again
						if !seen || first && !wentSeen {
							c.did(r, err, holdable.Placed)
							return
						}
						in := int64(2)
						if wentSeen {
							in = 0
						}
						if e := c.failed(err, meta.ErrStaleHold, meta.FateNone); !e.Changed || e.Seen != in {
							t.Errorf("seen %d, changed %v: %v", e.Seen, e.Changed, err)
						}
					})
				})
			}
		}
	}
}

// T3, T4: an update of a Workload that is gone by then is answered 404. That is
// final, and settles what was in doubt.
func TestH7AWorkloadThatIsGone(t *testing.T) {
	for name, tc := range map[string]struct {
		fault  rapidtest.Fault
		update int
		fate   meta.Fate
	}{
		"First":   {rapidtest.Fault{}, 1, meta.FateNone},
		"InDoubt": {rapidtest.LoseResponse(), 2, meta.FateSettled},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newKueueCluster(t, rapidtest.Nth(1, rapidtest.Writes(), tc.fault))
				c.before(rapidtest.VerbUpdate, tc.update, func() { c.remove(workloads(), "wl") })
				_, err := c.client(kueue()).Hold(t.Context(), job(), call(5))
				c.failed(err, meta.ErrMissing, tc.fate)
			})
		})
	}
}

// T3: a Workload that is gone without an heir settles the fate of what was
// written on it, whatever the named object says.
func TestH7AVanishedWorkload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newKueueCluster(t, rapidtest.Nth(1, rapidtest.Writes(), rapidtest.LoseResponse()))
		c.before(rapidtest.VerbUpdate, 2, func() { c.touch(workloads(), "wl") })
		c.before(rapidtest.VerbList, 2, func() { c.remove(workloads(), "wl") })
		_, err := c.client(kueue()).Hold(t.Context(), job(), call(1))
		c.failed(err, meta.ErrMissing, meta.FateSettled)
	})
}

// I9: in Kueue mode the named object is never written, whatever happens to the
// call and to the Workload.
func TestI9TheNamedObjectIsNotWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newKueueCluster(t,
			rapidtest.Nth(2, rapidtest.Writes(), rapidtest.LoseResponse()),
			rapidtest.Nth(4, rapidtest.Writes(), rapidtest.Answer(500)))
		c.patch(trainJobs(), "job", `{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":"main"}}}`)
		before := c.stored(trainJobs(), "job").Object
		h := c.client(kueue())
		for n := range int64(3) {
			c.before(rapidtest.VerbUpdate, 1, func() { c.touch(workloads(), "wl") })
			r, err := h.Hold(t.Context(), job(), call(n+1))
			c.did(r, err, holdable.Placed)
			r, err = h.Release(t.Context(), job(), call(n+1))
			c.did(r, err, holdable.Lifted)
		}
		if diff := cmp.Diff(before, c.stored(trainJobs(), "job").Object); diff != "" {
			t.Errorf("the TrainJob was written:\n%s", diff)
		}
		for _, e := range c.plan.Events() {
			if e.Request.Write() && e.Request.GVR != workloads() {
				t.Errorf("%v", e.Request)
			}
		}
	})
}

// H8, from end to end: plain mode leaves what Kueue manages alone, and says what
// to do; a Release takes the annotations off and leaves the field to its owner.
func TestH8PlainModeOnAnObjectOfKueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.place(trainJobs(), "job", 1)
		c.patch(trainJobs(), "job", `{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":"main"}}}`)
		h := c.client(gated())
		for _, do := range []func(context.Context, meta.Ref, meta.Call) (holdable.Receipt, error){h.Hold, h.Open} {
			_, err := do(t.Context(), job(), call(2))
			c.failed(err, meta.ErrRejected, meta.FateNone)
			if !strings.Contains(err.Error(), "Kueue mode") || errors.Is(err, meta.ErrStaleHold) {
				t.Errorf("got %v", err)
			}
		}
		if diff := cmp.Diff([]string{"GET trainjobs/job", "GET trainjobs/job"}, c.wire.take()); diff != "" {
			t.Errorf("an extra request:\n%s", diff)
		}
		r, err := h.Release(t.Context(), job(), call(1))
		c.did(r, err, holdable.KeptPaused)
		if c.instance(trainJobs(), "job") != "" || !c.suspended(trainJobs(), "job") {
			t.Errorf("stored: %v", c.stored(trainJobs(), "job"))
		}
	})
}

// H13, from end to end: what was written on another object means nothing on its
// copy. A restored TrainJob is neither held nor open, and its count starts anew.
func TestH13ACopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.patch(trainJobs(), "job", `{"spec":{"suspend":true}}`)
		h := c.client(gated())
		_, err := h.Open(t.Context(), job(), call(0))
		c.check(err)
		_, err = h.Hold(t.Context(), job(), call(7))
		c.check(err)

		backup := c.stored(trainJobs(), "job")
		c.remove(trainJobs(), "job")
		backup.SetResourceVersion("")
		c.create(trainJobs(), backup)
		in, err := h.Inspect(t.Context(), job())
		if err != nil || in.State != holdable.Waiting || !in.Void || in.Hold != nil || in.Opened || in.Executions != 0 {
			t.Errorf("%+v, %v", in, err)
		}
		_, err = h.Release(t.Context(), job(), call(7))
		c.failed(err, meta.ErrStaleHold, meta.FateNone)
		r, err := h.Open(t.Context(), job(), call(0))
		if c.did(r, err, holdable.Opened); r.Executions != 1 {
			t.Errorf("A is %d", r.Executions)
		}
		r, err = h.Hold(t.Context(), job(), call(1))
		c.did(r, err, holdable.Placed)
		if in, err = h.Inspect(t.Context(), job()); err != nil || in.Void || in.Hold == nil {
			t.Errorf("%+v, %v", in, err)
		}
	})
}

// K1: A is that of the object that callers name, in Kueue mode as well.
func TestK1ExecutionsAreThoseOfTheNamedObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newKueueCluster(t)
		named := c.stored(trainJobs(), "job")
		value := meta.Keys{}.ExecutionsValue(named.GetUID(), 7)
		c.patch(trainJobs(), "job", `{"metadata":{"annotations":{"`+meta.Keys{}.Executions()+`":"`+value+`"}}}`)
		in, err := c.client(kueue()).Inspect(t.Context(), job())
		if err != nil || in.Executions != 7 {
			t.Errorf("Inspect: A is %d, error %v", in.Executions, err)
		}
	})
}
