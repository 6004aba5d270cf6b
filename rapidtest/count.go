package rapidtest

import (
	"context"

	"github.com/kubehold/kubehold/retry"
)

// countTransmission tells whoever made ctx that one more request leaves on its behalf.
func countTransmission(ctx context.Context) { retry.CountTransmission(ctx) }
