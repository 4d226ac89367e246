package informer_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/customcacheinformer/informer/internal/migrating"
)

// TestTheCodeInTheDocumentationIsTested compares each Go block of the README and of three guides
// with the examples, which run as tests. Code that needs another module is compared in that
// module.
func TestTheCodeInTheDocumentationIsTested(t *testing.T) {
	for document, example := range map[string]string{
		"README.md":        "example_test.go",
		"docs/stores.md":   "example_store_test.go",
		"docs/operator.md": "enqueue/example_test.go",
		"docs/sharding.md": "shards/example_test.go",
	} {
		blocks := migrating.Check(t, document, func(heading string) bool {
			return heading != "On disk" && heading != "On a Valkey or Redis server" && heading != migrating.Manager
		}, example)
		if blocks["go"] < 1 {
			t.Fatalf("%s has %d blocks of Go", document, blocks["go"])
		}
	}
}

// TestTheReadmeCountsTheLinesOfTheOperator counts every Go file of the example that is no test.
func TestTheReadmeCountsTheLinesOfTheOperator(t *testing.T) {
	lines := 0
	for _, pattern := range []string{"examples/operator/*.go", "examples/operator/website/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasSuffix(file, "_test.go") {
				lines += bytes.Count(text, []byte("\n"))
			}
		}
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("have %d lines, without its tests", lines); !strings.Contains(string(readme), want) {
		t.Errorf("README.md does not say %q", want)
	}
}
