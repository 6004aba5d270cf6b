package holdable

import (
	"strings"
	"testing"
)

// A message is written as it is as long as it fits, and cut between two
// characters if it does not.
func TestWhereAMessageIsCut(t *testing.T) {
	x := func(n int) string { return strings.Repeat("x", n) }
	for name, tc := range map[string]struct{ message, want string }{
		"Fits":      {x(maxMessage), x(maxMessage)},
		"OneMore":   {x(maxMessage + 1), x(maxMessage-3) + "..."},
		"WithinOne": {x(maxMessage-5) + "ééé", x(maxMessage-5) + "é..."},
		"Inside":    {x(maxMessage-4) + "éééé", x(maxMessage-4) + "..."},
		"Empty":     {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := shortened(tc.message); got != tc.want {
				t.Errorf("got %d bytes, ending in %q; want %d, ending in %q", len(got), got[max(0, len(got)-8):], len(tc.want), tc.want[max(0, len(tc.want)-8):])
			}
		})
	}
}
