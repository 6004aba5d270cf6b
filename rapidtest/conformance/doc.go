// Package conformance is the table of request sequences by which a model of the apiserver is
// compared with a real one.
//
// [Run] plays every sequence of [Sequences] for every kind of [Kinds] against the server that a
// rest.Config names, in raw HTTP, and writes down what was seen at each step as an [Observation]:
// the status code, the reason, the text, whether resourceVersion and generation moved, and the
// body, without what differs between any two servers. [Diff] compares what two servers were seen to
// do:
//
//	model, _ := conformance.Run(ctx, rapidtest.NewServer(conformanceResources...).RESTConfig("admin"), "default")
//	real, _ := conformance.Run(ctx, clusterConfig, "scratch")
//	fmt.Print(conformance.Diff(real, model))
//
// The table is what is known to matter. [Scripts] draws what nobody has thought of: sequences of
// requests with stale and malformed resourceVersions, odd metadata, patches, finalizers, options
// and pages, which [Play] plays on a server and [Shrink] cuts down to what makes two servers differ.
// A difference that is found so is one more row of the table. [PlayThrough] plays a script through
// a dynamic.Interface, for servers that have more than one client.
//
// The server has to serve the kinds, as custom resources, with no admission webhooks for them and
// no controllers, and the namespace has to be there. The sequences leave nothing behind in it.
package conformance
