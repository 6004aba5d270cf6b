// Package rapidtest is a model of the Kubernetes apiserver to test controllers and clients with: in
// memory, in virtual time, and with every fault that a network and an apiserver can produce, placed
// where a test wants it.
//
// # What it is for
//
// Code that pauses, resumes or otherwise changes objects that others change too lives by optimistic
// concurrency: it reads, decides, and writes with the resourceVersion that it read. Whether such
// code is right shows only under schedules that a cluster seldom produces: a 504 whose write lands
// a minute later, an answer that is lost, two writers between each other's read and write.
// client-go's own fake checks no resourceVersion at all. This model does what the real apiserver
// does, in the order in which it does it, and package rapidtest/conformance is the table of request
// sequences by which the two are compared.
//
// # Where to start
//
// [NewServer] makes a server of the resources that you name: [TrainJobs], [Workloads], [JobSets],
// [Jobs], [Pods], [AdmissionChecks], or a [Resource] of your own. [Server.Dynamic] gives a client
// of it that is fast enough to search through millions of schedules; [Server.RESTConfig] gives
// client-go's real client, with its own re-sends and rate limiter, over an http.RoundTripper. Both
// run through the same chain of [Middleware], to the same store.
//
//   - Faults: a [Plan] of rules says which request meets which [Fault], and prints a timeline of
//     what happened.
//   - Schedules: a [Scheduler] stops every request before and after it is executed, for a test to
//     choose who goes next.
//   - Invariants: [Server.OnCommit] sees every version as it is committed; [Server.History] has
//     them all.
//   - Search: [Server.Snapshot], [Server.Restore] and [Server.Clone] cost next to nothing, and
//     [Server.StateHash] tells states apart.
//   - Permissions and policies: [Server.Authorize], [Server.Admit], [Server.AdmitValidating].
//   - Time gone by: [Server.ExpireContinueTokens], [Server.EndWatches], [Server.FreezeCache].
//   - The others who write: [Kueue], [Trainer], [Relay], [Kubelet] and [Human], by hand ([Settle])
//     or on their own ([Run]), here or on a real cluster.
//
// Nothing here sleeps in real time, and no goroutine outlives its request or watch: it all works
// inside testing/synctest, where an hour of retries takes no time.
//
// # A kind of your own
//
// [Check] is the test of a kind that can be held: one line, for any descriptor. It names the mistake
// in one that has a mistake, and otherwise plays random scripts of callers, controllers, people and
// networks against it until one breaks a rule of holds, which it prints as a timeline. The example
// newkind shows it. [Counterexample] returns what it finds, to show that a mistake is found.
//
// # What people do without it
//
// [ComparePeers] plays the same schedules with this library and with three ways in which objects are
// paused today. In so many of 10,000 schedules something came out wrong:
//
//	                                                undone  ran  twice  lies  wrong
//	this library                                    0       0    0      0     0
//	RetryOnConflict around a boolean                391     391  1357   312   1860
//	GET, then a merge patch without a precondition  557     557  1365   204   1917
//	optimistic-lock patch with a blind second try   355     355  1262   195   1666
//
// A boolean says that an object is paused, and not by whom. A release that arrives late finds it
// paused, and lifts whatever hold that is. The precondition of an update does not help: it says that
// nothing has changed since the read, and after a conflict the same decision is made again from a
// new read. What helps is to write down whose hold it is, in the same update, and to decide anew
// from every read whether this call is still the one. The columns are those of a [Comparison];
// go run ./rapidtest/peers plays all of it again.
//
// # What is left out
//
// Validation by OpenAPI schema and CEL (see [Resource].Validate for a place to put rules);
// conversion between versions; managedFields and server-side apply, so that a write that changes
// nothing but managedFields changes nothing here; strategic merge patch; the scale subresource;
// namespaces as objects; garbage collection, so that an object deleted in the foreground waits for
// its finalizer to be dropped by someone else; the priority and fairness of requests; and the
// storage limit of etcd. Every server is one server: an HA pair behaves the same, since both ask
// one etcd.
package rapidtest
