package conformance_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/kubehold/kubehold/rapidtest"
	"github.com/kubehold/kubehold/rapidtest/conformance"
)

// recorded is what a kube-apiserver v1.37.2 was seen to do. The end-to-end tests make it anew and compare.
const recorded = "testdata/kube-apiserver-v1.37.2.json.gz"

func read(t *testing.T) []conformance.Observation {
	t.Helper()
	data, err := os.ReadFile(recorded)
	if err != nil {
		t.Fatal(err)
	}
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	var out []conformance.Observation
	if err := json.NewDecoder(r).Decode(&out); err != nil {
		t.Fatal(err)
	}
	return out
}

func play(t *testing.T) []conformance.Observation {
	t.Helper()
	server := rapidtest.NewServer(rapidtest.TrainJobs(), rapidtest.Workloads(), rapidtest.JobSets())
	out, err := conformance.Run(t.Context(), server.RESTConfig("admin"), "scratch")
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestModelDoesWhatTheRealServerDid(t *testing.T) {
	want := read(t)
	synctest.Test(t, func(t *testing.T) {
		if diff := conformance.Diff(want, play(t)); diff != "" {
			t.Error(diff)
		}
	})
}

func TestTableIsLargeEnoughToMeanSomething(t *testing.T) {
	names := map[string]bool{}
	for _, s := range conformance.Sequences() {
		if names[s.Name] {
			t.Errorf("two sequences are called %s", s.Name)
		}
		names[s.Name] = true
	}
	if len(names) < 20 || len(conformance.Kinds()) < 3 {
		t.Errorf("%d sequences for %d kinds", len(names), len(conformance.Kinds()))
	}
}

func TestEveryStepHasANameOfItsOwn(t *testing.T) {
	seen := map[string]bool{}
	for _, o := range read(t) {
		if seen[o.At()] {
			t.Errorf("two steps are called %s", o.At())
		}
		seen[o.At()] = true
	}
}

func TestDiffFindsWhatDiffers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		want := play(t)
		got := append([]conformance.Observation(nil), want...)
		got[0].Code++
		lost := got[len(got)-1]
		got[len(got)-1].Step = "something else"
		diff := conformance.Diff(want, got)
		for _, part := range []string{want[0].At(), lost.At() + ": missing", "something else: unexpected"} {
			if !strings.Contains(diff, part) {
				t.Errorf("nothing is said of %q", part)
			}
		}
		if diff := conformance.Diff(want, want); diff != "" {
			t.Error(diff)
		}
	})
}

func TestRunSaysWhatItCouldNotPlay(t *testing.T) {
	for n := range 5 {
		server := rapidtest.NewServer(rapidtest.TrainJobs())
		plan := rapidtest.NewPlan(rapidtest.Nth(n+1, rapidtest.Everything(), rapidtest.LoseResponse()))
		if _, err := conformance.Run(t.Context(), server.RESTConfig("admin", plan.Middleware), "scratch"); err == nil {
			t.Errorf("a connection that broke at request %d is no observation", n+1)
		}
	}
	server := rapidtest.NewServer()
	if _, err := conformance.Run(t.Context(), server.RESTConfig("admin"), "scratch"); err == nil {
		t.Error("a server without the kinds cannot be compared")
	}
}
