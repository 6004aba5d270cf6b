package probe_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubehold/kubehold/kinds"
	"github.com/kubehold/kubehold/probe"
	"github.com/kubehold/kubehold/rapidtest"
)

// Something goes wrong in the middle of a round trip, before the n-th request
// of one method to the canary itself: the report says what, and nothing is left.
func TestP2InTheMiddle(t *testing.T) {
	kind := kinds.JobSet()
	annotate := func(instance string) func(*rapidtest.Server, *unstructured.Unstructured) {
		return func(s *rapidtest.Server, canary *unstructured.Unstructured) {
			annotations := canary.GetAnnotations()
			for key := range annotations {
				if strings.Contains(key, "/hold-") && instance == "" {
					delete(annotations, key)
				}
			}
			if instance != "" {
				annotations["kubehold.dev/hold-instance"] = instance
			}
			canary.SetAnnotations(annotations)
			_, _ = s.Dynamic("admin").Resource(kind.Resource).Namespace(namespace).Update(context.Background(), canary, metav1.UpdateOptions{}) // the report tells
		}
	}
	for _, tt := range []struct {
		name   string
		method string
		n      int
		does   func(*rapidtest.Server, *unstructured.Unstructured)
		state  probe.State
		says   string
	}{
		{"TheHoldIsLost", "GET", 4, annotate(""), probe.Unavailable, "an older hold was not refused"},
		{"TheHoldIsLostBeforeTheRelease", "GET", 5, annotate("1"), probe.Unavailable, "the release of an older hold was not refused"},
		{"AnnotationsComeBack", "GET", 8, annotate("2"), probe.Unavailable, "these annotations are still there: kubehold.dev/hold-instance"},
		{"AnotherHoldLies", "GET", 7, annotate("9"), probe.Unknown, "the release failed"},
		{"TheCanaryGoes", "GET", 3, func(s *rapidtest.Server, canary *unstructured.Unstructured) {
			_ = s.Dynamic("admin").Resource(kind.Resource).Namespace(namespace).Delete(context.Background(), canary.GetName(), metav1.DeleteOptions{}) // the report tells
		}, probe.Unknown, "something removed or replaced the canary"},
		{"TheCanaryGoesBeforeACall", "GET", 5, func(s *rapidtest.Server, canary *unstructured.Unstructured) {
			_ = s.Dynamic("admin").Resource(kind.Resource).Namespace(namespace).Delete(context.Background(), canary.GetName(), metav1.DeleteOptions{}) // the report tells
		}, probe.Unknown, "something removed or replaced the canary"},
		{"ThePermissionGoes", "PUT", 2, func(s *rapidtest.Server, _ *unstructured.Unstructured) { forbid("update", "jobsets")(s) },
			probe.Unavailable, "the release was refused: this identity may not do it"},
		{"APolicyPutsItBack", "PUT", 2, func(s *rapidtest.Server, _ *unstructured.Unstructured) {
			s.Admit(func(r rapidtest.AdmissionRequest) (*unstructured.Unstructured, error) {
				r.Object.SetAnnotations(r.OldObject.GetAnnotations())
				r.Object.SetLabels(map[string]string{"moved": "yes", "kubehold.dev/canary-expires": r.OldObject.GetLabels()["kubehold.dev/canary-expires"]})
				return r.Object, nil
			})
		}, probe.Unavailable, "the release was accepted, but not made as it was sent"},
		{"EverybodyWrites", "PUT", 1, func(s *rapidtest.Server, _ *unstructured.Unstructured) {
			s.Admit(func(r rapidtest.AdmissionRequest) (*unstructured.Unstructured, error) {
				if r.Request.User == "probe" && r.Operation == "UPDATE" {
					return nil, rapidtest.Denied("busy.example.com", 500, "", "try again")
				}
				return r.Object, nil
			})
		}, probe.Unknown, "the hold came to no end"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newServer(t)
				before := snapshot(t, server)
				n := 0
				cfg := withTransport(server.RESTConfig("probe"), func(next http.RoundTripper) http.RoundTripper {
					return roundTripper(func(req *http.Request) (*http.Response, error) {
						_, name, canary := strings.Cut(req.URL.Path, "/jobsets/kubehold-canary-")
						if canary && req.Method == tt.method {
							if n++; n == tt.n {
								obj, err := server.Dynamic("admin").Resource(kind.Resource).Namespace(namespace).Get(context.Background(), "kubehold-canary-"+name, metav1.GetOptions{})
								if err != nil {
									return nil, err
								}
								tt.does(server, obj)
							}
						}
						return next.RoundTrip(req)
					})
				})
				r := mustRun(t, cfg, kind, optionsFor(kind))
				mustSay(t, r, probe.RoundTrip, "a hold and its release", tt.state, tt.says)
				if l := find(t, r, probe.RoundTrip, "a hold and its release"); l.Remedy == "" {
					t.Errorf("no remedy for %q", l.Why)
				}
				if diff := cmp.Diff(before, snapshot(t, server)); diff != "" {
					t.Errorf("P2: a trace was left (-before +after):\n%s", diff)
				}
			})
		})
	}
}
