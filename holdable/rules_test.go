package holdable

import (
	_ "embed"
	"fmt"
	"regexp"
	"testing"
)

// A file that is read at run time would have every test of the package run again
// in every fresh clone.
//
//go:embed RULES.md
var rulesPage string

// The rule table has every rule once, each with the place where it is kept.
func TestRulesAreComplete(t *testing.T) {
	rows := map[string]int{}
	for _, row := range regexp.MustCompile(`(?m)^\| \*\*([A-Z]\d+)\*\* \| \S.* \| \S.* \|$`).FindAllStringSubmatch(rulesPage, -1) {
		rows[row[1]]++
	}
	last := map[string]int{"C": 8, "H": 13, "R": 8, "O": 4, "T": 8, "E": 3, "K": 3, "P": 3, "G": 3, "I": 11}
	total := 0
	for letter, n := range last {
		total += n
		for i := range n {
			if id := fmt.Sprint(letter, i+1); rows[id] != 1 {
				t.Errorf("rule %s stands there %d times", id, rows[id])
			}
		}
	}
	if len(rows) != total {
		t.Errorf("got %d rules, want %d", len(rows), total)
	}
}
