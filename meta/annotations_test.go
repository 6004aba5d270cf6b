package meta_test

import (
	"errors"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/kubehold/kubehold/meta"
)

func TestNewKeys(t *testing.T) {
	cases := map[string]struct {
		prefix, want string // want "": refused
	}{
		"Default":        {"", "kubehold.dev/hold-instance"},
		"OneLabel":       {"dispatch", "dispatch/hold-instance"},
		"Subdomain":      {"holds.example.com", "holds.example.com/hold-instance"},
		"Longest":        {strings.Repeat("a.", 126) + "a", strings.Repeat("a.", 126) + "a/hold-instance"},
		"TooLong":        {strings.Repeat("a.", 127) + "a", ""},
		"UpperCase":      {"Example.com", ""},
		"Slash":          {"example.com/holds", ""},
		"TrailingDot":    {"example.com.", ""},
		"LeadingHyphen":  {"-example.com", ""},
		"EmptyLabel":     {"example..com", ""},
		"Space":          {" ", ""},
		"Underscore":     {"my_holds", ""},
		"NotASCII":       {"節.example", ""},
		"LineBreakAtEnd": {"example.com\n", ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			keys, err := meta.NewKeys(tc.prefix)
			if tc.want == "" {
				if !isInvalid(err) {
					t.Fatalf("got %v, want an ErrInvalid", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := keys.Instance(); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestKeysAreDistinctAnnotationKeys(t *testing.T) {
	own, err := meta.NewKeys("holds.example.com")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, keys := range []meta.Keys{{}, own} {
		for _, key := range append(keys.OfHold(), keys.Opened(), keys.Executions(), keys.Admission()) {
			if bad := content.IsLabelKey(key); len(bad) > 0 {
				t.Errorf("%s: %v", key, bad)
			}
			seen[key] = true
		}
		written := slices.Sorted(maps.Keys(keys.Annotations(meta.Hold{})))
		if diff := cmp.Diff(slices.Sorted(slices.Values(keys.OfHold())), written); diff != "" {
			t.Errorf("a hold is written under other keys than it is removed by: %s", diff)
		}
	}
	if len(seen) != 18 {
		t.Errorf("got %d keys under two prefixes, want 18: %v", len(seen), seen)
	}
}

// drawHold draws any hold that can be placed.
func drawHold(t *rapid.T) meta.Hold {
	h := meta.Hold{
		Instance: rapid.Int64Min(1).Draw(t, "instance"),
		Holder:   rapid.String().Draw(t, "holder"),
		Reason:   rapid.String().Draw(t, "reason"),
		Since:    time.Unix(rapid.Int64Range(0, 253402300799).Draw(t, "since"), 0).UTC(),
		Found:    rapid.SampledFrom([]meta.Found{meta.FoundRunning, meta.FoundGate, meta.FoundPaused}).Draw(t, "found"),
		UID:      types.UID(rapid.String().Draw(t, "uid")),
	}
	if h.Found == meta.FoundRunning {
		h.Restore = rapid.String().Draw(t, "restore")
	}
	return h
}

func drawKeys(t *rapid.T) meta.Keys {
	keys, err := meta.NewKeys(rapid.SampledFrom([]string{"", "holds.example.com"}).Draw(t, "prefix"))
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// What was written is read back, whatever it is, and beside whatever else.
func TestHoldRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keys, want := drawKeys(t), drawHold(t)
		annotations := rapid.MapOf(rapid.String(), rapid.String()).Draw(t, "foreign")
		maps.Copy(annotations, keys.Annotations(want))

		got, err := keys.ReadHold(want.UID, annotations)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(&want, got); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestHoldSinceIsUTCToTheSecond(t *testing.T) {
	var keys meta.Keys
	at := time.Date(2026, 5, 6, 7, 8, 9, 123456789, time.FixedZone("x", 2*3600))
	annotations := keys.Annotations(meta.Hold{Instance: 1, Found: meta.FoundRunning, Since: at})
	if got, want := annotations[keys.Since()], "2026-05-06T05:08:09Z"; got != want {
		t.Errorf("written: got %s, want %s", got, want)
	}
	annotations[keys.Since()] = "2026-05-06T07:08:09+02:00"
	got, err := keys.ReadHold("", annotations)
	if err != nil {
		t.Fatal(err)
	}
	if want := time.Date(2026, 5, 6, 5, 8, 9, 0, time.UTC); got.Since != want {
		t.Errorf("read: got %v, want %v", got.Since, want)
	}
}

// Rule H10: what is not understood is a hold of unknown instance, named by its
// annotation and its value.
func TestReadHoldRefuses(t *testing.T) {
	var keys meta.Keys
	valid := keys.Annotations(meta.Hold{Instance: 7, Holder: "me", Found: meta.FoundRunning, UID: "u"})
	cases := map[string]struct {
		key, value string
		remove     bool
	}{
		"NoInstance":          {key: keys.Instance(), remove: true},
		"EmptyInstance":       {key: keys.Instance()},
		"InstanceZero":        {key: keys.Instance(), value: "0"},
		"InstanceNegative":    {key: keys.Instance(), value: "-7"},
		"InstanceSigned":      {key: keys.Instance(), value: "+7"},
		"InstancePadded":      {key: keys.Instance(), value: "07"},
		"InstanceSpaced":      {key: keys.Instance(), value: " 7"},
		"InstanceLineBreak":   {key: keys.Instance(), value: "7\n"},
		"InstanceUnderscored": {key: keys.Instance(), value: "1_000"},
		"InstanceHex":         {key: keys.Instance(), value: "0x7"},
		"InstanceFraction":    {key: keys.Instance(), value: "7.0"},
		"InstanceExponent":    {key: keys.Instance(), value: "1e3"},
		"InstanceTooLarge":    {key: keys.Instance(), value: "9223372036854775808"},
		"InstanceOtherDigits": {key: keys.Instance(), value: "７"},
		"InstanceWord":        {key: keys.Instance(), value: "seven"},
		"EmptySince":          {key: keys.Since()},
		"SinceIsADate":        {key: keys.Since(), value: "2026-05-06"},
		"SinceIsANumber":      {key: keys.Since(), value: "1778043689"},
		"EmptyFound":          {key: keys.Found()},
		"FoundWord":           {key: keys.Found(), value: "sleeping"},
		"FoundUpperCase":      {key: keys.Found(), value: "Running"},
		"FoundSpaced":         {key: keys.Found(), value: "running "},
		"FoundNoValue":        {key: keys.Found(), value: "running="},
		"FoundGateValued":     {key: keys.Found(), value: "gate=3"},
		"FoundPausedValued":   {key: keys.Found(), value: "paused="},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			annotations := maps.Clone(valid)
			annotations[tc.key] = tc.value
			if tc.remove {
				delete(annotations, tc.key)
			}
			hold, err := keys.ReadHold("u", annotations)
			var bad *meta.AnnotationError
			if hold != nil || !errors.As(err, &bad) {
				t.Fatalf("got %v, %v", hold, err)
			}
			if bad.Key != tc.key || bad.Value != tc.value {
				t.Errorf("got %q=%q, want %q=%q", bad.Key, bad.Value, tc.key, tc.value)
			}
			if text := err.Error(); !strings.Contains(text, tc.key) || !strings.Contains(text, strconv.Quote(tc.value)) {
				t.Errorf("%q does not name the annotation and its value", text)
			}
		})
	}
}

// Rule H10: any of the six annotations without an instance is a hold of
// unknown instance, and none of them is none.
func TestReadHoldOfAnySubset(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keys, hold := drawKeys(t), drawHold(t)
		annotations := keys.Annotations(hold)
		kept := rapid.SliceOfDistinct(rapid.SampledFrom(keys.OfHold()), rapid.ID).Draw(t, "kept")
		for _, key := range keys.OfHold() {
			delete(annotations, key)
		}
		for _, key := range kept {
			annotations[key] = keys.Annotations(hold)[key]
		}
		_, numbered := annotations[keys.Instance()]

		got, err := keys.ReadHold(hold.UID, annotations)
		switch {
		case len(kept) == 0 && (got != nil || err != nil):
			t.Fatalf("no annotation: got %v, %v", got, err)
		case len(kept) > 0 && !numbered && !errors.As(err, new(*meta.AnnotationError)):
			t.Fatalf("no instance: got %v, %v", got, err)
		case numbered && (err != nil || got.Instance != hold.Instance):
			t.Fatalf("with its instance: got %v, %v", got, err)
		}
		if _, recorded := annotations[keys.Found()]; numbered && !recorded && got.Found != meta.FoundRunning {
			// Rule H10: an instance without a record counts as one that found
			// the object running.
			t.Fatalf("no record: got %q", got.Found)
		}
	})
}

// Rule H10: whatever stands there, an instance is never read that is not
// written there letter for letter.
func TestReadHoldNeverGuesses(t *testing.T) {
	digits := rapid.StringOfN(rapid.RuneFrom([]rune("0123456789 +-.e")), 0, 20, -1)
	rapid.Check(t, func(t *rapid.T) {
		keys := drawKeys(t)
		annotations := map[string]string{}
		for _, key := range append(keys.OfHold(), keys.Opened(), keys.Executions(), keys.Admission()) {
			if rapid.Bool().Draw(t, "has "+key) {
				annotations[key] = rapid.OneOf(digits, rapid.SampledFrom([]string{"7", "u", "v", "running"}), rapid.String()).Draw(t, key)
			}
		}
		got, err := keys.ReadHold("u", annotations)
		if got != nil && (err != nil || got.Instance < 1 || strconv.FormatInt(got.Instance, 10) != annotations[keys.Instance()]) {
			t.Fatalf("got %v, %v", got, err)
		}
	})
}

// Rule H13: on an object with another UID a hold is none, even one that could
// not be understood.
func TestReadHoldOfAnotherObject(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keys, hold := drawKeys(t), drawHold(t)
		annotations := keys.Annotations(hold)
		if rapid.Bool().Draw(t, "garbled") {
			annotations[keys.Instance()] = "x"
		}
		other := hold.UID + "x"

		got, err := keys.ReadHold(other, annotations)
		if got != nil || err != nil || !keys.Void(other, annotations) {
			t.Fatalf("another object: got %v, %v", got, err)
		}
		if keys.Void(hold.UID, annotations) {
			t.Fatal("void on its own object")
		}
	})
}

// Rule H13: a hold that does not say which object it was placed on counts as
// placed on this one: nothing says that it may be overwritten.
func TestReadHoldWithoutUID(t *testing.T) {
	var keys meta.Keys
	annotations := keys.Annotations(meta.Hold{Instance: 7, Found: meta.FoundPaused})
	delete(annotations, keys.UID())
	got, err := keys.ReadHold("u", annotations)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&meta.Hold{Instance: 7, Found: meta.FoundPaused, UID: "u"}, got); diff != "" {
		t.Error(diff)
	}
	if keys.Void("u", annotations) || keys.Void("u", nil) {
		t.Error("void, though no other object is named")
	}
}

// Rule H13: the opened mark is good for one object.
func TestReadOpened(t *testing.T) {
	var keys meta.Keys
	cases := map[string]struct {
		uid         types.UID
		annotations map[string]string
		want        bool
	}{
		"None":          {"u", nil, false},
		"Own":           {"u", map[string]string{keys.Opened(): "u"}, true},
		"AnotherObject": {"u", map[string]string{keys.Opened(): "v"}, false},
		"Empty":         {"u", map[string]string{keys.Opened(): ""}, false},
		"True":          {"u", map[string]string{keys.Opened(): "true"}, false},
		"NoUIDAtAll":    {"", map[string]string{keys.Opened(): ""}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := keys.ReadOpened(tc.uid, tc.annotations); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}

// Rules H13 and I6: A is read back for the object it was written on, is 0 for
// any other, and is never guessed.
func TestExecutions(t *testing.T) {
	var keys meta.Keys
	const unknown = -1
	cases := map[string]struct {
		value string
		want  int64
	}{
		"First":         {"1 u", 1},
		"Largest":       {"9223372036854775807 u", math.MaxInt64},
		"AnotherObject": {"5 v", 0},
		"NoUID":         {"5", unknown},
		"EmptyUID":      {"5 ", unknown},
		"Empty":         {"", unknown},
		"OnlyUID":       {" u", unknown},
		"Negative":      {"-5 u", unknown},
		"Padded":        {"05 u", unknown},
		"TooLarge":      {"9223372036854775808 u", unknown},
		"Words":         {"five u", unknown},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := keys.ReadExecutions("u", map[string]string{keys.Executions(): tc.value})
			if tc.want == unknown {
				if !errors.As(err, new(*meta.AnnotationError)) {
					t.Fatalf("got %d, %v", got, err)
				}
				return
			}
			if err != nil || got != tc.want {
				t.Errorf("got %d, %v, want %d", got, err, tc.want)
			}
		})
	}
	t.Run("NeverWritten", func(t *testing.T) {
		if got, err := keys.ReadExecutions("u", nil); got != 0 || err != nil {
			t.Errorf("got %d, %v", got, err)
		}
	})
	t.Run("RoundTrip", rapid.MakeCheck(func(t *rapid.T) {
		keys := drawKeys(t)
		uid := types.UID(rapid.StringN(1, -1, -1).Draw(t, "uid"))
		want := rapid.Int64Min(0).Draw(t, "a")
		got, err := keys.ReadExecutions(uid, map[string]string{keys.Executions(): keys.ExecutionsValue(uid, want)})
		if err != nil || got != want {
			t.Fatalf("got %d, %v, want %d", got, err, want)
		}
	}))
}
