package holdable_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"pgregory.net/rapid"

	"github.com/samber/lo"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/rapidtest"
)

// A story is one call of instance 5, what goes wrong with its requests, and what
// others do meanwhile.
type story struct {
	mode    string
	op      meta.Op
	pinned  bool
	direct  bool  // in process, without HTTP
	inForce int64 // 0 for no hold
	opened  bool
	within  time.Duration
	reads   []rapidtest.Fault
	writes  []rapidtest.Fault
	// beforeUpdates are done just before the updates reach the server.
	beforeUpdates []string
	deeds         []string
	pause         time.Duration // before each deed
}

func drawFault() *rapid.Generator[rapidtest.Fault] {
	return rapid.Custom(func(t *rapid.T) rapidtest.Fault {
		delay := rapid.SampledFrom([]time.Duration{15 * time.Millisecond, 100 * time.Millisecond, 4 * time.Second}).Draw(t, "delay")
		code := rapid.SampledFrom([]int{409, 422, 429, 429, 500, 503, 504}).Draw(t, "code")
		answer := rapidtest.Answer(code).WithRetryAfter(rapid.IntRange(0, 2).Draw(t, "retry after"))
		return rapid.SampledFrom([]rapidtest.Fault{
			{}, {}, {}, {}, answer, rapidtest.Answer(max(code, 500)).AfterCommit(),
			rapidtest.LoseRequest(), rapidtest.LoseResponse(), rapidtest.HangResponse(), rapidtest.HangCommitLater(delay),
			rapidtest.DelayRequest(delay), rapidtest.HoldRequest(delay), rapidtest.HoldRequest(40 * time.Second), rapidtest.CommitLater(delay),
		}).Draw(t, "fault")
	})
}

func drawStory(t *rapid.T) story {
	deed := rapid.SampledFrom([]string{"", "touch", "note", "hold 4", "hold 6", "release 5", "open", "recreate", "delete"})
	s := story{
		mode:    rapid.SampledFrom([]string{"plain", "gated", "kueue"}).Draw(t, "mode"),
		op:      rapid.SampledFrom([]meta.Op{meta.OpHold, meta.OpHold, meta.OpRelease, meta.OpOpen}).Draw(t, "op"),
		pinned:  rapid.Bool().Draw(t, "pinned"),
		direct:  rapid.Bool().Draw(t, "direct"),
		inForce: rapid.SampledFrom([]int64{0, 0, 3, 3, 5, 7}).Draw(t, "in force"),
		opened:  rapid.Bool().Draw(t, "opened"),
		within:  rapid.SampledFrom([]time.Duration{5 * time.Millisecond, 90 * time.Millisecond, 3 * time.Second, 2 * time.Minute}).Draw(t, "within") + 7*time.Microsecond,
		reads:   rapid.SliceOfN(drawFault(), 0, 4).Draw(t, "reads"),
		writes:  rapid.SliceOfN(drawFault(), 0, 9).Draw(t, "writes"),

		beforeUpdates: rapid.SliceOfN(deed, 0, 4).Draw(t, "before updates"),
		deeds:         rapid.SliceOfN(deed, 0, 4).Draw(t, "deeds"),
		pause:         rapid.SampledFrom([]time.Duration{time.Millisecond, 12 * time.Millisecond, 500 * time.Millisecond}).Draw(t, "pause"),
	}
	switch s.op {
	case meta.OpOpen:
		s.mode = "gated"
	case meta.OpRelease:
		s.inForce = rapid.SampledFrom([]int64{5, 5, 5, 3, 7}).Draw(t, "to release")
	}
	return s
}

// Whatever goes wrong with one call, and whatever other supervisors, other
// writers and Kueue do beside it, the history has what it must have: I1, I2, I3,
// I7, I8, I9 and I11.
func TestWhateverGoesWrong(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawStory(t)
		rapid.SyncTest(t, func(t *rapid.T) { newStage(t, s).play() })
	})
}

// A stage is where a story is played.
type stage struct {
	*cluster
	story
	kind   holdable.Holdable[bool]
	held   schema.GroupVersionResource
	others holdable.Holder
	// deed is held while somebody changes the object in more than one step.
	deed sync.Mutex
}

func newStage(t *rapid.T, s story) *stage {
	var rules []rapidtest.Rule
	for i, f := range s.reads {
		rules = append(rules, rapidtest.Nth(i+1, rapidtest.Reads(), f))
	}
	for i, f := range s.writes {
		rules = append(rules, rapidtest.Nth(i+1, rapidtest.Verbs(rapidtest.VerbUpdate), f))
	}
	st := &stage{cluster: newKueueCluster(t, rules...), story: s, kind: plain(), held: trainJobs()}
	switch s.mode {
	case "gated":
		st.kind = gated()
		st.patch(trainJobs(), "job", `{"spec":{"suspend":true}}`)
	case "kueue":
		st.kind, st.held = kueue(), workloads()
	}
	others, err := holdable.NewForClient(st.kind, st.server.Dynamic("supervisor"), engineOptions(), holdable.Options{})
	st.check(err)
	st.others = others
	if s.opened {
		st.perform("open")
	}
	if s.inForce > 0 {
		st.perform(fmt.Sprint("hold ", s.inForce))
	}
	return st
}

// perform does what others do. A call of another supervisor may fail: he is
// subject to the rules as well.
func (st *stage) perform(deed string) {
	what, number, _ := strings.Cut(deed, " ")
	n, _ := strconv.ParseInt(number, 10, 64)
	switch what {
	case "hold":
		_, _ = st.others.Hold(context.Background(), job(), call(n))
	case "release":
		_, _ = st.others.Release(context.Background(), job(), call(n))
	case "open":
		_, _ = st.others.Open(context.Background(), job(), call(0))
	default:
		st.change(what)
	}
}

// change is what is no call. It takes no time.
func (st *stage) change(what string) {
	st.deed.Lock()
	defer st.deed.Unlock()
	name := lo.Ternary(st.held == workloads(), "wl", "job")
	switch what {
	case "touch":
		st.patch(st.held, name, fmt.Sprintf(`{"status":{"conditions":[{"type":"Seen","status":"True","message":"%d"}]}}`, st.server.ResourceVersion()), "status")
	case "note":
		st.patch(st.held, name, `{"metadata":{"annotations":{"example.com/note":"theirs"},"labels":{"example.com/team":"a"}}}`)
	case "recreate":
		obj := lo.Ternary(st.held == workloads(), workload("wl", st.job), trainJob("job"))
		if st.mode == "gated" {
			obj.Object["spec"].(map[string]any)["suspend"] = true
		}
		st.remove(st.held, name)
		st.create(st.held, obj)
	case "delete":
		st.patch(st.held, name, `{"metadata":{"finalizers":["example.com/wait"]}}`)
		st.remove(st.held, name)
		st.patch(st.held, name, `{"metadata":{"finalizers":null}}`)
		st.create(st.held, lo.Ternary(st.held == workloads(), workload("wl", st.job), trainJob("job")))
	}
}

func (st *stage) play() {
	for i, deed := range st.beforeUpdates {
		st.before(rapidtest.VerbUpdate, i+1, func() { st.perform(deed) })
	}
	go func() {
		for _, deed := range st.deeds {
			time.Sleep(st.pause)
			st.perform(deed)
		}
	}()
	h := st.client(st.kind)
	if st.direct {
		var err error
		h, err = holdable.NewForClient(st.kind, st.server.Dynamic("us", st.runHooks, st.plan.Middleware), engineOptions(), holdable.Options{})
		st.check(err)
	}
	ref := job()
	if st.pinned {
		ref.UID = st.job
	}
	begin := time.Now()
	asked := call(5)
	asked.Deadline = begin.Add(st.within)
	_, err := st.do(h)(context.Background(), ref, asked)
	returned, committed := time.Now(), len(st.commits())
	time.Sleep(2 * time.Hour) // everything that was held back has landed, or has not
	synctest.Wait()

	st.writesOf(err, committed, asked.Deadline)
	for _, e := range st.plan.Events() {
		if at := begin.Add(e.Sent); !at.Before(asked.Deadline) || at.After(returned) {
			st.Errorf("I7: %v left %v into the call", e.Request, e.Sent)
		}
	}
	if n := st.updates(); n > 9 {
		st.Errorf("I7: %d updates", n)
	}
	for _, c := range st.commits() {
		st.ours(c)
	}
	for _, c := range st.server.History() {
		if c.GVR == st.held {
			st.wholeHold(c)
		}
	}
	if st.Failed() {
		st.Fatalf("%v\n%+v\n%s", err, st.story, st.plan.Timeline())
	}
}

func (st *stage) do(h holdable.Holder) func(context.Context, meta.Ref, meta.Call) (holdable.Receipt, error) {
	switch st.op {
	case meta.OpRelease:
		return h.Release
	case meta.OpOpen:
		return h.Open
	}
	return h.Hold
}

// writesOf holds I8 and C4 against what the call said of its writes.
func (st *stage) writesOf(err error, committed int, deadline time.Time) {
	later := st.commits()[committed:]
	var e *meta.Error
	switch {
	case err == nil:
		if len(later) > 0 {
			st.Errorf("a call that succeeded commits later: %v", later)
		}
	case !errors.As(err, &e):
		st.Errorf("not a *meta.Error: %v", err)
	case e.Fate == meta.FateNone && len(st.commits()) > 0:
		st.Errorf("I8: none, but it committed %v", st.commits())
	case e.Fate == meta.FateSettled && len(later) > 0:
		st.Errorf("I8: settled, but it committed later %v", later)
	}
	for _, c := range later {
		if c.Time.After(deadline.Add(meta.DefaultRequestTimeout + meta.DefaultMargin)) {
			st.Errorf("C4: it committed later than it can: %v", c)
		}
	}
}

// ours holds I3, I9 and I11 against one of our commits.
func (st *stage) ours(c rapidtest.Commit) {
	if c.GVR != st.held {
		st.Errorf("I9: %v", c)
	}
	if diff := cmp.Diff(st.foreign(c.Previous), st.foreign(c.Object)); diff != "" {
		st.Errorf("I11: %v changed what is not ours:\n%s", c, diff)
	}
	if in, _ := strconv.Atoi(c.Previous.GetAnnotations()[meta.Keys{}.Instance()]); in > 5 && st.op != meta.OpOpen && c.Previous.GetAnnotations()[meta.Keys{}.UID()] == string(c.Previous.GetUID()) {
		st.Errorf("I3: %v was over instance %d", c, in)
	}
}

// foreign is obj without what a call may change, and what every commit does.
func (st *stage) foreign(obj *unstructured.Unstructured) map[string]any {
	obj = obj.DeepCopy()
	keys := append(meta.Keys{}.OfHold(), meta.Keys{}.Opened(), meta.Keys{}.Executions())
	obj.SetAnnotations(lo.OmitByKeys(obj.GetAnnotations(), keys))
	obj.SetResourceVersion("")
	obj.SetGeneration(0)
	unstructured.RemoveNestedField(obj.Object, st.kind.Pause.Path...)
	return obj.Object
}

// wholeHold holds I1 and I2 against a version of the held object: it has all
// annotations of a hold or none, and with them it is paused.
func (st *stage) wholeHold(c rapidtest.Commit) {
	annotations := c.Object.GetAnnotations()
	n := lo.CountBy(meta.Keys{}.OfHold(), func(key string) bool { return lo.HasKey(annotations, key) })
	if !slices.Contains([]int{0, len(meta.Keys{}.OfHold())}, n) {
		st.Errorf("I1: %v has %d annotations of a hold", c, n)
	}
	value, _, _ := unstructured.NestedBool(c.Object.Object, st.kind.Pause.Path...)
	if n > 0 && value != st.kind.Pause.Held {
		st.Errorf("I2: %v is held and runs", c)
	}
}
