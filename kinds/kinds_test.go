package kinds_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/kinds"
)

func job(metadata map[string]any, conditions ...string) *unstructured.Unstructured {
	var all []any
	for _, c := range conditions {
		name, status, _ := strings.Cut(c, "=")
		all = append(all, map[string]any{"type": name, "status": status, "reason": "R"})
	}
	base := map[string]any{"name": "llm", "namespace": "team-a", "uid": "u"}
	for key, value := range metadata {
		base[key] = value
	}
	return &unstructured.Unstructured{Object: map[string]any{"metadata": base, "status": map[string]any{"conditions": all}}}
}

func TestEveryKindIsSound(t *testing.T) {
	gvks := map[schema.GroupVersionKind]bool{}
	for _, kind := range kinds.All() {
		gvk := kind.GroupVersionKind()
		if err := kind.Check(); err != nil {
			t.Errorf("%v: %v", gvk, err)
		}
		if gvks[gvk] {
			t.Errorf("%v is there twice", gvk)
		}
		gvks[gvk] = true
		if d := kind.Describe(); d.Named != nil || d.StartGate || d.Kind != gvk.Kind || d.Resource.GroupVersion() != gvk.GroupVersion() {
			t.Errorf("%v is composed, or not itself: %+v", gvk, d)
		}
	}
}

func TestFor(t *testing.T) {
	for _, want := range kinds.All() {
		got, ok := kinds.For(want.GroupVersionKind())
		if !ok || got.GroupVersionKind() != want.GroupVersionKind() {
			t.Errorf("%v: got %v, %t", want.GroupVersionKind(), got, ok)
		}
	}
	for _, gvk := range []schema.GroupVersionKind{
		{}, {Group: "batch", Version: "v1", Kind: "job"}, {Group: "batch", Version: "v2", Kind: "Job"}, {Version: "v1", Kind: "Job"},
	} {
		if got, ok := kinds.For(gvk); ok {
			t.Errorf("%v: got %v", gvk, got)
		}
	}
}

// Rule H8: who else writes the pause field of a job kind.
func TestOwners(t *testing.T) {
	queued := map[string]any{"labels": map[string]any{"kueue.x-k8s.io/queue-name": "gpus"}}
	under := func(apiVersion, kind string) map[string]any {
		return map[string]any{"ownerReferences": []any{map[string]any{
			"apiVersion": apiVersion, "kind": kind, "name": "parent", "uid": "p", "controller": true,
		}}}
	}
	cases := map[string]struct {
		kind     holdable.Kind
		metadata map[string]any
		says     string // "": nobody owns it
	}{
		"Job":                {kinds.Job(), nil, ""},
		"JobOnKueue":         {kinds.Job(), queued, "Kueue mode"},
		"JobOfAJobSet":       {kinds.Job(), under("jobset.x-k8s.io/v1alpha2", "JobSet"), "JobSet parent"},
		"JobOfAnMPIJob":      {kinds.Job(), under("kubeflow.org/v2beta1", "MPIJob"), "MPIJob parent"},
		"JobOfATrainJob":     {kinds.Job(), under("trainer.kubeflow.org/v1alpha1", "TrainJob"), "TrainJob parent"},
		"JobOfARayJob":       {kinds.Job(), under("ray.io/v1", "RayJob"), "RayJob parent"},
		"JobOfACronJob":      {kinds.Job(), under("batch/v1", "CronJob"), ""},
		"JobSet":             {kinds.JobSet(), nil, ""},
		"JobSetOnKueue":      {kinds.JobSet(), queued, "Kueue mode"},
		"JobSetOfATrainJob":  {kinds.JobSet(), under("trainer.kubeflow.org/v1alpha1", "TrainJob"), "TrainJob parent"},
		"JobSetOfSomething":  {kinds.JobSet(), under("example.com/v1", "TrainJob"), ""},
		"TrainJob":           {kinds.TrainJob(), nil, ""},
		"TrainJobOnKueue":    {kinds.TrainJob(), queued, "Kueue mode"},
		"Workload":           {kinds.Workload(), queued, ""},
		"TrainJobsWorkload":  {kinds.OnKueue(kinds.TrainJob()), queued, ""},
		"GatedTrainJobQueue": {kinds.WithStartGate(kinds.TrainJob()), queued, "Kueue mode"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := tc.kind.Describe().Owner(job(tc.metadata))
			if (got == "") != (tc.says == "") || !strings.Contains(got, tc.says) {
				t.Errorf("got %q, want %q", got, tc.says)
			}
		})
	}
}

// Rule R7: how the kinds end.
func TestEnded(t *testing.T) {
	ended := map[string]func(*unstructured.Unstructured) string{
		"Job": kinds.Job().Ended, "JobSet": kinds.JobSet().Ended, "TrainJob": kinds.TrainJob().Ended, "Workload": kinds.Workload().Ended,
	}
	by := map[string][]string{
		"Complete":  {"Job", "TrainJob"},
		"Completed": {"JobSet"},
		"Failed":    {"Job", "JobSet", "TrainJob"},
		"Finished":  {"Workload"},
		"Suspended": nil, // Rule K3: proves nothing
		"Evicted":   nil,
	}
	for condition, kinds := range by {
		for _, status := range []string{"True", "False", "Unknown"} {
			for kind, ended := range ended {
				want := status == "True" && slices.Contains(kinds, kind)
				if got := ended(job(nil, condition+"="+status)) != ""; got != want {
					t.Errorf("%s with %s=%s: got %t, want %t", kind, condition, status, got, want)
				}
			}
		}
	}
}

// Rules R4 and K3: which pods are the object's.
func TestPods(t *testing.T) {
	cases := map[string]struct {
		pods func(*unstructured.Unstructured) (string, error)
		want string
	}{
		"Job":             {kinds.Job().Pods, "batch.kubernetes.io/controller-uid=u"},
		"JobSet":          {kinds.JobSet().Pods, "jobset.sigs.k8s.io/jobset-name=llm"},
		"TrainJob":        {kinds.TrainJob().Pods, "jobset.sigs.k8s.io/jobset-name=llm"},
		"TrainJobOnKueue": {kinds.OnKueue(kinds.TrainJob()).Pods, "jobset.sigs.k8s.io/jobset-name=llm"},
		"JobOnKueue":      {kinds.OnKueue(kinds.Job()).Pods, "batch.kubernetes.io/controller-uid=u"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got, err := tc.pods(job(nil)); err != nil || got != tc.want {
				t.Errorf("got %q, %v, want %q", got, err, tc.want)
			}
		})
	}
	if kinds.Workload().Pods != nil {
		t.Error("a Workload by its own name does not know its pods")
	}
}

// Rule G1: what stands between a job and its pods, from the top down.
func TestMakes(t *testing.T) {
	jobSet, jobs := "JobSet of the same name", "Job jobset.sigs.k8s.io/jobset-name=llm"
	cases := map[string]struct {
		makes []holdable.Made
		want  []string
	}{
		"Job":             {kinds.Job().Makes, nil},
		"JobSet":          {kinds.JobSet().Makes, []string{jobs}},
		"TrainJob":        {kinds.TrainJob().Makes, []string{jobSet, jobs}},
		"TrainJobOnKueue": {kinds.OnKueue(kinds.TrainJob()).Makes, []string{jobSet, jobs}},
		"Workload":        {kinds.Workload().Makes, nil},
	}
	whole := map[string]holdable.Holdable[bool]{"Job": kinds.Job(), "JobSet": kinds.JobSet()}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, m := range tc.makes {
				found := "of the same name"
				if m.Selector != nil {
					found, _ = m.Selector(job(nil))
				}
				got = append(got, m.Kind+" "+found)
				kind := whole[m.Kind]
				if diff := cmp.Diff(kind.Pause.Stop(), m.Stop, cmp.AllowUnexported(holdable.Stop{})); m.Resource != kind.Resource || diff != "" || m.Ended(job(nil, "Failed=True")) == "" {
					t.Errorf("%s is not paused or ended as its kind is: %s", m.Kind, diff)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Rules H7 and I9: in Kueue mode the Workload is held, whatever the kind, and
// nothing is said of spec.suspend.
func TestOnKueue(t *testing.T) {
	for _, kind := range []holdable.Holdable[bool]{kinds.TrainJob(), kinds.Job(), kinds.JobSet()} {
		got := kinds.OnKueue(kind)
		if err := got.Check(); err != nil {
			t.Error(err)
		}
		if got.GroupVersionKind() != kind.GroupVersionKind() {
			t.Errorf("callers name %v, want %v", got.GroupVersionKind(), kind.GroupVersionKind())
		}
		want := &holdable.Named{Kind: kind.Kind, Resource: kind.Resource, UIDLabel: "kueue.x-k8s.io/job-uid",
			Stop: holdable.Pause[bool]{Path: holdable.Field("spec", "suspend"), Held: true}.Stop()}
		if diff := cmp.Diff(want, got.Of, cmp.AllowUnexported(holdable.Stop{})); diff != "" {
			t.Error(diff)
		}
		workload := kinds.Workload()
		if diff := cmp.Diff(workload.Pause, got.Pause); got.Kind != "Workload" || got.Resource != workload.Resource || diff != "" {
			t.Errorf("%s is held: %s", got.Kind, diff)
		}
		if !got.GatedElsewhere || got.StartGate || len(got.Owners) > 0 {
			t.Errorf("got %+v", got)
		}
		for _, need := range got.Describe().Needs(holdable.Options{}) {
			if need.Resource == kind.Resource && need.Verb != "get" {
				t.Errorf("%s is sent to the named %s", need.Verb, kind.Kind)
			}
		}
	}
	// A gate of the named kind is no gate of its Workload (rule O4).
	if got := kinds.OnKueue(kinds.WithStartGate(kinds.TrainJob())); got.StartGate || got.Check() != nil {
		t.Errorf("got %+v", got)
	}
}

// A Workload that says nothing of active is active.
func TestWorkloadPause(t *testing.T) {
	want := holdable.Pause[bool]{Path: []string{"spec", "active"}, Held: false, Running: true, Absent: true}
	if diff := cmp.Diff(want, kinds.Workload().Pause); diff != "" {
		t.Error(diff)
	}
}

// Composing leaves what is composed as it was.
func TestCompositionsAreCopies(t *testing.T) {
	plain := kinds.TrainJob()
	kinds.OnKueue(plain)
	if gated := kinds.WithStartGate(plain); plain.StartGate || plain.Of != nil || !gated.StartGate || gated.Kind != plain.Kind {
		t.Errorf("got %+v of %+v", gated, plain)
	}
	kinds.TrainJob().Pause.Path[0] = "changed"
	if got := kinds.TrainJob().Pause.Path[0]; got != "spec" {
		t.Errorf("descriptors share a path: %s", got)
	}
}

// Rules K1 and K2: what Kueue's conditions say of a deactivation, and what they
// do not say.
func TestDeactivated(t *testing.T) {
	const on, off = true, false
	cases := map[string]struct {
		active     any
		conditions []string // type=status=reason
		want       string
	}{
		"ExecutionTime":           {off, []string{"DeactivationTarget=True=MaximumExecutionTimeExceeded"}, "execution time limit"},
		"ExecutionTimeEvicted":    {off, []string{"Evicted=True=DeactivatedDueToMaximumExecutionTimeExceeded"}, "execution time limit"},
		"Requeues":                {off, []string{"DeactivationTarget=True=RequeuingLimitExceeded"}, "requeue limit"},
		"RequeuesEvicted":         {off, []string{"Evicted=True=DeactivatedDueToRequeuingLimitExceeded"}, "requeue limit"},
		"AdmissionCheck":          {off, []string{"DeactivationTarget=True=AdmissionCheck"}, "admission check"},
		"AdmissionCheckEvicted":   {off, []string{"Evicted=True=DeactivatedDueToAdmissionCheck"}, "admission check"},
		"ManagerCluster":          {off, []string{"DeactivationTarget=True=EvictedOnManagerCluster"}, "evicted on the manager cluster"},
		"ManagerClusterEvicted":   {off, []string{"Evicted=True=DeactivatedDueToEvictedOnManagerCluster"}, "evicted on the manager cluster"},
		"LaterReason":             {off, []string{"DeactivationTarget=True=Weather"}, "Weather"},
		"LaterReasonEvicted":      {off, []string{"Evicted=True=DeactivatedDueToWeather"}, "Weather"},
		"NoReason":                {off, []string{"DeactivationTarget=True="}, "DeactivationTarget"},
		"AboutToBe":               {on, []string{"DeactivationTarget=True=AdmissionCheck"}, "admission check"},
		"AboutToBeNoField":        {nil, []string{"DeactivationTarget=True=AdmissionCheck"}, "admission check"},
		"Both":                    {off, []string{"Evicted=True=DeactivatedDueToAdmissionCheck", "DeactivationTarget=True=AdmissionCheck"}, "admission check"},
		"BehindOthers":            {off, []string{"QuotaReserved=True=QuotaReserved", "Evicted=True=Preempted", "DeactivationTarget=True=AdmissionCheck"}, "admission check"},
		"Reactivated":             {on, []string{"Evicted=True=DeactivatedDueToAdmissionCheck", "Requeued=True=Reactivated"}, ""},
		"ReactivatedNoField":      {nil, []string{"Evicted=True=DeactivatedDueToAdmissionCheck"}, ""},
		"TargetWithdrawn":         {off, []string{"DeactivationTarget=False=AdmissionCheck"}, ""},
		"EvictionOver":            {off, []string{"Evicted=False=DeactivatedDueToAdmissionCheck"}, ""},
		"FromOutside":             {off, []string{"Evicted=True=Deactivated"}, ""},
		"FromOutsideWhileEvicted": {off, []string{"Evicted=True=Preempted"}, ""},
		"ReasonOnAnother":         {off, []string{"Requeued=True=DeactivatedDueToAdmissionCheck"}, ""},
		"Nothing":                 {off, nil, ""},
		"Admitted":                {on, []string{"Admitted=True=Admitted"}, ""},
	}
	deactivated := kinds.Workload().Deactivated
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			spec := map[string]any{}
			if tc.active != nil {
				spec["active"] = tc.active
			}
			var all []any
			for _, c := range tc.conditions {
				part := strings.Split(c, "=")
				all = append(all, map[string]any{"type": part[0], "status": part[1], "reason": part[2]})
			}
			workload := &unstructured.Unstructured{Object: map[string]any{"spec": spec, "status": map[string]any{"conditions": all}}}
			if got := deactivated(workload); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
