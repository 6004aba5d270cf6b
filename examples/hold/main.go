// Command hold holds a TrainJob that Kueue manages, waits until its processes
// are gone, and lets it run again.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubehold/kubehold/holdable"
	"github.com/kubehold/kubehold/kinds"
	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/retry"
)

func main() {
	cfg, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		log.Fatal(err)
	}
	holder, err := holdable.New(kinds.OnKueue(kinds.TrainJob()), cfg, retry.Options{}, holdable.Options{CheckPods: true})
	if err != nil {
		log.Fatal(err)
	}
	if err := recoverJob(context.Background(), holder, meta.Ref{Namespace: "team-a", Name: "llm"}); err != nil {
		log.Fatal(err)
	}
}

func recoverJob(ctx context.Context, holder holdable.Holder, job meta.Ref) error {
	call := func() meta.Call {
		return meta.Call{Instance: 1, Holder: "me", Reason: "node-7 is lost", Deadline: time.Now().Add(10 * time.Second)}
	}
	if _, err := holder.Hold(ctx, job, call()); err != nil {
		return err // says whether anything was written, or may be until when
	}
	for {
		in, err := holder.Inspect(ctx, job)
		if err != nil {
			return err
		}
		if in.Drained == holdable.IsDrained {
			break
		}
		fmt.Println("waiting for pod", in.Pod)
		time.Sleep(time.Second)
	}
	receipt, err := holder.Release(ctx, job, call()) // refused if anybody holds it by a newer instance
	fmt.Println(receipt.Held, receipt.Did)
	return err
}
