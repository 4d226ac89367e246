package docs_test

import (
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

var (
	markdownLink    = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	markdownHeading = regexp.MustCompile(`^#{1,6} +(.*)$`)
)

// TestTheLinksOfTheDocumentationLeadSomewhere follows each link from a Markdown file to a file, and to a
// heading of a Markdown file. It does not follow links to other sites.
func TestTheLinksOfTheDocumentationLeadSomewhere(t *testing.T) {
	atRoot(t)
	anchors, links := map[string]map[string]bool{}, 0
	files := markdownFiles(t)
	for _, file := range files {
		anchors[file] = anchorsOf(read(t, file))
	}
	for _, file := range files {
		for _, match := range markdownLink.FindAllStringSubmatch(withoutCode(read(t, file)), -1) {
			link, err := url.Parse(match[1])
			if err != nil {
				t.Errorf("%s: %v", file, err)
				continue
			}
			if link.Scheme != "" {
				continue
			}
			links++
			target := file
			if link.Path != "" {
				target = filepath.Join(filepath.Dir(file), link.Path)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: the link %s leads nowhere", file, match[1])
			} else if link.Fragment != "" && !anchors[target][link.Fragment] {
				t.Errorf("%s: the link %s leads to no heading", file, match[1])
			}
		}
	}
	if links < 100 {
		t.Errorf("found %d links in %d files, which are too few to be all", links, len(files))
	}
}

func markdownFiles(t *testing.T) (files []string) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && (path == "bin" || strings.HasPrefix(path, ".") && path != ".") {
			return fs.SkipDir
		}
		if filepath.Ext(path) == ".md" {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// withoutCode returns a Markdown text without its blocks of code.
func withoutCode(markdown string) string {
	parts := strings.Split("\n"+markdown, "\n```")
	var kept []string
	for i := 0; i < len(parts); i += 2 {
		kept = append(kept, parts[i])
	}
	return strings.Join(kept, "\n")
}

// anchorsOf returns the names that GitHub gives to the headings of a Markdown text.
func anchorsOf(markdown string) map[string]bool {
	anchors := map[string]bool{}
	for line := range strings.SplitSeq(withoutCode(markdown), "\n") {
		heading := markdownHeading.FindStringSubmatch(line)
		if heading == nil {
			continue
		}
		name := strings.Map(func(r rune) rune {
			switch {
			case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
				return unicode.ToLower(r)
			case r == ' ':
				return '-'
			}
			return -1
		}, markdownLink.ReplaceAllString(heading[1], ""))
		unique := name
		for n := 1; anchors[unique]; n++ {
			unique = fmt.Sprintf("%s-%d", name, n)
		}
		anchors[unique] = true
	}
	return anchors
}
