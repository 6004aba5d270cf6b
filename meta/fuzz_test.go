package meta_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kubehold/kubehold/meta"
)

// present says which annotations of a hold are there, by its bits in the order of
// Keys.OfHold.
func present(bits uint8, keys meta.Keys, values ...string) map[string]string {
	annotations := map[string]string{"example.com/other": "not ours"}
	for i, key := range keys.OfHold() {
		if bits&(1<<i) != 0 {
			annotations[key] = values[i]
		}
	}
	return annotations
}

// H10, H13: annotations that anybody may have written are a hold, none, or a hold
// that cannot be understood, of which it is said why. What is understood says
// the same when it is written again.
func FuzzReadHold(f *testing.F) {
	const all = 1<<6 - 1
	f.Add(uint8(all), "7", "dispatch", "node lost", "2026-05-06T07:08:09Z", "running", "u", "u")
	f.Add(uint8(all), "7", "", "", "2026-05-06T07:08:09+02:00", "running=null", "u", "u")
	f.Add(uint8(all), "07", "", "", "2026-05-06T07:08:09Z", "gate", "u", "u")
	f.Add(uint8(all), "9223372036854775808", "", "", "yesterday", "paused=1", "u", "other")
	f.Add(uint8(1), "1", "", "", "", "", "", "")
	f.Add(uint8(2), "", "x", "", "", "", "", "")
	f.Add(uint8(0), "", "", "", "", "", "", "")
	f.Fuzz(func(t *testing.T, bits uint8, instance, holder, reason, since, found, bound, uid string) {
		var keys meta.Keys
		annotations := present(bits, keys, instance, holder, reason, since, found, bound)
		hold, err := keys.ReadHold(types.UID(uid), annotations)
		void := bits&(1<<5) != 0 && bound != uid
		if keys.Void(types.UID(uid), annotations) != void || void && (hold != nil || err != nil) {
			t.Fatalf("void: got %v, %v", hold, err)
		}
		if none := bits&all == 0; none && (hold != nil || err != nil) || !none && !void && hold == nil && err == nil {
			t.Fatalf("of %v: got %v, %v", annotations, hold, err)
		}
		if err != nil {
			var bad *meta.AnnotationError
			if hold != nil || !errors.As(err, &bad) || bad.Value != annotations[bad.Key] || bad.Problem == "" || !strings.Contains(err.Error(), bad.Key) {
				t.Fatalf("of %v: got %v, %v", annotations, hold, err)
			}
		}
		if hold == nil {
			return
		}
		if hold.Instance < 1 || hold.UID != types.UID(uid) || hold.Found == "" {
			t.Fatalf("got %+v", hold)
		}
		again, err := keys.ReadHold(hold.UID, keys.Annotations(*hold))
		if outOfRange(hold.Since) {
			return // RFC 3339 has no way to write it, and no hold was ever placed then
		}
		if diff := cmp.Diff(hold, again); err != nil || diff != "" {
			t.Fatalf("%v: %v\n%s", annotations, err, diff)
		}
	})
}

// outOfRange reports whether a time, in UTC, has no four-digit year.
func outOfRange(at time.Time) bool { return at.Year() < 0 || at.Year() > 9999 }

// H13, I6: a count of executions is read as it was written, or not at all.
func FuzzReadExecutions(f *testing.F) {
	f.Add("3 u", "u")
	f.Add("3 u", "other")
	f.Add("-1 u", "u")
	f.Add("03 u", "u")
	f.Add("3", "u")
	f.Add("3 ", "")
	f.Add("9223372036854775808 u", "u")
	f.Fuzz(func(t *testing.T, value, uid string) {
		var keys meta.Keys
		n, err := keys.ReadExecutions(types.UID(uid), map[string]string{keys.Executions(): value})
		switch bad := (*meta.AnnotationError)(nil); {
		case err != nil && (n != 0 || !errors.As(err, &bad) || bad.Key != keys.Executions() || bad.Value != value):
			t.Fatalf("%q: got %d, %v", value, n, err)
		case n < 0:
			t.Fatalf("%q: got %d", value, n)
		case n > 0 && keys.ExecutionsValue(types.UID(uid), n) != value:
			t.Fatalf("%q: %d is written %q", value, n, keys.ExecutionsValue(types.UID(uid), n))
		}
		if uid == "" {
			return
		}
		written := keys.ExecutionsValue(types.UID(uid), n)
		if again, err := keys.ReadExecutions(types.UID(uid), map[string]string{keys.Executions(): written}); err != nil || again != n {
			t.Fatalf("%d is written %q, and read %d, %v", n, written, again, err)
		}
		opened := map[string]string{keys.Opened(): value}
		if keys.ReadOpened(types.UID(uid), opened) != (value == uid) {
			t.Fatalf("opened by %q: got %t", value, !(value == uid))
		}
	})
}

// A prefix makes keys that the apiserver takes, or is refused.
func FuzzNewKeys(f *testing.F) {
	for _, prefix := range []string{"", "kubehold.dev", "holds.example.com", "-", "a/b", "UPPER", strings.Repeat("a", 254)} {
		f.Add(prefix)
	}
	f.Fuzz(func(t *testing.T, prefix string) {
		keys, err := meta.NewKeys(prefix)
		if err != nil {
			if !errors.Is(err, meta.ErrInvalid) {
				t.Fatalf("%q: got %v", prefix, err)
			}
			return
		}
		for _, key := range append(keys.OfHold(), keys.Opened(), keys.Executions()) {
			if bad := validation.IsQualifiedName(key); len(bad) > 0 {
				t.Fatalf("prefix %q makes the key %q: %v", prefix, key, bad)
			}
		}
	})
}
