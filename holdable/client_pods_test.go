package holdable_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/samber/lo"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/rapidtest"
)

// lists are our list requests, in order.
func (c *cluster) lists() []metav1.ListOptions {
	return lo.FilterMap(c.plan.Events(), func(e rapidtest.Event, _ int) (metav1.ListOptions, bool) {
		return e.Request.List, e.Request.Verb == rapidtest.VerbList
	})
}

// manyPods has so many pods of the job that have ended, which come first, and
// after them some that remain.
func (c *cluster) manyPods(n int, remain ...string) {
	c.Helper()
	for i := range n {
		c.create(pods(), ended(pod(fmt.Sprintf("pod-%05d", i), "job")))
	}
	for _, name := range remain {
		c.create(pods(), pod(name, "job"))
	}
}

// R4: the pods are listed after the read that the update is bound to, live, and
// in pages.
func TestR4PodsAreListedInPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.manyPods(1001)
		h := c.client(plain())
		r, err := h.Hold(t.Context(), job(), call(1))
		c.did(r, err, holdable.Placed)
		r, err = h.Release(t.Context(), job(), call(1))
		c.did(r, err, holdable.Lifted)
		verbs := lo.Map(c.plan.Events(), func(e rapidtest.Event, _ int) string { return e.Request.Verb })
		if diff := cmp.Diff([]string{"get", "update", "get", "list", "list", "list", "update"}, verbs); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		for i, o := range c.lists() {
			if o.ResourceVersion != "" || o.ResourceVersionMatch != "" || o.Limit != 500 || o.LabelSelector != "jobset.sigs.k8s.io/jobset-name=job" || (o.Continue != "") != (i > 0) {
				t.Errorf("page %d: %+v", i+1, o)
			}
		}
	})
}

// R4: the listing stops at the first pod that remains, and the error names it.
func TestR4TheFirstThatRemainsEndsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.manyPods(1001, "a-first", "pod-00600-x", "z-last")
		h := c.client(plain())
		r, err := h.Hold(t.Context(), job(), call(1))
		c.did(r, err, holdable.Placed)
		for _, want := range []struct {
			pod   string
			pages int
		}{{"a-first", 1}, {"pod-00600-x", 2}, {"z-last", 3}} {
			before := len(c.lists())
			_, err = h.Release(t.Context(), job(), call(1))
			e := c.failed(err, meta.ErrPodsRemain, meta.FateNone)
			if diff := cmp.Diff([]string{want.pod}, e.Pods); diff != "" || !strings.Contains(err.Error(), want.pod) {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
			if n := len(c.lists()) - before; n != want.pages {
				t.Errorf("%s: %d pages", want.pod, n)
			}
			c.remove(pods(), want.pod)
		}
		if len(c.commits()) != 1 {
			t.Errorf("a release that was refused wrote %v", c.commits()[1:])
		}
		r, err = h.Release(t.Context(), job(), call(1))
		c.did(r, err, holdable.Lifted)
	})
}

// R4: an expired page token costs a try, and all is read again from the start:
// the object, too.
func TestR4AnExpiredToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.manyPods(501)
		h := c.client(plain())
		r, err := h.Hold(t.Context(), job(), call(1))
		c.did(r, err, holdable.Placed)
		c.before(rapidtest.VerbList, 2, c.server.ExpireContinueTokens)
		r, err = h.Release(t.Context(), job(), call(1))
		if c.did(r, err, holdable.Lifted); r.Tries != 2 {
			t.Errorf("%d tries", r.Tries)
		}
		tokens := lo.Map(c.lists(), func(o metav1.ListOptions, _ int) bool { return o.Continue != "" })
		if diff := cmp.Diff([]bool{false, true, false, true}, tokens); diff != "" {
			t.Errorf("with a token (-want +got):\n%s", diff)
		}

		r, err = h.Hold(t.Context(), job(), call(2))
		c.did(r, err, holdable.Placed)
		for n := range 9 {
			c.before(rapidtest.VerbList, 2*n+2, c.server.ExpireContinueTokens)
		}
		_, err = h.Release(t.Context(), job(), call(2))
		if e := c.failed(err, meta.ErrRejected, meta.FateNone); e.Tries != 9 || !apierrors.IsResourceExpired(err) {
			t.Errorf("%v after %d tries", err, e.Tries)
		}
	})
}

// R4, R5: which pods stand in the way, and which are not this object's. What a
// controller wrote for a node that was lost proves nothing.
func TestR4WhichPodsRemain(t *testing.T) {
	lost := pod("p", "job")
	lost.Object["status"] = map[string]any{"phase": "Failed", "reason": "NodeLost"}
	unbound := pod("p", "job")
	unstructured.RemoveNestedField(unbound.Object, "spec", "nodeName")
	succeeded := ended(pod("p", "job"))
	succeeded.Object["status"].(map[string]any)["phase"] = "Succeeded"
	elsewhere := pod("p", "job")
	elsewhere.SetNamespace("other")
	for name, tc := range map[string]struct {
		pod     *unstructured.Unstructured
		remains bool
	}{
		"Running":        {pod("p", "job"), true},
		"LostNode":       {lost, true},
		"Unbound":        {unbound, false},
		"Failed":         {ended(pod("p", "job")), false},
		"Succeeded":      {succeeded, false},
		"OfAnotherJob":   {pod("p", "job-2"), false},
		"OtherNamespace": {elsewhere, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				status := tc.pod.Object["status"]
				created, err := c.others.Resource(pods()).Namespace(tc.pod.GetNamespace()).Create(t.Context(), tc.pod, metav1.CreateOptions{})
				c.check(err)
				created.Object["status"] = status
				_, err = c.others.Resource(pods()).Namespace(tc.pod.GetNamespace()).UpdateStatus(t.Context(), created, metav1.UpdateOptions{})
				c.check(err)
				h := c.client(plain())
				r, err := h.Hold(t.Context(), job(), call(1))
				c.did(r, err, holdable.Placed)
				in, err := h.Inspect(t.Context(), job())
				if want := lo.Ternary(tc.remains, holdable.NotDrained, holdable.IsDrained); err != nil || in.Drained != want || (in.Pod == "p") != tc.remains {
					t.Errorf("K3: %+v, %v", in, err)
				}
				r, err = h.Release(t.Context(), job(), call(1))
				if tc.remains {
					c.failed(err, meta.ErrPodsRemain, meta.FateNone)
					return
				}
				c.did(r, err, holdable.Lifted)
			})
		})
	}
}

// R4: no pods are asked for where nothing is resumed: the object runs already,
// was paused by someone else, has ended, or never was opened.
func TestR4NoPodsAreAskedForWhereNothingResumes(t *testing.T) {
	for name, tc := range map[string]struct {
		kind holdable.Holdable[bool]
		with func(*cluster) // between hold and release
		did  holdable.Did
	}{
		"RunsAlready": {plain(), func(c *cluster) { c.patch(trainJobs(), "job", `{"spec":{"suspend":false}}`) }, holdable.Lifted},
		"Ended":       {plain(), func(c *cluster) { c.condition(trainJobs(), "job", "Complete") }, holdable.KeptPaused},
		"AtItsGate":   {gated(), func(*cluster) {}, holdable.KeptPaused},
		"Paused": {plain(), func(c *cluster) {
			c.patch(trainJobs(), "job", fmt.Sprintf(`{"metadata":{"annotations":{%q:"paused"}}}`, meta.Keys{}.Found()))
		}, holdable.KeptPaused},
		"Kueue": {kueue(), func(*cluster) {}, holdable.Lifted},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newKueueCluster(t)
				c.create(pods(), pod("p", "job"))
				h := c.client(tc.kind)
				r, err := h.Hold(t.Context(), job(), call(1))
				c.did(r, err, holdable.Placed)
				tc.with(c)
				r, err = h.Release(t.Context(), job(), call(1))
				if c.did(r, err, tc.did); r.Executions != 0 {
					t.Errorf("A is %d", r.Executions)
				}
				for _, line := range c.wire.take() {
					if strings.Contains(line, "pods") {
						t.Errorf("it asked for pods: %s", line)
					}
				}
			})
		})
	}
}

// R4: a client in Kueue mode can opt in to wait for the pods of the job.
func TestR4CheckPodsInKueueMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newKueueCluster(t)
		c.create(pods(), pod("p", "job"))
		h := c.clientWith(kueue(), holdable.Options{CheckPods: true})
		ref := job()
		ref.UID = c.job
		r, err := h.Hold(t.Context(), ref, call(1))
		c.did(r, err, holdable.Placed)
		_, err = h.Release(t.Context(), ref, call(1))
		c.failed(err, meta.ErrPodsRemain, meta.FateNone)
		c.remove(pods(), "p")
		r, err = h.Release(t.Context(), ref, call(1))
		c.did(r, err, holdable.Lifted)
	})
}

// H12, K3: a Hold that succeeded is in force, and drained is another matter: no
// condition stands for it, and only the pods' end makes it so.
func TestK3OnlyThePodsSayDrained(t *testing.T) {
	for name, kind := range map[string]holdable.Holdable[bool]{"Plain": plain(), "Kueue": kueue()} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newKueueCluster(t)
				c.create(pods(), pod("p", "job"))
				h := c.client(kind)
				r, err := h.Hold(t.Context(), job(), call(1))
				c.did(r, err, holdable.Placed)
				c.condition(trainJobs(), "job", "Suspended")
				c.condition(workloads(), "wl", "Evicted")
				in, err := h.Inspect(t.Context(), job())
				if err != nil || in.State != holdable.Held || in.Drained != holdable.NotDrained || in.Pod != "p" {
					t.Errorf("%+v, %v", in, err)
				}
				// a graceful delete is not its end
				c.check(c.others.Resource(pods()).Namespace("ns").Delete(context.Background(), "p", metav1.DeleteOptions{}))
				in, err = h.Inspect(t.Context(), job())
				if err != nil || in.Drained != holdable.NotDrained {
					t.Errorf("%+v, %v", in, err)
				}
				c.remove(pods(), "p")
				in, err = h.Inspect(t.Context(), job())
				if err != nil || in.Drained != holdable.IsDrained || in.Pod != "" {
					t.Errorf("%+v, %v", in, err)
				}
			})
		})
	}
}

// T6: an Inspect goes on after what fails in passing, as often as any call.
func TestT6InspectTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newKueueCluster(t, rapidtest.Nth(1, rapidtest.Reads(), rapidtest.Answer(500)),
			rapidtest.Nth(3, rapidtest.Reads(), rapidtest.LoseRequest()), rapidtest.Nth(6, rapidtest.Reads(), rapidtest.Answer(429).WithRetryAfter(2)))
		in, err := c.client(kueue()).Inspect(t.Context(), job())
		if err != nil || in.State != holdable.Running || in.Held.Name != "wl" || in.Drained != holdable.IsDrained {
			t.Errorf("%+v, %v\n%s", in, err, c.plan.Timeline())
		}
	})
	synctest.Test(t, func(t *testing.T) {
		c := newKueueCluster(t, rapidtest.Each(rapidtest.OfResource("pods"), rapidtest.Answer(500)))
		begin := time.Now()
		_, err := c.client(kueue()).Inspect(context.Background(), job())
		if e := c.failed(err, meta.ErrRejected, meta.FateNone); e.Tries != 9 || time.Since(begin) == 0 {
			t.Errorf("%v", err)
		}
	})
}
