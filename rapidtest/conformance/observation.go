package conformance

import (
	"fmt"
	"strings"

	"github.com/google/go-cmp/cmp"
)

// An Observation is what was seen of one step of a sequence.
type Observation struct {
	// Kind, Sequence and Step say where.
	Kind, Sequence, Step string
	// Code is the HTTP status code.
	Code int
	// Reason and Message are those of a Status, the message with UIDs and resourceVersions left out.
	Reason, Message string
	// Warnings are the texts of the Warning headers.
	Warnings []string
	// RetryAfter is the Retry-After header.
	RetryAfter string
	// ResourceVersionMoved and GenerationMoved compare the object in the answer with the one seen
	// in the step before.
	ResourceVersionMoved, GenerationMoved bool
	// Body is the answer without UIDs, times, resourceVersions and managedFields.
	Body any
}

// At says where the observation was made.
func (o Observation) At() string { return fmt.Sprintf("%s/%s/%s", o.Kind, o.Sequence, o.Step) }

// Diff says in which steps two servers were seen to do different things, and how; it is empty where
// there are none. want is printed with -, got with +.
func Diff(want, got []Observation) string {
	var b strings.Builder
	seen := map[string]Observation{}
	for _, o := range got {
		seen[o.At()] = o
	}
	for _, w := range want {
		g, ok := seen[w.At()]
		if !ok {
			fmt.Fprintf(&b, "%s: missing\n", w.At())
			continue
		}
		delete(seen, w.At())
		if diff := cmp.Diff(w, g); diff != "" {
			fmt.Fprintf(&b, "%s:\n%s\n", w.At(), diff)
		}
	}
	for at := range seen {
		fmt.Fprintf(&b, "%s: unexpected\n", at)
	}
	return b.String()
}
