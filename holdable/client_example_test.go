package holdable_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/kinds"
	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/rapidtest"
	"github.com/kubehold/kubehold/retry"
)

// A TrainJob is held, a Hold that comes late is refused, and the one in force is
// released.
func ExampleClient() {
	ctx := context.Background()
	server := rapidtest.NewServer(rapidtest.TrainJobs(), rapidtest.Pods())
	_, err := server.Dynamic("user").Resource(rapidtest.TrainJobs().GVR).Namespace("ns").Create(ctx, trainJob("llm"), metav1.CreateOptions{})
	if err != nil {
		fmt.Println(err)
	}

	// With a real cluster: clientcmd.BuildConfigFromFlags and the like. Raise
	// QPS: by default client-go leaves it at two holds a second.
	holder, err := holdable.New(kinds.TrainJob(), server.RESTConfig("supervisor"), retry.Options{}, holdable.Options{})
	if err != nil {
		fmt.Println(err)
	}
	llm := meta.Ref{Namespace: "ns", Name: "llm"}
	call := func(instance int64) meta.Call {
		return meta.Call{Instance: instance, Deadline: time.Now().Add(10 * time.Second), Holder: "example", Reason: "maintenance"}
	}

	receipt, err := holder.Hold(ctx, llm, call(2))
	fmt.Println(receipt.Did, err)

	in, err := holder.Inspect(ctx, llm)
	fmt.Printf("%s (%s), drained: %s, %v\n", in.State, in.Why, in.Drained, err)

	_, err = holder.Hold(ctx, llm, call(1)) // was under way for long
	fmt.Println(err)
	fmt.Println("stale:", errors.Is(err, meta.ErrStaleHold))

	receipt, err = holder.Release(ctx, llm, call(2))
	fmt.Println(receipt.Did, err)

	in, err = holder.Inspect(ctx, llm)
	fmt.Println(in.State, err)
	// Output:
	// placed <nil>
	// held (instance 2, by example: maintenance), drained: yes, <nil>
	// Hold(1) of TrainJob ns/llm: stale hold: instance 2 is in force, which is newer (tries: 1; writes: none)
	// stale: true
	// lifted <nil>
	// running <nil>
}
