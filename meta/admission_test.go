package meta_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/kubehold/kubehold/meta"
)

// What the readmission gate writes beside A, and what it tells of later.
func ExampleAdmission() {
	var keys meta.Keys
	raised := meta.Admission{Workload: "w1", Reset: time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC), Generation: 4}
	annotations := map[string]string{keys.Admission(): keys.AdmissionValue("j1", raised)}
	fmt.Println(annotations)

	read, ok := keys.ReadAdmission("j1", annotations)
	fmt.Println("there:", ok)
	now := read
	fmt.Println("the same admission counts:", read.Counts(now))
	now.Reset = now.Reset.Add(time.Minute)
	fmt.Println("reset again, and nothing started since:", read.Counts(now))
	now.Generation = 6
	fmt.Println("started and stopped since:", read.Counts(now))
	// Output:
	// map[kubehold.dev/admission:w1 2026-05-06T07:08:09Z 4 j1]
	// there: true
	// the same admission counts: true
	// reset again, and nothing started since: true
	// started and stopped since: false
}

// Rule G3: which admission the last raise of A is good for.
func TestG3AdmissionCounts(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	last := meta.Admission{Workload: "w", Reset: at, Generation: 3}
	bare := meta.Admission{Workload: "w", Reset: at}
	cases := map[string]struct {
		last, now meta.Admission
		want      bool
	}{
		"Equal":                      {last, last, true},
		"ResetAndNothingStarted":     {last, meta.Admission{Workload: "w", Reset: at.Add(time.Second), Generation: 3}, true},
		"NewWorkloadNothingStarted":  {last, meta.Admission{Workload: "x", Reset: at, Generation: 3}, true},
		"StartedWithinTheSameSecond": {last, meta.Admission{Workload: "w", Reset: at, Generation: 5}, false},
		"StartedAndReset":            {last, meta.Admission{Workload: "w", Reset: at.Add(time.Second), Generation: 5}, false},
		"NoGenerationEqual":          {bare, meta.Admission{Workload: "w", Reset: at.In(time.FixedZone("", 3600))}, true},
		"NoGenerationReset":          {bare, meta.Admission{Workload: "w", Reset: at.Add(time.Second)}, false},
		"NoGenerationNewWorkload":    {bare, meta.Admission{Workload: "x", Reset: at}, false},
		"NoGenerationAnyMore":        {last, bare, false},
		"AGenerationAtLast":          {bare, last, false},
		"Zero":                       {meta.Admission{}, meta.Admission{}, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := tc.last.Counts(tc.now); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}

// Rule H13: an admission is that of the object with the UID beside it, and what
// cannot be read is none.
func TestReadAdmission(t *testing.T) {
	var keys meta.Keys
	cases := map[string]struct {
		value string
		uid   types.UID
		want  bool
	}{
		"Good":          {"w 2026-01-02T03:04:05Z 3 u", "u", true},
		"AnotherZone":   {"w 2026-01-02T04:04:05+01:00 3 u", "u", true},
		"AnotherObject": {"w 2026-01-02T03:04:05Z 3 v", "u", false},
		"NoObject":      {"w 2026-01-02T03:04:05Z 3 ", "", false},
		"Empty":         {"", "u", false},
		"NoWorkload":    {" 2026-01-02T03:04:05Z 3 u", "u", false},
		"NoTime":        {"w yesterday 3 u", "u", false},
		"NoGeneration":  {"w 2026-01-02T03:04:05Z  u", "u", false},
		"Negative":      {"w 2026-01-02T03:04:05Z -3 u", "u", false},
		"TooLong":       {"w 2026-01-02T03:04:05Z 3 u u", "u", false},
		"TooShort":      {"w 2026-01-02T03:04:05Z 3", "u", false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, ok := keys.ReadAdmission(tc.uid, map[string]string{keys.Admission(): tc.value})
			want := meta.Admission{}
			if tc.want {
				want = meta.Admission{Workload: "w", Reset: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Generation: 3}
			}
			if diff := cmp.Diff(want, got); ok != tc.want || diff != "" {
				t.Errorf("%t: %s", ok, diff)
			}
		})
	}
}

func TestAdmissionRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keys := drawKeys(t)
		word := rapid.StringMatching(`[0-9a-f-]{1,36}`)
		uid := types.UID(word.Draw(t, "uid"))
		want := meta.Admission{
			Workload:   types.UID(word.Draw(t, "workload")),
			Reset:      time.Unix(rapid.Int64Range(0, 1<<32).Draw(t, "reset"), 0).UTC(),
			Generation: rapid.Int64Min(0).Draw(t, "generation"),
		}
		annotations := map[string]string{keys.Admission(): keys.AdmissionValue(uid, want)}
		if got, ok := keys.ReadAdmission(uid, annotations); !ok || got != want {
			t.Fatalf("got %v, %t, want %v", got, ok, want)
		}
		if _, ok := keys.ReadAdmission(uid+"0", annotations); ok {
			t.Fatal("it was read on another object")
		}
	})
}
