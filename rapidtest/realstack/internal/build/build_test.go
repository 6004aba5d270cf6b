package build

import (
	"os"
	"path/filepath"
	"testing"
)

func TestPatch(t *testing.T) {
	cases := map[string]struct {
		source string
		want   string // "" means an error
	}{
		"Once":  {source: "a = old", want: "a = new"},
		"Never": {source: "a = other"},
		"Twice": {source: "a = old; b = old"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			src, dst := t.TempDir(), filepath.Join(t.TempDir(), "copy")
			for file, text := range map[string]string{"main.go": tc.source, "main_test.go": "tests"} {
				if err := os.WriteFile(filepath.Join(src, file), []byte(text), 0o444); err != nil {
					t.Fatal(err)
				}
			}
			r := Recipe{Patches: []Patch{{File: "main.go", Old: "old", New: "new"}}}
			if err := r.patch(src, dst); (err == nil) != (tc.want != "") {
				t.Fatalf("patch: %v", err)
			}
			if tc.want == "" {
				return
			}
			got, err := os.ReadFile(filepath.Join(dst, "main.go"))
			if err != nil || string(got) != tc.want {
				t.Errorf("patched source is %q, %v, want %q", got, err, tc.want)
			}
			if exists(filepath.Join(dst, "main_test.go")) {
				t.Error("tests were copied")
			}
		})
	}
}

// Recipes that make different programs must not share a place in the cache.
func TestSum(t *testing.T) {
	base := Recipe{Name: "a", Module: "m", Version: "v1.0.0", Package: "m/cmd/a"}
	patched, flagged, slower := base, base, base
	patched.Patches = []Patch{{File: "main.go"}}
	flagged.LinkerFlags = []string{"-X a.b=c"}
	slower.Takes = "an hour"

	sum := func(r Recipe) string {
		text, err := r.sum()
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	if sum(base) == sum(patched) || sum(base) == sum(flagged) {
		t.Error("different programs have the same sum")
	}
	if sum(base) != sum(slower) {
		t.Error("how long it takes changes the sum")
	}
}
