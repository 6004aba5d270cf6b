package rapidtest

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/kubehold/kubehold/meta"
)

// A script is a history to be played: what callers, others, controllers and the network do, one
// deed after the other. It is plain data and prints as Go, so that one which fails can be kept as a
// test.
type script []deed

// GoString prints the script as it is written in Go, one deed on a line.
func (s script) GoString() string {
	var b strings.Builder
	b.WriteString("script{\n")
	for _, d := range s {
		fmt.Fprintf(&b, "\t%s,\n", strings.ReplaceAll(fmt.Sprintf("%#v", d), "rapidtest.", ""))
	}
	b.WriteString("}")
	return b.String()
}

// A deed is one thing that somebody does.
type deed interface{ do(*stage) }

type (
	// begins: a supervisor makes a call, which is to be over after within.
	begins struct {
		op       meta.Op
		instance int64
		within   time.Duration
		// http: through client-go's own client. pinned: with the UID of the object.
		http, pinned bool
	}
	// proceeds: one of the requests under way goes on, with a fault. which counts them in the order
	// of their calls, and begins again at the end.
	proceeds struct {
		which int
		fault trouble
	}
	// storms: the next of the requests that go on do so with a fault, those that have one of their
	// own aside.
	storms struct {
		requests int
		fault    trouble
	}
	// passes: time passes, but no longer than until one more request is under way.
	passes struct{ time time.Duration }
	// meddles: somebody else writes; see meddlings.
	meddles struct{ how string }
	// acts: a controller takes a step. which counts those that are there, and begins again at the
	// end.
	acts struct{ which int }
	// answers: the readmission gate looks at the job, over the same network as the calls.
	answers struct{ within time.Duration }
	// settles: the controllers work until they have nothing left to do.
	settles struct{}
)

// A trouble is a Fault as plain data.
type trouble struct {
	kind string
	// after is how long it takes, code the status and retryAfter the Retry-After of an answer.
	after      time.Duration
	code       int
	retryAfter int
}

// The kinds of trouble, for what they are in Go; see the functions that make a Fault.
const (
	lost         = "lost"
	unheard      = "answer lost"
	late         = "committed late"
	lateAndMute  = "committed late, no answer"
	slow         = "delayed"
	slowInside   = "held in the server"
	twice        = "sent twice"
	mute         = "no answer"
	answered     = "answered"
	answeredLate = "executed, and answered"
)

func (t trouble) fault() Fault {
	switch t.kind {
	case lost:
		return LoseRequest()
	case unheard:
		return LoseResponse()
	case late:
		return CommitLater(t.after)
	case lateAndMute:
		return HangCommitLater(t.after)
	case slow:
		return DelayRequest(t.after)
	case slowInside:
		return HoldRequest(t.after)
	case mute:
		return HangResponse()
	case answered:
		return Answer(t.code).WithRetryAfter(t.retryAfter)
	case answeredLate:
		return Answer(t.code).AfterCommit().WithRetryAfter(t.retryAfter)
	}
	return Fault{}
}

// drawTrouble draws none more often than not.
func drawTrouble(t *rapid.T) trouble {
	if rapid.IntRange(0, 2).Draw(t, "trouble") == 2 {
		return drawFault(t)
	}
	return trouble{}
}

func drawFault(t *rapid.T) trouble {
	out := trouble{kind: rapid.SampledFrom([]string{
		lost, unheard, late, lateAndMute, lateAndMute, lateAndMute, slow, slowInside, twice, mute, answered, answered, answeredLate,
	}).Draw(t, "kind")}
	switch out.kind {
	case late, lateAndMute, slow, slowInside, twice:
		out.after = rapid.SampledFrom([]time.Duration{
			7 * time.Millisecond, 90 * time.Millisecond, 3 * time.Second, 40 * time.Second,
			64 * time.Second, // just within CallBound
		}).Draw(t, "after")
	case answered:
		out.code = rapid.SampledFrom([]int{
			http.StatusConflict, http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable,
			http.StatusGatewayTimeout, http.StatusForbidden, http.StatusUnprocessableEntity,
		}).Draw(t, "code")
		out.retryAfter = rapid.IntRange(0, 2).Draw(t, "retry after")
	case answeredLate:
		out.code = rapid.SampledFrom([]int{
			http.StatusInternalServerError, http.StatusServiceUnavailable, http.StatusGatewayTimeout,
		}).Draw(t, "code")
		out.retryAfter = rapid.IntRange(0, 2).Draw(t, "retry after")
	}
	return out
}

// drawStorm draws a storm that may last longer than a call tries.
func drawStorm(t *rapid.T) storms {
	return storms{rapid.SampledFrom([]int{2, 5, 20}).Draw(t, "requests"), drawFault(t)}
}

// drawScript draws a script for the calls of a kind, of about as many deeds as -rapid.steps says.
func (p *play) drawScript() *rapid.Generator[script] {
	return rapid.Custom(func(t *rapid.T) script {
		var s script
		t.Repeat(map[string]func(*rapid.T){"deed": func(t *rapid.T) { s = append(s, p.drawDeed(t)) }})
		return s
	})
}

func (p *play) drawDeed(t *rapid.T) deed {
	actions := []string{"proceeds", "proceeds", "proceeds", "proceeds", "proceeds", "begins", "begins", "passes", "meddles", "storms"}
	if p.makeCast != nil {
		actions = append(actions, "acts", "acts", "acts", "settles")
	}
	if p.gatekeeper != nil {
		actions = append(actions, "answers", "answers")
	}
	switch rapid.SampledFrom(actions).Draw(t, "deed") {
	case "begins":
		return p.drawCall(t)
	case "storms":
		return drawStorm(t)
	case "answers":
		return answers{rapid.SampledFrom([]time.Duration{time.Minute, 100 * time.Millisecond}).Draw(t, "within")}
	case "passes":
		return drawTime(t)
	case "meddles":
		return meddles{rapid.SampledFrom(p.meddlings()).Draw(t, "how")}
	case "acts":
		return acts{rapid.IntRange(0, 4).Draw(t, "which")}
	case "settles":
		return settles{}
	}
	return proceeds{rapid.IntRange(0, 3).Draw(t, "which"), drawTrouble(t)}
}

func drawTime(t *rapid.T) passes {
	times := []time.Duration{time.Millisecond, 30 * time.Millisecond, time.Second, 20 * time.Second, 100 * time.Second}
	return passes{rapid.SampledFrom(times).Draw(t, "time")}
}

func (p *play) drawCall(t *rapid.T) begins {
	ops := []meta.Op{meta.OpHold, meta.OpRelease, meta.OpHold, meta.OpRelease, meta.OpOpen}
	if !p.subject.startGate {
		ops = ops[:4]
	}
	within := rapid.SampledFrom([]time.Duration{time.Minute, 5 * time.Second, 100 * time.Millisecond, 3 * time.Minute})
	b := begins{
		op:     rapid.SampledFrom(ops).Draw(t, "op"),
		within: within.Draw(t, "within"),
		pinned: rapid.Bool().Draw(t, "pinned"),
	}
	if b.op != meta.OpOpen {
		b.instance = rapid.SampledFrom([]int64{2, 3, 2, 3, 1, 4}).Draw(t, "instance")
	}
	b.http = p.http && rapid.Bool().Draw(t, "http")
	return b
}
