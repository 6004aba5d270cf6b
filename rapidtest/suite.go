package rapidtest

import (
	"testing"

	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"pgregory.net/rapid"
)

// knownResource is a resource as package kinds knows it, or one without a schema.
func knownResource(gvr schema.GroupVersionResource, kind string, namespaced bool) Resource {
	for _, known := range []Resource{TrainJobs(), Workloads(), JobSets(), Jobs()} {
		if known.GVR == gvr {
			return known
		}
	}
	return Resource{GVR: gvr, Kind: kind, Namespaced: namespaced, StatusSubresource: true}
}

// properties are what is checked with scripts.
func (s *suite) properties() []property {
	all := []property{s.calls(), s.protocol(manners{})}
	if p, ok := s.executions(staging{}); ok {
		all = append(all, p)
	}
	return all
}

// executions: the same calls while controllers make pods, nodes are lost, and Kueue does what it
// does. No two executions run side by side (rule I5), and each is counted (rule I6). It is false
// for a kind whose controllers are not known.
func (s *suite) executions(how staging) (property, bool) {
	makeCast := s.castOf(how)
	starts := lo.Filter(s.subject.starts(), func(st start, _ int) bool {
		return lo.Contains([]string{
			"free", "held by 2", "paused by its owner", "at its start gate", "held by 2 at its start gate",
		}, st.name)
	})
	names := lo.Map(starts, func(st start, _ int) string { return st.name })
	playFrom := func(name string) *play {
		st, _ := lo.Find(starts, func(st start) bool { return st.name == name })
		counted := how.behind == 0 && (s.subject.startGate || s.subject.indirect() && !how.gateless)
		p := &play{subject: s.subject, start: st, makeCast: makeCast, counted: counted}
		p.options.CheckPods = how.checkPods
		if s.subject.indirect() && !how.gateless {
			p.gatekeeper = s.gatekeeper
		}
		return p
	}
	return property{
		name: "executions", starts: names,
		draw: func(t *rapid.T) attempt {
			a := attempt{start: rapid.SampledFrom(names).Draw(t, "start")}
			a.script = playFrom(a.start).drawScript().Draw(t, "script")
			return a
		},
		play: func(t *testing.T, a attempt) (*history, error) { return playFrom(a.start).perform(t, a.script) },
	}, makeCast != nil
}

// calls: any calls, and others who write whatever they like.
func (s *suite) calls() property {
	starts := s.subject.starts()
	names := lo.Map(starts, func(st start, _ int) string { return st.name })
	playFrom := func(name string) *play {
		st, _ := lo.Find(starts, func(st start) bool { return st.name == name })
		return &play{subject: s.subject, start: st}
	}
	return property{
		name: "calls", starts: names,
		draw: func(t *rapid.T) attempt {
			a := attempt{start: rapid.SampledFrom(names).Draw(t, "start")}
			p := playFrom(a.start)
			p.http = rapid.IntRange(0, 9).Draw(t, "http") == 9
			a.script = p.drawScript().Draw(t, "script")
			return a
		},
		play: func(t *testing.T, a attempt) (*history, error) { return playFrom(a.start).perform(t, a.script) },
	}
}
