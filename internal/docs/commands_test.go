package docs_test

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	command    = regexp.MustCompile("`(?:cd (\\S+) && )?(?:GOWORK=off )?(make|go test|go run) ([^`]+)`")
	linkedTest = regexp.MustCompile("\\[`((?:Test|Example)\\w+)`\\]\\(([^()\\s]+)\\)")
	benchmark  = regexp.MustCompile(`(?m)^\t+name: +"(\w+)"`)
	testFunc   = regexp.MustCompile(`(?m)^func ((?:Test|Example|Fuzz|Benchmark)\w*)\(`)
)

// TestTheCommandsInTheDocumentsExist finds the target of each "make", the program of each "go run", the tests of each "go test -run", and
// the test of each link that has the name of one.
func TestTheCommandsInTheDocumentsExist(t *testing.T) {
	atRoot(t)
	checked := map[string]int{}
	for _, page := range markdownFiles(t) {
		if page != "README.md" && filepath.Dir(page) != "docs" {
			continue
		}
		text := read(t, page)
		for _, m := range command.FindAllStringSubmatch(text, -1) {
			checked[m[2]]++
			if !exists(t, m[1], m[2], strings.Fields(m[3])) {
				t.Errorf("%s: %s leads to nothing", page, m[0])
			}
		}
		for _, m := range linkedTest.FindAllStringSubmatch(text, -1) {
			checked["link"]++
			if !strings.Contains(read(t, filepath.Join(filepath.Dir(page), m[2])), "\nfunc "+m[1]+"(") {
				t.Errorf("%s: %s has no %s", page, m[2], m[1])
			}
		}
	}
	for of, n := range map[string]int{"make": 20, "go test": 20, "go run": 10, "link": 20} {
		if checked[of] < n {
			t.Errorf("found only %d of %q", checked[of], of)
		}
	}
}

// exists reports whether a command in a directory has a target, a program, or a function that its -run matches.
func exists(t *testing.T, dir, verb string, args []string) bool {
	if verb == "make" {
		return strings.Contains("\n"+read(t, "Makefile"), "\n"+args[0]+":")
	}
	pattern, under, files, names := "", dir, "*.go", regexp.MustCompile(`(?m)^func (main)\(`)
	for n, arg := range args {
		switch {
		case arg == "-run" && verb == "go test":
			pattern, _, _ = strings.Cut(strings.Trim(args[n+1], `'"`), "/")
			files, names = "*_test.go", testFunc
		case arg == "-run" && dir == "bench":
			pattern, names = strings.Trim(args[n+1], `'"`), benchmark
		case strings.HasPrefix(arg, "./"):
			under = filepath.Join(dir, strings.TrimSuffix(arg, "..."))
		}
	}
	if verb == "go test" && pattern == "" {
		names = regexp.MustCompile("package ()") // all tests
	}
	found, err := filepath.Glob(filepath.Join(under, files))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range found {
		for _, name := range names.FindAllStringSubmatch(read(t, file), -1) {
			if regexp.MustCompile(pattern).MatchString(name[1]) {
				return true
			}
		}
	}
	return false
}
