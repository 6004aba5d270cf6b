package main

import (
	"context"
	"net"
	"net/http"
	"time"
)

// serveHealth answers /healthz as long as the process can, and /readyz once the
// controller has seen the cluster. It returns what ends it.
func serveHealth(listener net.Listener, ready func() bool) (stop func()) {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !ready() {
			http.Error(w, "the caches are not filled yet", http.StatusServiceUnavailable)
		}
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener) // always an error, once it is shut down
	}()
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = server.Shutdown(ctx)
		_ = server.Close()
		<-done
	}
}
