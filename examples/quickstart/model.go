package main

import (
	"time"

	"k8s.io/client-go/dynamic"

	"github.com/kubehold/kubehold/rapidtest"
)

// modelWorld is a world in memory, in which this program plays everybody.
func modelWorld() (*world, error) {
	return worldOn(modelServer())
}

func modelServer() *rapidtest.Server {
	return rapidtest.NewServer(rapidtest.TrainJobs(), rapidtest.Workloads(), rapidtest.Pods())
}

// worldOn is a world on a model.
func worldOn(server *rapidtest.Server) (*world, error) {
	w := &world{
		place:     "Here, all of that happens to a model of an apiserver, in memory. ",
		config:    server.RESTConfig("quickstart"),
		namespace: "demo",
		run:       "model",
		queue:     "main",
		runtime:   "sleep",
		patience:  10 * time.Second,
		pace:      20 * time.Millisecond,
	}
	var err error
	w.client, err = dynamic.NewForConfig(w.config)
	if err != nil {
		return nil, err
	}
	w.cast.playKueue(w.client, w.namespace)
	w.cast.playTrainer(w.client, w.namespace, "")
	w.place += " " + w.cast.played()
	return w, nil
}
