// Package stack runs the real systems that a hold meets, as plain processes on
// one machine: etcd, kube-apiserver, kube-controller-manager, kube-scheduler,
// JobSet, Trainer and Kueue with their own webhooks, and kwok in the place of
// nodes and containers. It needs nothing but the go command.
//
// A test that wants an apiserver with the projects' CustomResourceDefinitions,
// and no controllers, writes
//
//	s, err := stack.Start(ctx, stack.Options{APIServerOnly: true})
//	if err != nil {
//		return err
//	}
//	defer s.Stop()
//	client, err := dynamic.NewForConfig(s.RESTConfig())
//
// The first Start on a machine builds the programs, which takes minutes; later
// ones take them from a cache. Every process listens on the loopback address
// only, lives in one temporary folder, sees nothing of the caller's
// environment, and ends with the stack, also when the caller is killed.
//
// Components can be ended and started again one by one (Kill, Restart) and
// stopped in their tracks (Pause, Resume), to see what others do meanwhile.
// When one dies by itself, Wait says which, with the end of what it printed.
package stack
