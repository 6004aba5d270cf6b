// Package probetest runs the probe against a real kube-apiserver: with
// identities that lack something, policies that get in the way, kinds that are
// served otherwise than expected, and once with all controllers. Its tests start
// what they need, which is why they run only when asked for:
//
//	go test -tags e2e ./probetest
package probetest
