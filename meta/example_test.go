package meta_test

import (
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubehold/kubehold/meta"
)

// What a hold looks like on an object, under a prefix of one's own.
func ExampleKeys() {
	keys, err := meta.NewKeys("holds.example.com")
	if err != nil {
		fmt.Println(err)
		return
	}
	annotations := keys.Annotations(meta.Hold{
		Instance: 7,
		Holder:   "dispatch",
		Reason:   "node-3 is lost",
		Since:    time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC),
		Found:    meta.FoundRunning,
		UID:      "6f1c",
	})
	for _, key := range keys.OfHold() {
		fmt.Printf("%s: %q\n", key, annotations[key])
	}

	hold, err := keys.ReadHold("6f1c", annotations)
	fmt.Println("there:", hold.Instance, err)
	copied, err := keys.ReadHold("a copy's UID", annotations)
	fmt.Println("on a copy:", copied, err)
	// Output:
	// holds.example.com/hold-instance: "7"
	// holds.example.com/hold-holder: "dispatch"
	// holds.example.com/hold-reason: "node-3 is lost"
	// holds.example.com/hold-since: "2026-05-06T07:08:09Z"
	// holds.example.com/hold-found: "running"
	// holds.example.com/hold-uid: "6f1c"
	// there: 7 <nil>
	// on a copy: <nil> <nil>
}

// How a caller tells failures apart: the kind by errors.Is, what may still
// happen by the fate.
func ExampleError() {
	handle := func(err error) {
		var e *meta.Error
		switch {
		case errors.Is(err, meta.ErrStaleHold):
			fmt.Println("overtaken; this hold is history")
		case errors.As(err, &e) && e.Fate == meta.FatePending:
			fmt.Println("not known before", e.PendingUntil.Format(time.TimeOnly))
		case apierrors.IsConflict(err):
			fmt.Println("lost to other writers; try again")
		default:
			fmt.Println(err)
		}
	}

	handle(meta.Errorf(meta.ErrStaleHold, "instance 8 is in force, which is newer"))
	handle(&meta.Error{
		Kind:         meta.ErrInDoubt,
		Fate:         meta.FatePending,
		PendingUntil: time.Date(2026, 5, 6, 7, 9, 14, 0, time.UTC),
	})
	conflict := apierrors.NewConflict(schema.GroupResource{Group: "batch", Resource: "jobs"}, "llm", errors.New("it has moved"))
	handle(meta.Errorf(meta.ErrConflict, "no try is left").Because(conflict))
	handle(&meta.Error{
		Kind:     meta.ErrPodsRemain,
		Op:       meta.OpRelease,
		Object:   meta.Object{Kind: "Job", Ref: meta.Ref{Namespace: "team-a", Name: "llm"}},
		Instance: 7,
		Tries:    1,
		Pods:     []string{"llm-0"},
	})
	// Output:
	// overtaken; this hold is history
	// not known before 07:09:14
	// lost to other writers; try again
	// Release(7) of Job team-a/llm: pods remain: llm-0 (tries: 1; writes: none)
}
