package retry_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/samber/lo"

	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/rapidtest"
	"github.com/kubehold/kubehold/retry"
)

// first is the rule for the engine's first update, and then for all after it.
func first(f rapidtest.Fault) rapidtest.Rule { return rapidtest.Nth(1, rapidtest.Writes(), f) }

func then(f rapidtest.Fault) rapidtest.Rule {
	return rapidtest.Rule{Match: rapidtest.Writes(), From: 2, Fault: f}
}

// land waits until everything that was held back has landed, or has not.
func land() {
	time.Sleep(2 * time.Hour)
	synctest.Wait()
}

// sameBytes is an error of the test unless all updates on the wire are the same.
func (l *lab) sameBytes() {
	l.Helper()
	sent := l.wire.of(http.MethodPut)
	for i := range sent {
		if !bytes.Equal(sent[i].body, sent[0].body) {
			l.Errorf("update %d differs from the first:\n%s\n%s", i+1, sent[i].body, sent[0].body)
		}
	}
}

// T3: while the fate of an update is open the same bytes go out again, under the
// same precondition, and a definite answer closes it. One of them commits.
func TestT3TheSameBytesGoOutAgain(t *testing.T) {
	const ms = time.Millisecond
	for name, tc := range map[string]struct {
		fault                 rapidtest.Fault
		reads, updates, tries int
	}{
		// The second is answered 409, and a read shows that the first has landed.
		"AnswerLost": {rapidtest.LoseResponse(), 2, 2, 3},
		"ResetAfter": {rapidtest.ResetConnection(), 2, 2, 3},
		"504After":   {rapidtest.Answer(504).AfterCommit(), 2, 2, 3},
		"500After":   {rapidtest.Answer(500).AfterCommit(), 2, 2, 3},
		"599After":   {rapidtest.Answer(599).AfterCommit(), 2, 2, 3},
		"EmptyAfter": {rapidtest.Fault{Response: &rapidtest.Response{Code: 200}}, 2, 2, 3},
		"504Before":  {rapidtest.CommitLater(5 * ms), 2, 2, 3},
		// The second commits.
		"HeldInTheServer": {rapidtest.HoldRequest(40 * time.Second), 1, 2, 2},
		"RequestLost":     {rapidtest.LoseRequest(), 1, 2, 2},
		"504":             {rapidtest.Answer(504), 1, 2, 2},
		"502":             {rapidtest.Answer(502), 1, 2, 2},
		"304":             {rapidtest.Answer(304), 1, 2, 2},
		"504Delayed":      {rapidtest.CommitLater(15 * ms), 1, 2, 2},
		"504AnHour":       {rapidtest.CommitLater(time.Hour), 1, 2, 2},
		// There is no second, or none of the engine's.
		"SlowServer":   {rapidtest.HoldRequest(30 * time.Second), 1, 1, 1},
		"SlowNetwork":  {rapidtest.DelayRequest(59 * time.Second), 1, 1, 1},
		"TwiceByProxy": {rapidtest.Duplicate(), 2, 1, 2},
	} {
		for _, f := range []face{overHTTP, inProcess} {
			t.Run(name+"/"+string(f), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l := newLab(t, setup{face: f, rules: []rapidtest.Rule{first(tc.fault)}})
					res, err := l.do()
					land()
					l.succeeded(res, err, tc.tries, 1)
					l.sends(tc.reads, tc.updates)
					l.sameBytes()
				})
			})
		}
	}
}

// T3: as long as no answer is definite the same bytes go out, and once one is,
// the object is read.
func TestT3PassingAnswersCloseNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, setup{rules: []rapidtest.Rule{
			first(rapidtest.LoseResponse()),
			rapidtest.Nth(2, rapidtest.Writes(), rapidtest.Answer(429)),
			rapidtest.Nth(3, rapidtest.Writes(), rapidtest.Answer(500)),
			rapidtest.Nth(2, rapidtest.Reads(), rapidtest.Answer(500)),
			rapidtest.Nth(3, rapidtest.Reads(), rapidtest.LoseRequest()),
		}})
		res, err := l.do()
		l.succeeded(res, err, 7, 1)
		l.sends(4, 4)
		l.sameBytes()
	})
}

// T3: what no answer has closed stays open until the deadline plus CallBound.
func TestT3PendingUntil(t *testing.T) {
	for name, tc := range map[string]struct {
		rules  []rapidtest.Rule
		within time.Duration
		tries  int
		lands  int // commits after the call has returned
	}{
		"NeverArrived":     {[]rapidtest.Rule{rapidtest.Each(rapidtest.Writes(), rapidtest.LoseRequest())}, time.Minute, 9, 0},
		"ArrivesLater":     {[]rapidtest.Rule{first(rapidtest.CommitLater(30 * time.Second)), then(rapidtest.Answer(503))}, time.Minute, 9, 1},
		"AllArriveLater":   {[]rapidtest.Rule{rapidtest.Each(rapidtest.Writes(), rapidtest.CommitLater(30*time.Second))}, time.Minute, 9, 1},
		"Hangs":            {[]rapidtest.Rule{rapidtest.Each(rapidtest.Writes(), rapidtest.HangRequest())}, time.Second, 1, 0},
		"HangsAndArrives":  {[]rapidtest.Rule{first(rapidtest.HangCommitLater(60 * time.Second))}, time.Second, 1, 1},
		"NoTimeForAnother": {[]rapidtest.Rule{first(rapidtest.CommitLater(time.Second))}, 10 * time.Millisecond, 1, 1},
		// It is the ninth try that finds the conflict, and nobody looks whose it was.
		"NinthConflicts": {append([]rapidtest.Rule{first(rapidtest.LoseResponse())},
			rapidtest.Span(2, 8, rapidtest.Writes(), rapidtest.Answer(500))), time.Minute, 9, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t, setup{rules: tc.rules, options: retry.Options{RequestTimeout: 70 * time.Second, CallBound: 80 * time.Second}})
				base := l.stored()
				deadline := time.Now().Add(tc.within)
				_, err := l.doWithin(tc.within)
				before := len(l.commits())
				e := l.failed(err, meta.ErrInDoubt, meta.FatePending)
				if want := deadline.Add(80 * time.Second); !e.PendingUntil.Equal(want) || e.Tries != tc.tries {
					t.Errorf("pending until %v after %d tries, want %v and %d", e.PendingUntil, e.Tries, want, tc.tries)
				}
				if e.UID != base.GetUID() || e.Precondition != base.GetResourceVersion() || e.Held.Name != "w" {
					t.Errorf("in doubt about %v %s at %s", e.Held, e.UID, e.Precondition)
				}
				land()
				if n := len(l.commits()) - before; n != tc.lands {
					t.Errorf("%d commits landed later, want %d", n, tc.lands)
				}
				for _, c := range l.commits() {
					if c.Time.After(e.PendingUntil) {
						t.Errorf("one landed at %v", c.Time)
					}
				}
				l.sameBytes()
			})
		})
	}
}

// T3: any other answer closes only its own request: the API error is there, and
// so is the doubt, which was right.
func TestT3ARefusalClosesOnlyItsOwnRequest(t *testing.T) {
	own := widgets().GroupResource()
	otherGroup, otherResource := own, own
	otherGroup.Group, otherResource.Resource = "example.org", "gadgets"
	byProxy := apierrors.NewGenericServerResponse(404, "put", own, "w", "no such upstream", 0, true)
	for name, fault := range map[string]rapidtest.Fault{
		"403":            rapidtest.Answer(403),
		"422":            rapidtest.Answer(422),
		"413":            rapidtest.Answer(413),
		"404OfAProxy":    {Drop: true, Response: &rapidtest.Response{Code: 404, Text: "no such upstream"}},
		"404InItsName":   rapidtest.AnswerError(byProxy),
		"404OfAnother":   rapidtest.AnswerError(apierrors.NewNotFound(own, "v")),
		"404OfAGroup":    rapidtest.AnswerError(apierrors.NewNotFound(otherGroup, "w")),
		"404OfAResource": rapidtest.AnswerError(apierrors.NewNotFound(otherResource, "w")),
		"404OfNobody":    rapidtest.Answer(404),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t, setup{rules: []rapidtest.Rule{first(rapidtest.CommitLater(time.Second)), then(fault)}})
				_, err := l.do()
				l.failed(err, meta.ErrInDoubt, meta.FatePending)
				status := apierrors.APIStatus(nil)
				if !errors.As(err, &status) || int(status.Status().Code) != fault.Response.Code {
					t.Errorf("the API error is not in the chain of %v", err)
				}
				if len(l.updates()) != 2 || len(l.commits()) != 0 {
					t.Errorf("%d updates, %d commits", len(l.updates()), len(l.commits()))
				}
				if land(); len(l.commits()) != 1 {
					t.Errorf("%d commits in the end", len(l.commits()))
				}
			})
		})
	}
}

// T3: that the object itself is gone closes every fate, also where nobody
// counted the transmissions.
func TestT3NotFoundOfTheObjectCloses(t *testing.T) {
	for name, tc := range map[string]struct {
		face   face
		rules  []rapidtest.Rule
		update int // the one before which the object goes
		fate   meta.Fate
	}{
		"AnswerToTheFirst":  {overHTTP, nil, 1, meta.FateNone},
		"AnswerToTheSecond": {overHTTP, []rapidtest.Rule{first(rapidtest.Answer(504))}, 2, meta.FateSettled},
		"AfterCommit":       {overHTTP, []rapidtest.Rule{first(rapidtest.LoseResponse())}, 2, meta.FateSettled},
		"Bare":              {bare, nil, 1, meta.FateSettled},
		"Read": {overHTTP, []rapidtest.Rule{
			first(rapidtest.LoseResponse()), rapidtest.Nth(2, rapidtest.Writes(), rapidtest.Answer(409))}, 2, meta.FateSettled},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t, setup{face: tc.face, rules: tc.rules})
				l.atUpdate(tc.update, l.remove)
				_, err := l.do()
				e := l.failed(err, meta.ErrMissing, tc.fate)
				if !errors.Is(err, meta.ErrRejected) || !e.PendingUntil.IsZero() {
					t.Errorf("%v, pending until %v", err, e.PendingUntil)
				}
			})
		})
	}
}

// atUpdate has do run before the engine's n-th update reaches the server.
func (l *lab) atUpdate(n int, do func()) {
	seen := 0
	l.before(rapidtest.VerbUpdate, n, func() {
		if seen++; seen == n {
			do()
		}
	})
}

// pinned is the call by someone who will not have another object, or who looks
// the object up in a way that may fail.
func (l *lab) pinned(refuse error) retry.Op {
	uid := l.stored().GetUID()
	reads := 0
	op := l.op()
	op.Read = func(ctx context.Context, r retry.Reader) (*unstructured.Unstructured, error) {
		if reads++; reads > 1 && refuse != nil {
			return nil, refuse
		}
		obj, err := getWidget(ctx, r)
		if err == nil && obj.GetUID() != uid {
			return nil, meta.Errorf(meta.ErrReplaced, "it is %s", obj.GetUID())
		}
		return obj, err
	}
	return op
}

// T3: an object that was replaced closes the fate as well, whatever Read makes
// of it.
func TestT3AnotherUIDCloses(t *testing.T) {
	lost := errors.New("no way to find it now")
	for name, tc := range map[string]struct {
		refuse error
		kind   meta.Sentinel
	}{
		"Pinned": {nil, meta.ErrReplaced},
		"Lost":   {lost, meta.ErrRejected},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t, setup{rules: []rapidtest.Rule{first(rapidtest.CommitLater(time.Second))}})
				l.atUpdate(2, l.replace)
				_, err := l.engine.Do(t.Context(), time.Now().Add(time.Minute), l.pinned(tc.refuse))
				l.failed(err, tc.kind, meta.FateSettled)
				if land(); len(l.commits()) != 0 {
					t.Errorf("%d commits", len(l.commits()))
				}
			})
		})
	}
	t.Run("DecidedAgainThoughTheSameIsThere", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := newLab(t, setup{rules: []rapidtest.Rule{first(rapidtest.LoseResponse())}})
			l.atUpdate(2, func() {
				l.replace()
				l.write(mine)
			})
			_, err := l.engine.Do(t.Context(), time.Now().Add(time.Minute), l.once())
			l.failed(err, meta.ErrStaleHold, meta.FateSettled)
		})
	})
	t.Run("DecidedAgain", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := newLab(t, setup{rules: []rapidtest.Rule{first(rapidtest.CommitLater(time.Second))}})
			l.atUpdate(2, l.replace)
			res, err := l.do()
			land()
			l.succeeded(res, err, 3, 1)
			l.sends(2, 3)
		})
	})
}

// T3: where Read fails for good and the object has not moved, or cannot be seen,
// the fate stays open.
func TestT3AFailedReadOfSomethingElseClosesNothing(t *testing.T) {
	webhook := rapidtest.Nth(2, rapidtest.Writes(), rapidtest.Answer(409)) // so that it has not moved
	for name, more := range map[string][]rapidtest.Rule{
		"Unmoved":   nil,
		"Unseen":    {rapidtest.Nth(2, rapidtest.Reads(), rapidtest.Answer(500))},
		"Forbidden": {rapidtest.Nth(2, rapidtest.Reads(), rapidtest.Answer(403))},
		"Nonsense":  {rapidtest.Nth(2, rapidtest.Reads(), nonsense())},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t, setup{rules: append([]rapidtest.Rule{first(rapidtest.CommitLater(time.Second)), webhook}, more...)})
				_, err := l.engine.Do(t.Context(), time.Now().Add(time.Minute), l.pinned(errors.New("lost")))
				l.failed(err, meta.ErrInDoubt, meta.FatePending)
				if land(); len(l.commits()) != 1 {
					t.Errorf("%d commits", len(l.commits()))
				}
			})
		})
	}
}

// T3: any read that shows the object of the write at another version closes its
// fate, also in a try that then fails. A read of anything else does not.
func TestT3WhateverReadShowsTheObjectCloses(t *testing.T) {
	named := func(name string) rapidtest.Match {
		return func(r *rapidtest.Request) bool { return !r.Write() && r.Name == name }
	}
	get := func(resource schema.GroupVersionResource, namespace, name string) func(context.Context, retry.Reader) error {
		return func(ctx context.Context, r retry.Reader) error {
			_, err := r.Get(ctx, resource, namespace, name)
			return err
		}
	}
	list := func(ctx context.Context, r retry.Reader) error {
		return r.Each(ctx, widgets(), "ns", "", func(*unstructured.Unstructured) bool { return false })
	}
	unversioned := widget()
	unversioned.SetUID("another")
	for name, tc := range map[string]struct {
		look  func(context.Context, retry.Reader) error
		rules []rapidtest.Rule
		fate  meta.Fate
	}{
		"Got":                {get(widgets(), "ns", "w"), nil, meta.FateSettled},
		"Listed":             {list, nil, meta.FateSettled},
		"OfAnotherName":      {get(widgets(), "ns", "heir"), nil, meta.FatePending},
		"InAnotherNamespace": {get(widgets(), "other", "w"), nil, meta.FatePending},
		"OfAnotherResource":  {get(gadgets(), "ns", "w"), nil, meta.FatePending},
		"Unversioned": {get(widgets(), "ns", "w"), []rapidtest.Rule{{Match: named("w"), From: 2,
			Fault: rapidtest.Fault{Drop: true, Response: &rapidtest.Response{Code: 200, Object: unversioned}}}}, meta.FatePending},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rules := append(tc.rules, first(rapidtest.LoseResponse()), rapidtest.Each(named("lost"), rapidtest.LoseRequest()))
				l := newLab(t, setup{rules: rules, options: retry.Options{Retries: 2}})
				for _, other := range []meta.Ref{{Namespace: "ns", Name: "heir"}, {Namespace: "other", Name: "w"}} {
					l.createAt(widgets(), "Widget", other)
				}
				l.createAt(gadgets(), "Gadget", meta.Ref{Namespace: "ns", Name: "w"})
				op, tries := l.op(), 0
				op.Read = func(ctx context.Context, r retry.Reader) (*unstructured.Unstructured, error) {
					if tries++; tries == 1 {
						return getWidget(ctx, r)
					}
					l.check(tc.look(ctx, r))
					return r.Get(ctx, widgets(), "ns", "lost")
				}
				_, err := l.engine.Do(t.Context(), time.Now().Add(time.Minute), op)
				l.failed(err, lo.Ternary(tc.fate == meta.FateSettled, meta.ErrRejected, meta.ErrInDoubt), tc.fate)
			})
		})
	}
}

// createAt makes an object of some name.
func (l *lab) createAt(resource schema.GroupVersionResource, kind string, at meta.Ref) {
	obj := widget()
	obj.SetKind(kind)
	obj.SetNamespace(at.Namespace)
	obj.SetName(at.Name)
	_, err := l.server.Dynamic("stranger").Resource(resource).Namespace(at.Namespace).Create(context.Background(), obj, metav1.CreateOptions{})
	l.check(err)
}

// nonsense is an answer that is an object of no kind and no name.
func nonsense() rapidtest.Fault {
	return rapidtest.Fault{Drop: true, Response: &rapidtest.Response{Code: 200, Object: &unstructured.Unstructured{
		Object: map[string]any{"apiVersion": "v1", "kind": "Nonsense"},
	}}}
}

// E3: a fate that was once open leaves at least "settled", also where the call
// then finds that others have overtaken it; without one it is "none".
func TestE3NoneOrSettled(t *testing.T) {
	for name, tc := range map[string]struct {
		face        face
		rules       []rapidtest.Rule
		overtakenAt int // the update before which somebody writes a newer mark
		fate        meta.Fate
		commits     int
	}{
		"Conflict":           {overHTTP, nil, 1, meta.FateNone, 0},
		"ConflictInProcess":  {inProcess, nil, 1, meta.FateNone, 0},
		"TooManyRequests":    {overHTTP, []rapidtest.Rule{first(rapidtest.Answer(429))}, 2, meta.FateNone, 0},
		"LandedAndOvertaken": {overHTTP, []rapidtest.Rule{first(rapidtest.LoseResponse())}, 2, meta.FateSettled, 1},
		"NeverArrived":       {overHTTP, []rapidtest.Rule{first(rapidtest.LoseRequest())}, 2, meta.FateSettled, 0},
		// C7: nobody can tell whether client-go sent it twice.
		"Uncounted": {bare, nil, 1, meta.FateSettled, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t, setup{face: tc.face, rules: tc.rules})
				l.atUpdate(tc.overtakenAt, func() { l.write(newer) })
				_, err := l.do()
				l.failed(err, meta.ErrStaleHold, tc.fate)
				says := lo.Ternary(tc.fate == meta.FateNone, "writes: none", "writes: may have landed, nothing more can")
				if !strings.Contains(err.Error(), says) {
					t.Errorf("it says %q, not %q", err, says)
				}
				if land(); len(l.commits()) != tc.commits {
					t.Errorf("%d commits, want %d\n%s", len(l.commits()), tc.commits, l.plan.Timeline())
				}
			})
		})
	}
}

// once is a call that must not be made twice: it refuses where its mark is.
func (l *lab) once() retry.Op {
	op := l.op()
	op.Decide = func(read *unstructured.Unstructured) (retry.Decision, error) {
		if mark, _ := retry.Lookup(read, "spec", "mark"); mark == mine {
			return retry.Decision{}, meta.Errorf(meta.ErrStaleHold, "somebody was first")
		}
		return decideMark(read)
	}
	return op
}

// R8: a read that shows what the call would have written is success only where
// the fate of a write of its own is open. A 409 to the only transmission is
// none: then somebody else has written the same, or a proxy has sent it twice,
// so that "none" is not claimed.
func TestR8OnlyAnOpenFateMakesSuccess(t *testing.T) {
	for name, tc := range map[string]struct {
		face    face
		rules   []rapidtest.Rule
		foreign bool // somebody else writes the same
		success bool
	}{
		"Open":         {overHTTP, []rapidtest.Rule{first(rapidtest.LoseResponse())}, false, true},
		"Uncounted":    {bare, nil, true, true},
		"TwiceByProxy": {overHTTP, []rapidtest.Rule{first(rapidtest.Duplicate())}, false, false},
		"SomebodyElse": {overHTTP, nil, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t, setup{face: tc.face, rules: tc.rules})
				if tc.foreign {
					l.before(rapidtest.VerbUpdate, 1, func() { l.write(mine) })
				}
				res, err := l.engine.Do(t.Context(), time.Now().Add(time.Minute), l.once())
				if tc.success {
					l.succeeded(res, err, res.Tries, lo.Ternary(tc.foreign, 0, 1))
					return
				}
				l.failed(err, meta.ErrStaleHold, meta.FateSettled)
			})
		})
	}
}

// T3, R8: where only a part of what the call has sent is there, it is not what
// it has written, and the call decides again.
func TestR8APartIsNotSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, setup{rules: []rapidtest.Rule{first(rapidtest.LoseResponse())}})
		l.atUpdate(2, func() { l.patch(`{"metadata":{"annotations":{"example.com/note":"theirs"}}}`) })
		op := l.op()
		op.Decide = func(read *unstructured.Unstructured) (retry.Decision, error) {
			return retry.Decision{Edits: twoEdits()}, nil
		}
		res, err := l.engine.Do(t.Context(), time.Now().Add(time.Minute), op)
		l.succeeded(res, err, 3, 2)
		l.sends(2, 3)
	})
}

func twoEdits() []retry.Edit {
	return []retry.Edit{retry.Set(mine, "spec", "mark"), retry.Set("ours", "metadata", "annotations", "example.com/note")}
}

// T7: what something on the way has taken out of an update, or undone, is named,
// and the call has not succeeded.
func TestT7TheAnswerIsLookedAt(t *testing.T) {
	drop := func(path ...string) func(rapidtest.AdmissionRequest) (*unstructured.Unstructured, error) {
		return func(r rapidtest.AdmissionRequest) (*unstructured.Unstructured, error) {
			if r.Request.User == "engine" {
				unstructured.RemoveNestedField(r.Object.Object, path...)
			}
			return r.Object, nil
		}
	}
	undo := func(r rapidtest.AdmissionRequest) (*unstructured.Unstructured, error) {
		if r.Request.User == "engine" {
			return r.OldObject, nil
		}
		return r.Object, nil
	}
	for name, tc := range map[string]struct {
		hook    func(rapidtest.AdmissionRequest) (*unstructured.Unstructured, error)
		named   []string
		unnamed string
		fate    meta.Fate
		commits int
	}{
		"Field":      {drop("spec", "mark"), []string{"spec.mark=mine"}, "example.com/note", meta.FateSettled, 1},
		"Annotation": {drop("metadata", "annotations"), []string{"metadata.annotations[example.com/note]=ours"}, "spec.mark", meta.FateSettled, 1},
		"Everything": {undo, []string{"changed nothing", "spec.mark=mine", "metadata.annotations[example.com/note]=ours"}, "stored", meta.FateNone, 0},
	} {
		for _, f := range []face{overHTTP, inProcess} {
			t.Run(name+"/"+string(f), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l := newLab(t, setup{face: f})
					l.server.Admit(tc.hook)
					op := l.op()
					op.Decide = func(*unstructured.Unstructured) (retry.Decision, error) {
						return retry.Decision{Edits: twoEdits()}, nil
					}
					_, err := l.engine.Do(t.Context(), time.Now().Add(time.Minute), op)
					l.failed(err, meta.ErrRejected, tc.fate)
					for _, name := range tc.named {
						if !strings.Contains(err.Error(), name) {
							t.Errorf("%q does not name %s", err, name)
						}
					}
					if strings.Contains(err.Error(), tc.unnamed) || len(l.commits()) != tc.commits || len(l.updates()) != 1 {
						t.Errorf("%q, %d commits, %d updates", err, len(l.commits()), len(l.updates()))
					}
				})
			})
		}
	}
}

// T7, T3: an answer whose resourceVersion did not move closes the fate of no
// other transmission.
func TestT7ANoOpClosesNoOtherFate(t *testing.T) {
	for name, tc := range map[string]struct {
		face  face
		rules []rapidtest.Rule
		fate  meta.Fate
	}{
		"First":     {overHTTP, nil, meta.FateNone},
		"Second":    {overHTTP, []rapidtest.Rule{first(rapidtest.CommitLater(time.Second))}, meta.FatePending},
		"Uncounted": {bare, nil, meta.FatePending},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t, setup{face: tc.face, rules: tc.rules})
				begin := time.Now()
				l.server.Admit(func(r rapidtest.AdmissionRequest) (*unstructured.Unstructured, error) {
					if time.Since(begin) < time.Second {
						return r.OldObject, nil
					}
					return r.Object, nil
				})
				_, err := l.do()
				l.failed(err, lo.Ternary(tc.fate == meta.FatePending, meta.ErrInDoubt, meta.ErrRejected), tc.fate)
				if land(); len(l.commits()) != len(tc.rules) {
					t.Errorf("%d commits", len(l.commits()))
				}
			})
		})
	}
}

// T7, T3: a re-send that was stored, though not whole, closes the fate of both.
func TestT7AnUndoneResendIsSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, setup{rules: []rapidtest.Rule{first(rapidtest.LoseRequest())}})
		l.server.Admit(func(r rapidtest.AdmissionRequest) (*unstructured.Unstructured, error) {
			unstructured.RemoveNestedField(r.Object.Object, "metadata", "annotations")
			return r.Object, nil
		})
		op := l.op()
		op.Decide = func(*unstructured.Unstructured) (retry.Decision, error) {
			return retry.Decision{Edits: twoEdits()}, nil
		}
		_, err := l.engine.Do(t.Context(), time.Now().Add(time.Minute), op)
		l.failed(err, meta.ErrRejected, meta.FateSettled)
		l.sends(1, 2)
	})
}

// T8: a 409 after which the object is where it was is nobody's conflict. It is
// not tried again, and it closes no earlier fate.
func TestT8A409WithoutAConflict(t *testing.T) {
	webhook := func(r rapidtest.AdmissionRequest) (*unstructured.Unstructured, error) {
		if r.Request.User == "engine" && r.Request.Write() {
			return nil, rapidtest.Denied("policy", 409, metav1.StatusReasonConflict, "not today")
		}
		return r.Object, nil
	}
	for name, tc := range map[string]struct {
		face           face
		rules          []rapidtest.Rule
		kind           meta.Sentinel
		fate           meta.Fate
		reads, updates int
	}{
		"First":     {overHTTP, nil, meta.ErrRejected, meta.FateNone, 2, 1},
		"InProcess": {inProcess, nil, meta.ErrRejected, meta.FateNone, 2, 1},
		"AfterAnOpenFate": {overHTTP, []rapidtest.Rule{first(rapidtest.Answer(504))},
			meta.ErrInDoubt, meta.FatePending, 2, 2},
		// C7: a client that does not count may have sent it twice, the first with success.
		"Uncounted": {bare, nil, meta.ErrInDoubt, meta.FatePending, 2, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t, setup{face: tc.face, rules: tc.rules})
				l.server.Admit(webhook)
				_, err := l.do()
				l.failed(err, tc.kind, tc.fate)
				if errors.Is(err, meta.ErrConflict) || !strings.Contains(err.Error(), "not a conflict") {
					t.Errorf("got %v", err)
				}
				l.sends(tc.reads, tc.updates)
			})
		})
	}
}

// T8: a 409 and then a commit of somebody else is a conflict like any other.
func TestT8A409BesideAnotherWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, setup{rules: []rapidtest.Rule{rapidtest.Each(rapidtest.Writes(), rapidtest.Answer(409))}})
		l.before(rapidtest.VerbGet, 9, l.touch)
		_, err := l.do()
		l.failed(err, meta.ErrConflict, meta.FateNone)
		l.sends(9, 9)
	})
}

// T8, T3: what the call now deals with may have another name. Then the object
// that was written is asked for by itself.
func TestT8AnObjectOfAnotherName(t *testing.T) {
	for name, tc := range map[string]struct {
		spoil         func(*lab)
		rules         []rapidtest.Rule
		success       bool
		reads, writes int
	}{
		"Unmoved": {func(*lab) {}, nil, false, 3, 1},
		"Moved":   {(*lab).touch, nil, true, 3, 2},
		"Gone":    {(*lab).remove, nil, true, 3, 2},
		"Unseen":  {(*lab).touch, []rapidtest.Rule{rapidtest.Nth(3, rapidtest.Reads(), rapidtest.Answer(500))}, true, 5, 2},
	} {
		for _, heir := range []meta.Ref{{Namespace: "ns", Name: "heir"}, {Namespace: "other", Name: "w"}} {
			t.Run(name+"/"+heir.Name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l := newLab(t, setup{rules: append([]rapidtest.Rule{first(rapidtest.Answer(409))}, tc.rules...)})
					l.createAt(widgets(), "Widget", heir)
					l.before(rapidtest.VerbUpdate, 1, func() { tc.spoil(l) })
					ref := meta.Ref{Namespace: "ns", Name: "w"}
					op := l.op()
					op.Read = func(ctx context.Context, r retry.Reader) (*unstructured.Unstructured, error) {
						obj, err := r.Get(ctx, widgets(), ref.Namespace, ref.Name)
						ref = heir
						return obj, err
					}
					res, err := l.engine.Do(t.Context(), time.Now().Add(time.Minute), op)
					if !tc.success {
						l.failed(err, meta.ErrRejected, meta.FateNone)
					} else if err != nil || res.Object.GetName() != heir.Name || res.Object.GetNamespace() != heir.Namespace {
						t.Errorf("got %v, %v", res.Object, err)
					}
					l.sends(tc.reads, tc.writes)
				})
			})
		}
	}
}

// T8: that the object has another UID is a move as well, though the number of
// its version be the same.
func TestT8AnotherUIDIsAMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, setup{rules: []rapidtest.Rule{first(rapidtest.Answer(409))}})
		reads := 0
		op := l.op()
		op.Read = func(ctx context.Context, r retry.Reader) (*unstructured.Unstructured, error) {
			obj, err := getWidget(ctx, r)
			if reads++; reads > 1 {
				obj.SetUID("another")
			}
			return obj, err
		}
		_, err := l.engine.Do(t.Context(), time.Now().Add(time.Minute), op)
		l.failed(err, meta.ErrRejected, meta.FateNone)
		l.sends(3, 2)
	})
}

// C7: with a client that does not count, nine conflicts are no certain end: it
// may be the first of two transmissions that will yet commit.
func TestC7ConflictsOfAClientThatDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, setup{face: bare})
		l.before(rapidtest.VerbUpdate, 9, l.touch)
		_, err := l.do()
		l.failed(err, meta.ErrInDoubt, meta.FatePending)
		if !apierrors.IsConflict(err) {
			t.Errorf("the conflict is not in the chain of %v", err)
		}
	})
}

// C7: nor is a refusal certain then.
func TestC7RefusalsOfAClientThatDoesNotCount(t *testing.T) {
	for _, code := range []int{403, 422, 429} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t, setup{face: bare, rules: []rapidtest.Rule{rapidtest.Each(rapidtest.Writes(), rapidtest.Answer(code))}})
				_, err := l.do()
				l.failed(err, meta.ErrInDoubt, meta.FatePending)
			})
		})
	}
}

// T7: an update that asks for what is there already moves no resourceVersion, and
// an answer without that is no success: a decision that has nothing to write has
// no edits.
func TestT7AnUpdateThatChangesNothingIsNoSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, setup{face: overHTTP})
		l.write("mine")
		begin := len(l.commits())
		op := l.op()
		op.Decide = func(*unstructured.Unstructured) (retry.Decision, error) {
			return retry.Decision{Edits: []retry.Edit{retry.Set("mine", "spec", "mark")}}, nil
		}
		_, err := l.engine.Do(t.Context(), time.Now().Add(time.Minute), op)
		l.failed(err, meta.ErrRejected, meta.FateNone)
		if n := len(l.commits()) - begin; n != 0 || len(l.updates()) != 1 {
			t.Errorf("%d commits, %d updates", n, len(l.updates()))
		}
	})
}
