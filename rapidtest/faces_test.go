package rapidtest_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/kubehold/kubehold/rapidtest"
	"github.com/kubehold/kubehold/retry"
)

func TestDiscovery(t *testing.T) {
	s := newServer()
	get := func(path string) (int, string) {
		r := httptest.NewRequest(http.MethodGet, "http://model.invalid"+path, nil)
		resp, err := s.Transport("alice").RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	cases := map[string]struct {
		code  int
		parts []string
	}{
		"/version":                      {200, []string{`"gitVersion":"v1.37.2"`}},
		"/api":                          {200, []string{`"versions":["v1"]`}},
		"/api/v1":                       {200, []string{`"name":"pods"`, `"name":"pods/status"`}},
		"/apis":                         {200, []string{`"name":"trainer.kubeflow.org"`, `"name":"kueue.x-k8s.io"`, `"name":"authorization.k8s.io"`}},
		"/apis/trainer.kubeflow.org":    {200, []string{`"kind":"APIGroup"`, `"groupVersion":"trainer.kubeflow.org/v1alpha1"`}},
		"/apis/kueue.x-k8s.io/v1beta2":  {200, []string{`"kind":"APIResourceList"`, `"name":"workloads"`, `"name":"admissionchecks"`, `"namespaced":false`}},
		"/apis/authorization.k8s.io/v1": {200, []string{`"verbs":["create"]`}},
		"/apis/nonsense.example.com":    {404, []string{"404 page not found"}},
		"/apis/nonsense.example.com/v1": {404, []string{"404 page not found"}},
		"/openapi/v3":                   {404, []string{"404 page not found"}},
		"/apis/trainer.kubeflow.org/v1alpha1/odds": {404, []string{"404 page not found"}},
	}
	for path, want := range cases {
		code, body := get(path)
		if code != want.code {
			t.Errorf("%s: %d, want %d", path, code, want.code)
		}
		for _, part := range want.parts {
			if !strings.Contains(body, part) {
				t.Errorf("%s: no %s in %s", path, part, body)
			}
		}
	}
}

// The same handler serves a real listener, for tests that must not be in one process.
func TestHandlerOverARealConnection(t *testing.T) {
	s := newServer()
	plan := rapidtest.NewPlan(rapidtest.Nth(1, rapidtest.Verbs(rapidtest.VerbDelete), rapidtest.LoseResponse()))
	listener := httptest.NewServer(s.Handler("alice", plan.Middleware))
	defer listener.Close()
	at := listener.URL + "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs"
	body, err := json.Marshal(trainJob("a").Object)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post(at, "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusCreated || resp.Header.Get("Date") == "" || resp.Header.Get("Audit-Id") == "" {
		t.Errorf("%s, header %v", resp.Status, resp.Header)
	}
	watchCtx, stop := context.WithCancel(t.Context())
	defer stop()
	req, err := http.NewRequestWithContext(watchCtx, http.MethodGet, at+"?watch=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err = http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	line, err := bufio.NewReader(resp.Body).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, `{"object":{`) || !strings.Contains(line, `"type":"ADDED"`) {
		t.Errorf("first event %q, %v", line, err)
	}
	req, err = http.NewRequest(http.MethodDelete, at+"/a", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := http.DefaultClient.Do(req); err == nil {
		t.Error("the connection must break")
	}
	if s.Stored(rapidtest.TrainJobs().GVR, "default", "a") != nil {
		t.Error("the delete whose answer was lost was made")
	}
	recorder := httptest.NewRecorder() // which cannot be hijacked
	broken := rapidtest.NewPlan(rapidtest.Each(rapidtest.Everything(), rapidtest.LoseRequest()))
	s.Handler("alice", broken.Middleware).ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, at, nil))
	if recorder.Code != http.StatusBadGateway {
		t.Errorf("a broken connection through a writer that cannot break: %d", recorder.Code)
	}
}

func TestRequestsThatNoClientSends(t *testing.T) {
	s := newServer()
	const at = "http://model.invalid/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs"
	cases := map[string]struct {
		method, url, body string
		code              int
	}{
		"Method":        {http.MethodOptions, at, "", 405},
		"Timeout":       {http.MethodGet, at + "?timeout=soon", "", 400},
		"Limit":         {http.MethodGet, at + "?limit=many", "", 400},
		"DeleteBody":    {http.MethodDelete, at + "/a", "{", 400},
		"DeleteQuery":   {http.MethodDelete, at + "/a?gracePeriodSeconds=x", "", 400},
		"DeleteList":    {http.MethodDelete, at + "?limit=many", "", 400},
		"PutOptions":    {http.MethodPut, at + "/a?dryRun=Some", "{}", 422},
		"NoNamespace":   {http.MethodPut, "http://model.invalid/apis/trainer.kubeflow.org/v1alpha1/trainjobs/a", "{}", 404},
		"ClusterScoped": {http.MethodGet, "http://model.invalid/apis/kueue.x-k8s.io/v1beta2/namespaces/default/admissionchecks/a", "", 404},
		"ReviewGet":     {http.MethodGet, "http://model.invalid/apis/authorization.k8s.io/v1/selfsubjectaccessreviews/a", "", 405},
		"ReviewEmpty":   {http.MethodPost, "http://model.invalid/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "", 400},
		"PostStatus":    {http.MethodPost, at + "/a/status", "{}", 405},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest(tc.method, tc.url, strings.NewReader(tc.body))
			resp, err := s.Transport("alice").RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != tc.code {
				t.Errorf("%d, want %d", resp.StatusCode, tc.code)
			}
		})
	}
}

func TestBothFacesObeyTheContext(t *testing.T) {
	for _, f := range faces() {
		t.Run(f.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				stuck := func(next rapidtest.RoundTrip) rapidtest.RoundTrip {
					return func(ctx context.Context, req *rapidtest.Request) (*rapidtest.Response, error) {
						time.Sleep(time.Hour) // and not a look at ctx
						return next(ctx, req)
					}
				}
				c := f.open(t, s, stuck)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				start := time.Now()
				_, err := trainJobs(c).Create(ctx, trainJob("a"), metav1.CreateOptions{})
				if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
					t.Errorf("%v after %v", err, time.Since(start))
				}
				var where *url.Error
				if !errors.As(err, &where) {
					t.Errorf("client-go says where it was going, got %T", err)
				}
				time.Sleep(2 * time.Hour)
				if n := len(s.History()); n != 0 {
					t.Errorf("%d commits of a client that had gone before the server saw it", n)
				}
				gone, cancelNow := context.WithCancel(t.Context())
				cancelNow()
				if _, err := trainJobs(c).Get(gone, "a", metav1.GetOptions{}); !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			})
		})
	}
}

func TestDynamicFaceRefusesWhatClientGoRefuses(t *testing.T) {
	s := newServer()
	for _, f := range faces() {
		t.Run(f.name, func(t *testing.T) {
			c := f.open(t, s)
			jobs := trainJobs(c)
			bad := c.Resource(rapidtest.TrainJobs().GVR).Namespace("a/b")
			for name, call := range map[string]func() error{
				"GetWithoutName":    func() error { _, err := jobs.Get(t.Context(), "", metav1.GetOptions{}); return err },
				"GetOddName":        func() error { _, err := jobs.Get(t.Context(), "a/b", metav1.GetOptions{}); return err },
				"DeleteWithoutName": func() error { return jobs.Delete(t.Context(), "", metav1.DeleteOptions{}) },
				"PatchWithoutName": func() error {
					_, err := jobs.Patch(t.Context(), "", "", nil, metav1.PatchOptions{})
					return err
				},
				"UpdateWithoutName": func() error { _, err := jobs.Update(t.Context(), trainJob(""), metav1.UpdateOptions{}); return err },
				"CreateOfSubresource": func() error {
					_, err := jobs.Create(t.Context(), trainJob(""), metav1.CreateOptions{}, "status")
					return err
				},
				"OddNamespaceOfList":   func() error { _, err := bad.List(t.Context(), metav1.ListOptions{}); return err },
				"OddNamespaceOfWatch":  func() error { _, err := bad.Watch(t.Context(), metav1.ListOptions{}); return err },
				"OddNamespaceOfDelete": func() error { return bad.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}) },
			} {
				err := call()
				if status := apierrors.APIStatus(nil); err == nil || errors.As(err, &status) {
					t.Errorf("%s: %v, want an error of the client itself", name, err)
				}
			}
		})
	}
	c := s.Dynamic("alice")
	for _, call := range []func() error{
		func() error { _, err := trainJobs(c).Create(t.Context(), nil, metav1.CreateOptions{}); return err },
		func() error { _, err := trainJobs(c).Update(t.Context(), nil, metav1.UpdateOptions{}); return err },
		func() error {
			_, err := trainJobs(c).Create(t.Context(), edited(trainJob("a"), func(u *unstructured.Unstructured) { u.Object["f"] = func() {} }), metav1.CreateOptions{})
			return err
		},
	} {
		if call() == nil {
			t.Error("no error")
		}
	}
	_, err := trainJobs(c).Apply(t.Context(), "a", trainJob("a"), metav1.ApplyOptions{})
	wantStatus(t, err, 405, metav1.StatusReasonMethodNotAllowed)
	_, err = trainJobs(c).ApplyStatus(t.Context(), "a", trainJob("a"), metav1.ApplyOptions{})
	wantStatus(t, err, 405, metav1.StatusReasonMethodNotAllowed)
}

func TestMiddlewareThatAnswersNonsense(t *testing.T) {
	empty := func(rapidtest.RoundTrip) rapidtest.RoundTrip {
		return func(context.Context, *rapidtest.Request) (*rapidtest.Response, error) {
			return &rapidtest.Response{Code: 200}, nil
		}
	}
	c := trainJobs(newServer().Dynamic("alice", empty))
	_, getErr := c.Get(t.Context(), "a", metav1.GetOptions{})
	_, listErr := c.List(t.Context(), metav1.ListOptions{})
	_, watchErr := c.Watch(t.Context(), metav1.ListOptions{})
	for _, err := range []error{getErr, listErr, watchErr} {
		if err == nil {
			t.Error("a 200 without content must not pass for success")
		}
	}
}

func TestDynamicFaceCountsTransmissionsAndHTTPDoesNot(t *testing.T) {
	s := newServer()
	create(t, trainJobs(s.Dynamic("alice")), trainJob("a"))
	var sent []int64
	s.Use(func(next rapidtest.RoundTrip) rapidtest.RoundTrip {
		return func(ctx context.Context, req *rapidtest.Request) (*rapidtest.Response, error) {
			sent = append(sent, req.ID)
			return next(ctx, req)
		}
	})
	_, err := trainJobs(s.Dynamic("alice")).Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil || len(sent) != 1 || sent[0] != 2 {
		t.Errorf("sent %v, %v; want transmission 2", sent, err)
	}
	retry.CountTransmission(t.Context()) // does nothing without an engine
}

func TestDeleteCollection(t *testing.T) {
	forEachFace(t, func(t *testing.T, s *rapidtest.Server, c dynamic.Interface) {
		for _, name := range []string{"a", "b", "c"} {
			create(t, trainJobs(c), edited(trainJob(name), func(u *unstructured.Unstructured) { u.SetLabels(map[string]string{"keep": fmt.Sprint(name == "b")}) }))
		}
		if err := trainJobs(c).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "keep=false"}); err != nil {
			t.Fatal(err)
		}
		list, err := trainJobs(c).List(t.Context(), metav1.ListOptions{})
		if err != nil || namesOf(list) != "b" {
			t.Errorf("left %v, %v", namesOf(list), err)
		}
		s.AdmitValidating(func(rapidtest.AdmissionRequest) error { return rapidtest.Denied("w", 200, "", "") })
		err = trainJobs(c).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
		wantStatus(t, err, 400, "")
		if !strings.HasSuffix(err.Error(), "without explanation") {
			t.Error(err)
		}
	})
}

func TestGeneratedNames(t *testing.T) {
	forEachFace(t, func(t *testing.T, _ *rapidtest.Server, c dynamic.Interface) {
		seen := map[string]bool{}
		for range 50 {
			obj := create(t, trainJobs(c), edited(trainJob(""), func(u *unstructured.Unstructured) { u.SetGenerateName("job-") }))
			if name := obj.GetName(); seen[name] || !strings.HasPrefix(name, "job-") || len(name) != len("job-")+5 {
				t.Fatalf("name %q", name)
			}
			seen[obj.GetName()] = true
		}
	})
}

func TestFrozenCache(t *testing.T) {
	forEachFace(t, func(t *testing.T, s *rapidtest.Server, c dynamic.Interface) {
		obj := create(t, trainJobs(c), trainJob("a"))
		s.FreezeCache()
		mustUpdate(t, trainJobs(c), edited(obj, setNested(true, "spec", "suspend")))
		create(t, trainJobs(c), trainJob("b"))
		suspended := func(rv string) any {
			got, err := trainJobs(c).Get(t.Context(), "a", metav1.GetOptions{ResourceVersion: rv})
			if err != nil {
				t.Fatal(err)
			}
			return nested(got, "spec", "suspend")
		}
		listed := func(rv string) string {
			list, err := trainJobs(c).List(t.Context(), metav1.ListOptions{ResourceVersion: rv})
			if err != nil {
				t.Fatal(err)
			}
			return namesOf(list)
		}
		if suspended("0") != false || suspended("") != true || listed("0") != "a" || listed(obj.GetResourceVersion()) != "a" || listed("") != "a b" {
			t.Error("a frozen cache must be behind, and a read without a resourceVersion must not")
		}
		s.ThawCache()
		if suspended("0") != true || listed("0") != "a b" {
			t.Error("a cache that keeps up must have it all")
		}
		list, err := trainJobs(c).List(t.Context(), metav1.ListOptions{ResourceVersion: obj.GetResourceVersion(), ResourceVersionMatch: metav1.ResourceVersionMatchExact})
		if err != nil || namesOf(list) != "a" {
			t.Errorf("an exact list is of that moment: %v, %v", namesOf(list), err)
		}
		s.ExpireContinueTokens()
		_, err = trainJobs(c).List(t.Context(), metav1.ListOptions{ResourceVersion: obj.GetResourceVersion(), ResourceVersionMatch: metav1.ResourceVersionMatchExact})
		wantStatus(t, err, 410, metav1.StatusReasonExpired)
	})
}

func TestExpiredPageCanBeContinuedFromNow(t *testing.T) {
	s := newServer()
	c := trainJobs(s.Dynamic("alice"))
	for _, name := range []string{"a", "b", "c"} {
		create(t, c, trainJob(name))
	}
	page, err := c.List(t.Context(), metav1.ListOptions{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	s.ExpireContinueTokens()
	create(t, c, trainJob("d"))
	_, err = c.List(t.Context(), metav1.ListOptions{Limit: 1, Continue: page.GetContinue()})
	var status *apierrors.StatusError
	if !errors.As(err, &status) || status.ErrStatus.Continue == "" {
		t.Fatalf("%v, want a token to go on with", err)
	}
	rest, err := c.List(t.Context(), metav1.ListOptions{Continue: status.ErrStatus.Continue})
	if err != nil || namesOf(rest) != "b c d" {
		t.Errorf("%v, %v", namesOf(rest), err)
	}
}

func TestWatchEnds(t *testing.T) {
	forEachFace(t, func(t *testing.T, s *rapidtest.Server, c dynamic.Interface) {
		ended := func(w watch.Interface) bool {
			for {
				select {
				case _, open := <-w.ResultChan():
					if !open {
						return true
					}
				case <-time.After(time.Minute):
					return false
				}
			}
		}
		open := func(ctx context.Context, opts metav1.ListOptions) watch.Interface {
			t.Helper()
			w, err := trainJobs(c).Watch(ctx, opts)
			if err != nil {
				t.Fatal(err)
			}
			return w
		}
		seconds := int64(5)
		byTime := open(t.Context(), metav1.ListOptions{TimeoutSeconds: &seconds})
		if !ended(byTime) {
			t.Error("its time is over")
		}
		ctx, cancel := context.WithCancel(t.Context())
		byContext := open(ctx, metav1.ListOptions{})
		cancel()
		if !ended(byContext) {
			t.Error("its context is over")
		}
		byStop := open(t.Context(), metav1.ListOptions{})
		byStop.Stop()
		if !ended(byStop) {
			t.Error("it was stopped")
		}
		snap := s.Snapshot()
		byRestore := open(t.Context(), metav1.ListOptions{})
		s.Restore(snap)
		if !ended(byRestore) {
			t.Error("the store was put back")
		}
		_, err := trainJobs(c).Watch(t.Context(), metav1.ListOptions{ResourceVersion: "x"})
		wantStatus(t, err, 422, metav1.StatusReasonInvalid)
		_, err = trainJobs(c).Watch(t.Context(), metav1.ListOptions{FieldSelector: "spec.x=y"})
		wantStatus(t, err, 400, metav1.StatusReasonBadRequest)
		initial := true
		_, err = trainJobs(c).Watch(t.Context(), metav1.ListOptions{SendInitialEvents: &initial})
		wantStatus(t, err, 422, metav1.StatusReasonInvalid)
	})
}

func TestBookmarks(t *testing.T) {
	forEachFace(t, func(t *testing.T, s *rapidtest.Server, c dynamic.Interface) {
		with, err := trainJobs(c).Watch(t.Context(), metav1.ListOptions{AllowWatchBookmarks: true})
		if err != nil {
			t.Fatal(err)
		}
		defer with.Stop()
		without, err := trainJobs(c).Watch(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer without.Stop()
		create(t, c.Resource(rapidtest.Workloads().GVR).Namespace("default"), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": map[string]any{"name": "w"},
		}})
		s.SendBookmarks()
		e := <-with.ResultChan()
		if e.Type != watch.Bookmark || e.Object.(*unstructured.Unstructured).GetResourceVersion() != "9" {
			t.Errorf("unexpected %v", e)
		}
		select {
		case e := <-without.ResultChan():
			t.Errorf("unexpected %v", e)
		case <-time.After(time.Second):
		}
	})
}

func TestPlanPicksAndPrints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		plan := rapidtest.NewPlan(
			rapidtest.Each(rapidtest.OfResource("workloads"), rapidtest.ResetConnection()),
			rapidtest.Span(2, 3, rapidtest.Reads().And(rapidtest.ByUser("alice")), rapidtest.AnswerError(apierrors.NewServiceUnavailable("gone"))),
			rapidtest.Nth(1, rapidtest.Verbs(rapidtest.VerbCreate), rapidtest.DelayRequest(1500*time.Millisecond)),
			rapidtest.Nth(1, rapidtest.Verbs(rapidtest.VerbDelete), rapidtest.HangRequest()),
		)
		s.Use(plan.Middleware)
		c, bob := s.Dynamic("alice"), s.Dynamic("bob")
		create(t, trainJobs(c), trainJob("a"))
		var codes []string
		for range 4 {
			_, err := trainJobs(c).Get(t.Context(), "a", metav1.GetOptions{})
			codes = append(codes, fmt.Sprint(apierrors.IsServiceUnavailable(err)))
			if _, err := trainJobs(bob).Get(t.Context(), "a", metav1.GetOptions{}); err != nil {
				t.Errorf("bob is no concern of the rule: %v", err)
			}
		}
		if diff := cmp.Diff([]string{"false", "true", "true", "false"}, codes); diff != "" {
			t.Error(diff)
		}
		_, err := c.Resource(rapidtest.Workloads().GVR).List(t.Context(), metav1.ListOptions{})
		if !errors.Is(err, syscall.ECONNRESET) {
			t.Error(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = trainJobs(c).Delete(ctx, "a", metav1.DeleteOptions{}) }()
		synctest.Wait()
		timeline := plan.Timeline()
		for _, line := range []string{
			"      0s #1 create trainjobs default/a by alice -> 201 rv=9 after 1.5s [delayed 1.5s]\n",
			"    1.5s #4 get trainjobs default/a by alice -> 503 ServiceUnavailable [answered 503 ServiceUnavailable]\n",
			"list workloads by alice -> read tcp model.invalid:443: connection reset by peer [connection reset]\n",
			"delete trainjobs default/a by alice -> waiting [request hangs]\n",
		} {
			if !strings.Contains(timeline, line) {
				t.Errorf("no %q in\n%s", line, timeline)
			}
		}
		cancel()
	})
}

func TestResponsesPrintAndFail(t *testing.T) {
	cases := map[string]struct {
		resp rapidtest.Response
		text string
		fail bool
	}{
		"Object": {rapidtest.Response{Code: 200, Object: edited(trainJob("a"), func(u *unstructured.Unstructured) { u.SetResourceVersion("7") })}, "200 rv=7", false},
		"List":   {rapidtest.Response{Code: 200, List: &unstructured.UnstructuredList{}}, "200 0 items", false},
		"Status": {rapidtest.Response{Code: 409, Status: &metav1.Status{Code: 409, Reason: metav1.StatusReasonConflict}}, "409 Conflict", true},
		"Text":   {rapidtest.Response{Code: 502, Text: "bad gateway"}, "502", true},
	}
	for name, tc := range cases {
		if got := tc.resp.String(); got != tc.text {
			t.Errorf("%s: %q, want %q", name, got, tc.text)
		}
		if err := tc.resp.Err(); (err != nil) != tc.fail {
			t.Errorf("%s: %v", name, err)
		}
	}
	dry := rapidtest.Request{ID: 3, Verb: "update", Subresource: "status", Name: "x", DryRun: []string{"All"}}
	dry.GVR.Resource = "nodes"
	if got := dry.String(); got != "#3 update nodes/status x (dry run)" || dry.Write() {
		t.Errorf("%q, write %v", got, dry.Write())
	}
}

func TestSchedulerWithFaultsAndWithoutABubble(t *testing.T) {
	s := newServer()
	obj := create(t, trainJobs(s.Dynamic("setup")), trainJob("a"))
	sched := rapidtest.NewScheduler()
	c := trainJobs(s.Dynamic("alice", sched.Middleware("alice")))
	result := make(chan error, 1)
	update := func(ctx context.Context) {
		_, err := c.Update(ctx, edited(obj, setNested(true, "spec", "suspend")), metav1.UpdateOptions{})
		result <- err
	}
	next := func(phase rapidtest.Phase) *rapidtest.Step {
		t.Helper()
		if err := sched.Wait(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		step := sched.Parked()[0]
		if step.Phase != phase || step.Actor != "alice" {
			t.Fatalf("parked at %s, want %s", step, phase)
		}
		return step
	}
	go update(t.Context())
	next(rapidtest.BeforeExecution).ProceedWith(rapidtest.LoseRequest())
	lost := next(rapidtest.AfterExecution)
	if lost.Err == nil || lost.Response != nil {
		t.Errorf("outcome %v, %v of a lost request", lost.Response, lost.Err)
	}
	lost.Proceed()
	lost.Proceed() // has gone already
	if err := <-result; !errors.Is(err, syscall.ECONNREFUSED) {
		t.Error(err)
	}

	go update(t.Context())
	next(rapidtest.BeforeExecution).Proceed()
	made := next(rapidtest.AfterExecution)
	if made.Response == nil || made.Response.Code != 200 {
		t.Errorf("outcome %v", made.Response)
	}
	made.ProceedWith(rapidtest.LoseResponse())
	if err := <-result; !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	go update(ctx)
	step := next(rapidtest.BeforeExecution)
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	for len(sched.Parked()) > 0 { // until it has noticed
		step.Proceed()
	}
	waitCtx, stop := context.WithCancel(t.Context())
	stop()
	if err := sched.Wait(waitCtx, 1); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestAdmissionErrors(t *testing.T) {
	s := newServer()
	c := trainJobs(s.Dynamic("alice"))
	refuse := errors.New("broken webhook")
	s.Admit(func(ar rapidtest.AdmissionRequest) (*unstructured.Unstructured, error) {
		if ar.Object.GetName() == "broken" {
			return nil, refuse
		}
		if ar.Object.GetName() == "odd" {
			ar.Object.Object["spec"] = map[string]any{"f": make(chan int)}
			return ar.Object, nil
		}
		if ar.Object.GetName() == "worse" {
			ar.Object.Object["metadata"] = "none"
			return ar.Object, nil
		}
		return nil, fmt.Errorf("wrapped: %w", rapidtest.Denied("w", 403, metav1.StatusReasonForbidden, "no"))
	})
	for name, code := range map[string]int32{"broken": 500, "odd": 500, "worse": 500, "a": 403} {
		_, err := c.Create(t.Context(), trainJob(name), metav1.CreateOptions{})
		status := apierrors.APIStatus(nil)
		if !errors.As(err, &status) || status.Status().Code != code {
			t.Errorf("%s: %v, want %d", name, err, code)
		}
	}
}

func TestServerTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.RequestTimeout = 10 * time.Second
		held := func(d time.Duration) (*rapidtest.Response, error) {
			return s.RoundTrip(t.Context(), &rapidtest.Request{
				Verb: rapidtest.VerbList, GVR: rapidtest.TrainJobs().GVR, Hold: d,
			})
		}
		if resp, err := held(9 * time.Second); err != nil || resp.Code != 200 {
			t.Errorf("%v, %v", resp, err)
		}
		if resp, err := held(11 * time.Second); err != nil || resp.Code != 504 {
			t.Errorf("%v, %v", resp, err)
		}
		s.RequestTimeout = 0
		start := time.Now()
		resp, err := s.RoundTrip(t.Context(), &rapidtest.Request{
			Verb: rapidtest.VerbDelete, GVR: rapidtest.TrainJobs().GVR, Namespace: "default", Name: "a", Hold: time.Hour,
		})
		if err != nil || resp.Code != 504 || time.Since(start) != 34*time.Second {
			t.Errorf("%v, %v after %v: no write takes longer than 34 s", resp, err, time.Since(start))
		}
		// what a hook spends is spent inside the server too
		s.Admit(func(rapidtest.AdmissionRequest) (*unstructured.Unstructured, error) {
			time.Sleep(time.Minute)
			return nil, nil
		})
		_, err = trainJobs(s.Dynamic("alice")).Create(t.Context(), trainJob("a"), metav1.CreateOptions{})
		wantStatus(t, err, 504, metav1.StatusReasonTimeout)
		if n := len(s.History()); n != 0 {
			t.Errorf("%d commits", n)
		}
	})
}
