package retry_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubehold/kubehold/meta"
	"github.com/kubehold/kubehold/rapidtest"
	"github.com/kubehold/kubehold/retry"
)

// A lease on a ConfigMap, which goes to whoever has the larger number. Each
// caller is told whether he has it; nobody takes it from a larger number,
// however late his request arrives.
func ExampleEngine_Do() {
	configMaps := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	server := rapidtest.NewServer(rapidtest.Resource{GVR: configMaps, Kind: "ConfigMap", Namespaced: true})
	lease := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "lease", "namespace": "default"},
	}}
	_, err := server.Dynamic("admin").Resource(configMaps).Namespace("default").Create(context.Background(), lease, metav1.CreateOptions{})
	if err != nil {
		fmt.Println(err)
	}

	// With a real apiserver: clientcmd.BuildConfigFromFlags and the like.
	engine, err := retry.New(server.RESTConfig("example"), retry.Options{})
	if err != nil {
		fmt.Println(err)
	}
	take := func(mine int64) {
		call := meta.Error{
			Op: "Take", Instance: mine,
			Object: meta.Object{Kind: "ConfigMap", Ref: meta.Ref{Namespace: "default", Name: "lease"}},
		}
		res, err := engine.Do(context.Background(), time.Now().Add(10*time.Second), retry.Op{
			Call:     call,
			Resource: configMaps,
			Read: func(ctx context.Context, r retry.Reader) (*unstructured.Unstructured, error) {
				return r.Get(ctx, configMaps, "default", "lease")
			},
			Decide: func(read *unstructured.Unstructured) (retry.Decision, error) {
				number, _ := retry.Lookup(read, "data", "number")
				theirs, _ := strconv.ParseInt(fmt.Sprint(number), 10, 64)
				switch {
				case theirs > mine:
					return retry.Decision{}, meta.Errorf(meta.ErrRejected, "number %d has it", theirs)
				case theirs == mine:
					return retry.Decision{}, nil // nothing to write
				}
				return retry.Decision{Edits: []retry.Edit{retry.Set(fmt.Sprint(mine), "data", "number")}}, nil
			},
		})
		switch {
		case err == nil:
			number, _ := retry.Lookup(res.Object, "data", "number")
			fmt.Println("taken by number", number)
		case errors.Is(err, meta.ErrInDoubt):
			fmt.Println("ask again later:", err)
		default:
			fmt.Println("not taken:", err)
		}
	}
	take(7)
	take(7)
	take(9)
	take(8)
	// Output:
	// taken by number 7
	// taken by number 7
	// taken by number 9
	// not taken: Take(8) of ConfigMap default/lease: rejected: number 9 has it (tries: 1; writes: none)
}
