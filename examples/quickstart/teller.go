package main

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// The columns of a step: its number, who acts, what he does, what came of it.
const (
	doesColumn   = 14
	answerColumn = 41
	pageWidth    = 100
)

// A teller writes the story down. It keeps the first error of its writer, which
// ends the story.
type teller struct {
	out   io.Writer
	steps int
	err   error
}

func (t *teller) printf(format string, args ...any) {
	if _, err := fmt.Fprintf(t.out, format, args...); err != nil && t.err == nil {
		t.err = err
	}
}

// line writes one line, or more where it is too long.
func (t *teller) line(format string, args ...any) {
	t.printf("%s\n", strings.Join(wrap(fmt.Sprintf(format, args...), pageWidth), "\n"))
}

func (t *teller) chapter(title string) {
	t.printf("\n\n%s\n%s\n", title, strings.Repeat("=", utf8.RuneCountInString(title)))
}

func (t *teller) scene(title string) { t.printf("\n  %s\n\n", title) }

// begin writes what a step is about, before it is known what comes of it: on a
// real cluster that may take a moment.
func (t *teller) begin(s step) {
	t.steps++
	t.printf("%4d  %-7s %-*s ", t.steps, s.who, answerColumn-doesColumn-1, s.does)
}

// answer completes the line of a step.
func (t *teller) answer(text string) {
	lines := wrap(text, pageWidth-answerColumn)
	t.printf("%s\n", strings.Join(lines, "\n"+strings.Repeat(" ", answerColumn)))
}

// wrap breaks text between words, into lines of at most width characters where
// its words allow that. Line breaks of the text stay.
func wrap(text string, width int) []string {
	var lines []string
	for part := range strings.SplitSeq(text, "\n") {
		line := ""
		for _, word := range strings.Fields(part) {
			switch {
			case line == "":
				line = word
			case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) <= width:
				line += " " + word
			default:
				lines, line = append(lines, line), word
			}
		}
		lines = append(lines, line)
	}
	return lines
}
