// Package holdable places and lifts fenced holds: it stops a Kubernetes object,
// and keeps it stopped until whoever placed the hold lifts it.
//
// A [Holdable] says how one kind is paused. A [Client] holds, releases, opens
// and inspects objects of that kind; code that does not care for the kind takes
// the [Holder] interface. The kinds that people ask for are in package kinds.
//
//	holder, err := holdable.New(kinds.OnKueue(kinds.TrainJob()), cfg, retry.Options{}, holdable.Options{})
//	...
//	job := meta.Ref{Namespace: "team-a", Name: "llm"}
//	_, err = holder.Hold(ctx, job, meta.Call{
//		Instance: 7,
//		Deadline: time.Now().Add(10 * time.Second),
//		Holder:   "dispatch",
//		Reason:   "node-12 is lost",
//	})
//
// # What a hold is
//
// A hold is the pause field at its held value and six annotations that say
// which hold it is, who placed it, why and when, what it found, and on which
// object. They are written in one update and removed in one update, and that
// update differs from what was read in nothing else.
//
// # Why it has a number
//
// A supervisor that was slow, partitioned or restarted may call late. Its
// update fails, since it is bound to the resourceVersion that it was decided
// on; but a call which is late before its read would see the present state and
// could undo it. So a hold names its instance, a larger one is newer, and:
//
//   - Hold is refused where a newer instance is in force, and where the instance
//     changed while it was at work.
//   - Release lifts the instance it names and no other.
//   - Every call has a deadline, after which nothing of it leaves.
//
// Numbers alone cannot do it: Release erases the instance, so that a Hold which
// was delayed until after it finds nothing that is newer. What a supervisor has
// to wait for before it releases is said at [Holder].
//
// # What success means
//
// Hold returns when the hold is in force. The object may take its time to stop,
// and conditions that say it has stopped are no proof. [Inspection] has one:
// Drained, which looks at the pods.
//
// # The readmission gate
//
// In Kueue mode Kueue decides when a job that was released, or evicted for any
// other reason, runs again, and it does not wait for the pods of the execution
// before. A [Gate] does, and for what is still to make pods: it answers an
// admission check of Kueue's, and counts the executions. [Inspection] says whether
// one is there.
//
// # The decisions
//
// What a call does is decided by pure functions, from what was read, the call,
// and the instance that was in force when the call looked last. They are run by
// package retry, which sends, waits and tries again, and knows nothing of holds.
// RULES.md in this folder has every rule, with the place that keeps it.
package holdable
