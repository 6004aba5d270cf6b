//go:build e2e

package holdtest

import (
	"fmt"
	"slices"
	"time"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/rapidtest/realstack/cluster"
)

// slack is how much later than its commit the recorder may see a version.
const slack = 2 * time.Second

// A judge compares what the callers of one job were told with the history of the
// object that its holds lie on.
type judge struct {
	job     string
	reports []report
	paused  func(*cluster.Object) bool
	faults  []string

	placed map[string]int // by the call's id
	lifted map[int64]int  // by instance
	// newestLifted was lifted last, by a Release that began at liftBegan.
	newestLifted int64
	liftBegan    time.Time
}

func (j *judge) fault(format string, args ...any) {
	j.faults = append(j.faults, "job "+j.job+": "+fmt.Sprintf(format, args...))
}

// verdict returns what the history of the held object has that the reports do
// not allow, and the other way round.
func (j *judge) verdict(history []version) []string {
	j.placed, j.lifted = map[string]int{}, map[int64]int{}
	seen := map[int64]bool{0: true}
	var before *meta.Hold
	for _, v := range history {
		if v.object == nil {
			before = nil
			continue
		}
		now := j.holdIn(v)
		if now != nil {
			seen[now.Instance] = true
		}
		switch {
		case now == nil && before != nil:
			j.wasLifted(before, v)
		case now != nil && (before == nil || before.Holder != now.Holder):
			j.wasPlaced(before, now, v)
		}
		before = now
	}
	for i := range j.reports {
		j.accountFor(&j.reports[i], seen)
	}
	return j.faults
}

// holdIn reads the hold of a version (rules I1, I2).
func (j *judge) holdIn(v version) *meta.Hold {
	annotations, there := v.object.GetAnnotations(), 0
	for _, key := range (meta.Keys{}).OfHold() {
		if _, ok := annotations[key]; ok {
			there++
		}
	}
	hold, err := meta.Keys{}.ReadHold(v.object.GetUID(), annotations)
	if err != nil || there != 0 && there != len((meta.Keys{}).OfHold()) {
		j.fault("revision %d has %d annotations of a hold: %v", v.revision, there, err)
	}
	if hold != nil && !j.paused(v.object) {
		j.fault("revision %d is held by instance %d and not paused", v.revision, hold.Instance)
	}
	return hold
}

// wasPlaced looks for the call that placed a hold.
func (j *judge) wasPlaced(before, now *meta.Hold, v version) {
	if before != nil && before.Instance > now.Instance {
		j.fault("revision %d has instance %d over the newer %d", v.revision, now.Instance, before.Instance)
	}
	j.placed[now.Holder]++
	i := slices.IndexFunc(j.reports, func(r report) bool { return r.id == now.Holder })
	if i < 0 {
		j.fault("revision %d was placed by %s, a call that nobody made", v.revision, now.Holder)
		return
	}
	r := &j.reports[i]
	switch {
	case r.op != meta.OpHold || r.instance != now.Instance:
		j.fault("revision %d has instance %d by %s, which was %s(%d)", v.revision, now.Instance, r.id, r.op, r.instance)
	case !r.mayHaveWritten():
		j.fault("revision %d was placed by %s, which said that it wrote nothing: %v", v.revision, r.id, r.err)
	case v.seen.After(r.lastEffect().Add(slack)):
		j.fault("revision %d was placed by %s, %v after its last effect was due: %v", v.revision, r.id, v.seen.Sub(r.lastEffect()), r.err)
	case now.Instance < j.newestLifted && r.began.Before(j.liftBegan):
		j.fault("revision %d has instance %d, placed by a call from before the release of %d", v.revision, now.Instance, j.newestLifted)
	case j.lifted[now.Instance] > 0:
		j.fault("revision %d has instance %d, which was released before", v.revision, now.Instance)
	}
}

// wasLifted looks for the call that lifted a hold.
func (j *judge) wasLifted(before *meta.Hold, v version) {
	n := before.Instance
	j.lifted[n]++
	for i := range j.reports {
		r := &j.reports[i]
		if r.op == meta.OpRelease && r.instance == n && r.mayHaveWritten() &&
			r.began.Before(v.seen) && !v.seen.After(r.lastEffect().Add(slack)) {
			j.newestLifted, j.liftBegan = n, r.began
			return
		}
	}
	j.fault("revision %d lifts instance %d, and nobody says so", v.revision, n)
}

// accountFor looks for what a report claims.
func (j *judge) accountFor(r *report, seen map[int64]bool) {
	switch {
	case r.err != nil && !seen[r.err.Seen]:
		j.fault("%s says that it saw instance %d, which was never in force: %v", r.id, r.err.Seen, r.err)
	case r.err != nil:
	case r.receipt.Did == holdable.Placed && j.placed[r.id] != 1:
		j.fault("%s says that it placed instance %d, which happened %d times", r.id, r.instance, j.placed[r.id])
	case r.receipt.Did == holdable.InForce && !seen[r.instance]:
		j.fault("%s says that instance %d is in force, which it never was", r.id, r.instance)
	case r.op == meta.OpRelease && j.lifted[r.instance] != 1:
		j.fault("%s says that it lifted instance %d, which happened %d times", r.id, r.instance, j.lifted[r.instance])
	}
}

// countsExecutions looks at A in the history of the job (rule I6): it never falls,
// rises by one, and in the end no execution is missing. One that Kueue stopped
// before it had a pod counts as well.
func (j *judge) countsExecutions(history []version, pods int64) {
	a := int64(0)
	for _, v := range history {
		now, err := meta.Keys{}.ReadExecutions(v.object.GetUID(), v.object.GetAnnotations())
		if err != nil || now != a && now != a+1 {
			j.fault("A is %d at revision %d, after %d: %v", now, v.revision, a, err)
		}
		a = now
	}
	if pods > a {
		j.fault("A is %d, and there were %d executions", a, pods)
	}
}

// trace tells the story of a job: the versions in which its hold changed, and the
// reports in between.
func (j *judge) trace(history []version) string {
	type line struct {
		at   time.Time
		text string
	}
	var lines []line
	holder := ""
	for _, v := range history {
		switch {
		case v.object == nil:
			lines = append(lines, line{v.seen, fmt.Sprintf("revision %d: %s is gone", v.revision, v.key)})
			holder = ""
		case v.object.GetAnnotations()[meta.Keys{}.Holder()] != holder:
			holder = v.object.GetAnnotations()[meta.Keys{}.Holder()]
			lines = append(lines, line{v.seen, fmt.Sprintf("revision %d: held by %q", v.revision, holder)})
		}
	}
	for _, r := range j.reports {
		told := fmt.Sprint(r.receipt.Did)
		if r.err != nil {
			told = r.err.Error()
		}
		lines = append(lines, line{r.ended, fmt.Sprintf("%s(%d) %s, after %v: %s", r.op, r.instance, r.id, r.ended.Sub(r.began).Round(time.Millisecond), told)})
	}
	slices.SortFunc(lines, func(a, b line) int { return a.at.Compare(b.at) })
	text := "the story of job " + j.job
	for _, l := range lines {
		text += "\n\t" + l.at.Format("15:04:05.000") + " " + l.text
	}
	return text
}
