package meta_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/kubehold/kubehold/meta"
)

// H10: of a hold that lacks its instance it is said that the instance is
// missing, not that an empty one is there.
func TestH10AMissingInstanceIsMissing(t *testing.T) {
	var keys meta.Keys
	for want, annotations := range map[string]map[string]string{
		"missing":     {keys.Holder(): "dispatch"},
		"not a whole": {keys.Holder(): "dispatch", keys.Instance(): ""},
	} {
		_, err := keys.ReadHold("u", annotations)
		var bad *meta.AnnotationError
		if !errors.As(err, &bad) || bad.Key != keys.Instance() || !strings.HasPrefix(bad.Problem, want) {
			t.Errorf("%v: got %v, want %q", annotations, err, want)
		}
	}
}

// E2: a call that has no instance, such as Open, is not told with one.
func TestE2NoInstanceNoNumber(t *testing.T) {
	e := meta.Error{Kind: meta.ErrRejected, Op: meta.OpOpen, Object: meta.Object{Kind: "TrainJob", Ref: meta.Ref{Namespace: "team-a", Name: "llm"}}}
	if got, want := e.Error(), "Open of TrainJob team-a/llm: rejected"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
