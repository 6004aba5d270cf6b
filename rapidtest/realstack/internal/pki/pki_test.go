package pki_test

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/kubehold/kubehold/rapidtest/realstack/internal/pki"
)

// serve starts a server with a certificate of the authority's.
func serve(t *testing.T, authority *pki.Authority) string {
	t.Helper()
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "crt"), filepath.Join(dir, "key")
	if err := authority.WriteServer("server", cert, key); err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.URL
}

func TestOnlyTheOwnAuthorityIsTrusted(t *testing.T) {
	ours, err := pki.NewAuthority("ours")
	if err != nil {
		t.Fatal(err)
	}
	strangers, err := pki.NewAuthority("strangers")
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ours.PEM) {
		t.Fatal("the authority's certificate is not one")
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}

	response, err := client.Get(serve(t, ours))
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response, err := client.Get(serve(t, strangers)); err == nil {
		_ = response.Body.Close()
		t.Error("a stranger's server is trusted")
	}
}
