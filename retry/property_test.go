package retry_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"

	"github.com/samber/lo"

	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/rapidtest"
)

// A story is all that happens around one call.
type story struct {
	face   face
	within time.Duration
	// cancelAfter ends the caller's context, if it is not 0.
	cancelAfter time.Duration
	reads       []rapidtest.Fault
	writes      []rapidtest.Fault
	// deeds are what others do, each some time after the one before it.
	deeds []deed
	// beforeUpdates are done just before the updates reach the server.
	beforeUpdates []string
}

type deed struct {
	after time.Duration
	what  string
}

// drawFault draws a fault whose delays are within what CallBound allows for: the
// server's own time, and less than the margin in the network.
func drawFault() *rapid.Generator[rapidtest.Fault] {
	return rapid.Custom(func(t *rapid.T) rapidtest.Fault {
		delay := rapid.SampledFrom([]time.Duration{time.Millisecond, 15 * time.Millisecond, 100 * time.Millisecond, 4 * time.Second}).Draw(t, "delay")
		code := rapid.SampledFrom([]int{403, 404, 409, 422, 429, 500, 503, 504}).Draw(t, "code")
		busy := rapidtest.Answer(code).WithRetryAfter(rapid.IntRange(0, 3).Draw(t, "retry after"))
		return rapid.SampledFrom([]rapidtest.Fault{
			{}, {}, {}, {},
			rapidtest.LoseRequest(), rapidtest.LoseResponse(), rapidtest.ResetConnection(),
			rapidtest.HangRequest(), rapidtest.HangResponse(), rapidtest.HangCommitLater(delay),
			rapidtest.DelayRequest(delay), rapidtest.HoldRequest(delay), rapidtest.HoldRequest(40 * time.Second), rapidtest.CommitLater(delay),
			busy, busy, rapidtest.Answer(max(code, 500)).AfterCommit(),
		}).Draw(t, "fault")
	})
}

func drawStory(t *rapid.T) story {
	// Deadlines and cancellations coincide with nothing else.
	const odd = 7 * time.Microsecond
	pause := rapid.SampledFrom([]time.Duration{0, time.Millisecond, 12 * time.Millisecond, 50 * time.Millisecond, time.Second})
	what := rapid.SampledFrom([]string{"touch", "touch", "note", "theirs", "mine", "newer", "replace"})
	return story{
		face:        rapid.SampledFrom([]face{overHTTP, overHTTP, inProcess, bare}).Draw(t, "face"),
		within:      rapid.SampledFrom([]time.Duration{5 * time.Millisecond, 90 * time.Millisecond, 3 * time.Second, 2 * time.Minute}).Draw(t, "within") + odd,
		cancelAfter: rapid.SampledFrom([]time.Duration{0, 0, 0, 20*time.Millisecond - odd, time.Second - odd}).Draw(t, "cancel after"),
		reads:       rapid.SliceOfN(drawFault(), 0, 5).Draw(t, "reads"),
		writes:      rapid.SliceOfN(drawFault(), 0, 9).Draw(t, "writes"),
		deeds: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) deed {
			return deed{pause.Draw(t, "after"), what.Draw(t, "what")}
		}), 0, 5).Draw(t, "deeds"),
		beforeUpdates: rapid.SliceOfN(rapid.SampledFrom([]string{"", "", "touch", "theirs", "newer", "replace"}), 0, 4).Draw(t, "before updates"),
	}
}

// Whatever goes wrong with one call, and whoever writes beside it: I7, no
// request leaves after the deadline and no more than nine writes; I8, "none"
// wrote nothing ever, and "settled" nothing after the return; what is pending
// lands before PendingUntil; I11, what the call commits changes its own field
// and nothing else of the version that it was decided on; and success is true.
func TestWhateverGoesWrong(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawStory(t)
		rapid.SyncTest(t, func(t *rapid.T) { live(t, s) })
	})
}

func live(t *rapid.T, s story) {
	var rules []rapidtest.Rule
	for i, f := range s.reads {
		rules = append(rules, rapidtest.Nth(i+1, rapidtest.Reads(), f))
	}
	for i, f := range s.writes {
		rules = append(rules, rapidtest.Nth(i+1, rapidtest.Verbs(rapidtest.VerbUpdate), f))
	}
	l := newLab(t, setup{face: s.face, rules: rules})
	for i, what := range s.beforeUpdates {
		l.atUpdate(i+1, func() { l.perform(what) })
	}
	go func() {
		for _, d := range s.deeds {
			time.Sleep(d.after)
			l.perform(d.what)
		}
	}()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if s.cancelAfter > 0 {
		time.AfterFunc(s.cancelAfter, cancel)
	}

	begin := time.Now()
	deadline := begin.Add(s.within)
	res, err := l.engine.Do(ctx, deadline, l.op())
	returned, committed := time.Now(), len(l.commits())
	land()

	last := deadline
	if s.cancelAfter > 0 {
		last = lo.MinBy([]time.Time{deadline, begin.Add(s.cancelAfter)}, time.Time.Before)
	}
	if returned.After(last) {
		t.Errorf("it returned %v after its end", returned.Sub(last))
	}
	for _, e := range l.sent("") {
		if at := begin.Add(e.Sent); !at.Before(last) || at.After(returned) {
			t.Errorf("I7: %v left %v into a call of %v", e.Request, e.Sent, s.within)
		}
	}
	if n := len(l.updates()); n > 9 && s.face != bare {
		t.Errorf("I7: %d writes", n)
	}
	later := l.commits()[committed:]
	var e *meta.Error
	switch {
	case err == nil:
		if len(later) > 0 {
			t.Errorf("a call that succeeded commits %v later", later)
		}
		wasMine := lo.ContainsBy(l.server.History(), func(c rapidtest.Commit) bool {
			mark, _, _ := unstructured.NestedString(c.Object.Object, "spec", "mark")
			return mark == mine && c.Object.GetResourceVersion() == res.Object.GetResourceVersion()
		})
		if !wasMine {
			t.Errorf("no version %s was ever marked", res.Object.GetResourceVersion())
		}
	case !errors.As(err, &e):
		t.Errorf("not a *meta.Error: %v", err)
	case e.Fate == meta.FateNone && len(l.commits()) > 0:
		t.Errorf("I8: none, but it committed: %v", err)
	case e.Fate == meta.FateSettled && len(later) > 0:
		t.Errorf("I8: settled, but it committed later: %v", err)
	case (e.Fate == meta.FatePending) != errors.Is(err, meta.ErrInDoubt):
		t.Errorf("fate %v of %v", e.Fate, err)
	}
	for _, c := range later {
		if c.Time.After(e.PendingUntil) {
			t.Errorf("T3: it committed at %v, after PendingUntil: %v", c.Time.Sub(begin), err)
		}
	}
	for _, c := range l.commits() {
		if diff := cmp.Diff(withMark(c.Previous), withMark(c.Object)); diff != "" {
			t.Errorf("I11: a commit changed more than its field:\n%s", diff)
		}
		if mark, _, _ := unstructured.NestedString(c.Previous.Object, "spec", "mark"); mark == newer {
			t.Errorf("T1: a commit was decided on another version")
		}
	}
	if t.Failed() {
		t.Fatalf("%v\n%v\n%s", err, s, l.plan.Timeline())
	}
}

// withMark is obj as the call leaves it, but for what every commit changes.
func withMark(obj *unstructured.Unstructured) map[string]any {
	obj = obj.DeepCopy()
	obj.SetResourceVersion("")
	obj.SetGeneration(0)
	if err := unstructured.SetNestedField(obj.Object, mine, "spec", "mark"); err != nil {
		return nil
	}
	return obj.Object
}

// perform does what others do.
func (l *lab) perform(what string) {
	l.deed.Lock()
	defer l.deed.Unlock()
	switch what {
	case "touch":
		l.touch()
	case "note":
		l.patch(`{"metadata":{"annotations":{"example.com/note":"theirs"}},"spec":{"size":4}}`)
	case "replace":
		l.replace()
	case "theirs", mine, newer:
		l.write(what)
	}
}
