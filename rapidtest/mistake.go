package rapidtest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	operators "k8s.io/apimachinery/pkg/selection"
	"k8s.io/client-go/dynamic"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/retry"
)

// mistake looks for mistakes in a descriptor for which no schedule is needed, and names the first
// one.
func (s *suite) mistake(t *testing.T) (err error) {
	if err := s.kind.Check(); err != nil {
		return err
	}
	if err := s.questions(); err != nil {
		return err
	}
	synctest.Test(t, func(*testing.T) {
		for _, look := range []func(*trial) error{
			(*trial).hasField, (*trial).selector, (*trial).roundTrip, (*trial).controller, (*trial).absence, (*trial).owner,
		} {
			var tr *trial
			if tr, err = s.newTrial(); err == nil {
				err = look(tr)
			}
			if err != nil {
				return
			}
		}
	})
	return err
}

// A trial is a world in which a kind is tried out, without any trouble. It has the schema of the
// kind.
type trial struct {
	*suite
	*stage
	holder holdable.Holder
}

func (s *suite) newTrial() (*trial, error) {
	p := &play{subject: s.subject, start: start{"free", nothing}, newServer: s.server, makeCast: s.castOf(staging{})}
	st, err := p.newStage()
	if err != nil {
		return nil, err
	}
	engine, err := retry.NewForClient(st.server.Dynamic("a supervisor"), engineOptions())
	if err != nil {
		return nil, err
	}
	holder, err := s.kind.Connect(engine, holdable.Options{})
	return &trial{s, st, holder}, err
}

func nothing(*subject, dynamic.Interface) error { return nil }

// wrong is a mistake in a descriptor.
func (s *suite) wrong(format string, args ...any) error {
	return fmt.Errorf("descriptor of %s: %w", s.subject.heldKind, fmt.Errorf(format, args...))
}

// field is the pause field, for people.
func (s *suite) field() string { return retry.PathString(s.subject.path) }

// server is one of the kind's resources, with what is known of their schemas.
func (s *suite) server() *Server {
	resources := []Resource{s.resource, Pods()}
	if s.subject.indirect() {
		resources = append(resources, knownResource(s.subject.named, s.subject.namedKind, !s.subject.clusterScoped))
	} else if s.ownedByKueue() {
		resources = append(resources, Workloads())
	}
	for _, made := range s.subject.makes {
		resources = append(resources, knownResource(made.Resource, made.Kind, true))
	}
	return NewServer(resources...)
}

// questions asks the functions of the descriptor about a new object: it has not ended, nobody has
// deactivated it, nobody owns its field.
func (s *suite) questions() error {
	obj := s.subject.object(s.subject.held, s.subject.heldKind, s.subject.heldObjectName())
	obj.SetUID("uid")
	if err := s.subject.setPause(obj, s.subject.running); err != nil {
		return err
	}
	for _, q := range []struct {
		name, says string
		ask        func(*unstructured.Unstructured) string
	}{
		{"Ended", "has ended", s.subject.ended},
		{"Deactivated", "is deactivated", s.subject.deactivated},
		{"Owners", "has another owner of its pause field", s.kind.Describe().Owner},
	} {
		asked := obj.DeepCopy()
		if answer := q.ask(asked); answer != "" {
			return s.wrong("%s says of a new object that it %s: %q", q.name, q.says, answer)
		}
		if !reflect.DeepEqual(obj, asked) {
			return s.wrong("%s changes the object that it is asked about", q.name)
		}
	}
	return nil
}

// hasField looks for the pause field in the schema.
func (tr *trial) hasField() error {
	known := newKnownFields(tr.resource.Fields)
	if tr.subject.path[0] != "metadata" && !known.has(tr.subject.path) {
		return tr.wrong("the schema of a %s has no %s, so that an apiserver refuses the field, or drops it",
			tr.subject.heldKind, tr.field())
	}
	return nil
}

// has says whether a field is known.
func (k *knownFields) has(path []string) bool {
	for _, step := range path {
		if k == nil || k.any {
			return true
		}
		child, ok := k.props[step]
		if !ok {
			return false
		}
		k = child
	}
	return true
}

// roundTrip holds an object and releases it, and looks at the field.
func (tr *trial) roundTrip() error {
	if err := tr.open(); err != nil {
		return tr.wrong("a new object cannot be opened: %w", err)
	}
	if err := tr.hold(1); err != nil {
		return tr.wrong("a new object cannot be held: %w", err)
	}
	if !tr.subject.paused(tr.history.held()) {
		return tr.wrong("a hold leaves %s as it was", tr.field())
	}
	if err := tr.release(1); err != nil {
		return tr.wrong("the hold of a new object cannot be lifted: %w", err)
	}
	if tr.subject.paused(tr.history.held()) {
		return tr.wrong("a release leaves %s at its held value", tr.field())
	}
	return nil
}

func (tr *trial) asked(instance int64) meta.Call {
	return meta.Call{Instance: instance, Deadline: time.Now().Add(time.Minute), Holder: "rapidtest", Reason: "to try the kind"}
}

func (tr *trial) hold(instance int64) error {
	_, err := tr.holder.Hold(context.Background(), tr.ref(), tr.asked(instance))
	return err
}

// open lets the object past its start gate, if the kind has one.
func (tr *trial) open() error {
	if !tr.subject.startGate {
		return nil
	}
	_, err := tr.holder.Open(context.Background(), tr.ref(), tr.asked(0))
	return err
}

func (tr *trial) release(instance int64) error {
	_, err := tr.holder.Release(context.Background(), tr.ref(), tr.asked(instance))
	return err
}

// another is a second object of the named kind, which differs from the first in what tells objects
// apart.
func (tr *trial) another() *unstructured.Unstructured {
	obj := tr.named().DeepCopy()
	obj.SetName("another")
	obj.SetUID("another-uid")
	return obj
}

// selector looks at how the pods of an object are selected.
func (tr *trial) selector() error {
	if tr.subject.pods == nil {
		return nil
	}
	mine, err := tr.subject.pods(tr.named())
	if err != nil {
		return tr.wrong("Pods fails for a new object: %w", err)
	}
	theirs, err := tr.subject.pods(tr.another())
	if err != nil {
		return tr.wrong("Pods fails for a new object: %w", err)
	}
	selector, err := labels.Parse(mine)
	switch {
	case err != nil:
		return tr.wrong("Pods selects by %q, which is no selector: %w", mine, err)
	case selector.Empty():
		return tr.wrong("Pods selects by nothing, which takes every pod of the namespace for the object's")
	case mine == theirs:
		return tr.wrong("Pods selects by %q, whatever the object: the pods of all of them", mine)
	case !selector.Matches(labelsFor(selector)):
		return tr.wrong("Pods selects by %q, which no pod can match", mine)
	}
	return nil
}

// labelsFor are labels that a selector matches, if there are any.
func labelsFor(selector labels.Selector) labels.Set {
	set := labels.Set{}
	requirements, _ := selector.Requirements()
	for _, r := range requirements {
		switch r.Operator() {
		case operators.Equals, operators.DoubleEquals, operators.In:
			set[r.Key()] = r.Values().List()[0]
		case operators.Exists:
			set[r.Key()] = "any"
		}
	}
	return set
}

// controller looks at what the kind's controller makes of the pause field.
func (tr *trial) controller() error {
	if tr.makeCast == nil {
		return nil
	}
	if err := tr.open(); err != nil {
		return tr.wrong("a new object cannot be opened: %w", err)
	}
	if tr.rest(); len(tr.pods()) == 0 {
		return tr.wrong("%s=%v is to let an object run, but its controller makes no pods of it", tr.field(), tr.subject.running)
	}
	if err := tr.selects(); err != nil {
		return err
	}
	if err := tr.hold(1); err != nil {
		return tr.wrong("an object that runs cannot be held: %w", err)
	}
	if tr.rest(); len(tr.pods()) > 0 {
		return tr.wrong("%s=%v is to hold an object, but its controller keeps it running: pod %s is still there. "+
			"Is that the field that the controller looks at?", tr.field(), tr.subject.heldValue, tr.pods()[0].GetName())
	}
	if err := tr.release(1); err != nil {
		return tr.wrong("an object that has stopped cannot be released: %w", err)
	}
	if tr.rest(); len(tr.pods()) == 0 {
		value, _, _ := unstructured.NestedFieldNoCopy(tr.history.held().Object, tr.subject.path...)
		return tr.wrong("a release leaves %s=%v, but with that its controller does not let it run again", tr.field(), value)
	}
	return nil
}

// absence looks at what the controller makes of an object that lacks the pause field.
func (tr *trial) absence() error {
	if tr.makeCast == nil || tr.subject.indirect() {
		return nil
	}
	err := tr.subject.change(tr.others, tr.subject.held, worldName, func(obj *unstructured.Unstructured) error {
		unstructured.RemoveNestedField(obj.Object, tr.subject.path...)
		return nil
	})
	if err != nil {
		return err
	}
	tr.rest()
	if runs := len(tr.pods()) > 0; runs == (tr.subject.absent == tr.subject.heldValue) {
		return tr.wrong("a missing %s is to read %v, but its controller lets such an object %s",
			tr.field(), tr.subject.absent, lo.Ternary(runs, "run", "stand still"))
	}
	return nil
}

// rest lets everybody work until nobody has anything left to do, and pods have had the time to end.
func (tr *trial) rest() {
	for range 3 {
		settles{}.do(tr.stage)
		time.Sleep(2 * time.Minute)
	}
	settles{}.do(tr.stage)
}

// pods are the pods that the kind's controller has made of the object.
func (tr *trial) pods() []*unstructured.Unstructured {
	return lo.Filter(tr.stage.server.StoredAll(Pods().GVR), func(pod *unstructured.Unstructured, _ int) bool {
		return ownedBy(pod, tr.named())
	})
}

// selects looks whether the selector of pods finds those that the controller makes.
func (tr *trial) selects() error {
	text, err := tr.subject.pods(tr.named())
	if err != nil {
		return err
	}
	selector, err := labels.Parse(text)
	if err != nil {
		return err
	}
	for _, pod := range tr.pods() {
		if !selector.Matches(labels.Set(pod.GetLabels())) {
			return tr.wrong("Pods selects by %q, but pods of the object have labels %v", text, labels.Set(pod.GetLabels()))
		}
	}
	return nil
}

// ownedByKueue says that Kueue writes the pause field of those objects of the kind that are in a
// queue.
func (s *suite) ownedByKueue() bool {
	jobs := []schema.GroupVersionResource{TrainJobs().GVR, JobSets().GVR, Jobs().GVR}
	return lo.Contains(jobs, s.subject.held) && reflect.DeepEqual(s.subject.path, []string{"spec", "suspend"})
}

// owner looks whether the descriptor knows that Kueue owns the pause field of an object in a queue.
func (tr *trial) owner() error {
	if !tr.ownedByKueue() {
		return nil
	}
	tr.cast.actors = []Actor{&Kueue{Client: tr.stage.server.Dynamic("kueue"), Jobs: tr.subject.named}}
	err := tr.subject.change(tr.others, tr.subject.named, worldName, func(obj *unstructured.Unstructured) error {
		obj.SetLabels(map[string]string{QueueNameLabel: "queue"})
		return nil
	})
	if err != nil {
		return err
	}
	tr.rest()
	switch err := tr.hold(1); {
	case errors.Is(err, meta.ErrRejected):
		return nil
	case err != nil:
		return err
	}
	if tr.rest(); !tr.subject.paused(tr.history.held()) {
		return tr.wrong("%s of an object in a queue is Kueue's: Hold(1) was placed, and Kueue has resumed the object. "+
			"Name it in Owners", tr.field())
	}
	return tr.wrong("%s of an object in a queue is Kueue's, and Hold(1) has written it. Name it in Owners", tr.field())
}
