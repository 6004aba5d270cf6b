// Package e2e shows, on the real systems, the behaviour that holds have to
// reckon with. Its tests start whole stacks, which is why they run only when
// asked for:
//
//	go test -tags e2e -timeout 30m ./e2e
package e2e
