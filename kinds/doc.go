// Package kinds has a descriptor for each kind that this library can hold.
//
// A descriptor is a plain value of a few lines; see holdable.Holdable for the
// smallest one. Two functions compose descriptors into modes:
//
//   - [WithStartGate] makes a kind wait for Open before its first execution and
//     counts its executions. WithStartGate(TrainJob()) is plain mode.
//   - [OnKueue] holds a kind that Kueue manages, by the Workload that Kueue made
//     for it. OnKueue(TrainJob()) is Kueue mode, and OnKueue(Job()) works as
//     well.
//
// On which objects which mode is the right one is decided by who owns the pause
// field. An object with a kueue.x-k8s.io/queue-name label belongs to Kueue, and
// plain mode refuses it (rule H8).
//
// # What is known of each kind
//
// TrainJob (trainer.kubeflow.org/v1alpha1): its condition Suspended is computed
// from its spec and proves nothing; only its pods do. Trainer pauses its JobSet
// later, which makes pods until then.
//
// Job (batch/v1): a suspend resets its startTime, so that
// activeDeadlineSeconds starts again from zero on release.
//
// JobSet (jobset.x-k8s.io/v1alpha2): a failed child can trigger a restart while
// held; the new Jobs are created suspended.
//
// Workload (kueue.x-k8s.io/v1beta2): Kueue may delete and recreate it, and the
// new one carries no hold; Hold again then. Its pods cannot be found from it, so
// that a release of a Workload by its own name waits for none.
package kinds
