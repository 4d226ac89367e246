package informer_test

import (
	"testing"

	"github.com/customcacheinformer/informer/internal/migrating"
)

// TestTheCodeInTheReadmeIsTested compares each Go block of the README with the
// examples, which run as tests.
func TestTheCodeInTheReadmeIsTested(t *testing.T) {
	blocks := migrating.Check(t, "README.md", nil, "example_test.go")
	if blocks["go"] < 2 {
		t.Fatalf("the README has %d blocks of Go", blocks["go"])
	}
}
