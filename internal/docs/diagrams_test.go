package docs_test

import (
	"html"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var label = regexp.MustCompile(`"([^"]+)"`)

// TestDiagramsShowTheirTexts compares each diagram with the text that "make diagrams" draws it from, as
// far as labels go. Each must have colors for dark pages, and a page that shows it.
func TestDiagramsShowTheirTexts(t *testing.T) {
	atRoot(t)
	texts, err := filepath.Glob("docs/diagrams/*.d2")
	if err != nil || len(texts) < 3 {
		t.Fatalf("found %d texts of diagrams: %v", len(texts), err)
	}
	pages := ""
	for _, file := range markdownFiles(t) {
		pages += read(t, file)
	}
	for _, text := range texts {
		drawn := strings.TrimSuffix(text, ".d2") + ".svg"
		svg := html.UnescapeString(read(t, drawn))
		labels := label.FindAllStringSubmatch(read(t, text), -1)
		if len(labels) < 5 {
			t.Errorf("%s has %d labels", text, len(labels))
		}
		for _, l := range labels {
			for line := range strings.SplitSeq(l[1], `\n`) {
				if !strings.Contains(svg, line) {
					t.Errorf("%s does not show %q: run \"make diagrams\"", drawn, line)
				}
			}
		}
		if !strings.Contains(svg, "prefers-color-scheme:dark") {
			t.Errorf("%s has no colors for dark pages", drawn)
		}
		if !strings.Contains(pages, "](diagrams/"+filepath.Base(drawn)+")") {
			t.Errorf("no page shows %s", drawn)
		}
	}
}
