// Package probe finds out, before anything relies on it, whether holds work in
// a cluster, and says so in words that an operator can act on.
//
// A hold needs more than a client that compiles. The identity must be allowed to
// send the requests, the apiserver must serve the kind and know its pause field,
// no policy may strip the annotations, no webhook may refuse the update, and no
// controller may undo the pause. Each of these fails in its own way, some of them
// with a 200 OK. A probe tries them all, at start-up:
//
//	kind := kinds.OnKueue(kinds.TrainJob())
//	report, err := probe.Run(ctx, cfg, kind, probe.Options{Namespaces: []string{"team-a"}})
//	if err != nil {
//		log.Fatal(err) // a mistake in the call, not in the cluster
//	}
//	log.Print(report)
//	client, err := holdable.New(kind, cfg, retry.Options{}, holdable.Options{})
//	if err != nil {
//		log.Fatal(err)
//	}
//	holder := client.Use(report)
//
// From then on, what the probe found unavailable is ErrUnsupported with the
// reason, before anything is sent (rule C5). What it could not find out is not
// held against the cluster. The program in examples/preflight does the same from
// a command line, on a cluster or on a model of one.
//
// # What it looks at
//
// Access: each verb on each resource that the kind's calls send, and no other,
// by SelfSubjectAccessReview, in each namespace (rule P1). What is missing can be
// applied: [Manifest] writes the minimal Roles, and a report that found something
// missing carries them.
//
// Served: each resource in the version that the descriptor names, or which
// version is served instead; the pause field and its type in the OpenAPI v3
// schema, or, where none can be read, by a strict dry run; the status
// subresource; and whether an update through the descriptor's version would drop
// fields that are stored in another.
//
// Round trip: a hold on a canary, read back, left alone for a while, an older
// hold and an older release refused, released, and read back again (rule P2).
//
// Environment: what makes holds slow or unsafe without making them impossible.
// The client's rate limit, the distance of the clocks and the latency beside the
// deadlines and CallBound in use; in Kueue mode, the readmission gate, and whether
// Kueue and Trainer go together; in plain mode, Kueue beside it. These lines
// are advice, and no call depends on them.
//
// # The canary
//
// A canary is an object that never runs: it is created paused and in no queue,
// and not at all unless a dry run of its creation comes back that way. It is
// called kubehold-canary-..., and an annotation on it tells people what it is.
// The probe removes it whatever became of the round trip. Where it cannot,
// because it was killed or cut off, the next probe does, once the time in the
// canary's label kubehold.dev/canary-expires has passed: the end of its own probe
// plus CallBound, by the apiserver's clock. Until then no probe touches another
// one's canary. A TrainJob needs a runtime that exists; the probe takes the first
// that it can list. A kind that the probe does not know gets an empty spec, or
// [Options.Canary].
//
// Where nothing may be created, [Options.DryRun] has the apiserver rehearse the
// update of a hold on some object that is there. So does a probe whose identity
// may not create or remove a canary, or whose canary is refused. The report says
// which of the two it was; a dry run cannot show that stale calls are refused,
// that a release lifts the hold, or that no controller undoes it.
//
// # Reading a report
//
// A [Report] has a line for each capability: available, unavailable or unknown,
// why, and what to do about it. On top are the verdicts for Hold, Release, Open
// and Inspect, which follow from the lines that name them in Line.Ops:
// unavailable if one of those is, unknown if one of those is, available
// otherwise (rule P3). String is for people and JSON for machines, and a report
// that was read back from JSON can be used like a new one.
//
// A report is true of the moment it was made. It does not see a permission that
// is taken away later (ErrForbidden tells then), and it sees only the policies
// that look at what a probe does: one that refuses holds of some people's objects
// is not met by a canary.
package probe
