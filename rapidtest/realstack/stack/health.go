package stack

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/kubehold/kubehold/rapidtest/realstack/internal/proc"
)

const (
	healthPoll    = 100 * time.Millisecond
	healthRequest = 2 * time.Second
)

// waitHealthy waits until a component says that it is healthy. It gives up when
// the process ends, when ctx does, or after the options' HealthTimeout.
func (s *Stack) waitHealthy(ctx context.Context, p plan, process *proc.Process) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.layout.options.HealthTimeout,
		fmt.Errorf("not healthy after %v", s.layout.options.HealthTimeout))
	defer cancel()
	client := s.layout.healthClient()
	defer client.CloseIdleConnections()
	for {
		err := s.askHealth(ctx, client, p)
		if !process.Running() {
			return process.Exit()
		}
		if err == nil {
			return nil
		}
		select {
		case <-process.Done():
			return process.Exit()
		case <-ctx.Done():
			return fmt.Errorf("%w (last answer: %v)", context.Cause(ctx), err)
		case <-time.After(healthPoll):
		}
	}
}

// healthClient trusts the stack's own certificates and no others, so that a
// stranger on a component's port is not taken for the component.
func (l *layout) healthClient() *http.Client {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(l.authority.PEM)
	return &http.Client{
		Timeout:   healthRequest,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}},
	}
}

func (s *Stack) askHealth(ctx context.Context, client *http.Client, p plan) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.health(s.layout), nil)
	if err != nil {
		return err
	}
	if p.component == APIServer {
		request.Header.Set("Authorization", "Bearer "+s.layout.tokens[admin])
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	body, _ := io.ReadAll(io.LimitReader(response.Body, 200))
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", response.Status, body)
	}
	return nil
}
