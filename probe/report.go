package probe

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/samber/lo"

	"github.com/kubehold/kubehold/meta"
)

// State says whether there is a capability.
type State string

const (
	// Available: it was seen to be there.
	Available State = "available"
	// Unavailable: it was seen not to be there.
	Unavailable State = "unavailable"
	// Unknown: it could not be found out; Line.Why says what stood in the way.
	Unknown State = "unknown"
)

// A Theme is the part of the probe that a line comes from.
type Theme string

// The themes, in the order of a report.
const (
	// Calls are the verdicts: what follows for Hold, Release, Open and Inspect
	// from all other lines.
	Calls Theme = "calls"
	// Access is what this identity may do.
	Access Theme = "access"
	// Served is what the apiserver knows of the kinds.
	Served Theme = "served"
	// RoundTrip is what became of a hold on a canary.
	RoundTrip Theme = "round trip"
	// Environment is what surrounds a hold, and makes it slow or unsafe.
	Environment Theme = "environment"
)

// A Line is one capability.
type Line struct {
	Theme      Theme  `json:"theme"`
	Capability string `json:"capability"`
	// Namespace is empty where the line is the same for all of them.
	Namespace string `json:"namespace,omitempty"`
	State     State  `json:"state"`
	// Why says what was seen, and Remedy what to do about it.
	Why    string `json:"why,omitempty"`
	Remedy string `json:"remedy,omitempty"`
	// Ops are the calls that cannot work without the capability. A line without
	// any is advice: it says what will be slow, or unsafe, or cannot be seen.
	Ops []meta.Op `json:"ops,omitempty"`
}

// concerns reports whether the line tells something of op in a namespace.
func (l Line) concerns(op meta.Op, namespace string) bool {
	return l.Theme != Calls && slices.Contains(l.Ops, op) && (l.Namespace == "" || l.Namespace == namespace)
}

// where is the capability with its namespace.
func (l Line) where() string {
	if l.Namespace == "" {
		return l.Capability
	}
	return l.Capability + " in " + l.Namespace
}

// A Report is what a probe has found. It satisfies holdable.Capabilities, so
// that a client can Use it. It is plain data: it can be kept as JSON and used
// by another program.
type Report struct {
	// Kind is the kind that callers name and Held the kind that is written,
	// which is another one in Kueue mode.
	Kind string `json:"kind"`
	Held string `json:"held"`
	// Identity is who the apiserver takes the prober for, and Server which
	// version it says it has; empty where it would not say.
	Identity string    `json:"identity,omitempty"`
	Server   string    `json:"server,omitempty"`
	Time     time.Time `json:"time"`
	Lines    []Line    `json:"lines"`
	// Manifest is set where access is missing: the Roles that grant all of it,
	// as YAML for kubectl apply; see Manifest.
	Manifest string `json:"manifest,omitempty"`
}

// Unavailable implements holdable.Capabilities (rule C5): it returns why op
// cannot work on an object, with the remedy, "" if nothing is known against it.
// What is unknown is not held against it, and neither is what was found in
// other namespaces.
func (r Report) Unavailable(object meta.Object, op meta.Op) string {
	if object.Kind != r.Kind {
		return ""
	}
	return strings.Join(lo.FilterMap(r.Lines, func(l Line, _ int) (string, bool) {
		return joined(": ", l.where(), joined("; ", l.Why, l.Remedy)), l.State == Unavailable && l.concerns(op, object.Namespace)
	}), "; ")
}

// State returns how op stands in all namespaces together: unavailable if it is
// so in one of them.
func (r Report) State(op meta.Op) State {
	verdicts := lo.Filter(r.Lines, func(l Line, _ int) bool { return l.Theme == Calls && l.Capability == string(op) })
	if len(verdicts) == 0 {
		return Unknown
	}
	return worst(verdicts)
}

// worst returns the state of several lines that are all needed.
func worst(lines []Line) State {
	has := func(s State) bool { return slices.ContainsFunc(lines, func(l Line) bool { return l.State == s }) }
	switch {
	case has(Unavailable):
		return Unavailable
	case has(Unknown):
		return Unknown
	}
	return Available
}

// conclude returns the verdicts that follow from lines: a call is available
// where all that it needs is.
func conclude(ops []meta.Op, namespaces []string, lines []Line) []Line {
	var verdicts []Line
	for _, namespace := range namespaces {
		for _, op := range ops {
			needed := lo.Filter(lines, func(l Line, _ int) bool { return l.concerns(op, namespace) })
			v := Line{Theme: Calls, Capability: string(op), Namespace: namespace, State: worst(needed)}
			if v.State != Available {
				v.Why = strings.Join(lo.FilterMap(needed, func(l Line, _ int) (string, bool) {
					return l.Capability, l.State == v.State
				}), ", ")
			}
			verdicts = append(verdicts, v)
		}
	}
	return verdicts
}

// String returns the report for people: the verdicts first, then what they
// follow from, one line for each capability, and the remedy below it.
func (r Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, asked as %s of Kubernetes %s\n", r.subject(),
		cmp.Or(r.Identity, "an unnamed identity"), cmp.Or(r.Server, "of unknown version"))
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for i, l := range r.Lines {
		if i == 0 || l.Theme != r.Lines[i-1].Theme {
			fmt.Fprintf(w, "\n%s\n", l.Theme)
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\n", l.State, l.where(), l.Why)
		if l.Remedy != "" {
			fmt.Fprintf(w, "\t\t-> %s\n", l.Remedy)
		}
	}
	if err := w.Flush(); err != nil { // a strings.Builder does not fail
		return err.Error()
	}
	return withoutTrailingBlanks(b.String())
}

func (r Report) subject() string {
	if r.Held == r.Kind {
		return r.Kind
	}
	return fmt.Sprintf("%s, held by its %s", r.Kind, r.Held)
}

// withoutTrailingBlanks drops the blanks that pad empty cells.
func withoutTrailingBlanks(s string) string {
	return strings.Join(lo.Map(strings.Split(s, "\n"), func(line string, _ int) string { return strings.TrimRight(line, " ") }), "\n")
}

// joined joins the parts that are not empty.
func joined(separator string, parts ...string) string {
	return strings.Join(lo.Compact(parts), separator)
}
