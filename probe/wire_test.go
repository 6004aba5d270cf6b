package probe

import (
	"net/http"
	"testing"
	"time"
)

// Every answer narrows down where the apiserver's clock is, although a Date has
// no more than seconds.
func TestP3ClocksAreNarrowedDown(t *testing.T) {
	const ahead = 2345 * time.Millisecond
	seen := new(timings)
	sent := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	if _, _, known := seen.skew(); known {
		t.Error("known before any answer")
	}
	for range 40 {
		sent = sent.Add(137 * time.Millisecond)
		received := sent.Add(4 * time.Millisecond)
		date := sent.Add(2 * time.Millisecond).Add(ahead).Format(http.TimeFormat)
		seen.add(sent, received, date, true)
	}
	low, high, known := seen.skew()
	if !known || low > ahead || high < ahead || high-low > 50*time.Millisecond {
		t.Errorf("between %v and %v, not at %v", low, high, ahead)
	}
	// Another apiserver, whose clock is another.
	seen.add(sent, sent, sent.Add(-time.Minute).Format(http.TimeFormat), true)
	if low, high, _ := seen.skew(); low > -58*time.Second || high < ahead-50*time.Millisecond {
		t.Errorf("of two apiservers, between %v and %v", low, high)
	}
	seen.add(sent, sent, "no date", false)
	if median, slowest, answers := seen.latency(); median != 4*time.Millisecond || slowest != 4*time.Millisecond || answers != 41 {
		t.Errorf("%v, %v of %d", median, slowest, answers)
	}
}
