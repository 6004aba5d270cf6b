package stack

import (
	"fmt"
	"strings"
)

// A Component is one process of a stack.
type Component string

// The components. A stack with APIServerOnly has the first two.
const (
	Etcd              Component = "etcd"
	APIServer         Component = "kube-apiserver"
	ControllerManager Component = "kube-controller-manager"
	Scheduler         Component = "kube-scheduler"
	JobSet            Component = "jobset"
	Trainer           Component = "trainer"
	Kueue             Component = "kueue"
	Kwok              Component = "kwok"
)

// A ComponentError is a component that could not be built, did not start or
// did not stay.
type ComponentError struct {
	Component Component
	// Op is what failed: "build", "start", "become healthy" or "stay up".
	Op string
	// Log is the end of what the component, or its build, has printed.
	Log string
	Err error
}

// Error names the component and ends with its log.
func (e *ComponentError) Error() string {
	text := fmt.Sprintf("%s did not %s: %v", e.Component, e.Op, e.Err)
	if e.Log == "" {
		return text
	}
	return text + "\n\t" + strings.ReplaceAll(e.Log, "\n", "\n\t")
}

// Unwrap returns the cause.
func (e *ComponentError) Unwrap() error { return e.Err }
