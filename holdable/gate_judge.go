package holdable

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/retry"
)

// The gate's decision is pure: from what was read to what is to be done. It
// sends nothing and knows no clock.

// Kueue's words for how an admission check stands on a Workload.
const (
	checkPending = "Pending"
	checkReady   = "Ready"
)

// A sight is all that the gate's decision looks at.
type sight struct {
	// workload is what the Workload says, and entry its entry for the gate's
	// check, nil if it has none.
	workload view[bool]
	entry    *checkEntry
	// namedHold says which hold lies on the job itself, "" if none does.
	namedHold    string
	namedDeleted bool
	// namedRuns says that the job is not paused.
	namedRuns bool
	// executions is A, and badExecutions is set if it cannot be read.
	executions    int64
	badExecutions error
	// raised is the admission that A was last raised for, if it ever was, and
	// now the one that is under way.
	raised   meta.Admission
	isRaised bool
	now      meta.Admission
	// refusal says what the gate was refused for good, "" if nothing was.
	refusal string
	// maker is something between the job and its pods that is not paused, and pod
	// one that remains of an earlier execution; "" if there is none, or if it has
	// not been looked for.
	maker, pod string
}

// A checkEntry is an admission check as it stands on a Workload.
type checkEntry struct {
	name, state, message string
	// since is when Kueue last reset it, while it is Pending.
	since time.Time
}

// see puts together what was read of a Workload and of its job.
func (g *Gate) see(workload, job *unstructured.Unstructured, check string) sight {
	ours := own(g.keys, job)
	s := sight{
		workload:     g.kind.view(g.keys, workload),
		entry:        entryOf(workload, check),
		namedDeleted: job.GetDeletionTimestamp() != nil,
		namedRuns:    g.kind.Of.Stop.runs(job),
	}
	s.namedHold = holdText(g.keys.ReadHold(job.GetUID(), ours))
	s.executions, s.badExecutions = g.keys.ReadExecutions(job.GetUID(), ours)
	s.raised, s.isRaised = g.keys.ReadAdmission(job.GetUID(), ours)
	s.now = meta.Admission{Workload: workload.GetUID(), Generation: job.GetGeneration()}
	if s.entry != nil {
		s.now.Reset = s.entry.since
	}
	return s
}

// entryOf returns the entry of a check, nil if Kueue does not ask for it.
func entryOf(workload *unstructured.Unstructured, check string) *checkEntry {
	for _, item := range items(workload, "status", "admissionChecks") {
		if name, _ := item["name"].(string); name == check && name != "" {
			e := &checkEntry{name: name}
			e.state, _ = item["state"].(string)
			e.message, _ = item["message"].(string)
			since, _ := item["lastTransitionTime"].(string)
			e.since, _ = time.Parse(time.RFC3339, since)
			return e
		}
	}
	return nil
}

// holdText puts a hold into words, "" if there is none.
func holdText(hold *meta.Hold, unknown error) string {
	switch {
	case unknown != nil:
		return "a hold of unknown instance is in force: " + unknown.Error()
	case hold != nil:
		return fmt.Sprintf("hold %d is in force, by %s: %s", hold.Instance, hold.Holder, hold.Reason)
	}
	return ""
}

// A ruling is what the gate is to do, and why.
type ruling struct {
	do  deed
	why string
	// executions is A, as it is after the deed.
	executions int64
}

type deed int

const (
	// leave the check alone: it is not the gate's turn.
	leave deed = iota
	// stayShut: the check stays Pending, and says why.
	stayShut
	// raise A, and then look again.
	raise
	// letPass: the check becomes Ready.
	letPass
)

// judge decides (rules G1 to G3). Whatever it allows without having seen what is
// below the job is to be judged again with it.
func judge(s sight) ruling {
	if why := s.notAsked(); why != "" {
		return ruling{leave, why, s.executions}
	}
	if why := s.keepsShut(); why != "" {
		return ruling{stayShut, why, s.executions}
	}
	if s.executions > 0 && s.isRaised && s.raised.Counts(s.now) {
		return ruling{letPass, fmt.Sprintf("execution %d: no pod of an earlier one remains", s.executions), s.executions}
	}
	return ruling{raise, "the execution is to be counted", s.executions + 1}
}

// notAsked says why it is not the gate's turn, "" if it is: Kueue has reserved
// quota for an active Workload, and waits for the check.
//
// It is not while an eviction is under way. Kueue resets the check when an
// eviction begins and not again when it is over, so that an answer given in
// between would let the next execution in unseen. The same goes for a Workload
// that is admitted: what runs needs no answer, and the next eviction resets
// only what is not Pending.
func (s sight) notAsked() string {
	w := s.workload
	switch {
	case w.ended != "":
		return "the Workload has ended: " + w.ended
	case w.beingDeleted:
		return "the Workload is being deleted"
	case s.entry == nil:
		return "Kueue does not ask for the check"
	case s.entry.state != checkPending:
		return "the check stands at " + s.entry.state
	case w.paused || w.badType != nil:
		return "the Workload is not active"
	case !isTrue(w.obj, "QuotaReserved"):
		return "the Workload has no quota"
	case isTrue(w.obj, "Evicted"):
		return "the Workload is being evicted"
	case isTrue(w.obj, "Admitted"):
		return "the Workload is admitted"
	}
	return ""
}

// keepsShut says what the gate waits for, "" for nothing.
func (s sight) keepsShut() string {
	switch {
	case s.workload.unknown != nil: // a nil *AnnotationError is no nil error
		return holdText(nil, s.workload.unknown)
	case s.workload.hold != nil:
		return holdText(s.workload.hold, nil)
	case s.namedHold != "":
		return s.namedHold
	case s.namedDeleted:
		return "the job is being deleted"
	case s.namedRuns: // Kueue, or whoever made it so, is behind
		return "the job is not paused"
	case s.refusal != "":
		return s.refusal
	case s.maker != "":
		return s.maker + " is not paused"
	case s.pod != "":
		return fmt.Sprintf("pod %s of the earlier execution remains", s.pod)
	case s.badExecutions != nil:
		return "the count of executions cannot be raised: " + s.badExecutions.Error()
	case s.executions == math.MaxInt64:
		return "the count of executions cannot be raised any further"
	}
	return ""
}

// refusal says what the API server refuses for good, "" if err is none of that. The
// words are the same each time, whatever the server adds: a message that changed
// with every try would call for the next one.
func refusal(err error) string {
	status := apierrors.APIStatus(nil)
	own := (*meta.Error)(nil)
	if !errors.As(err, &own) || own.Kind != meta.ErrRejected && own.Kind != meta.ErrForbidden || !errors.As(err, &status) {
		return ""
	}
	code, what := int(status.Status().Code), ""
	switch {
	case code < 400 || code >= 500, code == http.StatusConflict, code == http.StatusGone, code == http.StatusTooManyRequests:
		return ""
	}
	if details := status.Status().Details; details != nil && details.Kind != "" {
		what = details.Kind + ": "
	}
	return fmt.Sprintf("the API server refuses the gate what it needs (%s%d %s); the gate's log says more", what, code, http.StatusText(code))
}

func isTrue(obj *unstructured.Unstructured, condition string) bool {
	return ConditionTrue(condition)(obj) != ""
}

// raiseEdits returns the edits of the job that raise A for the admission that is
// under way: the two annotations are written together, so that an A which was
// raised can always be told from one that was not (rule G3).
func (g *Gate) raiseEdits(job *unstructured.Unstructured, s sight, r ruling) []retry.Edit {
	uid := job.GetUID()
	return []retry.Edit{
		retry.Set(g.keys.ExecutionsValue(uid, r.executions), Annotation(g.keys.Executions())...),
		retry.Set(g.keys.AdmissionValue(uid, s.now), Annotation(g.keys.Admission())...),
	}
}

// reply returns the edits of the Workload's status that tell Kueue of a ruling,
// none if it has been told.
func reply(s sight, r ruling, now time.Time) []retry.Edit {
	if s.entry == nil {
		return nil
	}
	field := func(name string) []string {
		return Field("status", "admissionChecks", retry.Item("name", s.entry.name), name)
	}
	message := retry.Set(shortened(r.why), field("message")...)
	switch {
	case r.do == letPass:
		return []retry.Edit{
			retry.Set(checkReady, field("state")...),
			message,
			retry.Set(now.UTC().Format(time.RFC3339), field("lastTransitionTime")...),
		}
	case r.do == stayShut && s.entry.message != message.Value:
		return []retry.Edit{message}
	}
	return nil
}

// maxMessage is the longest message that is written, in bytes. Kueue's limit is
// 32 times that; nobody reads more.
const maxMessage = 1 << 10

// shortened cuts a message between two characters.
func shortened(message string) string {
	const ellipsis = "..."
	if len(message) <= maxMessage {
		return message
	}
	return strings.ToValidUTF8(message[:maxMessage-len(ellipsis)], "") + ellipsis // without the part of a character
}
