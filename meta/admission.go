package meta

import (
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Admission is the key of the admission that A was raised for last (rule G3).
func (k Keys) Admission() string { return k.key("admission") }

// An Admission tells one admission of a job by Kueue from every other. It is
// written with A, in one update, so that whoever comes later can see that A has
// been raised for it.
type Admission struct {
	// Workload is the UID of the Workload that is to be admitted.
	Workload types.UID
	// Reset is when its admission check was last reset, to the second.
	Reset time.Time
	// Generation is the metadata.generation of the job when A was raised, 0 if
	// its kind has none.
	Generation int64
}

// Counts reports whether the A that was raised for admission a is the number of
// the execution that now is about to begin, so that it must not be raised again.
//
// A job is started and stopped by a change of its spec, which moves its
// generation. So while the generation is that of the last raise, nothing has
// been started since, whatever became of the admission: Kueue may have taken it
// back, or have made a new Workload for the job. And where the generation has
// moved, an execution may have begun and ended since, even if the check was
// reset twice within one second.
func (a Admission) Counts(now Admission) bool {
	if a.Generation != 0 || now.Generation != 0 {
		return a.Generation == now.Generation
	}
	return a.Workload == now.Workload && a.Reset.Equal(now.Reset)
}

// AdmissionValue returns a as it is written on the job with that UID.
func (k Keys) AdmissionValue(uid types.UID, a Admission) string {
	return strings.Join([]string{
		string(a.Workload), a.Reset.UTC().Format(time.RFC3339), strconv.FormatInt(a.Generation, 10), string(uid),
	}, " ")
}

// ReadAdmission returns what A was last raised for on the job with that UID. It
// is false where that was never written, was written on another object (rule
// H13), or cannot be read: A is raised then, since a number that is left out
// does no harm and one that is given twice does.
func (k Keys) ReadAdmission(uid types.UID, annotations map[string]string) (Admission, bool) {
	parts := strings.Split(annotations[k.Admission()], " ")
	if len(parts) != 4 || uid == "" || parts[3] != string(uid) {
		return Admission{}, false
	}
	reset, err := time.Parse(time.RFC3339, parts[1])
	generation, ok := parseCount(parts[2])
	if parts[0] == "" || err != nil || !ok {
		return Admission{}, false
	}
	return Admission{Workload: types.UID(parts[0]), Reset: reset.UTC(), Generation: generation}, true
}
