package holdable_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/rapidtest"
)

// G3: a job that changes whenever A is raised is counted three times by one call,
// and then by the next.
func TestG3HowOftenACallLooksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newAskedCluster(t)
		c.changeWithEveryWrite()
		_, err := c.answer(c.gate())
		c.failed(err, meta.ErrRejected, meta.FateSettled)
		if n := len(c.commits()); n != 3 || c.executions() != "3" {
			t.Errorf("%d updates, and A is %s", n, c.executions())
		}
	})
}

// G3: what is gone when A is to be raised is missed there as well as before.
func TestG3AWorkloadThatVanishesBeforeTheRaise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newAskedCluster(t)
		c.before(rapidtest.VerbList, 3, func() { c.remove(workloads(), "wl") }) // the lists before are of Workloads, and of pods
		_, err := c.answer(c.gate())
		c.failed(err, meta.ErrMissing, meta.FateNone)
		if len(c.commits()) != 0 {
			t.Errorf("it wrote %v", c.commits())
		}
	})
}

// G2, G3: a hold that is placed after the gate has looked is seen before it raises
// A, and what it has not raised has no key either.
func TestG2AHoldBeforeTheRaise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newAskedCluster(t)
		c.before(rapidtest.VerbList, 3, func() { c.place(workloads(), "wl", 2) })
		a, err := c.answer(c.gate())
		if err != nil || a.State != holdable.GateIdle && a.State != holdable.GateShut {
			t.Errorf("%+v, %v", a, err)
		}
		annotations := c.stored(trainJobs(), "job").GetAnnotations()
		if _, counted := annotations[meta.Keys{}.Admission()]; counted || c.executions() != "" {
			t.Errorf("A is %q, of %v", c.executions(), annotations)
		}
	})
}

// G1: where it is not the gate's turn, or a hold is in force, nobody asks for the
// pods.
func TestG1PodsAreAskedForLast(t *testing.T) {
	for name, make := range map[string]func(*cluster){
		"NotAsked": func(c *cluster) { c.ask() },
		"Held":     func(c *cluster) { c.place(trainJobs(), "job", 2) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newAskedCluster(t)
				make(c)
				a, err := c.answer(c.gate())
				if err != nil || a.State == holdable.GateOpened {
					t.Errorf("%+v, %v", a, err)
				}
				for _, sent := range c.wire.take() {
					if strings.HasPrefix(sent, "GET pods") {
						t.Errorf("it sent %s", sent)
					}
				}
			})
		})
	}
}

// changeWithEveryWrite has a webhook change the spec of the job whenever we write it.
func (c *cluster) changeWithEveryWrite() {
	c.server.Admit(func(r rapidtest.AdmissionRequest) (*unstructured.Unstructured, error) {
		if r.Request.User != "us" || r.Request.GVR != trainJobs() {
			return r.Object, nil
		}
		return r.Object, unstructured.SetNestedField(r.Object.Object, fmt.Sprint("v", c.server.ResourceVersion()), "spec", "trainer", "image")
	})
}
