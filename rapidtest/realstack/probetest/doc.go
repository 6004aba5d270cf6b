// Package probetest runs the probe against a real kube-apiserver: with
// identities that lack something, policies that get in the way, and kinds that
// are served otherwise than expected. Its tests have the build tag e2e.
package probetest
