package main

import (
	"os"
	"strings"
	"testing"
)

// The README opens with this program, as it is.
func TestReadmeShowsThisProgram(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	_, program, _ := strings.Cut(string(source), "lets it run again.\n")
	if program == "" || !strings.Contains(string(readme), "```go\n"+program+"```\n") {
		t.Error("README.md does not show examples/hold/main.go as it is")
	}
}
