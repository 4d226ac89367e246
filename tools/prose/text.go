package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// part is a piece of text without code, such as a paragraph, an item or a cell of a table.
type part struct {
	line int // where it begins
	text string
}

// words are those that the Go standard library would not use, or would use in another sense.
var words = []string{
	"anew", "but for", "for ever", "all the same", "so many", "in the time before",
	"somebody", "nobody", "for whom", "goes on", "went on", "lets go of", "let go of", "gets done",
	"ctx has ended", "has come", "have come", "is told", "was told", "are told", "were told",
	"says what", "says which", "says how", "says so",
}

var ruledOut = regexp.MustCompile(`(?i)\b(` + strings.Join(words, "|") + `)\b`)

// noNoun finds "is no list" in the sense of "is not a list".
var noNoun = regexp.MustCompile(`(?i)\b(\w+) (?:is|are|was|were) no (\w+)`)

// comparatives are the words before which "is no" is right.
var comparatives = []string{"longer", "more", "less", "older", "newer", "later", "other"}

// nounClause is a sentence that begins with a clause in the place of a noun.
var nounClause = regexp.MustCompile(`^(What|Who|Whoever) [^?]*$`)

var (
	inlineCode = regexp.MustCompile("(?s)`[^`]*`")
	quotation  = regexp.MustCompile(`(?s)"[^"]*"`)
	link       = regexp.MustCompile(`\]\([^)]*\)`)
	item       = regexp.MustCompile(`^\s*([-*>]|\d+\.)\s+`)
	end        = regexp.MustCompile(`[.!:](\*\*)?(\s+|$)|\?`)
)

// markdown returns the parts of a Markdown text, without blocks of code and headings.
func markdown(text string) (parts []part) {
	var current *part
	begin := func(line int) {
		parts = append(parts, part{line: line})
		current = &parts[len(parts)-1]
	}
	fenced := false
	for n, line := range strings.Split(text, "\n") {
		switch {
		case strings.HasPrefix(strings.TrimSpace(line), "```"):
			fenced, current = !fenced, nil
		case fenced, strings.TrimSpace(line) == "", strings.HasPrefix(line, "#"), strings.HasPrefix(line, "    ") && current == nil:
			current = nil
		case strings.HasPrefix(line, "|"):
			for cell := range strings.SplitSeq(line, "|") {
				parts = append(parts, part{n + 1, strings.TrimSpace(cell)})
			}
			current = nil
		default:
			if current == nil || item.MatchString(line) {
				begin(n + 1)
				line = item.ReplaceAllString(line, "")
			}
			current.text += line + "\n"
		}
	}
	for i := range parts {
		parts[i].text = unquoted(link.ReplaceAllString(parts[i].text, "]"))
	}
	return parts
}

// unquoted returns a text with a placeholder for each quotation and each piece of code.
func unquoted(text string) string {
	return quotation.ReplaceAllString(inlineCode.ReplaceAllString(text, "CODE"), "QUOTE")
}

// sentences splits a part. A colon ends a sentence, too.
func sentences(text string) (all []string) {
	for text = strings.TrimSpace(text); text != ""; {
		at := end.FindStringIndex(text)
		if at == nil {
			at = []int{0, len(text)}
		}
		sentence := strings.Join(strings.Fields(text[:at[1]]), " ")
		all = append(all, strings.TrimLeft(sentence, "*([_"))
		text = strings.TrimSpace(text[at[1]:])
	}
	return all
}

// faults returns the faults of a part.
func faults(text string) (all []string) {
	for _, s := range sentences(text) {
		if word := ruledOut.FindString(s); word != "" {
			all = append(all, fmt.Sprintf("%q in: %s", word, s))
		}
		for _, m := range noNoun.FindAllStringSubmatch(s, -1) {
			if !strings.EqualFold(m[1], "there") && !slices.Contains(comparatives, m[2]) {
				all = append(all, fmt.Sprintf("%q instead of \"is not\" in: %s", m[0], s))
			}
		}
		if nounClause.MatchString(s) {
			all = append(all, fmt.Sprintf("begins with a clause instead of a noun: %s", s))
		}
	}
	return all
}
