package holdable

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/retry"
)

// A gateScene is a job and its Workload as the gate finds them; the zero value
// is one that waits at the gate for the first time.
type gateScene struct {
	state, message string // of the check; Pending if empty
	noEntry        bool
	conditions     []string // those that are True, QuotaReserved if nil
	inactive       any      // what spec.active reads, true if nil
	hold           map[string]string
	jobHold        map[string]string
	deleted        string // workload or job
	executions     string
	raised         *meta.Admission
	generation     int64
	maker, pod     string
	// suspend is what spec.suspend of the job is, nil for true.
	suspend any
}

const resetAt = "2026-01-02T03:04:05Z"

func resetTime() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

func gateKind() Holdable[bool] {
	return Holdable[bool]{
		Kind:           "Workload",
		Resource:       schema.GroupVersionResource{Group: "kueue.x-k8s.io", Version: "v1beta2", Resource: "workloads"},
		Pause:          Pause[bool]{Path: Field("spec", "active"), Held: false, Running: true, Absent: true},
		Ended:          ConditionTrue("Finished"),
		Pods:           PodsNamed("job"),
		GatedElsewhere: true,
		Of: &Named{
			Kind: "TrainJob", Resource: schema.GroupVersionResource{Group: "trainer.kubeflow.org", Version: "v1alpha1", Resource: "trainjobs"},
			UIDLabel: "kueue.x-k8s.io/job-uid", Stop: Pause[bool]{Path: Field("spec", "suspend"), Held: true}.Stop(),
		},
	}
}

func aGate() *Gate { return &Gate{kind: gateKind(), check: "gate"} }

func annotated(all ...map[string]string) map[string]any {
	out := map[string]any{"example.com/note": "theirs"}
	for _, annotations := range all {
		for key, value := range annotations {
			out[key] = value
		}
	}
	return out
}

func (sc gateScene) workload() *unstructured.Unstructured {
	metadata := map[string]any{"name": "wl", "namespace": "ns", "uid": "w", "annotations": annotated(sc.hold)}
	if sc.deleted == "workload" {
		metadata["deletionTimestamp"] = resetAt
	}
	names := sc.conditions
	if names == nil {
		names = []string{"QuotaReserved"}
	}
	var conditions []any
	for _, name := range append(slices.Clone(names), "!Unheard") {
		status := map[bool]string{true: "False", false: "True"}[strings.HasPrefix(name, "!")]
		conditions = append(conditions, map[string]any{"type": strings.TrimPrefix(name, "!"), "status": status})
	}
	status := map[string]any{"conditions": conditions}
	other := map[string]any{"name": "other", "state": "Ready", "message": "theirs", "lastTransitionTime": resetAt}
	status["admissionChecks"] = []any{other}
	if !sc.noEntry {
		state := sc.state
		if state == "" {
			state = "Pending"
		}
		status["admissionChecks"] = []any{other, map[string]any{
			"name": "gate", "state": state, "message": sc.message, "lastTransitionTime": resetAt, "retryCount": int64(2),
		}}
	}
	spec := map[string]any{}
	if sc.inactive != nil {
		spec["active"] = sc.inactive
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": metadata, "spec": spec, "status": status,
	}}
}

func (sc gateScene) job() *unstructured.Unstructured {
	var keys meta.Keys
	ours := map[string]string{}
	if sc.executions != "" {
		ours[keys.Executions()] = sc.executions
	}
	if sc.raised != nil {
		ours[keys.Admission()] = keys.AdmissionValue("j", *sc.raised)
	}
	metadata := map[string]any{
		"name": "job", "namespace": "ns", "uid": "j", "generation": max(sc.generation, 1),
		"annotations": annotated(sc.jobHold, ours),
	}
	if sc.deleted == "job" {
		metadata["deletionTimestamp"] = resetAt
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": metadata, "spec": sc.jobSpec(),
	}}
}

func (sc gateScene) jobSpec() any {
	switch sc.suspend {
	case nil:
		return map[string]any{"suspend": true}
	case "absent":
		return map[string]any{}
	case "no map":
		return "none"
	}
	return map[string]any{"suspend": sc.suspend}
}

func (sc gateScene) sight() sight {
	s := aGate().see(sc.workload(), sc.job(), "gate")
	s.maker, s.pod = sc.maker, sc.pod
	return s
}

func gateHold(uid types.UID) map[string]string {
	return meta.Keys{}.Annotations(meta.Hold{Instance: 7, Holder: "ops", Reason: "a lost node", Found: meta.FoundRunning, UID: uid})
}

// Rules G1, G2, G3 and I6: what the gate decides, in the order in which the
// rules take precedence.
func TestGateDecides(t *testing.T) {
	var keys meta.Keys
	now := &meta.Admission{Workload: "w", Reset: resetTime(), Generation: 1}
	reset := func(seconds int) *meta.Admission {
		return &meta.Admission{Workload: "w", Reset: resetTime().Add(time.Duration(seconds) * time.Second), Generation: 1}
	}
	quota := func(more ...string) []string { return append([]string{"QuotaReserved"}, more...) }
	cases := map[string]struct {
		scene      gateScene
		do         deed
		executions int64
		says       string
	}{
		// It is Kueue's turn, or nobody's.
		"Ended":                 {gateScene{conditions: quota("Finished")}, leave, 0, "ended"},
		"Deleted":               {gateScene{deleted: "workload"}, leave, 0, "deleted"},
		"NotAsked":              {gateScene{noEntry: true}, leave, 0, "does not ask"},
		"Ready":                 {gateScene{state: "Ready"}, leave, 0, "Ready"},
		"Retry":                 {gateScene{state: "Retry"}, leave, 0, "Retry"},
		"Rejected":              {gateScene{state: "Rejected"}, leave, 0, "Rejected"},
		"StateOfLater":          {gateScene{state: "Paused"}, leave, 0, "Paused"},
		"Inactive":              {gateScene{inactive: false}, leave, 0, "not active"},
		"ActiveIsNoBool":        {gateScene{inactive: "yes"}, leave, 0, "not active"},
		"NoQuota":               {gateScene{conditions: []string{}}, leave, 0, "no quota"},
		"QuotaTakenBack":        {gateScene{conditions: []string{"!QuotaReserved"}}, leave, 0, "no quota"},
		"BeingEvicted":          {gateScene{conditions: quota("Evicted")}, leave, 0, "evicted"},
		"BeingEvictedAdmitted":  {gateScene{conditions: quota("Evicted", "Admitted")}, leave, 0, "evicted"},
		"AdmittedBeforeTheGate": {gateScene{conditions: quota("Admitted"), pod: "p"}, leave, 0, "admitted"},
		"HeldAndInactive":       {gateScene{inactive: false, hold: gateHold("w")}, leave, 0, "not active"},
		// Rule G2
		"Held":          {gateScene{hold: gateHold("w")}, stayShut, 0, "hold 7 is in force, by ops: a lost node"},
		"HeldAndPods":   {gateScene{hold: gateHold("w"), pod: "p"}, stayShut, 0, "hold 7"},
		"HeldAndRaised": {gateScene{hold: gateHold("w"), executions: "3 j", raised: now}, stayShut, 3, "hold 7"},
		"UnknownHold":   {gateScene{hold: map[string]string{keys.Instance(): "seven"}}, stayShut, 0, `hold-instance="seven"`},
		"NoInstance":    {gateScene{hold: map[string]string{keys.Holder(): "ops"}}, stayShut, 0, "unknown instance"},
		"VoidHold":      {gateScene{hold: gateHold("another")}, raise, 1, ""},
		"JobHeld":       {gateScene{jobHold: gateHold("j")}, stayShut, 0, "hold 7"},
		"JobHeldInPart": {gateScene{jobHold: map[string]string{keys.Since(): "now"}}, stayShut, 0, "unknown instance"},
		"JobCopied":     {gateScene{jobHold: gateHold("w")}, raise, 1, ""},
		"JobDeleted":    {gateScene{deleted: "job"}, stayShut, 0, "being deleted"},
		// Rule G1
		"PodRemains":          {gateScene{pod: "llm-0"}, stayShut, 0, "pod llm-0 of the earlier execution"},
		"JobNotStopped":       {gateScene{suspend: false}, stayShut, 0, "not paused"},
		"JobNotStoppedRaised": {gateScene{suspend: false, executions: "3 j", raised: now}, stayShut, 3, "not paused"},
		"JobWithoutTheField":  {gateScene{suspend: "absent"}, stayShut, 0, "not paused"},
		"JobFieldIsNoBool":    {gateScene{suspend: "true"}, stayShut, 0, "not paused"},
		"JobFieldCannotBe":    {gateScene{suspend: "no map"}, stayShut, 0, "not paused"},
		"MakerRuns":           {gateScene{maker: "JobSet llm"}, stayShut, 0, "JobSet llm is not paused"},
		"MakerRunsAndPods":    {gateScene{maker: "Job llm-0", pod: "llm-0"}, stayShut, 0, "Job llm-0 is not paused"},
		"MakerRunsAndRaised":  {gateScene{maker: "JobSet llm", executions: "3 j", raised: now}, stayShut, 3, "JobSet llm"},
		"HeldAndMakerRuns":    {gateScene{maker: "JobSet llm", hold: gateHold("w")}, stayShut, 0, "hold 7"},
		"PodRemainsAndRaised": {gateScene{pod: "llm-0", executions: "3 j", raised: now}, stayShut, 3, "pod llm-0"},
		// Rules G3 and I6
		"FirstExecution":       {gateScene{}, raise, 1, ""},
		"QuotaAfterAnEviction": {gateScene{conditions: quota("!Evicted", "!Admitted")}, raise, 1, ""},
		"NextExecution":        {gateScene{executions: "3 j", raised: now, generation: 3}, raise, 4, ""},
		"RaisedForThis":        {gateScene{executions: "3 j", raised: now}, letPass, 3, "execution 3"},
		"ResetAndNotStarted":   {gateScene{executions: "3 j", raised: reset(-9)}, letPass, 3, "execution 3"},
		"SameSecondAndStarted": {gateScene{executions: "3 j", raised: reset(0), generation: 3}, raise, 4, ""},
		"RaisedWithoutACount":  {gateScene{raised: now}, raise, 1, ""},
		"CountOfAnotherJob":    {gateScene{executions: "3 k", raised: now}, raise, 1, ""},
		"CountWithoutARaise":   {gateScene{executions: "3 j"}, raise, 4, ""},
		"CountIsNone":          {gateScene{executions: "three"}, stayShut, 0, `executions="three"`},
		"CountIsFull":          {gateScene{executions: fmt.Sprint(math.MaxInt64, " j")}, stayShut, math.MaxInt64, "any further"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := judge(tc.scene.sight())
			if got.do != tc.do || got.executions != tc.executions || !strings.Contains(got.why, tc.says) {
				t.Errorf("got %+v, want %d, A %d, %q", got, tc.do, tc.executions, tc.says)
			}
		})
	}
}

func drawGateScene(t *rapid.T) gateScene {
	maybe := func(m map[string]string, label string) map[string]string {
		if rapid.Bool().Draw(t, label) {
			return m
		}
		return nil
	}
	sc := gateScene{
		state:      rapid.SampledFrom([]string{"", "", "", "Ready", "Retry", "Rejected"}).Draw(t, "state"),
		noEntry:    rapid.IntRange(0, 9).Draw(t, "entry") == 0,
		conditions: rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"QuotaReserved", "QuotaReserved", "Evicted", "!Evicted", "Admitted", "Finished"}), 0, 3, rapid.ID[string]).Draw(t, "conditions"),
		inactive:   rapid.SampledFrom([]any{nil, nil, true, false, "yes"}).Draw(t, "active"),
		hold:       maybe(gateHold("w"), "held"),
		jobHold:    maybe(gateHold("j"), "job held"),
		deleted:    rapid.SampledFrom([]string{"", "", "", "", "workload", "job"}).Draw(t, "deleted"),
		executions: rapid.SampledFrom([]string{"", "1 j", "5 j", "5 k", "x", "9223372036854775807 j"}).Draw(t, "executions"),
		generation: rapid.Int64Range(1, 3).Draw(t, "generation"),
		maker:      rapid.SampledFrom([]string{"", "", "", "JobSet job"}).Draw(t, "maker"),
		pod:        rapid.SampledFrom([]string{"", "", "p"}).Draw(t, "pod"),
		message:    rapid.SampledFrom([]string{"", "Reset to Pending after eviction. Previously: Ready"}).Draw(t, "message"),
	}
	if rapid.Bool().Draw(t, "raised") {
		sc.raised = &meta.Admission{
			Workload: types.UID(rapid.SampledFrom([]string{"w", "x"}).Draw(t, "raised for")),
			Reset:    resetTime().Add(time.Duration(rapid.IntRange(-1, 0).Draw(t, "ago")) * time.Second), Generation: rapid.Int64Range(1, 3).Draw(t, "raised at"),
		}
	}
	return sc
}

// Rules G1, G2, G3, I6, I9 and I11: whatever lies there, the gate lets nothing
// pass that is held, has pods or was not asked for, A rises by one or stays, and
// the edits change nothing but what they are for.
func TestGateNeverLetsInWhatItMustNot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sc := drawGateScene(t)
		s := sc.sight()
		got := judge(s)
		held := len(sc.hold)+len(sc.jobHold) > 0
		asked := sc.state == "" && !sc.noEntry && slices.Contains(sc.conditions, "QuotaReserved") &&
			!slices.Contains(sc.conditions, "Evicted") && !slices.Contains(sc.conditions, "Admitted") && !slices.Contains(sc.conditions, "Finished")
		if opens := got.do == letPass || got.do == raise; opens && (held || sc.maker+sc.pod != "" || !asked || sc.deleted != "" || sc.inactive == false) {
			t.Fatalf("got %+v", got)
		}
		a, _ := (meta.Keys{}).ReadExecutions("j", map[string]string{meta.Keys{}.Executions(): sc.executions})
		if want := a + map[bool]int64{true: 1}[got.do == raise]; got.executions != want {
			t.Fatalf("A is %d after %+v, want %d", got.executions, got, want)
		}
		if again := judge(s); again != got {
			t.Fatalf("it decides %+v, and then %+v", got, again)
		}
		jobEdits, replyEdits := []retry.Edit(nil), reply(s, got, resetTime())
		if got.do == raise {
			jobEdits = aGate().raiseEdits(sc.job(), s, got)
		}
		onlyTouches(t, sc.job(), jobEdits, "metadata.annotations[kubehold.dev/executions]", "metadata.annotations[kubehold.dev/admission]")
		onlyTouches(t, sc.workload(), replyEdits, "status.admissionChecks[name=gate].state",
			"status.admissionChecks[name=gate].message", "status.admissionChecks[name=gate].lastTransitionTime")
		afterwards(t, sc, got, jobEdits, replyEdits)
	})
}

// onlyTouches fails unless the edits can be made and lie at these paths.
func onlyTouches(t *rapid.T, obj *unstructured.Unstructured, edits []retry.Edit, paths ...string) {
	t.Helper()
	if _, err := retry.Apply(obj, edits); err != nil {
		t.Fatal(err)
	}
	for _, e := range edits {
		if !slices.Contains(paths, retry.PathString(e.Path)) {
			t.Fatalf("%v is not the gate's to write", e)
		}
	}
}

// afterwards judges what the edits have made: a raise lets pass and is not made
// again, a reply is given once.
func afterwards(t *rapid.T, sc gateScene, did ruling, jobEdits, replyEdits []retry.Edit) {
	t.Helper()
	job, err := retry.Apply(sc.job(), jobEdits)
	if err != nil {
		t.Fatal(err)
	}
	workload, err := retry.Apply(sc.workload(), replyEdits)
	if err != nil {
		t.Fatal(err)
	}
	s := aGate().see(workload, job, "gate")
	s.maker, s.pod = sc.maker, sc.pod
	next := judge(s)
	want := map[deed]deed{leave: leave, stayShut: stayShut, raise: letPass, letPass: leave}[did.do]
	if next.do != want || next.executions != did.executions {
		t.Fatalf("%+v is followed by %+v", did, next)
	}
	if edits := reply(s, next, resetTime()); next.do == stayShut && len(edits) > 0 {
		t.Fatalf("it says the same again: %v", edits)
	}
}

// Rule G3: what Ready and Pending look like on the Workload; a Pending keeps the
// time of the reset, which is part of the admission's key.
func TestGateReplies(t *testing.T) {
	entry := func(sc gateScene) map[string]any {
		s := sc.sight()
		workload, err := retry.Apply(sc.workload(), reply(s, judge(s), resetTime().Add(time.Hour)))
		if err != nil {
			t.Fatal(err)
		}
		checks := items(workload, "status", "admissionChecks")
		if diff := cmp.Diff(items(sc.workload(), "status", "admissionChecks")[0], checks[0]); diff != "" {
			t.Errorf("another check was changed: %s", diff)
		}
		return checks[1]
	}
	now := &meta.Admission{Workload: "w", Reset: resetTime(), Generation: 1}
	want := map[string]any{
		"name": "gate", "state": "Ready", "message": "execution 3: no pod of an earlier one remains",
		"lastTransitionTime": "2026-01-02T04:04:05Z", "retryCount": int64(2),
	}
	if diff := cmp.Diff(want, entry(gateScene{executions: "3 j", raised: now})); diff != "" {
		t.Errorf("Ready: %s", diff)
	}
	want = map[string]any{
		"name": "gate", "state": "Pending", "message": "pod p of the earlier execution remains",
		"lastTransitionTime": resetAt, "retryCount": int64(2),
	}
	if diff := cmp.Diff(want, entry(gateScene{pod: "p"})); diff != "" {
		t.Errorf("Pending: %s", diff)
	}
}

// A message is never longer than it may be, and stays UTF-8.
func TestGateMessagesAreShortened(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		message := rapid.StringN(0, 2*maxMessage, -1).Draw(t, "message")
		got := shortened(message)
		if len(got) > maxMessage || !utf8.ValidString(got) {
			t.Fatalf("%d bytes, valid: %t", len(got), utf8.ValidString(got))
		}
		if cut, is := strings.CutSuffix(got, "..."); len(message) <= maxMessage && got != message || len(message) > maxMessage && (!is || !strings.HasPrefix(message, cut)) {
			t.Fatalf("%q became %q", message, got)
		}
	})
}
