package main

import (
	"testing"

	"github.com/kubehold/kubehold/rapidtest"
)

func TestJudge(t *testing.T) {
	for name, tc := range map[string]struct {
		all []rapidtest.Comparison
		ok  bool
	}{
		"OnlyTheOthers": {[]rapidtest.Comparison{{Wrong: 0}, {Wrong: 1}, {Wrong: 3}}, true},
		"Ours":          {[]rapidtest.Comparison{{Wrong: 1}, {Wrong: 1}}, false},
		"Tame":          {[]rapidtest.Comparison{{Wrong: 0}, {Wrong: 1}, {Wrong: 0}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if err := judge(tc.all); (err == nil) != tc.ok {
				t.Errorf("got %v", err)
			}
		})
	}
}
