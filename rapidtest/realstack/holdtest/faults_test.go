//go:build e2e

package holdtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/kinds"
	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/rapidtest/realstack/cluster"
	"github.com/kubehold/kubehold/rapidtest/realstack/stack"
	"github.com/kubehold/kubehold/retry"
)

// How large TestFaults is.
const (
	// Of the jobs that Kueue manages, some wait in a queue in which queueRoom run
	// at a time, and others have a queue with room for all.
	queuedJobs, roomyJobs, plainJobs, controlJobs = 160, 20, 20, 20
	queueRoom                                     = "15"
	supervisors, controlClients                   = 10, 6
	roundsPerPhase                                = 40
	phaseTime                                     = 3 * time.Minute
	// downTime is how long what is killed stays down, besides the time that it takes
	// to start. Controllers that meet an apiserver that is gone for longer wait for
	// minutes before they try again.
	downTime               = 3 * time.Second
	etcdPause              = 10 * time.Second
	longestDelay           = 2 * time.Second
	patience, betweenCalls = 3 * time.Second, 300 * time.Millisecond
	margin                 = etcdPause + longestDelay + 3*time.Second
	share                  = 0.2 // of the requests that a fault of the network meets
	recoveryTime           = 5 * time.Minute
	writers                = 8 // that prepare the jobs
)

// Supervisors hold and release jobs while one part of the system after the other
// fails. In the end every job is as their reports allow, no call that said that
// it wrote nothing had written anything, and no two executions of a job ever ran
// side by side.
//
// Beside them, people stop and resume other jobs as kueuectl does, under the same
// faults, with neither instances nor a gate.
func TestFaults(t *testing.T) {
	s := alone(t)
	proxy, cfg := newProxy(t, s.config())
	h := s.makeHerd(cfg)
	c := s.makeControl(cfg)

	ctx, stop := context.WithCancel(t.Context())
	all, abandon := context.WithCancel(t.Context())
	var atWork sync.WaitGroup
	defer atWork.Wait() // also if the test ends in between
	defer abandon()
	defer stop()
	h.all, c.all = all, all
	for i := range supervisors {
		atWork.Go(func() { h.supervise(ctx, fmt.Sprintf("supervisor-%d", i)) })
	}
	for range controlClients {
		atWork.Go(func() { c.meddle(ctx) })
	}
	var past []window
	for _, p := range s.phases(proxy) {
		past = append(past, s.run(p, &h.rounds))
	}
	stop()
	atWork.Wait()

	s.must(s.recorder.catchUp(s.soon(), s.cluster))
	violations := h.judge()
	h.report(past, violations)
	c.report(past)
	t.Logf("the proxy passed on %d requests: %d delayed, %d cut, %d answers dropped",
		proxy.requests.Load(), proxy.delayed.Load(), proxy.cut.Load(), proxy.dropped.Load())
	for _, v := range violations {
		t.Error(v)
	}
	if n := len(c.overlaps()); n == 0 {
		t.Error("the control saw no double execution, so that it controls nothing")
	}
}

// A phase is a time with one fault.
type phase struct {
	name string
	// fail makes the fault and returns when it is over, or lasts until mend.
	fail, mend func()
}

// A window is a phase that has passed.
type window struct {
	name         string
	began, ended time.Time
}

func (w window) has(t time.Time) bool { return !t.Before(w.began) && t.Before(w.ended) }

// phases are the faults, one after the other.
func (s *scene) phases(proxy *proxy) []phase {
	nothing := func() {}
	killed := func(c stack.Component) phase {
		return phase{string(c) + " killed", func() {
			s.must(s.stack.Kill(c))
			s.waitUntil(time.Now().Add(downTime))
			s.must(s.stack.Restart(s.soon(), c))
			if c == stack.APIServer {
				s.nodesReturn()
			}
		}, nothing}
	}
	network := func(name string, what func() harm) phase {
		return phase{name, func() { proxy.does(some(share, what)) }, func() { proxy.does(nil) }}
	}
	return []phase{
		{"no fault", nothing, nothing},
		killed(stack.APIServer),
		{fmt.Sprintf("etcd stopped for %v", etcdPause), func() {
			s.must(s.stack.Pause(stack.Etcd))
			s.waitUntil(time.Now().Add(etcdPause))
			s.must(s.stack.Resume(stack.Etcd))
			s.nodesReturn()
		}, nothing},
		killed(stack.Kueue),
		killed(stack.Trainer),
		network("connections cut", func() harm { return harm{cut: true} }),
		network("answers dropped", func() harm { return harm{drop: true} }),
		network("requests delayed", func() harm { return harm{delay: rand.N(longestDelay)} }),
	}
}

// nodesReturn starts kwok again, which forgets for minutes that a pod is to end if
// the apiserver does not answer when it does. A kubelet would not.
func (s *scene) nodesReturn() {
	s.Helper()
	s.must(s.stack.Restart(s.soon(), stack.Kwok))
}

// run makes a fault, and goes on until the supervisors have done a number of
// rounds since.
func (s *scene) run(p phase, rounds *atomic.Int64) window {
	s.Helper()
	w := window{name: p.name, began: time.Now()}
	p.fail()
	s.moreOf(rounds, "rounds after: "+p.name, roundsPerPhase)
	p.mend()
	w.ended = time.Now()
	return w
}

// moreOf waits until a count has risen by n.
func (s *scene) moreOf(count *atomic.Int64, what string, n int64) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), phaseTime)
	defer cancel()
	began := count.Load()
	s.must(cluster.Wait(ctx, fmt.Sprintf("there are %d %s", n, what), func(context.Context) (bool, any, error) {
		return count.Load() >= began+n, count.Load() - began, nil
	}))
}

// A herd is the jobs in the care of the supervisors.
type herd struct {
	*scene
	all     context.Context // of all that the supervisors do
	charges []*charge
	calls   atomic.Int64
	// rounds is how many times a hold was placed and lifted.
	rounds atomic.Int64

	mu     sync.Mutex
	faults []string
}

// makeHerd makes the jobs, which are held through cfg.
func (s *scene) makeHerd(cfg *rest.Config) *herd {
	s.Helper()
	s.makeGatedQueue(queueRoom, cfg)
	roomy := s.namespace + "-roomy"
	s.makeQueueNamed(roomy, "", s.gate)
	opts := retry.Options{RequestTimeout: requestTimeout, CallBound: requestTimeout + margin}
	queued, err := holdable.New(kinds.OnKueue(kinds.TrainJob()), cfg, opts, holdable.Options{Gate: s.gate})
	s.must(err)
	gated, err := holdable.New(kinds.WithStartGate(kinds.TrainJob()), cfg, opts, holdable.Options{})
	s.must(err)
	h := &herd{scene: s}
	for i := range queuedJobs {
		h.charges = append(h.charges, h.charge(fmt.Sprintf("queued-%d", i), runtimeName, s.queued(), queued))
	}
	for i := range roomyJobs {
		h.charges = append(h.charges, h.charge(fmt.Sprintf("roomy-%d", i), slowName, map[string]string{cluster.QueueLabel: roomy}, queued))
	}
	for i := range plainJobs {
		h.charges = append(h.charges, h.charge(fmt.Sprintf("plain-%d", i), runtimeName, nil, gated))
	}
	s.must(inParallel(h.charges, writers, func(c *charge) error {
		job, err := s.tryJob(s.soon(), c.GetName(), "ClusterTrainingRuntime/"+c.runtime, !c.inQueue(), c.GetLabels())
		if err != nil {
			return err
		}
		c.Object = job
		if !c.inQueue() {
			_, err := c.holder.Open(s.soon(), ref(job), call(0))
			return errors.Join(err, s.cluster.WaitPods(s.soon(), job, 1))
		}
		_, err = s.cluster.WaitWorkload(s.soon(), job, "it is there", func(*cluster.Object) bool { return true })
		return err
	}))
	return h
}

func (h *herd) charge(name, runtime string, labels map[string]string, holder holdable.Holder) *charge {
	c := &charge{Object: named(name), runtime: runtime, holder: holder}
	c.SetLabels(labels)
	c.stopped = func(ctx context.Context) (bool, string) {
		if c.inQueue() {
			return true, "" // the readmission gate looks after that
		}
		return h.followed(ctx, c.Object)
	}
	return c
}

// inQueue reports whether Kueue manages the job.
func (c *charge) inQueue() bool { return c.GetLabels()[cluster.QueueLabel] != "" }

// followed reports whether every controller between a job and its pods has seen
// that it is to stop: what each of them writes is suspended, and the last of them
// says that it has acted on it.
func (s *scene) followed(ctx context.Context, job *cluster.Object) (yes bool, why string) {
	var all []cluster.Object
	for _, resource := range []schema.GroupVersionResource{cluster.TrainJobs(), gvr("jobset.x-k8s.io", "v1alpha2", "jobsets")} {
		o, err := s.cluster.Get(ctx, resource, job)
		if err != nil {
			return false, err.Error()
		}
		all = append(all, *o)
	}
	jobs, err := s.batchJobs(ctx, job)
	if err != nil {
		return false, err.Error()
	}
	all = append(all, jobs...)
	for _, o := range all {
		suspended, _, _ := nestedBool(&o, "spec", "suspend")
		if !suspended || o.GetKind() == "Job" && !says("Suspended", "")(&o) {
			return false, fmt.Sprintf("%s %s is not suspended: %v", o.GetKind(), o.GetName(), o.Object["status"])
		}
	}
	return true, ""
}

// inParallel calls do for every item, so many at a time, and returns the first error.
func inParallel[T any](items []T, atATime int, do func(T) error) error {
	next, failed := make(chan T), make(chan error, len(items))
	var group sync.WaitGroup
	for range atATime {
		group.Go(func() {
			for item := range next {
				failed <- do(item)
			}
		})
	}
	for _, item := range items {
		next <- item
	}
	close(next)
	group.Wait()
	close(failed)
	var all []error
	for err := range failed {
		all = append(all, err)
	}
	return errors.Join(all...)
}

func (h *herd) supervisor(name string) *supervisor {
	return &supervisor{name: name, patience: patience, pause: betweenCalls, calls: &h.calls}
}

// supervise recovers jobs until ctx ends, and finishes what it has begun, so that
// nobody's hold is left. Every other job is one of a few, so that supervisors meet.
func (h *herd) supervise(ctx context.Context, name string) {
	s := h.supervisor(name)
	for i := 0; ctx.Err() == nil; i++ {
		c := h.charges[rand.N(len(h.charges))]
		if i%2 == 0 {
			c = h.charges[rand.N(2*supervisors)*(len(h.charges)/(2*supervisors))]
		}
		h.recover(s, c)
	}
}

func (h *herd) recover(s *supervisor, c *charge) {
	ctx, cancel := context.WithTimeout(h.all, recoveryTime)
	defer cancel()
	err := s.recover(ctx, c)
	switch {
	case err == nil:
		h.rounds.Add(1)
	case !errors.Is(err, errOvertaken):
		h.mu.Lock()
		defer h.mu.Unlock()
		h.faults = append(h.faults, fmt.Sprintf("job %s: %s could not recover it: %v\n\t%s", c.GetName(), s.name, err, h.state(c)))
	}
}

// state says how a job that could not be recovered stands.
func (h *herd) state(c *charge) string {
	pods, err := h.cluster.Pods(h.Context(), c.Object)
	if err != nil {
		return err.Error()
	}
	state := "its controllers have followed its hold"
	if yes, why := h.followed(h.Context(), c.Object); !yes {
		state = why
	}
	for _, pod := range pods {
		state += fmt.Sprintf("; pod %s is to be deleted since %v: %v", pod.GetName(), pod.GetDeletionTimestamp(), pod.Object["status"])
	}
	return state
}

// judge returns whatever went wrong with any job.
func (h *herd) judge() []string {
	h.Helper()
	found := slices.Clone(h.faults)
	histories, jobs := map[string][]version{}, map[string][]version{}
	executions := h.executions()
	names := map[string]string{} // of the Workloads' jobs, by key
	for _, v := range append(h.recorder.under(workloadKeys+h.namespace+"/"), h.recorder.under(trainJobKeys+h.namespace+"/")...) {
		key := v.key
		if strings.HasPrefix(key, workloadKeys) {
			if v.object != nil {
				names[key] = v.object.GetLabels()[cluster.JobUIDLabel]
			}
			key = names[key]
		}
		histories[key] = append(histories[key], v)
		if v.object != nil && v.object.GetKind() == "TrainJob" {
			jobs[v.object.GetName()] = append(jobs[v.object.GetName()], v)
		}
	}
	for _, c := range h.charges {
		key, field, held := trainJobKeys+h.namespace+"/"+c.GetName(), "suspend", true
		if c.inQueue() {
			key, field, held = string(c.GetUID()), "active", false
		}
		j := &judge{job: c.GetName(), reports: c.ledger.reports, paused: func(o *cluster.Object) bool {
			value, there, _ := nestedBool(o, "spec", field)
			return there && value == held
		}}
		j.countsExecutions(jobs[c.GetName()], executions[c.GetName()])
		history := histories[key]
		if len(history) == 0 {
			j.fault("it has no history")
			found = append(found, j.faults...)
			continue
		}
		faults := j.verdict(history)
		found = append(found, faults...)
		if len(faults) > 0 || slices.ContainsFunc(h.faults, func(f string) bool { return strings.HasPrefix(f, "job "+c.GetName()+":") }) {
			h.Log(j.trace(history))
		}
		if last := history[len(history)-1].object; last == nil {
			found = append(found, fmt.Sprintf("job %s: it has no object to hold", c.GetName()))
		} else if hasHold(last) || j.paused(last) {
			found = append(found, fmt.Sprintf("job %s: everybody has let go of it, and it is not running: %v", c.GetName(), last.GetAnnotations()))
		}
	}
	for _, o := range overlaps(h.recorder.under(podKeys+h.namespace+"/"), "") {
		if !strings.HasPrefix(o.job, controlPrefix) {
			found = append(found, "two executions side by side: "+o.String())
		}
	}
	return found
}

// executions are how many pods each job has had.
func (h *herd) executions() map[string]int64 {
	seen, count := map[string]bool{}, map[string]int64{}
	for _, v := range h.recorder.under(podKeys + h.namespace + "/") {
		if v.object != nil && !seen[v.key] {
			seen[v.key] = true
			count[v.object.GetLabels()[cluster.JobSetLabel]]++
		}
	}
	return count
}

// A tally counts what supervisors were told.
type tally struct{ calls, retries, inDoubt, refused int }

func (n *tally) add(r report) {
	n.calls++
	n.retries += max(r.receipt.Tries-1, 0)
	if r.err == nil {
		return
	}
	n.retries += max(r.err.Tries-1, 0)
	if errors.Is(r.err, meta.ErrInDoubt) {
		n.inDoubt++
	} else {
		n.refused++
	}
}

// report prints what was done, phase by phase.
func (h *herd) report(past []window, violations []string) {
	row := func(name string, during func(time.Time) bool) {
		var n tally
		for _, c := range h.charges {
			for _, r := range c.ledger.reports {
				if during(r.began) {
					n.add(r)
				}
			}
		}
		h.Logf("%-30s %5d calls, %4d retries, %3d in doubt, %4d refused", name, n.calls, n.retries, n.inDoubt, n.refused)
	}
	for _, w := range past {
		row(fmt.Sprintf("%s (%.0fs)", w.name, w.ended.Sub(w.began).Seconds()), w.has)
	}
	row("all", func(time.Time) bool { return true })
	h.Logf("%d holds placed and lifted on %d jobs, %d violations", h.rounds.Load(), len(h.charges), len(violations))
}

// A control is jobs that people stop and resume as kueuectl does.
type control struct {
	*scene
	all    context.Context // of all that they do
	jobs   []*cluster.Object
	people *cluster.Cluster // their client

	rounds atomic.Int64
	mu     sync.Mutex
	// stopped counts the people who believe that they have stopped a job.
	stopped map[string]int
	// undone counts the resumes of a job that somebody else had stopped.
	undone int
}

// controlPrefix begins the names of the jobs of the control.
const controlPrefix = "control-"

func (s *scene) makeControl(cfg *rest.Config) *control {
	s.Helper()
	people, err := cluster.New(cfg)
	s.must(err)
	c := &control{scene: s, people: people, stopped: map[string]int{}}
	queue := s.namespace + "-control"
	s.makeQueueNamed(queue, "")
	for i := range controlJobs {
		job, err := s.tryJob(s.soon(), fmt.Sprintf("%s%d", controlPrefix, i), "ClusterTrainingRuntime/"+slowName, false,
			map[string]string{cluster.QueueLabel: queue})
		s.must(err)
		c.jobs = append(c.jobs, job)
	}
	return c
}

// meddle stops and resumes jobs until ctx ends.
func (c *control) meddle(ctx context.Context) {
	for ctx.Err() == nil {
		job := c.jobs[rand.N(len(c.jobs))]
		if c.set(job, false) != nil {
			continue
		}
		c.count(job, 1)
		// Somebody who does not count pods goes by what Kueue has written.
		look, cancel := context.WithTimeout(c.all, 2*slowerPods)
		_, _ = c.people.WaitFor(look, cluster.TrainJobs(), job, "Kueue has suspended it", func(o *cluster.Object) bool {
			suspended, _, _ := nestedBool(o, "spec", "suspend")
			return suspended
		})
		cancel()
		c.count(job, -1)
		for c.set(job, true) != nil && c.all.Err() == nil {
			time.Sleep(betweenCalls)
		}
		c.rounds.Add(1)
	}
}

// count takes down that somebody has stopped a job, or is about to resume it.
func (c *control) count(job *cluster.Object, by int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped[job.GetName()] += by
	if by < 0 && c.stopped[job.GetName()] > 0 {
		c.undone++
	}
}

// set writes spec.active of a job's Workload as kueuectl does.
func (c *control) set(job *cluster.Object, active bool) error {
	ctx, cancel := context.WithTimeout(c.all, patience)
	defer cancel()
	workload, err := c.people.Workload(ctx, job)
	if err != nil {
		return err
	}
	_, err = c.people.Patch(ctx, cluster.Workloads(), workload, pauseField("active", active))
	return err
}

// overlaps are the double executions of the jobs.
func (c *control) overlaps() []overlap {
	var found []overlap
	for _, o := range overlaps(c.recorder.under(podKeys+c.namespace+"/"), "") {
		if strings.HasPrefix(o.job, controlPrefix) {
			found = append(found, o)
		}
	}
	return found
}

// report prints what became of the control, phase by phase.
func (c *control) report(past []window) {
	all := c.overlaps()
	for _, w := range past {
		n := 0
		for _, o := range all {
			if w.has(o.at) {
				n++
			}
		}
		c.Logf("control: %-30s %4d double executions", w.name, n)
	}
	c.Logf("control: %d stops and resumes, %d double executions, %d resumes of what somebody else had stopped",
		c.rounds.Load(), len(all), c.undone)
}
