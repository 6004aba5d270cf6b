// Package gatetest shows on the real Kueue and Trainer that the readmission gate
// keeps executions apart, and that without it they run side by side. The gate is
// the controller in examples/readmission-gate, as its own process, with no rights
// but those in its manifest. The tests share one whole stack, whose pods take
// three seconds to end, and run only when asked for:
//
//	go test -tags e2e -timeout 30m -v ./gatetest
package gatetest
