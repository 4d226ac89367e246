package docs_test

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var fence = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")

// TestTheCodeInTheDocumentationIsTested finds each block of Go in README.md and docs, word for word, in a test file or
// in an example. Blocks whose fence has more than "go" need a module that this repository does not require.
func TestTheCodeInTheDocumentationIsTested(t *testing.T) {
	atRoot(t)
	var compiled strings.Builder
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".go") && (strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "examples"+string(filepath.Separator))) {
			compiled.WriteString(read(t, path) + "\x00")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var with []string
	for _, file := range markdownFiles(t) {
		if file != "README.md" && filepath.Dir(file) != "docs" { // of a module: lines for a program of the reader
			continue
		}
		for _, block := range fence.FindAllStringSubmatch(read(t, file), -1) {
			if !strings.Contains(compiled.String(), block[1]) {
				t.Errorf("%s: this code is in no test file and no example:\n%s", file, block[1])
			}
			with = append(with, file)
		}
	}
	if with = slices.Compact(with); len(with) < 9 {
		t.Errorf("found code only in %q", with)
	}
}
