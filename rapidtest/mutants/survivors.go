package main

import (
	"fmt"
	"os"
	"strings"
)

// readSurvivors reads the list of mutants that are known to change nothing: each on a line of its own, and below it, indented, the reason.
// Empty lines and lines that begin with # say nothing.
func readSurvivors(name string) (map[string]string, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return parseSurvivors(string(text))
}

func parseSurvivors(text string) (map[string]string, error) {
	reasons := map[string]string{}
	last := ""
	for _, line := range strings.Split(text, "\n") {
		trimmed := strings.TrimSpace(line)
		switch {
		case trimmed == "" || strings.HasPrefix(line, "#"):
		case trimmed == strings.TrimRight(line, " \t\r"):
			if _, twice := reasons[trimmed]; twice {
				return nil, fmt.Errorf("%q is listed twice", trimmed)
			}
			last = trimmed
			reasons[last] = ""
		case last == "":
			return nil, fmt.Errorf("a reason without a mutant: %q", trimmed)
		default:
			reasons[last] = strings.TrimSpace(reasons[last] + " " + trimmed)
		}
	}
	for name, reason := range reasons {
		if reason == "" {
			return nil, fmt.Errorf("%q is listed without a reason", name)
		}
	}
	return reasons, nil
}
