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
// The server has to serve the kinds, as custom resources, with no admission webhooks for them and
// no controllers, and the namespace has to be there. The sequences leave nothing behind in it.
package conformance
