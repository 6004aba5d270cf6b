package holdable

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubehold/kubehold/meta"
)

// A message is written as it is as long as it fits, and cut between two
// characters if it does not.
func TestWhereAMessageIsCut(t *testing.T) {
	x := func(n int) string { return strings.Repeat("x", n) }
	for name, tc := range map[string]struct{ message, want string }{
		"Fits":      {x(maxMessage), x(maxMessage)},
		"OneMore":   {x(maxMessage + 1), x(maxMessage-3) + "..."},
		"WithinOne": {x(maxMessage-5) + "ééé", x(maxMessage-5) + "é..."},
		"Inside":    {x(maxMessage-4) + "éééé", x(maxMessage-4) + "..."},
		"Empty":     {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := shortened(tc.message); got != tc.want {
				t.Errorf("got %d bytes, ending in %q; want %d, ending in %q", len(got), got[max(0, len(got)-8):], len(tc.want), tc.want[max(0, len(tc.want)-8):])
			}
		})
	}
}

// A refusal is told in words that stay the same whatever the server adds; what may
// pass by itself, and what says that something is gone, is none.
func TestWhatCountsAsRefused(t *testing.T) {
	for code := range 600 {
		t.Run(strconv.Itoa(code), func(t *testing.T) {
			told := code >= 400 && code < 500 && code != 409 && code != 410 && code != 429
			said := func(text string) string {
				return refusal(meta.Errorf(meta.ErrRejected, "").Because(&apierrors.StatusError{ErrStatus: metav1.Status{Code: int32(code), Message: text}}))
			}
			if one, other := said("at 12:00"), said("at 12:01"); (one != "") != told || one != other {
				t.Errorf("got %q and %q", one, other)
			}
		})
	}
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", nil)
	for name, err := range map[string]error{
		"None":       nil,
		"NoAnswer":   meta.Errorf(meta.ErrRejected, "").Because(errors.New("connection refused")),
		"TheContext": meta.Errorf(meta.ErrDeadline, "").Because(context.Canceled),
		"Late":       meta.Errorf(meta.ErrDeadline, "").Because(refused),
		"Gone":       meta.Errorf(meta.ErrMissing, "").Because(refused),
		"Replaced":   meta.Errorf(meta.ErrReplaced, "").Because(refused),
		"InDoubt":    meta.Errorf(meta.ErrInDoubt, "").Because(refused),
	} {
		t.Run(name, func(t *testing.T) {
			if got := refusal(err); got != "" {
				t.Errorf("got %q", got)
			}
		})
	}
}
