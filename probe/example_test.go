package probe_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/kinds"
	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/probe"
	"github.com/kubehold/kubehold/rapidtest"
	"github.com/kubehold/kubehold/retry"
)

// A supervisor probes when it starts, and gives the report to its client. The
// cluster here lets it read Workloads and not update them.
func ExampleRun() {
	server := rapidtest.NewServer(rapidtest.TrainJobs(), rapidtest.Workloads(), rapidtest.Pods())
	server.Authorize(func(a rapidtest.Access) bool { return a.Verb != "update" })
	cfg := server.RESTConfig("supervisor")

	kind := kinds.OnKueue(kinds.TrainJob())
	report, err := probe.Run(context.Background(), cfg, kind, probe.Options{Namespaces: []string{"team-a"}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("Hold is", report.State(meta.OpHold))
	fmt.Println("Inspect is", report.State(meta.OpInspect))

	client, err := holdable.New(kind, cfg, retry.Options{}, holdable.Options{})
	if err != nil {
		log.Fatal(err)
	}
	_, err = client.Use(report).Hold(context.Background(), meta.Ref{Namespace: "team-a", Name: "llm"},
		meta.Call{Instance: 1, Deadline: time.Now().Add(10 * time.Second), Holder: "supervisor", Reason: "node-7 is lost"})
	fmt.Println(errors.Is(err, meta.ErrUnsupported))
	fmt.Println(err)
	// Output:
	// Hold is unavailable
	// Inspect is available
	// true
	// Hold(1) of TrainJob team-a/llm: unsupported: update workloads.kueue.x-k8s.io in team-a: this identity may not do it; apply the report's manifest
}

// A report for people.
func ExampleReport_String() {
	fmt.Print(probe.Report{
		Kind: "TrainJob", Held: "Workload", Identity: "system:serviceaccount:dispatch:supervisor", Server: "v1.37.2",
		Lines: []probe.Line{
			{Theme: probe.Calls, Capability: "Hold", Namespace: "team-a", State: probe.Unavailable, Why: "update workloads.kueue.x-k8s.io"},
			{Theme: probe.Calls, Capability: "Inspect", Namespace: "team-a", State: probe.Available},
			{Theme: probe.Access, Capability: "get trainjobs.trainer.kubeflow.org", Namespace: "team-a", State: probe.Available},
			{
				Theme: probe.Access, Capability: "update workloads.kueue.x-k8s.io", Namespace: "team-a", State: probe.Unavailable,
				Why: "this identity may not do it", Remedy: "apply the report's manifest",
			},
			{Theme: probe.Environment, Capability: "readmission gate", State: probe.Available, Why: "in every ClusterQueue"},
		},
	})
	// Output:
	// TrainJob, held by its Workload, asked as system:serviceaccount:dispatch:supervisor of Kubernetes v1.37.2
	//
	// calls
	//   unavailable  Hold in team-a     update workloads.kueue.x-k8s.io
	//   available    Inspect in team-a
	//
	// access
	//   available    get trainjobs.trainer.kubeflow.org in team-a
	//   unavailable  update workloads.kueue.x-k8s.io in team-a     this identity may not do it
	//                                                              -> apply the report's manifest
	//
	// environment
	//   available  readmission gate  in every ClusterQueue
}

// The minimal Role of plain mode for Jobs, for a service account.
func ExampleManifest() {
	opts := probe.Options{Namespaces: []string{"team-a"}, DryRun: true}
	manifest, err := probe.Manifest(kinds.Job(), opts, "system:serviceaccount:dispatch:supervisor")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(string(manifest))
	// Output:
	// apiVersion: rbac.authorization.k8s.io/v1
	// kind: Role
	// metadata:
	//   name: kubehold-job
	//   namespace: team-a
	// rules:
	// - apiGroups:
	//   - batch
	//   resources:
	//   - jobs
	//   verbs:
	//   - get
	//   - update
	// - apiGroups:
	//   - ""
	//   resources:
	//   - pods
	//   verbs:
	//   - list
	// ---
	// apiVersion: rbac.authorization.k8s.io/v1
	// kind: RoleBinding
	// metadata:
	//   name: kubehold-job
	//   namespace: team-a
	// roleRef:
	//   apiGroup: rbac.authorization.k8s.io
	//   kind: Role
	//   name: kubehold-job
	// subjects:
	// - kind: ServiceAccount
	//   name: supervisor
	//   namespace: dispatch
}
