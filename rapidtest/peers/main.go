// Command peers plays the same adversarial schedules with this library and with what people pause objects with today, and prints in how many of them
// something came out wrong:
//
//	go run ./rapidtest/peers                    10,000 schedules, which takes minutes
//	go run ./rapidtest/peers -schedules 500     fewer
//	go run ./rapidtest/peers -seed 20001        others
//
// The schedules are those of [rapidtest.ComparePeers], and the columns the fields of a [rapidtest.Comparison]; the table of a whole run is in the
// documentation of package rapidtest. The same seed gives the same schedules. The command fails if anything goes wrong with this library, and if
// nothing does with one of the others: then the schedules are too tame to prove anything.
package main

import (
	"flag"
	"fmt"
	"testing"

	"github.com/kubehold/kubehold/rapidtest"
)

func main() {
	testing.Init() // the model's virtual time is for tests, and so are its flags
	schedules := flag.Int("schedules", 10_000, "how many schedules to play")
	seed := flag.Uint64("seed", 1, "the seed of the first schedule; the others follow it")
	flag.Parse()
	play := func(t *testing.T) {
		all := rapidtest.ComparePeers(t, *schedules, *seed)
		fmt.Printf("%d schedules from seed %d\n\n%s\n", *schedules, *seed, rapidtest.PeerTable(all))
		if err := judge(all); err != nil {
			t.Error(err)
		}
	}
	all := func(string, string) (bool, error) { return true, nil }
	testing.Main(all, []testing.InternalTest{{Name: "peers", F: play}}, nil, nil)
}

// judge is an error unless this library, which is the first, is the only one with which nothing goes wrong.
func judge(all []rapidtest.Comparison) error {
	for i, c := range all {
		switch {
		case i == 0 && c.Wrong > 0:
			return fmt.Errorf("%s went wrong in %d schedules", c.Name, c.Wrong)
		case i > 0 && c.Wrong == 0:
			return fmt.Errorf("the schedules are too tame: nothing went wrong with %s", c.Name)
		}
	}
	return nil
}
