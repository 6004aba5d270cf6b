package meta

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

// DefaultPrefix is the prefix of the annotation keys where none is configured.
const DefaultPrefix = "kubehold.dev"

// Keys are the annotation keys under one prefix. The zero value is the default
// prefix's.
type Keys struct{ prefix string }

// NewKeys returns the keys under prefix, or under DefaultPrefix if it is empty.
// A prefix that is no DNS subdomain (RFC 1123) is ErrInvalid.
func NewKeys(prefix string) (Keys, error) {
	if prefix == "" {
		return Keys{}, nil
	}
	if bad := validation.IsDNS1123Subdomain(prefix); len(bad) > 0 {
		return Keys{}, Invalidf("annotation prefix %q: %s", prefix, strings.Join(bad, ", "))
	}
	return Keys{prefix: prefix}, nil
}

func (k Keys) key(name string) string {
	if k.prefix == "" {
		return DefaultPrefix + "/" + name
	}
	return k.prefix + "/" + name
}

// Instance is the key of the hold's number.
func (k Keys) Instance() string { return k.key("hold-instance") }

// Holder is the key of who placed the hold.
func (k Keys) Holder() string { return k.key("hold-holder") }

// Reason is the key of why it was placed.
func (k Keys) Reason() string { return k.key("hold-reason") }

// Since is the key of when it was placed.
func (k Keys) Since() string { return k.key("hold-since") }

// Found is the key of what the hold found (rule H9).
func (k Keys) Found() string { return k.key("hold-found") }

// UID is the key of the UID that the hold is bound to (rule H13).
func (k Keys) UID() string { return k.key("hold-uid") }

// Opened is the key of the mark that an object with a start gate was opened.
func (k Keys) Opened() string { return k.key("opened") }

// Executions is the key of A, the number of executions given.
func (k Keys) Executions() string { return k.key("executions") }

// OfHold returns the keys that make up a hold, in a fixed order.
func (k Keys) OfHold() []string {
	return []string{k.Instance(), k.Holder(), k.Reason(), k.Since(), k.Found(), k.UID()}
}

// Found is what a hold found when it was placed (rule H9). It decides whether
// lifting the hold resumes the object.
type Found string

const (
	// FoundRunning: the pause field did not read held.
	FoundRunning Found = "running"
	// FoundGate: the object waited at its start gate.
	FoundGate Found = "gate"
	// FoundPaused: somebody else had paused it; Release leaves it paused.
	FoundPaused Found = "paused"
)

// A Hold is what the six annotations say.
type Hold struct {
	Instance int64
	Holder   string
	Reason   string
	// Since is in UTC, to the second; zero if the annotation is missing.
	Since time.Time
	Found Found
	// Restore is the JSON of the pause field's value that the hold replaced,
	// for kinds whose release puts it back; empty for others.
	Restore string
	// UID is the object the hold was placed on.
	UID types.UID
}

// Annotations returns h as it is written.
func (k Keys) Annotations(h Hold) map[string]string {
	found := string(h.Found)
	if h.Restore != "" {
		found += "=" + h.Restore
	}
	return map[string]string{
		k.Instance(): strconv.FormatInt(h.Instance, 10),
		k.Holder():   h.Holder,
		k.Reason():   h.Reason,
		k.Since():    h.Since.UTC().Format(time.RFC3339),
		k.Found():    found,
		k.UID():      string(h.UID),
	}
}

// An AnnotationError is a hold that cannot be understood (rule H10). As nobody
// knows which instance it is, nothing may overwrite it and nothing may lift it.
type AnnotationError struct {
	Key, Value, Problem string
}

// Error names the annotation, with its value.
func (e *AnnotationError) Error() string {
	return fmt.Sprintf("annotation %s=%q: %s", e.Key, e.Value, e.Problem)
}

// ReadHold returns the hold on the object with that UID, nil if there is none,
// or an *AnnotationError for a hold of unknown instance (rule H10). A hold that
// was placed on another object counts as none (rule H13).
func (k Keys) ReadHold(uid types.UID, annotations map[string]string) (*Hold, error) {
	if k.Void(uid, annotations) || !k.anyOfHold(annotations) {
		return nil, nil
	}
	h := Hold{
		Holder: annotations[k.Holder()],
		Reason: annotations[k.Reason()],
		UID:    uid,
	}
	var err error
	if h.Instance, err = k.readInstance(annotations); err != nil {
		return nil, err
	}
	if h.Since, err = k.readSince(annotations); err != nil {
		return nil, err
	}
	if h.Found, h.Restore, err = k.readFound(annotations); err != nil {
		return nil, err
	}
	return &h, nil
}

// Void reports whether a hold lies there that is bound to another UID.
func (k Keys) Void(uid types.UID, annotations map[string]string) bool {
	bound, ok := annotations[k.UID()]
	return ok && bound != string(uid)
}

func (k Keys) anyOfHold(annotations map[string]string) bool {
	for _, key := range k.OfHold() {
		if _, ok := annotations[key]; ok {
			return true
		}
	}
	return false
}

func (k Keys) readInstance(annotations map[string]string) (int64, error) {
	s, ok := annotations[k.Instance()]
	if !ok {
		return 0, &AnnotationError{k.Instance(), "", "missing, though other annotations of a hold are there"}
	}
	n, ok := parseCount(s)
	if !ok || n < 1 {
		return 0, &AnnotationError{k.Instance(), s, "not a whole number of 1 or more"}
	}
	return n, nil
}

func (k Keys) readSince(annotations map[string]string) (time.Time, error) {
	s, ok := annotations[k.Since()]
	if !ok {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return time.Time{}, &AnnotationError{k.Since(), s, "not an RFC 3339 time"}
	}
	return t.UTC(), nil
}

func (k Keys) readFound(annotations map[string]string) (Found, string, error) {
	s, ok := annotations[k.Found()]
	if !ok {
		return FoundRunning, "", nil
	}
	word, restore, valued := strings.Cut(s, "=")
	switch f := Found(word); {
	case f == FoundRunning && (!valued || restore != ""):
		return f, restore, nil
	case (f == FoundGate || f == FoundPaused) && !valued:
		return f, "", nil
	}
	return "", "", &AnnotationError{k.Found(), s, "not one of running, gate and paused"}
}

// ReadOpened reports whether the object with that UID carries its opened mark.
// A mark that was made on another object is none (rule H13).
func (k Keys) ReadOpened(uid types.UID, annotations map[string]string) bool {
	mark, ok := annotations[k.Opened()]
	return ok && uid != "" && mark == string(uid)
}

// ExecutionsValue returns A as it is written for the object with that UID.
func (k Keys) ExecutionsValue(uid types.UID, a int64) string {
	return strconv.FormatInt(a, 10) + " " + string(uid)
}

// ReadExecutions returns A for the object with that UID: 0 where it was never
// written, or was written on another object (rule H13), and an
// *AnnotationError where it cannot be understood, for then it must not be
// raised: A never falls.
func (k Keys) ReadExecutions(uid types.UID, annotations map[string]string) (int64, error) {
	s, ok := annotations[k.Executions()]
	if !ok {
		return 0, nil
	}
	count, bound, two := strings.Cut(s, " ")
	n, number := parseCount(count)
	if !two || !number || bound == "" {
		return 0, &AnnotationError{k.Executions(), s, "not a whole number and a UID"}
	}
	if bound != string(uid) {
		return 0, nil
	}
	return n, nil
}

// parseCount reads a whole number in the one way it is written: no sign, no
// leading zero, no space.
func parseCount(s string) (int64, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil && n >= 0 && strconv.FormatInt(n, 10) == s
}
