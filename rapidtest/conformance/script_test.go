package conformance_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/dynamic"
	"pgregory.net/rapid"

	"github.com/kubehold/kubehold/rapidtest"
	"github.com/kubehold/kubehold/rapidtest/conformance"
)

func newModel() *rapidtest.Server {
	return rapidtest.NewServer(rapidtest.TrainJobs(), rapidtest.Workloads(), rapidtest.JobSets())
}

// The two faces of the model are one server: what a client sees of a script does not depend on which it goes through.
func TestFacesAgreeOnScripts(t *testing.T) {
	requests := 0
	rapid.Check(t, func(t *rapid.T) {
		script := conformance.Scripts().Draw(t, "script")
		overHTTP, err := dynamic.NewForConfig(newModel().RESTConfig("admin"))
		if err != nil {
			t.Fatal(err)
		}
		want, err := conformance.PlayThrough(t.Context(), overHTTP, "scratch", script)
		if err != nil {
			t.Fatal(err)
		}
		got, err := conformance.PlayThrough(t.Context(), newModel().Dynamic("admin"), "scratch", script)
		if err != nil {
			t.Fatal(err)
		}
		if diff := conformance.Diff(want, got); diff != "" {
			t.Fatalf("%s%s", script, diff)
		}
		requests += len(want)
	})
	t.Logf("%d requests", requests)
}

// A script means the same to every server of a kind, and leaves nothing behind.
func TestScriptsCanBePlayedAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		script := conformance.Scripts().Draw(t, "script")
		server := newModel()
		first, err := conformance.Play(t.Context(), server.RESTConfig("admin"), "scratch", script)
		if err != nil {
			t.Fatal(err)
		}
		for _, kind := range conformance.Kinds() {
			if left := server.StoredAll(kind.GVR); len(left) > 0 {
				t.Fatalf("%d objects are left", len(left))
			}
		}
		second, err := conformance.Play(t.Context(), server.RESTConfig("admin"), "scratch", script)
		if err != nil {
			t.Fatal(err)
		}
		if diff := conformance.Diff(first, second); diff != "" {
			t.Fatalf("%s%s", script, diff)
		}
	})
}

// What a write is answered must not depend on how far the watch cache is behind.
func TestPlayWaitsForTheWatchCache(t *testing.T) {
	const behind = 5 // reads
	server, reads := newModel(), 0
	server.Use(func(next rapidtest.RoundTrip) rapidtest.RoundTrip {
		return func(ctx context.Context, req *rapidtest.Request) (*rapidtest.Response, error) {
			switch {
			case req.Verb == rapidtest.VerbUpdate:
				server.FreezeCache()
			case req.Verb == rapidtest.VerbGet && req.List.ResourceVersion == "0":
				if reads++; reads == behind {
					server.ThawCache()
				}
			case req.Verb == rapidtest.VerbPatch && reads < behind:
				t.Errorf("patched after %d reads from the cache", reads)
			}
			return next(ctx, req)
		}
	})
	seen, err := conformance.Play(t.Context(), server.RESTConfig("admin"), "scratch", conformance.Script{Kind: "JobSet", Requests: []conformance.Request{
		{Method: "POST", Base: conformance.BaseNew, Of: "a"},
		{Method: "PUT", Path: "a", Base: conformance.BaseSeen, Of: "a", Edits: []conformance.Edit{{Path: []string{"metadata", "labels", "b"}, Value: `"c"`}}},
		{Method: "PATCH", Path: "a", ContentType: "application/merge-patch+json", Body: `{"metadata":{"labels":{"b":"d"}}}`},
	}})
	if err != nil || len(seen) != 3 || reads < behind {
		t.Errorf("%d observations, %d reads from the cache: %v", len(seen), reads, err)
	}
	for _, o := range seen {
		if o.Code >= 300 {
			t.Errorf("%s: %d %s", o.Step, o.Code, o.Message)
		}
	}
}

func TestGenerateGivesTheScriptOfASeed(t *testing.T) {
	methods := map[string]int{}
	for seed := range 50 {
		script := conformance.Generate(seed)
		if again := conformance.Generate(seed); again.String() != script.String() {
			t.Fatalf("seed %d gives two scripts", seed)
		}
		for _, r := range script.Requests {
			methods[r.Method]++
		}
	}
	if len(methods) < 5 {
		t.Errorf("only the methods %v", methods)
	}
}

func TestPlayRefusesUnknownKinds(t *testing.T) {
	script := conformance.Script{Kind: "Nonsense"}
	if _, err := conformance.Play(t.Context(), newModel().RESTConfig("admin"), "scratch", script); err == nil {
		t.Error("a kind that is none of the table's was played")
	}
	if _, err := conformance.PlayThrough(t.Context(), newModel().Dynamic("admin"), "scratch", script); err == nil {
		t.Error("a kind that is none of the table's was played through a client")
	}
}

func TestPlaySaysWhichValueIsNoJSON(t *testing.T) {
	script := conformance.Script{Kind: "JobSet", Requests: []conformance.Request{
		{Method: "POST", Base: conformance.BaseNew, Of: "a", Edits: []conformance.Edit{{Path: []string{"spec", "suspend"}, Value: "{"}}},
	}}
	_, err := conformance.Play(t.Context(), newModel().RESTConfig("admin"), "scratch", script)
	if err == nil || !strings.Contains(err.Error(), "suspend") {
		t.Errorf("the error is %v", err)
	}
	if _, err := conformance.PlayThrough(t.Context(), newModel().Dynamic("admin"), "scratch", script); err == nil {
		t.Error("the client's player says nothing")
	}
}

func TestShrinkLeavesWhatFails(t *testing.T) {
	script := conformance.Generate(7)
	needle := conformance.Request{Method: "PUT", Path: "z", Query: "dryRun=All", Base: conformance.BaseStale, Of: "z", Edits: []conformance.Edit{
		{Path: []string{"spec", "odd"}, Value: "1"}, {Path: []string{"metadata", "uid"}, Value: `"x"`},
	}}
	script.Requests = slices.Insert(script.Requests, len(script.Requests)/2, needle)
	fails := func(s conformance.Script) bool {
		return slices.ContainsFunc(s.Requests, func(r conformance.Request) bool {
			return r.Path == "z" && slices.ContainsFunc(r.Edits, func(e conformance.Edit) bool { return e.Path[1] == "uid" })
		})
	}
	got := conformance.Shrink(script, fails)
	if len(got.Requests) != 1 || got.Requests[0].Query != "" || got.Requests[0].Base != conformance.BaseSeen || len(got.Requests[0].Edits) != 1 {
		t.Errorf("left is\n%s", got)
	}
	if got := conformance.Shrink(script, func(conformance.Script) bool { return false }); got.String() != script.String() {
		t.Errorf("what never fails was cut to\n%s", got)
	}
}
