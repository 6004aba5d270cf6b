//go:build e2e

package holdtest

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubehold/kubehold/rapidtest/realstack/cluster"
	"github.com/kubehold/kubehold/rapidtest/realstack/stack"
)

// pause stops a component in its tracks, until resume or the end of the test.
func (s *scene) pause(c stack.Component) {
	s.Helper()
	s.must(s.stack.Pause(c))
	s.Cleanup(func() { s.resume(c) })
}

// resume lets a component go on.
func (s *scene) resume(c stack.Component) {
	s.Helper()
	s.must(s.stack.Resume(c))
}

// batchJobs are the Jobs that a TrainJob's JobSet has made.
func (s *scene) batchJobs(ctx context.Context, job *cluster.Object) ([]cluster.Object, error) {
	list, err := s.cluster.Client().Resource(gvr("batch", "v1", "jobs")).Namespace(job.GetNamespace()).
		List(ctx, metav1.ListOptions{LabelSelector: cluster.JobSetLabel + "=" + job.GetName()})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}
