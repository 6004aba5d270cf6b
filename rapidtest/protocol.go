package rapidtest

import (
	"context"
	"testing"
	"time"

	"github.com/samber/lo"
	"pgregory.net/rapid"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/meta"
)

// protocol: supervisors that follow the protocol, on any network; see supervisor. The newest hold
// wins (rule I4).
func (s *suite) protocol(m manners) property {
	starts := lo.Filter(s.subject.starts(), func(st start, _ int) bool {
		return lo.Contains([]string{"free", "held by an older one", "paused by its owner", "at its start gate"}, st.name)
	})
	names := lo.Map(starts, func(st start, _ int) string { return st.name })
	playFrom := func(name string) *play {
		st, _ := lo.Find(starts, func(st start) bool { return st.name == name })
		return &play{subject: s.subject, start: st, manners: &m}
	}
	return property{
		name: "protocol", starts: names,
		draw: func(t *rapid.T) attempt {
			a := attempt{start: rapid.SampledFrom(names).Draw(t, "start")}
			p := playFrom(a.start)
			p.http = rapid.IntRange(0, 9).Draw(t, "http") == 9
			t.Repeat(map[string]func(*rapid.T){"deed": func(t *rapid.T) { a.script = append(a.script, p.drawProtocolDeed(t)) }})
			return a
		},
		play: func(t *testing.T, a attempt) (*history, error) { return playFrom(a.start).perform(t, a.script) },
	}
}

type (
	// recovers: a supervisor holds the object, asserts that a few times and, if it is to, releases
	// it.
	recovers struct {
		within, lag   time.Duration
		asserts       int
		release, http bool
	}
	// opens: a supervisor lets the object past its start gate.
	opens struct{ within, lag time.Duration }
	// dies: one of the supervisors stops where it is, and what it knew is lost. which counts those
	// that work, the oldest first.
	dies struct{ which int }
)

func (p *play) drawProtocolDeed(t *rapid.T) deed {
	actions := []string{
		"proceeds", "proceeds", "proceeds", "proceeds", "proceeds", "recovers", "recovers", "passes", "passes", "dies",
		"meddles", "meddles", "storms",
	}
	if p.subject.startGate {
		actions = append(actions, "opens")
	}
	within := rapid.SampledFrom([]time.Duration{time.Minute, 5 * time.Second, 100 * time.Millisecond, 100 * time.Millisecond})
	lag := rapid.SampledFrom([]time.Duration{0, 0, 50 * time.Millisecond, 4 * time.Second})
	switch rapid.SampledFrom(actions).Draw(t, "deed") {
	case "recovers":
		return recovers{
			within: within.Draw(t, "within"), lag: lag.Draw(t, "lag"), asserts: rapid.IntRange(0, 2).Draw(t, "asserts"),
			release: rapid.Bool().Draw(t, "release"), http: p.http && rapid.Bool().Draw(t, "http"),
		}
	case "opens":
		return opens{within.Draw(t, "within"), lag.Draw(t, "lag")}
	case "dies":
		return dies{rapid.IntRange(0, 3).Draw(t, "which")}
	case "meddles":
		return meddles{rapid.SampledFrom([]string{"status", "note", "void", "void", "recreate", "recreate"}).Draw(t, "how")}
	case "storms":
		return drawStorm(t)
	case "passes":
		return drawTime(t)
	}
	return proceeds{rapid.IntRange(0, 3).Draw(t, "which"), drawTrouble(t)}
}

// mostSupervisors keeps a script from making more calls than a history can tell apart.
const mostSupervisors = 5

func (r recovers) do(st *stage) {
	st.supervise(r.within, r.lag, r.http, func(ctx context.Context, s *supervisor) {
		s.asserts = r.asserts
		_ = s.recover(ctx, r.release)
	})
}

func (o opens) do(st *stage) {
	st.supervise(o.within, o.lag, false, func(ctx context.Context, s *supervisor) { _ = s.open(ctx) })
}

// supervise has a supervisor at work.
func (st *stage) supervise(within, lag time.Duration, http bool, work func(context.Context, *supervisor)) {
	holder, err := st.holder(http)
	if err != nil || len(st.alive) == mostSupervisors {
		return
	}
	s := &supervisor{
		holder: witnessed{holder, st}, ledger: st.ledger, ref: st.ref(),
		patience: within, pause: 100 * time.Millisecond, lag: lag, tries: 4, manners: *st.manners,
	}
	ctx, cancel := context.WithCancel(context.Background())
	st.alive = append(st.alive, cancel)
	st.running++
	go func() {
		defer cancel()
		work(ctx, s)
		st.ended <- struct{}{}
	}()
}

func (d dies) do(st *stage) {
	if len(st.alive) > 0 {
		st.history.other("supervisor %d dies", d.which%len(st.alive)+1)
		st.alive[d.which%len(st.alive)]()
	}
}

// newestWins checks what is left when all is over (rule I4).
func (st *stage) newestWins() {
	h := st.history
	h.mu.Lock()
	defer h.mu.Unlock()
	last := h.versions[len(h.versions)-1].reading
	if h.reign.erased {
		return
	}
	for _, c := range h.calls {
		newest := c.spec.instance == st.ledger.last && c.out.ok()
		switch {
		case newest && c.spec.op == meta.OpRelease && last.instance != 0:
			h.fail("I4", "%s has succeeded and is the newest, but hold %d is in force at the end", c.spec, last.instance)
		case newest && c.spec.op == meta.OpHold && last.instance != c.spec.instance && !h.asked(meta.OpRelease, c.spec.instance):
			h.fail("I4", "%s has succeeded and is the newest, but at the end hold %d is in force", c.spec, last.instance)
		}
	}
}

// asked says whether a call was made. The caller has the mutex.
func (h *history) asked(op meta.Op, instance int64) bool {
	return lo.ContainsBy(h.calls, func(c *call) bool { return c.spec == callSpec{op, instance} })
}

// A witnessed holder makes the calls of a holder under the eyes of a history.
type witnessed struct {
	holdable.Holder
	st *stage
}

type method func(context.Context, meta.Ref, meta.Call) (holdable.Receipt, error)

func (w witnessed) do(ctx context.Context, op meta.Op, ref meta.Ref, asked meta.Call, make method) (holdable.Receipt, error) {
	ctx, c := w.st.history.begin(ctx, callSpec{op, asked.Instance}, ref, asked)
	receipt, err := make(ctx, ref, asked)
	w.st.history.returned(c, outcome{receipt, err})
	return receipt, err
}

// Hold implements holdable.Holder.
func (w witnessed) Hold(ctx context.Context, ref meta.Ref, asked meta.Call) (holdable.Receipt, error) {
	return w.do(ctx, meta.OpHold, ref, asked, w.Holder.Hold)
}

// Release implements holdable.Holder.
func (w witnessed) Release(ctx context.Context, ref meta.Ref, asked meta.Call) (holdable.Receipt, error) {
	return w.do(ctx, meta.OpRelease, ref, asked, w.Holder.Release)
}

// Open implements holdable.Holder.
func (w witnessed) Open(ctx context.Context, ref meta.Ref, asked meta.Call) (holdable.Receipt, error) {
	return w.do(ctx, meta.OpOpen, ref, asked, w.Holder.Open)
}
