package probe

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/rest"

	"github.com/samber/lo"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/meta"
)

// environment looks at what makes a hold slow or unsafe without making it
// impossible. Its lines are advice: no call depends on them.
func (p *prober) environment(ctx context.Context) []Line {
	lines := []Line{paceLine(p.cfg, len(p.holdRequests()))}
	if onKueue(p.what) {
		lines = append(lines, p.gateLine(ctx))
		if p.what.Named != nil && p.what.Named.Resource.Group == trainerGroup {
			lines = append(lines, p.versionsLine(ctx))
		}
	} else if managedByKueue(p.what) {
		lines = append(lines, p.ownerLine(ctx))
	}
	low, high, dated := p.seen.skew()
	median, slowest, answers := p.seen.latency()
	bound, timeout := p.engine.CallBound(), lo.CoalesceOrEmpty(p.opts.Engine.RequestTimeout, meta.DefaultRequestTimeout)
	return append(lines,
		clockLine(low, high, dated, p.opts.Deadline, bound-timeout),
		latencyLine(median, slowest, answers, len(p.holdRequests()), p.opts.Deadline, bound))
}

// holdRequests are the requests of a Hold that goes well.
func (p *prober) holdRequests() []holdable.Need {
	return lo.Filter(p.what.Needs(p.opts.Client), func(n holdable.Need, _ int) bool {
		// In Kueue mode, the held object is got only after a rare conflict.
		rare := p.what.Named != nil && n.Verb == "get" && n.Resource == p.what.Resource
		return slices.Contains(n.Ops, meta.OpHold) && !rare
	})
}

// enoughPace is how many requests a second a client may send before its limit
// is worth a word.
const enoughPace = 50

// paceLine looks at the rate limit that client-go puts on the real client.
func paceLine(cfg *rest.Config, requests int) Line {
	l := Line{Theme: Environment, Capability: "calls do not wait in the client", State: Available}
	qps, burst := cfg.QPS, cfg.Burst
	if qps == 0 {
		qps = rest.DefaultQPS
	}
	if burst == 0 {
		burst = rest.DefaultBurst
	}
	switch {
	case cfg.RateLimiter != nil:
		l.State, l.Why = Unknown, "the rest.Config has a rate limiter of its own"
		l.Remedy = "see that it lets enough requests through"
	case qps < 0:
		l.Why = "no limit"
	default:
		l.Why = fmt.Sprintf("%g requests a second, bursts of %d: %.3g holds a second", qps, burst, qps/float32(requests))
	}
	if l.State == Available && qps >= 0 && qps < enoughPace {
		l.State = Unavailable
		l.Remedy = "set QPS and Burst of the rest.Config; a call that waits spends its deadline"
	}
	return l
}

// clockLine compares the apiserver's clock with ours. A deadline is a time, and
// whoever sets it may go by another clock; the margin of CallBound has to cover
// the difference.
func clockLine(low, high time.Duration, dated bool, deadline, margin time.Duration) Line {
	l := Line{Theme: Environment, Capability: "clocks agree", State: Available}
	if !dated {
		l.State, l.Why = Unknown, "no answer had a Date"
		return l
	}
	distance := max(low, -high, 0)
	l.Why = fmt.Sprintf("the apiserver's is between %v and %v ahead; deadlines lie %v ahead, the margin of CallBound is %v",
		round(low), round(high), deadline, margin)
	if distance > min(deadline/2, margin) {
		l.State = Unavailable
		l.Remedy = "set the clocks by NTP, or set Engine.CallBound so that its margin covers the difference"
	}
	return l
}

// latencyLine compares the apiserver's answers with the time that calls have.
func latencyLine(median, slowest time.Duration, answers, requests int, deadline, bound time.Duration) Line {
	l := Line{Theme: Environment, Capability: "the apiserver answers in time", State: Available}
	if answers == 0 {
		l.State, l.Why, l.Remedy = Unknown, "it did not answer", "see that the apiserver can be reached"
		return l
	}
	l.Why = fmt.Sprintf("%v in the middle and %v at most, of %d answers; a hold takes %d, deadlines lie %v ahead, CallBound is %v",
		round(median), round(slowest), answers, requests, deadline, bound)
	if time.Duration(requests)*slowest > deadline {
		l.State = Unavailable
		l.Remedy = "set deadlines further ahead, or find what makes it slow: webhooks are the usual cause"
	}
	return l
}

func round(d time.Duration) time.Duration {
	if d.Abs() < 10*time.Millisecond {
		return d.Round(10 * time.Microsecond)
	}
	return d.Round(time.Millisecond)
}

const queueNameLabel = "kueue.x-k8s.io/queue-name"

// managedByKueue reports whether the pause field belongs to Kueue on some
// objects of a kind.
func managedByKueue(d holdable.Description) bool {
	queued := &unstructured.Unstructured{Object: map[string]any{}}
	queued.SetLabels(map[string]string{queueNameLabel: "any"})
	return d.Owner(queued) != ""
}

// ownerLine says whether Kueue is there, where objects are held without it.
func (p *prober) ownerLine(ctx context.Context) Line {
	l := Line{Theme: Environment, Capability: "no Kueue beside plain mode", State: Available}
	var group metav1.APIGroup
	switch err := p.get(ctx, groupPath(kueueGroup), &group); {
	case apierrors.IsNotFound(err):
	case err != nil:
		l.State, l.Why = Unknown, fmt.Sprintf("discovery failed: %v", err)
	default:
		l.State, l.Why = Unavailable, "Kueue is installed: an object in a queue is refused, and one that Kueue manages without a queue is fought over"
		l.Remedy = "hold what is in a queue in Kueue mode (kinds.OnKueue), and see that Kueue's manageJobsWithoutQueueName is off"
	}
	return l
}

// gateLine looks for the readmission gate, without which two executions may
// run side by side (rule G1).
func (p *prober) gateLine(ctx context.Context) Line {
	l := Line{Theme: Environment, Capability: "readmission gate"}
	version := p.what.Resource.GroupVersion()
	checks, err := p.listAll(ctx, version.WithResource("admissionchecks"))
	if err != nil {
		return cannotSee(l, "admissionchecks", err)
	}
	queues, err := p.listAll(ctx, version.WithResource("clusterqueues"))
	if err != nil {
		return cannotSee(l, "clusterqueues", err)
	}
	l.State, l.Why = gated(p.opts.Gate, checks, queues)
	if l.State != Available {
		l.Remedy = "install the gate and name its AdmissionCheck in every ClusterQueue; without it set holdable.Options.CheckPods, which covers releases but no other readmission"
	}
	return l
}

func cannotSee(l Line, what string, err error) Line {
	l.State, l.Why = Unknown, fmt.Sprintf("%s could not be listed: %s", what, plain(err))
	l.Remedy = "let this identity list " + what + "." + kueueGroup
	return l
}

// listAll lists all objects of a cluster-scoped resource.
func (p *prober) listAll(ctx context.Context, resource schema.GroupVersionResource) ([]unstructured.Unstructured, error) {
	ctx, cancel := step(ctx)
	defer cancel()
	list, err := p.objects.Resource(resource).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// gated reports whether the AdmissionCheck of a controller guards every queue.
func gated(controller string, checks, queues []unstructured.Unstructured) (State, string) {
	ofGate := lo.Filter(checks, func(c unstructured.Unstructured, _ int) bool {
		name, _, _ := unstructured.NestedString(c.Object, "spec", "controllerName")
		return name == controller
	})
	active := lo.FilterMap(ofGate, func(c unstructured.Unstructured, _ int) (string, bool) {
		return c.GetName(), lo.ContainsBy(holdable.Conditions(&c), func(c holdable.Condition) bool {
			return c.Type == "Active" && c.Status == "True"
		})
	})
	open := lo.FilterMap(queues, func(q unstructured.Unstructured, _ int) (string, bool) {
		return q.GetName(), len(lo.Intersect(active, checksOf(&q))) == 0
	})
	switch {
	case len(ofGate) == 0:
		return Unavailable, "no AdmissionCheck has the controller " + controller
	case len(active) == 0:
		return Unavailable, "its AdmissionCheck is not Active: the gate does not run"
	case len(queues) == 0:
		return Unknown, "there is no ClusterQueue yet"
	case len(open) > 0:
		return Unavailable, "ClusterQueues without it: " + some(open)
	}
	return Available, "in every ClusterQueue"
}

// checksOf returns the AdmissionChecks that a ClusterQueue puts before every
// workload. One that is for some flavors only does not guard the queue.
func checksOf(queue *unstructured.Unstructured) []string {
	names, _, _ := unstructured.NestedStringSlice(queue.Object, "spec", "admissionChecks")
	rules, _, _ := unstructured.NestedSlice(queue.Object, "spec", "admissionChecksStrategy", "admissionChecks")
	for _, r := range rules {
		rule, _ := r.(map[string]any)
		name, _ := rule["name"].(string)
		if flavors, _ := rule["onFlavors"].([]any); len(flavors) == 0 && name != "" {
			names = append(names, name)
		}
	}
	return names
}

// A pair is a Kueue and a Trainer that do not work together.
type pair struct {
	kueueFrom, trainerBelow *utilversion.Version
	// sign is a field of TrainJob that the first good Trainer brought.
	sign []string
	why  string
}

// badPairs are the versions that are known not to work together.
func badPairs() []pair {
	return []pair{{
		kueueFrom:    utilversion.MajorMinor(0, 17),
		trainerBelow: utilversion.MajorMinor(2, 2),
		sign:         []string{"spec", "runtimePatches"},
		why:          "Kueue admits a TrainJob that then never starts",
	}}
}

// versionsLine compares the versions of Kueue and Trainer: read off their
// Deployments, or, since few identities may read those, Trainer's from the
// schema of its TrainJob.
func (p *prober) versionsLine(ctx context.Context) Line {
	l := Line{Theme: Environment, Capability: "Kueue and Trainer go together"}
	deployments, err := p.listAll(ctx, schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"})
	l.State, l.Why = together(versionIn(deployments, "kueue"), versionIn(deployments, "trainer"))
	switch {
	case l.State == Unavailable:
		l.Remedy = "upgrade Trainer"
	case l.State == Available:
	case p.newEnough(ctx):
		l.State, l.Why = Available, "by the schema of TrainJob, Trainer is none of those that are known not to go with some Kueue"
	default:
		if err != nil {
			l.Why = "their versions cannot be read: " + plain(err)
		}
		l.Remedy = "let this identity list deployments.apps in all namespaces, or see that Kueue from 0.17 has a Trainer from 2.2 beside it"
	}
	return l
}

// newEnough reports whether the schema of TrainJob has what no bad pair has.
func (p *prober) newEnough(ctx context.Context) bool {
	s, err := p.shape(ctx, p.what.Named.Resource)
	return err == nil && !slices.ContainsFunc(badPairs(), func(bad pair) bool {
		_, kept := s.typeAt(bad.sign)
		return !kept
	})
}

// versionIn returns the version of a project by its Deployment, nil if it
// cannot be told.
func versionIn(deployments []unstructured.Unstructured, project string) *utilversion.Version {
	for _, d := range deployments {
		if d.GetLabels()["app.kubernetes.io/name"] != project {
			continue
		}
		for _, text := range append([]string{d.GetLabels()["app.kubernetes.io/version"]}, imageTags(&d)...) {
			if v, err := utilversion.ParseSemantic(text); err == nil {
				return v
			}
		}
	}
	return nil
}

// imageTags returns the tags of a Deployment's images.
func imageTags(d *unstructured.Unstructured) []string {
	containers, _, _ := unstructured.NestedSlice(d.Object, "spec", "template", "spec", "containers")
	return lo.FilterMap(containers, func(c any, _ int) (string, bool) {
		container, _ := c.(map[string]any)
		image, _ := container["image"].(string)
		image, _, _ = strings.Cut(image, "@")
		i := strings.LastIndex(image, ":")
		return image[i+1:], i > 0
	})
}

// together judges two versions.
func together(kueue, trainer *utilversion.Version) (State, string) {
	if kueue == nil || trainer == nil {
		return Unknown, "their versions cannot be told from their Deployments"
	}
	both := fmt.Sprintf("Kueue %s with Trainer %s", kueue, trainer)
	for _, bad := range badPairs() {
		if kueue.AtLeast(bad.kueueFrom) && trainer.LessThan(bad.trainerBelow) {
			return Unavailable, both + ": " + bad.why
		}
	}
	return Available, both
}
