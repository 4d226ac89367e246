package main

import (
	"strings"
	"testing"
	"testing/fstest"
)

func found(text string) string {
	var all []string
	for _, p := range markdown(text) {
		all = append(all, faults(p.text)...)
	}
	return strings.Join(all, "; ")
}

func TestEachWordRuledOutIsFound(t *testing.T) {
	const fence = "```"
	for _, word := range words {
		for _, text := range []string{
			"It lists " + word + ".", "- An item\n  " + strings.ToUpper(word) + " it.", "| a cell | " + word + " |",
			"It lists " + strings.ReplaceAll(word, " ", "\n") + ".", "Text.\n\n    code\n\nThen " + word + ".",
		} {
			if got := found(text); !strings.Contains(strings.ToLower(got), word) {
				t.Errorf("%q: found %q", text, got)
			}
		}
		for _, text := range []string{
			"It says \"" + word + "\" and `" + word + "`.", fence + "\n" + word + "\n" + fence + "\nIt lists.",
			"Text.\n\n    a command " + word + "\n\nText.", "See [this page](" + word + ").", "# A title " + word,
		} {
			if got := found(text); got != "" {
				t.Errorf("%q: found %q", text, got)
			}
		}
	}
}

func TestASentenceThatBeginsWithAClauseIsFound(t *testing.T) {
	const clause = "hat waits is merged"
	for text, want := range map[string]bool{
		"W" + clause + ".": true, "One. W" + clause + ".": true, "- **W" + clause + "** at last.": true, "| W" + clause + " | told |": true,
		"Then: w" + clause + ".": false, "W" + clause + "?": false, "# W" + clause: false, "Whatever it costs.": false,
	} {
		if got := found(text); (got != "") != want {
			t.Errorf("%q: found %q", text, got)
		}
	}
}

func TestIsNoInsteadOfIsNotIsFound(t *testing.T) {
	for text, want := range map[string]bool{
		"It is no list.": true, "Answers that are no lists count.": true, "There is no list, and that is no\nfault.": true,
		"There is no list.": false, "If there are no lists, it waits.": false, "It is no longer a list.": false, "It is not a list.": false,
	} {
		if got := found(text); (got != "") != want {
			t.Errorf("%q: found %q", text, got)
		}
	}
}

func TestALineIsNamedInMarkdownAndInComments(t *testing.T) {
	word := words[0]
	root := fstest.MapFS{
		"a.md":          {Data: []byte("# Title\n\nText.\n\nIt lists " + word + ".\n")},
		"a.go":          {Data: []byte("// Package a lists.\npackage a\n\n// A lists " + word + ".\nvar A = \"" + word + "\"\n\n//\t" + word + "()\n")},
		"testdata/b.md": {Data: []byte(word)},
		".git/c.md":     {Data: []byte(word)},
	}
	var out strings.Builder
	if err := run(&out, root, false); err == nil || !strings.HasPrefix(err.Error(), "2 sentences") {
		t.Errorf("%v, want 2 sentences", err)
	}
	for _, want := range []string{"a.md:5:", "a.go:4:"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q does not name %s", out.String(), want)
		}
	}
	out.Reset()
	if err := run(&out, root, true); err != nil || !strings.Contains(out.String(), "median") {
		t.Errorf("lengths: %q, %v", out.String(), err)
	}
	if err := run(&out, fstest.MapFS{}, false); err == nil {
		t.Error("an empty directory is not an error")
	}
}
