package docs_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// atRoot begins a test in the root of the repository, where the paths of these tests begin. A TestMain cannot do
// it: the go command does not see the change, and would take results from its cache though a page has changed.
func atRoot(t *testing.T) { t.Chdir("../..") }

// TestTheElectionOfTheWholeProgramIsTheTestedOne compares runElected of the example with that of package
// enqueue, whose tests play lost Leases and handovers with it.
func TestTheElectionOfTheWholeProgramIsTheTestedOne(t *testing.T) {
	atRoot(t)
	_, election, found := strings.Cut(read(t, "enqueue/example_test.go"), "// runElected ")
	election, _, ended := strings.Cut(election, "\n}\n")
	if !found || !ended || !strings.Contains(read(t, "examples/elected/main.go"), "// runElected "+election+"\n}\n") {
		t.Error("examples/elected/main.go does not have runElected of enqueue/example_test.go")
	}
}

// TestTheReadmeIsShort holds the README to the length that a reader takes in at once.
func TestTheReadmeIsShort(t *testing.T) {
	atRoot(t)
	const limit = 100
	if n := strings.Count(read(t, "README.md"), "\n"); n > limit {
		t.Errorf("README.md has %d lines, want at most %d: the rest belongs in docs", n, limit)
	}
}

// TestTheFiguresOfTheReadmeAreThoseOfTheResults compares each figure of the README with the file that
// a command of this repository has written, or with the code that it counts.
func TestTheFiguresOfTheReadmeAreThoseOfTheResults(t *testing.T) {
	atRoot(t)
	const bench = "bench/RESULTS.md"
	way := find(t, bench, "whole way, 100 watchers")
	heap := find(t, "docs/stores.md", "heap per Pod of 100,000, of 5,400 owners")
	joining := find(t, bench, "joining, all others wait for")
	// Figures of one machine are a range, whose other end is of the machines that the remarks name.
	remarks := strings.Join(strings.Fields(read(t, bench)), " ")
	elsewhere := regexp.MustCompile(`was (\d+) \(DeltaFIFO\) and \d+ \(RealFIFO\) times.* for (\d+) to \d+ ms in an earlier measurement`).FindStringSubmatch(remarks)
	alone := regexp.MustCompile(`others wait up to (\d+) to (\d+) ms`).FindStringSubmatch(remarks)
	if elsewhere == nil || alone == nil {
		t.Fatal(bench + " has no figures of other machines")
	}
	var faults []json.RawMessage
	if err := json.Unmarshal([]byte(read(t, "tools/mutate/faults.json")), &faults); err != nil {
		t.Fatal(err)
	}
	// Lines are folded, so the README is compared with single spaces.
	readme := strings.Join(strings.Fields(read(t, "README.md")), " ")
	for _, want := range []string{
		fmt.Sprintf("**%s to %s times** less time", elsewhere[1], rounded(t, way[6])),
		fmt.Sprintf("%s of heap per Pod become **%s**", heap[1], heap[2]),
		fmt.Sprintf("find all **%d** faults that are planted in the code", len(faults)),
		fmt.Sprintf("all others wait for %s to %s ms | all others wait for %s to %s ms", elsewhere[2], rounded(t, joining[2]), alone[1], alone[2]),
		fmt.Sprintf("in %d lines without its tests", linesOfTheOperator(t)),
	} {
		if !strings.Contains(readme, want) {
			t.Errorf("README.md does not have %q", want)
		}
	}
}

// linesOfTheOperator counts every Go file of the example that is not a test.
func linesOfTheOperator(t *testing.T) (lines int) {
	t.Helper()
	for _, pattern := range []string{"examples/operator/*.go", "examples/operator/website/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if !strings.HasSuffix(file, "_test.go") {
				lines += strings.Count(read(t, file), "\n")
			}
		}
	}
	return lines
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func rounded(t *testing.T, figure string) string {
	t.Helper()
	return strconv.FormatFloat(parsed(t, figure), 'f', 0, 64)
}

func parsed(t *testing.T, figure string) float64 {
	t.Helper()
	n, err := strconv.ParseFloat(strings.ReplaceAll(figure, ",", ""), 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestTheNamesToBeginWithHaveExamples finds the first link of each item in the list of the package's
// documentation, and an example of that name.
func TestTheNamesToBeginWithHaveExamples(t *testing.T) {
	atRoot(t)
	_, list, _ := strings.Cut(read(t, "doc.go"), "# Where to begin")
	list, _, _ = strings.Cut(list, "\n// #")
	var examples strings.Builder
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		examples.WriteString(read(t, file))
	}
	names := regexp.MustCompile(`(?m)^// +\d+\. \[([\w.]+)\]`).FindAllStringSubmatch(list, -1)
	if len(names) != 10 {
		t.Fatalf("found %d names: %q", len(names), names)
	}
	for _, name := range names {
		example := "func Example" + strings.ReplaceAll(name[1], ".", "_") + "() {"
		if !strings.Contains(examples.String(), example) {
			t.Errorf("there is no %s", strings.TrimSuffix(example, " {"))
		}
	}
}
