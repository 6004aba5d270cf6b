package rapidtest

import (
	"testing"

	"github.com/kubehold/kubehold/kinds"
)

func TestCheckPlain(t *testing.T) { Check(t, kinds.WithStartGate(kinds.TrainJob())) }

func TestCheckKueue(t *testing.T) { Check(t, kinds.OnKueue(kinds.TrainJob())) }
