package rapidtest

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"slices"

	"github.com/anishathalye/porcupine"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/meta"
)

// A hold register is what a supervisor believes an object to have: no hold, or one instance. The calls of a history, with what their callers
// were told, have to be explained by some order of them on such a register.

// A record is a history as the callers and the register saw it: which calls were told what, which of them had ended before which began, and
// where between them the object was replaced by another, which carries no hold.
type record struct {
	calls []called
	// replaced has, for each replacement, the calls that had ended before it and those that began after it.
	replaced []replacement
}

// A called is what is known of one call.
type called struct {
	began bool
	// after are the calls that had ended when it began, a set of bits.
	after uint
	// changed: another instance came into force while it ran.
	changed bool
	// out is what its caller was told; nil while it runs. doubted is how many of its writes an answer left open.
	out     *outcome
	doubted int
}

type replacement struct{ after, before uint }

func newRecord(calls int) record { return record{calls: make([]called, calls)} }

func (r record) clone() record {
	return record{calls: slices.Clone(r.calls), replaced: slices.Clone(r.replaced)}
}

// ended is the set of the calls that have ended.
func (r *record) ended() (set uint) {
	for i, c := range r.calls {
		if c.out != nil {
			set |= 1 << i
		}
	}
	return set
}

func (r *record) invoke(i int) {
	r.calls[i].began, r.calls[i].after = true, r.ended()
	for k := range r.replaced {
		r.replaced[k].before |= 1 << i
	}
}

func (r *record) finish(i int, out *outcome, doubted int) {
	r.calls[i].out, r.calls[i].doubted = out, doubted
}

// change notes that another instance came into force.
func (r *record) change() {
	for i := range r.calls {
		if r.calls[i].began && r.calls[i].out == nil {
			r.calls[i].changed = true
		}
	}
}

func (r *record) replace() {
	r.change()
	r.replaced = append(r.replaced, replacement{after: r.ended()})
}

// append writes all of it.
func (r *record) append(b []byte) []byte {
	for _, c := range r.calls {
		b = append(b, flagByte(c.began), byte(c.after), flagByte(c.changed), byte(c.doubted))
		if c.out != nil {
			f := c.out.failure()
			b = append(b, c.out.class()...)
			b = append(b, byte(f.Seen), flagByte(f.Changed), byte(f.Fate))
		}
		b = append(b, ';')
	}
	for _, x := range r.replaced {
		b = append(b, 'x', byte(x.after), byte(x.before))
	}
	return b
}

// A judge decides whether a history can be explained, once for each.
type judge struct {
	specs   []callSpec
	initial int64
	known   map[string]error
}

func newJudge(specs []callSpec) *judge { return &judge{specs: specs, known: map[string]error{}} }

// end judges a history that is over.
func (j *judge) end(w *worldState) error {
	key := string(w.record.append(nil))
	err, ok := j.known[key]
	if !ok {
		err = j.decide(w.record)
		j.known[key] = err
	}
	return err
}

func (j *judge) decide(r record) error {
	for i, c := range r.calls {
		if c.out.failure().Changed && !c.changed {
			return breaks("H6", "%s was told that the instance changed during it, but it did not", j.specs[i])
		}
	}
	model, ops := registerModel(j.initial), j.operations(r)
	if porcupine.CheckOperations(model, ops) {
		return nil
	}
	return &unexplained{breaks("H6", "no order of the calls explains what their callers were told"), model, ops}
}

// An unexplained history is one in which callers were told what no order of their calls explains.
type unexplained struct {
	error
	model      porcupine.Model
	operations []porcupine.Operation
}

func (u *unexplained) Unwrap() error { return u.error }

// page writes porcupine's page of the calls, and returns where it lies.
func (u *unexplained) page() (string, error) {
	_, info := porcupine.CheckOperationsVerbose(u.model, u.operations, 0)
	f, err := os.CreateTemp("", "rapidtest-*.html")
	if err != nil {
		return "", err
	}
	defer f.Close()
	return f.Name(), porcupine.Visualize(u.model, info, f)
}

// pageOf says in a line where the page of an unexplained history lies; "" for any other error.
func pageOf(err error) string {
	u := (*unexplained)(nil)
	if !errors.As(err, &u) {
		return ""
	}
	page, err := u.page()
	if err != nil {
		return fmt.Sprintf("The calls cannot be drawn: %v\n", err)
	}
	return fmt.Sprintf("The calls, for a browser: %s\n", page)
}

// operations turns a record into what porcupine checks: operations with times that agree with what came before what. The sets of calls that
// had ended at one moment or another grow with time, so that their sizes order those moments.
func (j *judge) operations(r record) []porcupine.Operation {
	const span, never = 16, 1 << 20 // span leaves room for what happens between two ends
	end := func(i int) int64 {
		first := int64(never)
		for _, set := range r.moments() {
			if set&(1<<i) != 0 {
				first = min(first, span*int64(bits.OnesCount(set))-1)
			}
		}
		return first
	}
	var ops []porcupine.Operation
	for i, c := range r.calls {
		op := porcupine.Operation{
			ClientId: i, Input: registerInput{spec: j.specs[i]}, Output: registerOutput{*c.out, c.doubted},
			Call: span * int64(bits.OnesCount(c.after)), Return: end(i),
		}
		for _, x := range r.replaced {
			if x.before&(1<<i) != 0 && x.after == c.after {
				op.Call += 2
			}
		}
		if c.out.mayStillWrite() { // it never ends
			op.Return = never
		}
		ops = append(ops, op)
		for range c.doubted { // a write whose fate was open may have landed, and may have been overtaken before the call wrote again
			op.Input = registerInput{spec: j.specs[i], perhaps: true}
			ops = append(ops, op)
		}
	}
	same := map[uint]int64{}
	for k, x := range r.replaced {
		now := span*int64(bits.OnesCount(x.after)) + 2*same[x.after] + 1
		same[x.after]++
		ops = append(ops, porcupine.Operation{ClientId: len(r.calls) + k, Input: registerInput{replaced: true}, Call: now, Return: now})
	}
	return ops
}

// moments are the sets of calls that had ended when something else began.
func (r *record) moments() []uint {
	var sets []uint
	for _, c := range r.calls {
		sets = append(sets, c.after)
	}
	for _, x := range r.replaced {
		sets = append(sets, x.after)
	}
	return sets
}

type registerInput struct {
	spec callSpec
	// perhaps: it is a write that may have landed or not. replaced: it is no call, but another object in the place of the first.
	perhaps, replaced bool
}

type registerOutput struct {
	outcome
	doubted int
}

// registerModel is the sequential hold register. Its state is the instance in force, 0 for none.
func registerModel(initial int64) porcupine.Model {
	model := porcupine.NondeterministicModel{
		Init: func() []interface{} { return []interface{}{initial} },
		Step: func(state, input, output interface{}) []interface{} {
			in := input.(registerInput)
			if in.replaced {
				return []interface{}{int64(0)}
			}
			var after []interface{}
			next := registerStep(state.(int64), in.spec, output.(registerOutput))
			if in.perhaps {
				next = perhaps(state.(int64), in.spec)
			}
			for _, s := range next {
				after = append(after, s)
			}
			return after
		},
		DescribeOperation: func(input, output interface{}) string {
			in := input.(registerInput)
			if in.replaced {
				return "object replaced"
			}
			return fmt.Sprintf("%s: %s", in.spec, output.(registerOutput).outcome)
		},
	}
	return model.ToModel()
}

// registerStep returns what the register may hold after a call on it that ended so; nothing if the call cannot have ended so.
func registerStep(s int64, c callSpec, out registerOutput) []int64 {
	switch {
	case c.op == meta.OpOpen:
		return []int64{s}
	case out.ok():
		return succeeded(s, c, out)
	case out.failure().Kind == meta.ErrStaleHold && out.failure().Fate == meta.FateNone:
		return refusedAsStale(s, c, out)
	case out.failure().Kind == meta.ErrPodsRemain && s != c.instance:
		return nil
	case out.failure().Fate == meta.FateNone:
		return []int64{s}
	}
	return perhaps(s, c)
}

// perhaps is what the register may hold after a write of a call that may have landed or not.
func perhaps(s int64, c callSpec) []int64 {
	if c.op == meta.OpHold && s >= 0 && s <= c.instance {
		return []int64{s, c.instance}
	}
	if c.op == meta.OpRelease && s == c.instance {
		return []int64{s, 0}
	}
	return []int64{s}
}

func succeeded(s int64, c callSpec, out registerOutput) []int64 {
	switch {
	case c.op == meta.OpHold && out.receipt.Did == holdable.InForce && s == c.instance,
		c.op == meta.OpHold && out.receipt.Did == holdable.Placed && s >= 0 && s <= c.instance:
		return []int64{c.instance}
	case c.op == meta.OpRelease && s == c.instance:
		return []int64{0}
	case c.op == meta.OpRelease && s == 0 && out.doubted > 0: // R8: somebody else's release of the same hold looks like its own
		return []int64{0}
	}
	return nil
}

func refusedAsStale(s int64, c callSpec, out registerOutput) []int64 {
	if c.op == meta.OpRelease && s != c.instance || c.op == meta.OpHold && s > c.instance || c.op == meta.OpHold && out.failure().Changed {
		return []int64{s}
	}
	return nil
}
