package holdable_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"pgregory.net/rapid"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/rapidtest"
	"github.com/kubehold/kubehold/retry"
)

// The checks of the queue: the gate's, and one of somebody else.
const (
	gateCheck  = holdable.DefaultGateCheck
	otherCheck = "provision"
)

// grace is how long a pod takes to end.
const grace = 12 * time.Second

// A gateWorld is a TrainJob in a queue of Kueue's, with everybody who works on
// it, and an audit of every version that is committed. It lives in a synctest
// bubble. Nobody acts unless told to.
type gateWorld struct {
	rapid.TB
	server *rapidtest.Server
	kueue  *rapidtest.Kueue
	// trainer and jobSet stand between the TrainJob and its Job, whose pods jobs
	// makes.
	trainer, jobSet *rapidtest.Relay
	jobs            *rapidtest.Trainer
	kubelet         *rapidtest.Kubelet
	human           rapidtest.Human
	holder          holdable.Holder
	// slow and slower are gates whose requests the scheduler stops, quick is
	// another replica of them.
	slow, slower, quick *holdable.Gate
	sched               *rapidtest.Scheduler

	instance int64 // the last that was used
	touches  int
	// edited says that somebody has changed the spec of the job, so that the
	// gate cannot know whether it was started, and may leave a number out.
	edited bool

	// What the audit has seen.
	starts     int64
	lastGiven  int64
	violations []string
}

func newGateWorld(t rapid.TB, checks []string, phases ...rapidtest.Phase) *gateWorld {
	t.Helper()
	s := rapidtest.NewServer(rapidtest.TrainJobs(), rapidtest.JobSets(), rapidtest.Jobs(), rapidtest.Workloads(), rapidtest.Pods())
	w := &gateWorld{
		TB: t, server: s,
		kueue:   &rapidtest.Kueue{Client: s.Dynamic("kueue"), AdmissionChecks: checks},
		trainer: &rapidtest.Relay{Client: s.Dynamic("trainer"), From: rapidtest.TrainJobs(), To: rapidtest.JobSets()},
		jobSet:  &rapidtest.Relay{Client: s.Dynamic("jobset"), From: rapidtest.JobSets(), To: rapidtest.Jobs()},
		jobs:    &rapidtest.Trainer{Client: s.Dynamic("jobs"), Jobs: rapidtest.Jobs(), Replicas: 2, Nodes: []string{"n1", "n2"}, Grace: grace},
		kubelet: &rapidtest.Kubelet{Client: s.Dynamic("kubelet")},
		human:   rapidtest.Human{Client: s.Dynamic("human")},
		sched:   rapidtest.NewScheduler(phases...),
	}
	var err error
	w.holder, err = holdable.NewForClient(kueue(), s.Dynamic("supervisor"), engineOptions(), holdable.Options{})
	w.must(err)
	w.slow, w.slower = w.gate(kueue(), w.sched.Middleware("slow")), w.gate(kueue(), w.sched.Middleware("slower"))
	w.quick = w.gate(kueue())
	s.OnCommit(w.audit)
	_, err = s.Dynamic("human").Resource(trainJobs()).Namespace("ns").Create(context.Background(), queuedJob(), metav1.CreateOptions{})
	w.must(err)
	return w
}

func (w *gateWorld) gate(kind holdable.Holdable[bool], mws ...rapidtest.Middleware) *holdable.Gate {
	w.Helper()
	engine, err := retry.NewForClient(w.server.Dynamic("gate", mws...), engineOptions())
	w.must(err)
	g, err := holdable.NewGate(kind, engine, holdable.Options{})
	w.must(err)
	return g
}

func queuedJob() *unstructured.Unstructured {
	job := trainJob("job")
	job.SetLabels(map[string]string{rapidtest.QueueNameLabel: "queue"})
	return job
}

func (w *gateWorld) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatalf("not what is tested: %v", err)
	}
}

func (w *gateWorld) theJob() *unstructured.Unstructured {
	return w.server.Stored(trainJobs(), "ns", "job")
}

// workload is the Workload of the job, nil if it has none now.
func (w *gateWorld) workload() *unstructured.Unstructured {
	w.Helper()
	found, err := w.kueue.WorkloadOf(context.Background(), w.theJob())
	w.must(err)
	return found
}

func (w *gateWorld) workloadName() string {
	if wl := w.workload(); wl != nil {
		return wl.GetName()
	}
	return "none"
}

// checkState is how a check stands on the Workload, and what it says.
func (w *gateWorld) checkState(check string) (state, message string) {
	if wl := w.workload(); wl != nil {
		return entryIn(wl, check)
	}
	return "", ""
}

func entryIn(wl *unstructured.Unstructured, check string) (state, message string) {
	checks, _, _ := unstructured.NestedSlice(wl.Object, "status", "admissionChecks")
	for _, c := range checks {
		if entry, _ := c.(map[string]any); entry["name"] == check {
			state, _ = entry["state"].(string)
			message, _ = entry["message"].(string)
		}
	}
	return state, message
}

func suspended(job *unstructured.Unstructured) bool {
	v, _, _ := unstructured.NestedBool(job.Object, "spec", "suspend")
	return v
}

// given is A as it stands on the job.
func given(job *unstructured.Unstructured) int64 {
	count, _, _ := strings.Cut(job.GetAnnotations()[meta.Keys{}.Executions()], " ")
	n, _ := strconv.ParseInt(count, 10, 64)
	return n
}

// execution tells the executions of a pod apart.
func execution(pod *unstructured.Unstructured) string {
	return pod.GetLabels()[rapidtest.ExecutionLabel]
}

// audit holds the rules against one commit.
func (w *gateWorld) audit(c rapidtest.Commit) {
	switch {
	case c.GVR == pods() && c.Previous == nil:
		w.auditPod(c.Object)
	case c.GVR == trainJobs() && c.Previous != nil && c.Object != nil:
		w.auditJob(c)
	case c.GVR == workloads() && c.Request.User == "gate" && c.Previous != nil:
		w.auditAnswer(c)
	}
}

func (w *gateWorld) violate(format string, args ...any) {
	w.violations = append(w.violations, fmt.Sprintf(format, args...))
}

// auditPod holds G1 and I5 against a new pod.
func (w *gateWorld) auditPod(pod *unstructured.Unstructured) {
	for _, other := range w.server.StoredAll(pods()) {
		if execution(other) != execution(pod) && holdable.PodRemains(other) {
			w.violate("G1, I5: pod %s of execution %s was made while %s of execution %s remains",
				pod.GetName(), execution(pod), other.GetName(), execution(other))
		}
	}
}

// auditJob holds I6 and I9 against a version of the job: A rises by one, with its
// key, and each start of the job has a number of its own, without a gap.
func (w *gateWorld) auditJob(c rapidtest.Commit) {
	raised := given(c.Object) - given(c.Previous)
	_, keyed := meta.Keys{}.ReadAdmission(c.Object.GetUID(), c.Object.GetAnnotations())
	switch {
	case raised < 0 || raised > 1:
		w.violate("I6: A went from %d to %d", given(c.Previous), given(c.Object))
	case raised == 1 && !keyed:
		w.violate("G3: A was raised without a key")
	case c.Request.User == "gate" && suspended(c.Object) != suspended(c.Previous):
		w.violate("I9: the gate wrote spec.suspend")
	case c.Request.User == "gate":
		w.foreignUntouched(c)
	}
	counts := slices.Contains(w.kueue.AdmissionChecks, gateCheck)
	if !suspended(c.Previous) || suspended(c.Object) || c.Request.User == "human" || !counts {
		return
	}
	w.starts++
	if a := given(c.Object); a <= w.lastGiven || a != w.starts && !w.edited {
		w.violate("I6: start %d has number %d, the one before had %d", w.starts, a, w.lastGiven)
	}
	w.lastGiven = given(c.Object)
}

// auditAnswer holds G1, G2 and I11 against what a gate writes on a Workload.
func (w *gateWorld) auditAnswer(c rapidtest.Commit) {
	before, _ := entryIn(c.Previous, gateCheck)
	after, message := entryIn(c.Object, gateCheck)
	if len(message) == 0 || len(message) > 1<<10 {
		w.violate("a message of %d bytes", len(message))
	}
	w.foreignUntouched(c)
	if after == before {
		return
	}
	_, held := c.Previous.GetAnnotations()[meta.Keys{}.Instance()]
	active, _, _ := unstructured.NestedBool(c.Previous.Object, "spec", "active")
	switch {
	case before != "Pending" || after != "Ready":
		w.violate("the gate made %s of %s", after, before)
	case held:
		w.violate("G2: the gate opened under a hold")
	case !active || !isTrue(c.Previous, "QuotaReserved") || isTrue(c.Previous, "Evicted") || isTrue(c.Previous, "Admitted"):
		w.violate("G3: the gate opened when it was not asked: %v", c.Previous.Object["status"])
	}
	for _, pod := range w.server.StoredAll(pods()) {
		if holdable.PodRemains(pod) {
			w.violate("G1: the gate opened while pod %s remains", pod.GetName())
		}
	}
}

// foreignUntouched holds I11 against what a gate writes: its own annotations and
// its own check apart, everything is as it was.
func (w *gateWorld) foreignUntouched(c rapidtest.Commit) {
	foreign := func(obj *unstructured.Unstructured) map[string]any {
		obj = obj.DeepCopy()
		unstructured.RemoveNestedField(obj.Object, "metadata", "resourceVersion")
		annotations := obj.GetAnnotations()
		delete(annotations, meta.Keys{}.Executions())
		delete(annotations, meta.Keys{}.Admission())
		if len(annotations) == 0 {
			annotations = nil
		}
		obj.SetAnnotations(annotations)
		checks, _, _ := unstructured.NestedSlice(obj.Object, "status", "admissionChecks")
		for i := range checks {
			if entry, _ := checks[i].(map[string]any); entry["name"] == gateCheck {
				checks[i] = nil
			}
		}
		if checks != nil {
			_ = unstructured.SetNestedSlice(obj.Object, checks, "status", "admissionChecks")
		}
		return obj.Object
	}
	if diff := cmp.Diff(foreign(c.Previous), foreign(c.Object)); diff != "" {
		w.violate("I11: the gate changed what others had put on %s: %s", c.Name, diff)
	}
}

func isTrue(obj *unstructured.Unstructured, condition string) bool {
	return slices.ContainsFunc(holdable.Conditions(obj), func(c holdable.Condition) bool {
		return c.Type == condition && c.Status == "True"
	})
}

// settle lets everybody but the gate and people do what there is to do.
func (w *gateWorld) settle() error {
	return rapidtest.Settle(context.Background(), w.kueue, w.trainer, w.jobSet, w.jobs, w.kubelet)
}

// checks has Kueue and the other check's controller do what there is to do: a
// Retry is an eviction, and what is Pending becomes Ready.
func (w *gateWorld) checks() {
	for _, check := range []string{gateCheck, otherCheck, "more"} {
		switch state, _ := w.checkState(check); {
		case state == "Retry":
			w.must(w.kueue.Evict(context.Background(), "ns", w.workloadName(), rapidtest.EvictedAdmissionCheck))
		case state == "Pending" && check != gateCheck:
			w.must(w.kueue.SetCheck(context.Background(), "ns", w.workloadName(), check, "Ready"))
		}
	}
}

// setCheck is somebody else's answer to a check.
func (w *gateWorld) setCheck(check, state string) {
	if name := w.workloadName(); name != "none" {
		w.must(w.kueue.SetCheck(context.Background(), "ns", name, check, state))
	}
}

// byHand does what a person does with kueuectl.
func (w *gateWorld) byHand(do func(ctx context.Context, namespace, name string) error) {
	if name := w.workloadName(); name != "none" {
		w.must(do(context.Background(), "ns", name))
	}
}

// touch makes a commit that changes nothing which anybody looks at.
func (w *gateWorld) touch(gvr schema.GroupVersionResource, name string) {
	w.touches++
	err := w.human.Patch(context.Background(), gvr, "ns", name, fmt.Sprintf(`{"metadata":{"labels":{"touched":"v%d"}}}`, w.touches))
	if !apierrors.IsNotFound(err) {
		w.must(err)
	}
}

// answer asks a gate to look at the job.
func (w *gateWorld) answer(ctx context.Context, g *holdable.Gate) (holdable.GateAnswer, error) {
	return g.Answer(ctx, job(), time.Now().Add(time.Minute))
}

// do does one deed of the others.
func (w *gateWorld) do(deed string) {
	ctx := context.Background()
	switch deed {
	case "hold":
		w.instance++
		_, _ = w.holder.Hold(ctx, job(), call(w.instance)) // refused if there is no Workload
	case "release":
		_, _ = w.holder.Release(ctx, job(), call(w.instance)) // refused if nothing is held
	case "kueue":
		_, err := w.kueue.Step(ctx)
		w.must(err)
	case "kueue goes on":
		w.must(rapidtest.Settle(ctx, w.kueue))
	case "trainer goes on":
		w.must(rapidtest.Settle(ctx, w.trainer))
	case "jobset goes on":
		w.must(rapidtest.Settle(ctx, w.jobSet))
	case "jobs go on":
		w.must(rapidtest.Settle(ctx, w.jobs, w.kubelet))
	case "all go on":
		w.must(w.settle())
	case "pods end":
		time.Sleep(grace + time.Second)
		w.must(w.settle())
	case "another gate":
		_, _ = w.answer(ctx, w.quick)
	case "preempt":
		if name := w.workloadName(); name != "none" {
			w.must(w.kueue.Evict(ctx, "ns", name, rapidtest.EvictedPreempted))
		}
	case "other check: retry":
		w.setCheck(otherCheck, "Retry")
	case "gate's check: retry":
		w.setCheck(gateCheck, "Retry")
	case "checks go on":
		w.checks()
	case "recreate":
		if name := w.workloadName(); name != "none" {
			w.must(w.kueue.Recreate(ctx, "ns", name))
		}
		w.must(rapidtest.Settle(ctx, w.kueue))
	case "list is rewritten":
		checks := w.kueue.AdmissionChecks
		w.kueue.AdmissionChecks = append(slices.Clone(checks), "more")
		w.must(rapidtest.Settle(ctx, w.kueue))
		w.kueue.AdmissionChecks = checks
		w.setCheck("more", "Ready")
	case "touch the workload":
		w.touch(workloads(), w.workloadName())
	case "touch the job":
		w.touch(trainJobs(), "job")
	case "edit the job":
		w.edited = true
		w.touches++
		w.must(w.human.Patch(ctx, trainJobs(), "ns", "job", fmt.Sprintf(`{"spec":{"trainer":{"image":"v%d"}}}`, w.touches)))
	case "a person stops the workload":
		w.byHand(w.human.StopWorkload)
	case "a person resumes the workload":
		w.byHand(w.human.ResumeWorkload)
	case "no quota":
		w.kueue.Quota = func(*unstructured.Unstructured) bool { return false }
	case "quota":
		w.kueue.Quota = nil
	case "no gate":
		w.kueue.AdmissionChecks = nil
	case "install the gate":
		w.kueue.AdmissionChecks = gateOnly()
	case "an execution passes":
		w.begin([]string{"another gate", "all go on", "hold", "all go on", "pods end", "release", "all go on"})
	case "raise only":
		w.raiseOnly()
	case "":
	default:
		w.Fatalf("nobody knows how to %q", deed)
	}
}

// run answers through the slow gate, and does deeds[i] at the i-th point at
// which its requests stop. With crash, the gate is killed at that point.
func (w *gateWorld) run(deeds map[int][]string, crash int) (points int, err error) {
	ctx, kill := context.WithCancel(context.Background())
	defer kill()
	ended := w.start(ctx, w.slow, &err)
	for {
		parked, over := w.next(ended)
		if over {
			return points, err
		}
		for _, deed := range deeds[points] {
			w.do(deed)
		}
		if points == crash {
			kill()
		} else {
			parked[0].Proceed()
		}
		points++
	}
}

// start has a gate answer; its requests stop at the scheduler.
func (w *gateWorld) start(ctx context.Context, g *holdable.Gate, err *error) *atomic.Int32 {
	left := new(atomic.Int32)
	left.Store(1)
	go func() {
		defer left.Add(-1)
		_, *err = w.answer(ctx, g)
	}()
	return left
}

// next waits until a request stops, or everything has ended.
func (w *gateWorld) next(left ...*atomic.Int32) (parked []*rapidtest.Step, over bool) {
	for {
		synctest.Wait()
		if parked = w.sched.Parked(); len(parked) > 0 {
			return parked, false
		}
		if !slices.ContainsFunc(left, func(l *atomic.Int32) bool { return l.Load() > 0 }) {
			return nil, true
		}
		w.pause() // somebody waits for his next try
	}
}

// pause lets a little time pass.
func (w *gateWorld) pause() {
	time.Sleep(10 * time.Millisecond)
	synctest.Wait()
}

// begin makes a situation.
func (w *gateWorld) begin(deeds []string) {
	for _, deed := range deeds {
		w.do(deed)
	}
}

// finish lets the hold go, and everybody do what there is to do, until the job
// runs. Then all must be as it should.
func (w *gateWorld) finish() error {
	for range 8 {
		w.begin([]string{"release", "quota", "a person resumes the workload", "install the gate"})
		for range 3 {
			w.must(w.settle())
			w.checks()
			if _, err := w.answer(context.Background(), w.quick); err != nil && !errors.Is(err, meta.ErrMissing) {
				return err
			}
		}
		w.must(w.settle())
		if len(w.violations) > 0 {
			return errors.New(strings.Join(w.violations, "\n"))
		}
		if running := w.server.Executions("ns", "job"); !suspended(w.theJob()) && len(running) == 1 {
			return nil
		}
		time.Sleep(grace + time.Second)
	}
	_, message := w.checkState(gateCheck)
	return fmt.Errorf("the job never runs again; the gate says %q; %v", message, w.workload())
}
