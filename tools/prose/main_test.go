package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSentencesThatBreakARuleAreFound(t *testing.T) {
	const fence = "```"
	for text, want := range map[string]string{
		"It lists anew.":                                  "anew",
		"It is all there,\nbut for one.":                  "but for",
		"It waits For  ever.":                             "For ever",
		"It waits for ever.":                              "for ever",
		"What waits is merged.":                           "begins with a clause",
		"One. Who joins late is told.":                    "begins with a clause",
		"- **What it reads** is old.":                     "begins with a clause",
		"| What the store has | told |":                   "begins with a clause",
		"Then: what waits is merged.":                     "",
		"What is merged?":                                 "",
		"# What is promised":                              "",
		"Whatever it costs.":                              "",
		"It says \"anew\" and `for ever`.":                "",
		fence + "\nlists anew\n" + fence + "\nIt lists.":  "",
		"Text.\n\n    a command that lists anew\n\nText.": "",
		"See [this page](anew.md).":                       "",
	} {
		var found []string
		for _, p := range markdown(text) {
			found = append(found, faults(p.text)...)
		}
		if got := strings.Join(found, "; "); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%q: found %q, want %q", text, got, want)
		}
	}
}

func TestALineIsNamedInMarkdownAndInComments(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.md":          "# Title\n\nText.\n\nIt lists anew.\n",
		"a.go":          "// Package a lists.\npackage a\n\n// A lists anew.\nvar A = \"anew\" // What waits is merged.\n\n//\tanew()\n",
		"testdata/b.md": "anew",
		".git/c.md":     "anew",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out strings.Builder
	if err := run(&out, dir, false); err == nil || !strings.HasPrefix(err.Error(), "3 sentences") {
		t.Errorf("%v, want 3 sentences", err)
	}
	for _, want := range []string{"a.md:5:", "a.go:4:", "a.go:5:"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q does not name %s", out.String(), want)
		}
	}
	out.Reset()
	if err := run(&out, dir, true); err != nil || !strings.Contains(out.String(), "median") {
		t.Errorf("lengths: %q, %v", out.String(), err)
	}
	if err := run(&out, t.TempDir(), false); err == nil {
		t.Error("an empty directory is no error")
	}
}
