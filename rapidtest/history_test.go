package rapidtest

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/kinds"
	"github.com/kubehold/kubehold/meta"
)

// What callers were told has to be explained by some order of their calls. Where none does,
// porcupine's page shows the calls.
func TestHistoryThatNoOrderExplains(t *testing.T) {
	s := subjectOf(kinds.TrainJob())
	h := newHistory(s, s.server(), time.Minute)
	tell := func(instance int64) {
		c := &call{spec: callSpec{meta.OpHold, instance}, out: &outcome{receipt: holdable.Receipt{Did: holdable.Placed}}}
		h.calls = append(h.calls, c)
		h.record.calls = append(h.record.calls, called{})
		h.record.invoke(len(h.calls) - 1)
		h.record.finish(len(h.calls)-1, c.out, 0)
	}
	tell(1)
	tell(2)
	h.record.replace()
	tell(1)
	if h.end(); h.violated() != nil {
		t.Fatalf("1, 2, another object, 1: %v", h.violated())
	}
	if line := pageOf(breaks("I2", "something else")); line != "" {
		t.Errorf("a page of calls that need none: %s", line)
	}
	tell(2)
	tell(1)
	if h.end(); ruleOf(h.violated()) != "H6" {
		t.Fatalf("Hold(1) was placed after Hold(2): %v", h.violated())
	}
	f := &falsified{property: property{name: "calls"}, attempt: attempt{"free", script{settles{}}}, runs: 7, seed: 42, history: h}
	explored := &counterexample{&worldState{did: func() string { return "start" }}, h.violated()}
	if after := readPage(t, explored); after != "" {
		t.Errorf("got %q after the page's path", after)
	}
	after := readPage(t, f)
	want := "\nFound by script 7 of \"calls\". To find it again: -rapid.seed=42\nTo keep it: from \"free\", script{\n\tsettles{},\n}"
	if "\n"+after != want {
		t.Errorf("got %q, want %q", "\n"+after, want)
	}
}

// readPage looks into the page that an error names, and returns what the error says after that.
func readPage(t *testing.T, err error) string {
	t.Helper()
	_, after, _ := strings.Cut(err.Error(), "The calls, for a browser: ")
	path, after, _ := strings.Cut(after, "\n")
	defer os.Remove(path)
	page, failed := os.ReadFile(path)
	if failed != nil {
		t.Fatal(failed)
	}
	for _, want := range []string{"<html", "Hold(2): placed", "object replaced"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page says nothing of %q", want)
		}
	}
	return after
}
