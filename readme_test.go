package informer_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestTheCodeInTheReadmeIsTested compares each Go block of the README with the
// examples, which run as tests.
func TestTheCodeInTheReadmeIsTested(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	examples, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllSubmatch(readme, -1)
	if len(blocks) < 2 {
		t.Fatalf("the README has %d blocks of Go", len(blocks))
	}
	for _, block := range blocks {
		if !strings.Contains(string(examples), string(block[1])) {
			t.Errorf("this code is not in example_test.go:\n%s", block[1])
		}
	}
}
