package holdable

import (
	"fmt"
	"os"
	"regexp"
	"testing"
)

// The rule table has every rule once, each with the place where it is kept.
func TestRulesAreComplete(t *testing.T) {
	page, err := os.ReadFile("RULES.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]int{}
	for _, row := range regexp.MustCompile(`(?m)^\| \*\*([A-Z]\d+)\*\* \| \S.* \| \S.* \|$`).FindAllSubmatch(page, -1) {
		rows[string(row[1])]++
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
