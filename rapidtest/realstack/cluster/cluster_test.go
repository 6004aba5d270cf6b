package cluster_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kubehold/kubehold/rapidtest/realstack/cluster"
)

func workload(status map[string]any) *cluster.Object {
	return &cluster.Object{Object: map[string]any{"status": status}}
}

func TestCondition(t *testing.T) {
	object := workload(map[string]any{"conditions": []any{
		map[string]any{"type": "Admitted", "status": "True", "reason": "Admitted"},
		map[string]any{"type": "Evicted", "status": "False", "reason": "QuotaReserved"},
	}})
	cases := map[string]struct{ kind, status, reason string }{
		"True":   {"Admitted", "True", "Admitted"},
		"False":  {"Evicted", "False", "QuotaReserved"},
		"Absent": {"Finished", "", ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if status, reason := cluster.Condition(object, tc.kind); status != tc.status || reason != tc.reason {
				t.Errorf("%s is %q/%q, want %q/%q", tc.kind, status, reason, tc.status, tc.reason)
			}
		})
	}
}

func TestCheckState(t *testing.T) {
	object := workload(map[string]any{"admissionChecks": []any{
		map[string]any{"name": "gate", "state": "Pending", "message": "waiting"},
	}})
	if state, message := cluster.CheckState(object, "gate"); state != "Pending" || message != "waiting" {
		t.Errorf("gate is %q, %q", state, message)
	}
	if state, _ := cluster.CheckState(object, "other"); state != "" {
		t.Errorf("a check that is not asked for is %q", state)
	}
}

func TestRunning(t *testing.T) {
	pod := func(phase string, metadata map[string]any) cluster.Object {
		return cluster.Object{Object: map[string]any{"metadata": metadata, "status": map[string]any{"phase": phase}}}
	}
	pods := []cluster.Object{
		pod("Running", map[string]any{"name": "runs"}),
		pod("Running", map[string]any{"name": "ends", "deletionTimestamp": "2026-01-01T00:00:00Z"}),
		pod("Pending", map[string]any{"name": "waits"}),
	}
	if got := cluster.Running(pods); len(got) != 1 || got[0].GetName() != "runs" {
		t.Errorf("Running: %v", got)
	}
}

// A wait that fails says what it waited for and what it saw last.
func TestWaitSaysWhatItSaw(t *testing.T) {
	cases := map[string]struct {
		err  error
		want string
	}{
		"State": {want: `"phase":"Pending"`},
		"Error": {err: errors.New("connection refused"), want: "connection refused"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			err := cluster.Wait(ctx, "the pod runs", func(context.Context) (bool, any, error) {
				return false, map[string]any{"phase": "Pending"}, tc.err
			})
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v, want the context's error", err)
			}
			for _, want := range []string{"the pod runs", tc.want} {
				if err != nil && !strings.Contains(err.Error(), want) {
					t.Errorf("%v does not say %q", err, want)
				}
			}
		})
	}
}

// The error of a request that the end of the wait has cut does not hide what was
// seen before; where nothing was, it is all there is to say.
func TestWaitSaysWhatItSawBeforeItsEnd(t *testing.T) {
	for _, seenBefore := range []bool{true, false} {
		ctx, cancel := context.WithCancel(t.Context())
		asked := 0
		err := cluster.Wait(ctx, "the pod runs", func(context.Context) (bool, any, error) {
			asked++
			if seenBefore && asked == 1 {
				return false, map[string]any{"phase": "Pending"}, nil
			}
			cancel()
			return false, nil, errors.New("cut")
		})
		if err == nil || strings.Contains(err.Error(), "Pending") != seenBefore || strings.Contains(err.Error(), "cut") == seenBefore {
			t.Errorf("seen before: %t: %v", seenBefore, err)
		}
	}
}
