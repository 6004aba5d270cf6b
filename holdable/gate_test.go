package holdable_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/kinds"
	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/rapidtest"
	"github.com/kubehold/kubehold/retry"
)

// newStoppedCluster is a newKueueCluster whose job is stopped.
func newStoppedCluster(t rapid.TB, rules ...rapidtest.Rule) *cluster {
	t.Helper()
	c := newClusterOf(t, stopped(trainJob("job")), rules...)
	c.create(workloads(), workload("wl", c.job))
	return c
}

// newAskedCluster has the Workload wait for the gate's check besides.
func newAskedCluster(t rapid.TB, rules ...rapidtest.Rule) *cluster {
	t.Helper()
	c := newStoppedCluster(t, rules...)
	c.ask("QuotaReserved")
	return c
}

// ask has Kueue ask for the check, with these conditions True.
func (c *cluster) ask(conditions ...string) {
	c.Helper()
	var all []string
	for _, condition := range conditions {
		all = append(all, fmt.Sprintf(`{"type":%q,"status":"True"}`, condition))
	}
	c.patch(workloads(), "wl", fmt.Sprintf(`{"status":{"conditions":[%s],"admissionChecks":[
		{"name":"other","state":"Pending","message":"theirs","lastTransitionTime":"2026-01-02T03:04:05Z"},
		{"name":"readmission-gate","state":"Pending","message":"","lastTransitionTime":"2026-01-02T03:04:05Z"}]}}`, strings.Join(all, ",")), "status")
}

func (c *cluster) gate() *holdable.Gate {
	c.Helper()
	return c.gateWith(kueue(), holdable.Options{})
}

func (c *cluster) gateWith(kind holdable.Holdable[bool], opts holdable.Options) *holdable.Gate {
	c.Helper()
	engine, err := retry.New(c.config, engineOptions())
	c.check(err)
	g, err := holdable.NewGate(kind, engine, opts)
	c.check(err)
	return g
}

func (c *cluster) answer(g *holdable.Gate) (holdable.GateAnswer, error) {
	return g.Answer(context.Background(), job(), time.Now().Add(time.Minute))
}

// entry is the check as it is stored.
func (c *cluster) entry(check string) (state, message string) {
	c.Helper()
	return entryIn(c.stored(workloads(), "wl"), check)
}

// G3: the Workload is read before the job, and what is below the job after it,
// from the top down, so that the pods are listed last; A is raised, with its key,
// on a job that was read before the Workload; then all is read again, and Ready
// goes to the status.
func TestG3WhatIsSentInWhichOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newAskedCluster(t)
		a, err := c.answer(c.gate())
		if err != nil || a.State != holdable.GateOpened || a.Executions != 1 {
			t.Fatalf("%+v, %v", a, err)
		}
		uid := string(c.job)
		jobSet, jobs, pods := "GET jobsets/job", "GET jobs?jobset.sigs.k8s.io/jobset-name=job", "GET pods?jobset.sigs.k8s.io/jobset-name=job"
		want := []string{
			"GET trainjobs/job", // for its UID, by which the Workload is found
			"GET workloads?kueue.x-k8s.io/job-uid=" + uid, "GET trainjobs/job", jobSet, jobs, pods,
			"GET trainjobs/job", "GET workloads?kueue.x-k8s.io/job-uid=" + uid, jobSet, jobs, pods, "PUT trainjobs/job",
			"GET workloads?kueue.x-k8s.io/job-uid=" + uid, "GET trainjobs/job", jobSet, jobs, pods, "PUT workloads/wl/status",
		}
		if diff := cmp.Diff(want, c.wire.take()); diff != "" {
			t.Error(diff)
		}
		keys := meta.Keys{}
		annotations := c.stored(trainJobs(), "job").GetAnnotations()
		workload := c.stored(workloads(), "wl").GetUID()
		if got, want := annotations[keys.Admission()], fmt.Sprintf("%s 2026-01-02T03:04:05Z 1 %s", workload, uid); got != want || c.executions() != "1" {
			t.Errorf("A is %q for %q, want %q", c.executions(), got, want)
		}
		if state, message := c.entry("readmission-gate"); state != "Ready" || message != a.Why {
			t.Errorf("the check is %s: %s", state, message)
		}
		if state, message := c.entry("other"); state != "Pending" || message != "theirs" {
			t.Errorf("I11: the other check is %s: %s", state, message)
		}
		for _, commit := range c.commits() {
			if c.foreignSpecChanged(commit) {
				t.Errorf("I9: %v", commit)
			}
		}
	})
}

func (c *cluster) foreignSpecChanged(commit rapidtest.Commit) bool {
	return cmp.Diff(commit.Previous.Object["spec"], commit.Object.Object["spec"]) != ""
}

// G3: with the UID given the job is not read for it, and an equal key raises
// nothing: what a restart between the two writes leaves is taken up.
func TestG3AnEqualKeyRaisesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newAskedCluster(t, rapidtest.Span(2, 10, rapidtest.Verbs(rapidtest.VerbUpdate), rapidtest.Answer(500)))
		_, err := c.answer(c.gate())
		if e := c.failed(err, meta.ErrInDoubt, meta.FatePending); e.Op != meta.OpAnswer || c.executions() != "1" {
			t.Errorf("%+v, A %s", e, c.executions())
		}
		c.wire.take()
		restarted, err := c.gate().Answer(t.Context(), meta.Ref{Namespace: "ns", Name: "job", UID: c.job}, time.Now().Add(time.Minute))
		if err != nil || restarted.State != holdable.GateOpened || restarted.Executions != 1 || c.executions() != "1" {
			t.Errorf("%+v, %v, A %s", restarted, err, c.executions())
		}
		if sent := c.wire.take(); len(sent) != 6 || sent[5] != "PUT workloads/wl/status" {
			t.Errorf("it sent %v", sent)
		}
	})
}

// E3: once A was raised, or may have been, no error says that nothing was written.
func TestE3AnErrorAfterTheRaise(t *testing.T) {
	from := func(n int, fault rapidtest.Fault) rapidtest.Rule {
		return rapidtest.Span(n, n+10, rapidtest.Writes(), fault)
	}
	first := func(fault rapidtest.Fault) rapidtest.Rule { return rapidtest.Nth(1, rapidtest.Writes(), fault) }
	for name, tc := range map[string]struct {
		rules []rapidtest.Rule
		kind  meta.Sentinel
		fate  meta.Fate
	}{
		"Refused":                    {[]rapidtest.Rule{from(2, rapidtest.Answer(422))}, meta.ErrRejected, meta.FateSettled},
		"Conflicts":                  {[]rapidtest.Rule{from(2, rapidtest.Answer(429))}, meta.ErrRejected, meta.FateSettled},
		"InDoubt":                    {[]rapidtest.Rule{from(2, rapidtest.Answer(504))}, meta.ErrInDoubt, meta.FatePending},
		"RaisedByTheProxysFirst":     {[]rapidtest.Rule{first(rapidtest.Duplicate()), from(2, rapidtest.Answer(422))}, meta.ErrRejected, meta.FateSettled},
		"RefusedTheRaise":            {[]rapidtest.Rule{from(1, rapidtest.Answer(422))}, meta.ErrRejected, meta.FateNone},
		"RefusedTheRaiseAfterADoubt": {[]rapidtest.Rule{first(rapidtest.Answer(504)), from(3, rapidtest.Answer(422))}, meta.ErrRejected, meta.FateSettled},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newAskedCluster(t, tc.rules...)
				time.AfterFunc(5*time.Millisecond, func() { // before the second try
					c.patch(trainJobs(), "job", `{"metadata":{"labels":{"from":"another"}}}`)
				})
				_, err := c.answer(c.gate())
				c.failed(err, tc.kind, tc.fate)
				time.Sleep(5 * time.Millisecond)
			})
		})
	}
}

// G1, G2: what the gate waits for stands in the check, once; then it opens.
func TestG1ItSaysWhatItWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newAskedCluster(t)
		g := c.gate()
		shut := func(what string) {
			t.Helper()
			for range 2 { // the second time nothing is left to say
				a, err := c.answer(g)
				if err != nil || a.State != holdable.GateShut || !strings.Contains(a.Why, what) {
					t.Fatalf("%+v, %v: want it to wait for %s", a, err, what)
				}
			}
			if state, message := c.entry("readmission-gate"); state != "Pending" || !strings.Contains(message, what) {
				t.Errorf("the check is %s: %s", state, message)
			}
		}
		made := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "batch/v1", "kind": "Job", "spec": map[string]any{"suspend": false}}}
		made.SetName("llm")
		made.SetLabels(map[string]string{rapidtest.JobSetNameLabel: "job"})
		c.create(rapidtest.Jobs().GVR, made)
		c.create(pods(), pod("llm-0", "job"))
		c.create(pods(), pod("llm-1", "job"))
		shut("Job llm is not paused")
		if a, err := c.answer(g); err != nil || a.Maker != "Job llm" || a.Pod != "" {
			t.Errorf("%+v, %v", a, err)
		}
		if sent := c.wire.take(); slices.ContainsFunc(sent, func(request string) bool { return strings.HasPrefix(request, "GET pods") }) {
			t.Errorf("it looks for pods while they are made: %v", sent)
		}
		c.patch(rapidtest.Jobs().GVR, "llm", `{"spec":{"suspend":true}}`)
		c.create(pods(), pod("someone-elses", "another-job"))
		c.create(pods(), ended(pod("ended", "job")))
		shut("pod llm-0")
		if a, err := c.answer(g); err != nil || a.Pod != "llm-0" {
			t.Errorf("%+v, %v", a, err)
		}
		c.remove(pods(), "llm-0")
		shut("pod llm-1")
		c.place(workloads(), "wl", 7)
		c.patch(workloads(), "wl", `{"spec":{"active":true}}`) // by hand: the hold stays in force
		shut("hold 7 is in force, by others")
		c.patch(workloads(), "wl", fmt.Sprintf(`{"metadata":{"annotations":{%q:"seven"}}}`, meta.Keys{}.Instance()))
		shut(`hold-instance="seven"`)
		c.lift(workloads(), "wl")
		c.remove(pods(), "llm-1")
		if len(c.commits()) != 5 {
			t.Errorf("%d commits for five things to say", len(c.commits()))
		}
		if a, err := c.answer(g); err != nil || a.State != holdable.GateOpened {
			t.Errorf("%+v, %v", a, err)
		}
		if a, err := c.answer(g); err != nil || a.State != holdable.GateIdle || a.Executions != 1 {
			t.Errorf("%+v, %v", a, err)
		}
	})
}

// G1: a hold that was lifted before Kueue has seen it evicts nothing, and A
// stays.
func TestG1LiftedBeforeKueueHasSeenIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newGateWorld(t, gateOnly())
		w.begin(gateSituations()["Running"])
		before := w.server.Executions("ns", "job")
		w.begin([]string{"hold", "another gate", "release", "another gate", "all go on", "another gate"})
		if after := w.server.Executions("ns", "job"); given(w.theJob()) != 1 || cmp.Diff(before, after) != "" {
			t.Errorf("A %d, executions %v, before that %v", given(w.theJob()), after, before)
		}
	})
}

// G3: a Ready that lands after the next eviction's reset is refused, however it
// was delayed.
func TestG3ALateReadyIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newAskedCluster(t, rapidtest.Nth(2, rapidtest.Verbs(rapidtest.VerbUpdate), rapidtest.HangCommitLater(40*time.Second)))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.gate().Answer(ctx, job(), time.Now().Add(time.Minute))
		c.failed(err, meta.ErrInDoubt, meta.FatePending)
		c.ask("QuotaReserved", "Evicted") // Kueue resets the check as it evicts
		time.Sleep(time.Minute)
		if state, _ := c.entry("readmission-gate"); state != "Pending" {
			t.Errorf("the check is %s", state)
		}
	})
}

// What stands in the way of an answer, and that nothing is written then.
func TestGateRefuses(t *testing.T) {
	ref := job()
	for name, tc := range map[string]struct {
		set  func(*cluster)
		ref  meta.Ref
		in   time.Duration
		kind meta.Sentinel
		says string
	}{
		"NoName":        {nil, meta.Ref{Namespace: "ns"}, time.Minute, meta.ErrInvalid, "no name"},
		"NoNamespace":   {nil, meta.Ref{Name: "job"}, time.Minute, meta.ErrInvalid, "no namespace"},
		"TooLate":       {nil, ref, -time.Second, meta.ErrDeadline, "deadline"},
		"NoJob":         {nil, meta.Ref{Namespace: "ns", Name: "none"}, time.Minute, meta.ErrMissing, "none"},
		"NoWorkload":    {func(c *cluster) { c.remove(workloads(), "wl") }, ref, time.Minute, meta.ErrMissing, "no Workload"},
		"AnotherJob":    {nil, meta.Ref{Namespace: "ns", Name: "job", UID: "old"}, time.Minute, meta.ErrMissing, ""},
		"MayNotGetJobs": {deny("get", "trainjobs", ""), ref, time.Minute, meta.ErrForbidden, "get trainjobs"},
		"TwoWorkloads":  {func(c *cluster) { c.create(workloads(), workload("wl2", c.job)) }, ref, time.Minute, meta.ErrRejected, "wl, wl2"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newAskedCluster(t)
				if tc.set != nil {
					tc.set(c)
				}
				_, err := c.gate().Answer(t.Context(), tc.ref, time.Now().Add(tc.in))
				c.failed(err, tc.kind, meta.FateNone)
				if !strings.Contains(err.Error(), tc.says) || len(c.commits()) > 0 {
					t.Errorf("%v; it wrote %v", err, c.commits())
				}
			})
		})
	}
	t.Run("MayNotUpdateStatus", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newAskedCluster(t)
			deny("update", "workloads", "status")(c)
			_, err := c.answer(c.gate())
			c.failed(err, meta.ErrForbidden, meta.FateSettled) // A was raised
			if !strings.Contains(err.Error(), "update workloads/status.kueue.x-k8s.io") {
				t.Errorf("got %v", err)
			}
		})
	})
}

// G1: what the API server refuses the gate for good stands in the check, once and
// in the same words, until it refuses it no more; nothing else is written
// meanwhile.
func TestG1WhatTheGateIsRefusedStandsInTheCheck(t *testing.T) {
	for name, tc := range map[string]struct {
		verb, resource string
		kind           meta.Sentinel
		says           string
	}{
		"GetJobSets": {"get", "jobsets", meta.ErrForbidden, "(jobsets: 403 Forbidden)"},
		"ListJobs":   {"list", "jobs", meta.ErrForbidden, "(jobs: 403 Forbidden)"},
		"ListPods":   {"list", "pods", meta.ErrForbidden, "(pods: 403 Forbidden)"},
		"UpdateJobs": {"update", "trainjobs", meta.ErrForbidden, "(trainjobs: 403 Forbidden)"},
		"Webhook":    {"", "", meta.ErrRejected, "(422 Unprocessable Entity)"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newAskedCluster(t)
				c.patch(workloads(), "wl", `{"status":{"admissionChecks":[{"name":"readmission-gate","state":"Pending","message":"hold 1 is in force"}]}}`, "status")
				refused := true
				c.server.Authorize(func(a rapidtest.Access) bool {
					return !refused || a.User != "us" || a.Verb != tc.verb || a.GVR.Resource != tc.resource
				})
				asked := 0
				c.server.AdmitValidating(func(r rapidtest.AdmissionRequest) error {
					if asked++; !refused || tc.verb != "" || r.Request.GVR.Resource != "trainjobs" {
						return nil
					}
					return rapidtest.Denied("quota.example.com", 422, metav1.StatusReasonInvalid, fmt.Sprintf("request %d", asked))
				})
				g := c.gate()
				for range 2 { // the second time nothing is left to say
					a, err := c.answer(g)
					if err != nil || a.State != holdable.GateShut || !strings.Contains(a.Why, tc.says) {
						t.Fatalf("%+v, %v: want %s", a, err, tc.says)
					}
					c.failed(a.Refused, tc.kind, meta.FateNone)
				}
				if state, message := c.entry("readmission-gate"); state != "Pending" || !strings.Contains(message, tc.says) || len(c.commits()) != 1 {
					t.Errorf("the check is %s: %s; it wrote %v", state, message, c.commits())
				}
				refused = false
				if a, err := c.answer(g); err != nil || a.State != holdable.GateOpened || a.Refused != nil || a.Executions != 1 {
					t.Errorf("%+v, %v", a, err)
				}
			})
		})
	}
}

// What may pass by itself, or says that the job is gone, is not told to Kueue.
func TestTheGateKeepsPassingFailuresToItself(t *testing.T) {
	for _, code := range []int{409, 429, 500, 503} {
		t.Run(strconv.Itoa(code), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newAskedCluster(t, rapidtest.Each(rapidtest.OfResource("trainjobs"), rapidtest.Answer(code)))
				a, err := c.answer(c.gate())
				if err == nil || a.Refused != nil || len(c.commits()) > 0 {
					t.Errorf("%+v, %v; it wrote %v", a, err, c.commits())
				}
			})
		})
	}
}

func deny(verb, resource, subresource string) func(*cluster) {
	return func(c *cluster) {
		c.server.Authorize(func(a rapidtest.Access) bool {
			return a.User != "us" || a.Verb != verb || a.GVR.Resource != resource || a.Subresource != subresource
		})
	}
}

// A job whose generation moves with every annotation cannot be counted, and that
// is said instead of counting for ever.
func TestGateDoesNotCountForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newAskedCluster(t)
		c.changeWithEveryWrite()
		_, err := c.answer(c.gate())
		c.failed(err, meta.ErrRejected, meta.FateSettled)
		if state, _ := c.entry("readmission-gate"); state != "Pending" || !strings.Contains(err.Error(), "faster than it can be counted") {
			t.Errorf("%v; the check is %s", err, state)
		}
	})
}

func TestNewGateRefuses(t *testing.T) {
	engine, err := retry.NewForClient(rapidtest.NewServer().Dynamic("us"), retry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	noPods := kueue()
	noPods.Pods = nil
	broken := kueue()
	broken.Pause.Path = nil
	for name, tc := range map[string]struct {
		kind   holdable.Holdable[bool]
		engine *retry.Engine
		opts   holdable.Options
		want   meta.Sentinel
	}{
		"NoEngine":  {kueue(), nil, holdable.Options{}, meta.ErrInvalid},
		"PlainMode": {kinds.TrainJob(), engine, holdable.Options{}, meta.ErrInvalid},
		"Workload":  {kinds.Workload(), engine, holdable.Options{}, meta.ErrInvalid},
		"NoPods":    {noPods, engine, holdable.Options{}, meta.ErrUnsupported},
		"Broken":    {broken, engine, holdable.Options{}, meta.ErrInvalid},
		"Prefix":    {kueue(), engine, holdable.Options{Prefix: "no prefix"}, meta.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			if g, err := holdable.NewGate(tc.kind, tc.engine, tc.opts); g != nil || !errors.Is(err, tc.want) {
				t.Errorf("got %v, %v", g, err)
			}
		})
	}
}

// The gate goes by the prefix and the name that it is given, and is one for any
// kind that Kueue manages.
func TestGateOfAJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		obj := stopped(trainJob("job"))
		obj.SetAPIVersion("batch/v1")
		obj.SetKind("Job")
		uid := c.create(jobs(), obj).GetUID()
		c.create(workloads(), workload("wl", uid))
		c.ask("QuotaReserved")
		left := pod("left", "")
		left.SetLabels(map[string]string{"batch.kubernetes.io/controller-uid": string(uid)})
		c.create(pods(), left)
		g := c.gateWith(kinds.OnKueue(kinds.Job()), holdable.Options{Prefix: "holds.example.com", Gate: "other"})
		if a, err := c.answer(g); err != nil || a.State != holdable.GateShut || a.Pod != "left" {
			t.Errorf("%+v, %v", a, err)
		}
		c.remove(pods(), "left")
		if a, err := c.answer(g); err != nil || a.State != holdable.GateOpened {
			t.Errorf("%+v, %v", a, err)
		}
		keys, err := meta.NewKeys("holds.example.com")
		c.check(err)
		a, err := keys.ReadExecutions(uid, c.stored(jobs(), "job").GetAnnotations())
		if state, _ := c.entry("other"); a != 1 || err != nil || state != "Ready" {
			t.Errorf("A %d, %v; the check is %s", a, err, state)
		}
		if state, _ := c.entry("readmission-gate"); state != "Pending" {
			t.Errorf("another check is %s", state)
		}
	})
}

// Inspect tells whether a gate is there, and what it waits for.
func TestInspectTellsOfTheGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newStoppedCluster(t)
		gate := func(kind holdable.Holdable[bool], opts holdable.Options) [2]string {
			t.Helper()
			in, err := c.clientWith(kind, opts).Inspect(t.Context(), job())
			c.check(err)
			return [2]string{in.Gate, in.GateWhy}
		}
		if got := gate(kueue(), holdable.Options{}); got != [2]string{holdable.NoGate, ""} {
			t.Errorf("without a gate: %q", got)
		}
		c.ask("QuotaReserved")
		c.create(pods(), pod("left", "job"))
		_, err := c.answer(c.gate())
		c.check(err)
		if got := gate(kueue(), holdable.Options{}); got[0] != "Pending" || !strings.Contains(got[1], "pod left") {
			t.Errorf("while it waits: %q", got)
		}
		if got := gate(kueue(), holdable.Options{Gate: "other"}); got != [2]string{"Pending", "theirs"} {
			t.Errorf("another check: %q", got)
		}
		if got := gate(kueue(), holdable.Options{Gate: "none"}); got[0] != holdable.NoGate {
			t.Errorf("a check that Kueue does not ask for: %q", got)
		}
		if got := gate(plain(), holdable.Options{}); got != [2]string{} {
			t.Errorf("in plain mode: %q", got)
		}
	})
}

// G1, G2, G3, I5, I6: whatever goes wrong with the gate's own requests, whatever
// of them lands late, and whatever others do beside it.
func TestG3WhateverGoesWrong(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		reads := rapid.SliceOfN(drawFault(), 0, 6).Draw(t, "reads")
		writes := rapid.SliceOfN(drawFault(), 0, 6).Draw(t, "writes")
		turn := rapid.SampledFrom([]string{
			"answer", "answer", "answer", "hold", "release", "kueue", "all go on", "pods end", "preempt", "another gate", "recreate", "touch the workload",
		})
		turns := rapid.SliceOfN(turn, 0, 15).Draw(t, "turns")
		within := rapid.SampledFrom([]time.Duration{50 * time.Millisecond, 3 * time.Second, time.Minute}).Draw(t, "within")
		rapid.SyncTest(t, func(t *rapid.T) {
			w := newGateWorld(t, gateOnly())
			var rules []rapidtest.Rule
			for i, f := range reads {
				rules = append(rules, rapidtest.Nth(i+1, rapidtest.Reads(), f))
			}
			for i, f := range writes {
				rules = append(rules, rapidtest.Nth(i+1, rapidtest.Writes(), f))
			}
			plan := rapidtest.NewPlan(rules...)
			troubled := w.gate(kueue(), plan.Middleware)
			w.do("all go on")
			for _, turn := range turns {
				if turn != "answer" {
					w.do(turn)
					continue
				}
				_, _ = troubled.Answer(context.Background(), job(), time.Now().Add(within))
			}
			time.Sleep(2 * time.Hour) // everything that was held back has landed, or has not
			synctest.Wait()
			if err := w.finish(); err != nil {
				t.Fatalf("%v\n%v\n%s", err, turns, plan.Timeline())
			}
		})
	})
}
