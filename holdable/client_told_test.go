package holdable_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"k8s.io/client-go/rest"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/kinds"
	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/rapidtest"
	"github.com/kubehold/kubehold/retry"
)

// K1, G3: in Kueue mode the executions of a job are counted on the job; a count on
// its Workload is nobody's.
func TestK1ExecutionsAreThoseOfTheJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newKueueCluster(t)
		count := func(obj string, a int64) string {
			uid := c.job
			if obj == "wl" {
				uid = c.stored(workloads(), "wl").GetUID()
			}
			return fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, meta.Keys{}.Executions(), meta.Keys{}.ExecutionsValue(uid, a))
		}
		c.patch(trainJobs(), "job", count("job", 3))
		c.patch(workloads(), "wl", count("wl", 8))
		in, err := c.client(kueue()).Inspect(t.Context(), job())
		if err != nil || in.Executions != 3 {
			t.Errorf("got %d executions, %v", in.Executions, err)
		}
	})
}

// E1: a call that is refused before anything is sent is refused as one thing and
// no other.
func TestE1RefusedAsOneKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		_, err := c.client(plain()).Open(t.Context(), job(), call(0))
		e := c.failed(err, meta.ErrUnsupported, meta.FateNone)
		if e.Kind != meta.ErrUnsupported || errors.Is(err, meta.ErrInvalid) {
			t.Errorf("got %v, which is %s", err, e.Kind)
		}
		_, err = c.client(plain()).Hold(t.Context(), meta.Ref{Namespace: "ns"}, call(1))
		if e := c.failed(err, meta.ErrInvalid, meta.FateNone); e.Detail != "no name" || e.Op != meta.OpHold {
			t.Errorf("got %v", err)
		}
	})
}

// A client that cannot be made says what is wrong with what it is made from.
func TestNewSaysWhatIsWrong(t *testing.T) {
	_, err := holdable.New(kinds.TrainJob(), &rest.Config{Host: "://"}, retry.Options{}, holdable.Options{})
	if !errors.Is(err, meta.ErrInvalid) || !strings.Contains(err.Error(), "rest.Config") {
		t.Errorf("got %v", err)
	}
	_, err = holdable.NewForClient(kinds.TrainJob(), nil, retry.Options{}, holdable.Options{})
	if !errors.Is(err, meta.ErrInvalid) || !strings.Contains(err.Error(), "no client") {
		t.Errorf("got %v", err)
	}
}

// H6, R1: which instances were seen is said in words, none included.
func TestH6TheInstancesAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.before(rapidtest.VerbUpdate, 1, func() { c.place(trainJobs(), "job", 1) })
		_, err := c.client(plain()).Hold(t.Context(), job(), call(2))
		e := c.failed(err, meta.ErrStaleHold, meta.FateNone)
		if want := "from no hold to instance 1"; !strings.HasSuffix(e.Detail, want) || e.Seen != 1 || !e.Changed {
			t.Errorf("got %v, want %q", err, want)
		}
		_, err = c.client(plain()).Release(t.Context(), job(), call(2))
		if e := c.failed(err, meta.ErrStaleHold, meta.FateNone); e.Detail != "instance 1 is in force" {
			t.Errorf("got %v", err)
		}
		c.lift(trainJobs(), "job")
		_, err = c.client(plain()).Release(t.Context(), job(), call(2))
		if e := c.failed(err, meta.ErrStaleHold, meta.FateNone); e.Detail != "no hold is in force" {
			t.Errorf("got %v", err)
		}
	})
}

// H1: a kind whose field means nothing without the map around it says which map is
// missing.
func TestH1WhatTheFieldLacksIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kind := kinds.TrainJob()
		kind.Pause.Path, kind.Pause.RequireParent = holdable.Field("spec", "policy", "suspend"), true
		c := newCluster(t)
		_, err := c.client(kind).Hold(t.Context(), job(), call(1))
		e := c.failed(err, meta.ErrRejected, meta.FateNone)
		if want := "the object lacks spec.policy, without which spec.policy.suspend has no meaning"; e.Detail != want {
			t.Errorf("got %v, want %q", err, want)
		}
	})
}

// R3: a field that is not what the kind says it is was not resumed by anybody, and
// is not ours to resume.
func TestR3AFieldThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.place(trainJobs(), "job", 2)
		c.patch(trainJobs(), "job", `{"spec":{"suspend":"yes"}}`)
		_, err := c.client(plain()).Release(t.Context(), job(), call(2))
		e := c.failed(err, meta.ErrRejected, meta.FateNone)
		if e.Detail != "the pause field cannot be read" || c.instance(trainJobs(), "job") != "2" {
			t.Errorf("got %v", err)
		}
	})
}
