package holdable_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/kinds"
	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/rapidtest"
	"github.com/kubehold/kubehold/retry"
)

func TestNewRefusesWhatItCannotWorkWith(t *testing.T) {
	cfg := rapidtest.NewServer().RESTConfig("us")
	broken := plain()
	broken.Pause.Running = true
	for name, make := range map[string]func() (holdable.Holder, error){
		"NoConfig": func() (holdable.Holder, error) {
			return holdable.New(plain(), nil, retry.Options{}, holdable.Options{})
		},
		"BadConfig": func() (holdable.Holder, error) {
			return holdable.New(plain(), &rest.Config{Host: "http://[::1"}, retry.Options{}, holdable.Options{})
		},
		"NoClient": func() (holdable.Holder, error) {
			return holdable.NewForClient(plain(), nil, retry.Options{}, holdable.Options{})
		},
		"NoEngine": func() (holdable.Holder, error) { return plain().Connect(nil, holdable.Options{}) },
		"NoKind": func() (holdable.Holder, error) {
			return holdable.New(holdable.Holdable[bool]{}, cfg, retry.Options{}, holdable.Options{})
		},
		"BadKind": func() (holdable.Holder, error) { return holdable.New(broken, cfg, retry.Options{}, holdable.Options{}) },
		"BadPrefix": func() (holdable.Holder, error) {
			return holdable.New(plain(), cfg, retry.Options{}, holdable.Options{Prefix: "Not/One"})
		},
		"BadBound (C4)": func() (holdable.Holder, error) {
			return holdable.New(plain(), cfg, retry.Options{CallBound: time.Second}, holdable.Options{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := make(); !errors.Is(err, meta.ErrInvalid) {
				t.Errorf("got %v, want ErrInvalid", err)
			}
		})
	}
}

// C1, C2: a call that may not be made, or comes too late, sends nothing.
func TestC1C2NothingIsSent(t *testing.T) {
	minute := func() time.Time { return time.Now().Add(time.Minute) }
	for name, tc := range map[string]struct {
		ref  meta.Ref
		call func() meta.Call
		kind meta.Sentinel
	}{
		"InstanceZero":     {job(), func() meta.Call { return meta.Call{Instance: 0, Deadline: minute()} }, meta.ErrInvalid},
		"InstanceNegative": {job(), func() meta.Call { return meta.Call{Instance: -1, Deadline: minute()} }, meta.ErrInvalid},
		"NoDeadline":       {job(), func() meta.Call { return meta.Call{Instance: 1} }, meta.ErrInvalid},
		"LongHolder":       {job(), func() meta.Call { return meta.Call{Instance: 1, Deadline: minute(), Holder: strings.Repeat("h", 254)} }, meta.ErrInvalid},
		"LongReason":       {job(), func() meta.Call { return meta.Call{Instance: 1, Deadline: minute(), Reason: strings.Repeat("r", 4097)} }, meta.ErrInvalid},
		"NotUTF8":          {job(), func() meta.Call { return meta.Call{Instance: 1, Deadline: minute(), Reason: "\xff"} }, meta.ErrInvalid},
		"NoName":           {meta.Ref{Namespace: "ns"}, func() meta.Call { return call(1) }, meta.ErrInvalid},
		"NoNamespace":      {meta.Ref{Name: "job"}, func() meta.Call { return call(1) }, meta.ErrInvalid},
		"PathForAName":     {meta.Ref{Namespace: "ns", Name: "../job"}, func() meta.Call { return call(1) }, meta.ErrInvalid},
		"DeadlineNow":      {job(), func() meta.Call { return meta.Call{Instance: 1, Deadline: time.Now()} }, meta.ErrDeadline},
		"DeadlinePast":     {job(), func() meta.Call { return meta.Call{Instance: 1, Deadline: time.Now().Add(-time.Hour)} }, meta.ErrDeadline},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				for op, do := range operations(c.client(plain())) {
					_, err := do(t.Context(), tc.ref, tc.call())
					if e := c.failed(err, tc.kind, meta.FateNone); e.Op != op || e.Tries != 0 || e.Object.Name != tc.ref.Name {
						t.Errorf("%+v", e)
					}
				}
				if sent := c.wire.take(); len(sent) > 0 {
					t.Errorf("it sent %v", sent)
				}
			})
		})
	}
}

// A Ref that cannot name an object is ErrInvalid for Inspect as well.
func TestInspectRefusesABadRef(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		_, err := c.client(plain()).Inspect(t.Context(), meta.Ref{Name: "job"})
		if e := c.failed(err, meta.ErrInvalid, meta.FateNone); e.Op != meta.OpInspect || len(c.wire.take()) > 0 {
			t.Errorf("%+v", e)
		}
	})
}

// H1, I11: large, deep and foreign content comes through every call unchanged,
// to the byte.
func TestI11ForeignContentSurvives(t *testing.T) {
	const big = 1 << 20
	var podSets []any
	for i := range 1000 {
		podSets = append(podSets, map[string]any{
			"name": fmt.Sprintf("set-%d", i), "count": int64(i), "template": map[string]any{"x": strings.Repeat("y", 100), "half": 0.5, "none": nil},
		})
	}
	for name, change := range map[string]func(*unstructured.Unstructured){
		"AThousandPodSets": func(w *unstructured.Unstructured) { w.Object["spec"].(map[string]any)["podSets"] = podSets },
		"AMegabyte": func(w *unstructured.Unstructured) {
			w.Object["spec"].(map[string]any)["podSets"] = []any{map[string]any{"name": "a", "blob": strings.Repeat("b", big)}}
		},
		"Unicode": func(w *unstructured.Unstructured) {
			w.SetAnnotations(map[string]string{"example.com/note": "héllo\u0000\u2028 世界 🦊 <&>\"\\", "empty": ""})
		},
		"BigNumbers": func(w *unstructured.Unstructured) {
			w.Object["spec"].(map[string]any)["podSets"] = []any{map[string]any{"max": int64(1<<63 - 1), "min": int64(-1 << 63), "small": 1e-300}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				w := workload("wl", c.job)
				change(w)
				c.create(workloads(), w)
				before := c.stored(workloads(), "wl")
				h := c.client(kueue())
				r, err := h.Hold(t.Context(), job(), call(1))
				c.did(r, err, holdable.Placed)
				r, err = h.Release(t.Context(), job(), call(1))
				c.did(r, err, holdable.Lifted)
				after := c.stored(workloads(), "wl")
				for _, obj := range []*unstructured.Unstructured{before, after} {
					obj.SetResourceVersion("")
					obj.SetGeneration(0)
				}
				if diff := cmp.Diff(before.Object, after.Object); diff != "" {
					t.Errorf("(-before +after):\n%.2000s", diff)
				}
			})
		})
	}
}

// What the caller says is stored as it was said.
func TestTheHoldSaysWhatItWasTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		h := c.client(plain())
		asked := call(1<<63 - 1)
		asked.Holder, asked.Reason = strings.Repeat("ß", 126), "Wartung 🦊\n\t\"x\"=1, \u0000"+strings.Repeat("r", 4000)
		r, err := h.Hold(t.Context(), job(), asked)
		c.did(r, err, holdable.Placed)
		in, err := h.Inspect(t.Context(), job())
		if err != nil || in.State != holdable.Held {
			t.Fatalf("%+v, %v", in, err)
		}
		want := &meta.Hold{Instance: asked.Instance, Holder: asked.Holder, Reason: asked.Reason, Since: time.Now().UTC(), Found: meta.FoundRunning, UID: c.job}
		if diff := cmp.Diff(want, in.Hold); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// T4: annotations over the limit of the apiserver are its 422, and nothing is
// written.
func TestT4NoRoomForTheAnnotations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		full := trainJob("full")
		full.SetAnnotations(map[string]string{"example.com/full": strings.Repeat("x", 256<<10-100)})
		c.create(trainJobs(), full)
		ref := job()
		ref.Name = "full"
		_, err := c.client(plain()).Hold(t.Context(), ref, call(1))
		c.failed(err, meta.ErrRejected, meta.FateNone)
		if !apierrors.IsInvalid(err) || len(c.commits()) != 0 || c.updates() != 1 {
			t.Errorf("%v, %d updates", err, c.updates())
		}
	})
}

// A pause field of another type is not written over.
func TestAPauseFieldOfAnotherType(t *testing.T) {
	for _, value := range []string{`"yes"`, `1`, `{"when":"now"}`, `[true]`} {
		t.Run(value, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				c.createJob()
				c.patch(jobs(), "odd", `{"spec":{"suspend":`+value+`}}`)
				ref := meta.Ref{Namespace: "ns", Name: "odd"}
				h := c.client(kinds.Job())
				_, err := h.Hold(t.Context(), ref, call(1))
				c.failed(err, meta.ErrRejected, meta.FateNone)
				if !strings.Contains(err.Error(), "spec.suspend") || c.updates() != 0 {
					t.Errorf("%v, %d updates", err, c.updates())
				}
				in, err := h.Inspect(t.Context(), ref)
				if err != nil || in.State != holdable.Unknown {
					t.Errorf("%+v, %v", in, err)
				}
			})
		})
	}
}

// createJob makes a Job named odd.
func (c *cluster) createJob() {
	c.create(jobs(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "batch/v1", "kind": "Job", "metadata": map[string]any{"namespace": "ns", "name": "odd"}, "spec": map[string]any{},
	}})
}

// What is not there, is not served, or answers with nonsense, is ErrRejected;
// only the object's own 404 says that it is missing.
func TestWhatIsNotThere(t *testing.T) {
	backup := holdable.Holdable[bool]{Kind: "Backup", Resource: trainJobs(), Pause: plain().Pause}
	backup.Resource.Group = "example.com"
	for name, tc := range map[string]struct {
		kind    holdable.Holdable[bool]
		ref     meta.Ref
		rules   []rapidtest.Rule
		missing bool
	}{
		"NoObject":        {kind: plain(), ref: meta.Ref{Namespace: "ns", Name: "none"}, missing: true},
		"NoNamedObject":   {kind: kueue(), ref: meta.Ref{Namespace: "ns", Name: "none"}, missing: true},
		"NoWorkload":      {kind: kueue(), ref: job(), missing: true},
		"NotServed":       {kind: backup, ref: job()},
		"EmptyObject":     {kind: plain(), ref: job(), rules: nonsense()},
		"EmptyNamed":      {kind: kueue(), ref: job(), rules: nonsense()},
		"PinnedToAnother": {kind: kueue(), ref: meta.Ref{Namespace: "ns", Name: "job", UID: otherUID}, rules: nonsense(), missing: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, tc.rules...)
				stray := workload("stray", "")
				stray.SetOwnerReferences(nil)
				c.create(workloads(), stray) // which is nobody's, and must not be taken for anybody's
				for _, do := range operations(c.client(tc.kind)) {
					_, err := do(t.Context(), tc.ref, call(1))
					c.failed(err, meta.ErrRejected, meta.FateNone)
					if got := errors.Is(err, meta.ErrMissing); got != tc.missing || c.updates() != 0 {
						t.Errorf("ErrMissing is %v of %v; %d updates", got, err, c.updates())
					}
				}
			})
		})
	}
}

// nonsense has every get answered with an object of no kind and no name.
func nonsense() []rapidtest.Rule {
	empty := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Nonsense"}}
	return []rapidtest.Rule{rapidtest.Each(rapidtest.Verbs(rapidtest.VerbGet), rapidtest.Fault{Drop: true, Response: &rapidtest.Response{Code: 200, Object: empty}})}
}

// without strips an annotation from what we write.
func without(key string) func(rapidtest.AdmissionRequest) (*unstructured.Unstructured, error) {
	return func(r rapidtest.AdmissionRequest) (*unstructured.Unstructured, error) {
		if r.Request.User == "us" {
			unstructured.RemoveNestedField(r.Object.Object, "metadata", "annotations", key)
		}
		return r.Object, nil
	}
}

// T7: a webhook that strips any one of the annotations, or undoes the pause
// field, or everything, makes no success, and is told by what it did.
func TestT7WhatAWebhookUndoes(t *testing.T) {
	type hook = func(rapidtest.AdmissionRequest) (*unstructured.Unstructured, error)
	type row struct {
		hook   hook
		naming string
		fate   meta.Fate
	}
	rows := map[string]row{
		"PauseField": {func(r rapidtest.AdmissionRequest) (*unstructured.Unstructured, error) {
			if r.Request.User == "us" {
				unstructured.RemoveNestedField(r.Object.Object, "spec", "suspend")
			}
			return r.Object, nil
		}, "spec.suspend=true", meta.FateSettled},
		"Everything": {func(r rapidtest.AdmissionRequest) (*unstructured.Unstructured, error) {
			if r.Request.User == "us" {
				return r.OldObject, nil
			}
			return r.Object, nil
		}, "spec.suspend=true", meta.FateNone},
	}
	for _, key := range (meta.Keys{}).OfHold() {
		rows[key] = row{without(key), key, meta.FateSettled}
	}
	for name, tc := range rows {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				c.server.Admit(tc.hook)
				_, err := c.client(plain()).Hold(t.Context(), job(), call(1))
				c.failed(err, meta.ErrRejected, tc.fate)
				if !strings.Contains(err.Error(), tc.naming) {
					t.Errorf("%q does not name %s", err, tc.naming)
				}
				for _, key := range (meta.Keys{}).OfHold() {
					if stripped := key == tc.naming || name == "Everything"; strings.Contains(err.Error(), key) != stripped {
						t.Errorf("%q: %s was stripped: %v", err, key, stripped)
					}
				}
				if c.updates() != 1 {
					t.Errorf("%d updates", c.updates())
				}
			})
		})
	}
}

// T7: a Release that something on the way holds up is no success either.
func TestT7AReleaseThatIsUndone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		h := c.client(plain())
		r, err := h.Hold(t.Context(), job(), call(1))
		c.did(r, err, holdable.Placed)
		c.server.Admit(func(r rapidtest.AdmissionRequest) (*unstructured.Unstructured, error) {
			if err := unstructured.SetNestedField(r.Object.Object, true, "spec", "suspend"); err != nil {
				return nil, err
			}
			return r.Object, nil
		})
		_, err = h.Release(t.Context(), job(), call(1))
		c.failed(err, meta.ErrRejected, meta.FateSettled)
		if !strings.Contains(err.Error(), "spec.suspend=false") {
			t.Errorf("got %v", err)
		}
	})
}

// T4, E1: 403 by access control is ErrUnsupported too, 403 by a webhook is not.
func TestT4ForbiddenToHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newKueueCluster(t)
		h := c.client(kueue())
		c.server.Authorize(func(a rapidtest.Access) bool { return a.Verb != "update" })
		_, err := h.Hold(t.Context(), job(), call(1))
		c.failed(err, meta.ErrUnsupported, meta.FateNone)
		if !errors.Is(err, meta.ErrRejected) || !apierrors.IsForbidden(err) {
			t.Errorf("got %v", err)
		}
		c.server.Authorize(nil)
		c.server.AdmitValidating(func(r rapidtest.AdmissionRequest) error {
			return rapidtest.Denied("policy", http.StatusForbidden, metav1.StatusReasonForbidden, "no holds on Fridays")
		})
		_, err = h.Hold(t.Context(), job(), call(1))
		c.failed(err, meta.ErrRejected, meta.FateNone)
		if errors.Is(err, meta.ErrUnsupported) || !strings.Contains(err.Error(), "Fridays") {
			t.Errorf("got %v", err)
		}
	})
}

// C4, E2: what is in doubt is so until the deadline plus CallBound, of the held
// object and not of the one that was named.
func TestC4InDoubtUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newKueueCluster(t, rapidtest.Each(rapidtest.Writes(), rapidtest.LoseRequest()))
		h := c.client(kueue())
		wl := c.stored(workloads(), "wl")
		asked := call(3)
		_, err := h.Hold(t.Context(), job(), asked)
		e := c.failed(err, meta.ErrInDoubt, meta.FatePending)
		if !e.PendingUntil.Equal(asked.Deadline.Add(h.CallBound())) {
			t.Errorf("pending until %v", e.PendingUntil)
		}
		held := meta.Object{Kind: "Workload", Ref: meta.Ref{Namespace: "ns", Name: "wl"}}
		if e.Held != held || e.UID != wl.GetUID() || e.Precondition != wl.GetResourceVersion() || e.Object.Kind != "TrainJob" || e.Instance != 3 || e.Op != meta.OpHold {
			t.Errorf("%+v", e)
		}
	})
}

// Jobs take updates without a resourceVersion. A hold never sends one.
func TestT1HoldsOfAKindThatCanBeOverwritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.createJob()
		c.before(rapidtest.VerbUpdate, 1, func() { c.patch(jobs(), "odd", `{"spec":{"parallelism":7}}`) })
		r, err := c.client(kinds.Job()).Hold(t.Context(), meta.Ref{Namespace: "ns", Name: "odd"}, call(1))
		if c.did(r, err, holdable.Placed); r.Tries != 2 {
			t.Errorf("%d tries", r.Tries)
		}
		if n, _, _ := unstructured.NestedInt64(c.stored(jobs(), "odd").Object, "spec", "parallelism"); n != 7 {
			t.Errorf("it wrote over the change of somebody else: %d", n)
		}
	})
}
