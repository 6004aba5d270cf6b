// Package holdtest holds and releases jobs on the real systems: in both modes,
// beside Kueue, Trainer and people who write what a hold writes, and under
// faults. Its tests share one whole stack and run only when asked for:
//
//	go test -tags e2e -timeout 30m -parallel 8 -v ./holdtest
//
// TestFaults has its calls judged by the history of every object, which is read
// from etcd itself, so that no version is missed while kube-apiserver is down. The
// tests that stop or kill a component run alone, and then the others side by side.
package holdtest
