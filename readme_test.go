package informer_test

import (
	"testing"

	"github.com/customcacheinformer/informer/internal/migrating"
)

// TestTheCodeInTheDocumentationIsTested compares each Go block of the README and of two guides
// with the examples, which run as tests. Code that needs package disk is compared in that
// module.
func TestTheCodeInTheDocumentationIsTested(t *testing.T) {
	for document, example := range map[string]string{
		"README.md":        "example_test.go",
		"docs/stores.md":   "example_store_test.go",
		"docs/operator.md": "enqueue/example_test.go",
	} {
		blocks := migrating.Check(t, document, func(heading string) bool { return heading != "On disk" }, example)
		if blocks["go"] < 1 {
			t.Fatalf("%s has %d blocks of Go", document, blocks["go"])
		}
	}
}
