package rapidtest

import "testing"

// What people do without this library comes out wrong under schedules that do nothing to it, and none of the ways to be wrong is out of reach.
func TestPeers(t *testing.T) {
	const schedules = 100
	all := ComparePeers(t, schedules, 1)
	t.Logf("\n%s", PeerTable(all))
	ours, any := all[0], Comparison{}
	if ours.Wrong != 0 || ours.Schedules != schedules {
		t.Errorf("this library goes wrong: %+v", ours)
	}
	for _, peer := range all[1:] {
		if peer.Wrong == 0 || peer.Undone == 0 {
			t.Errorf("the schedules are too tame: %+v", peer)
		}
		any.Undone, any.Ran, any.Twice, any.Lies = any.Undone+peer.Undone, any.Ran+peer.Ran, any.Twice+peer.Twice, any.Lies+peer.Lies
	}
	if any.Undone == 0 || any.Ran == 0 || any.Twice == 0 || any.Lies == 0 {
		t.Errorf("something never goes wrong with any peer: %+v", any)
	}
}
