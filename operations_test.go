package informer_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

)

const operations = "docs/operations.md"

// readText returns the text of a file, or only what one of its sections of the second
// level has.
func readText(t *testing.T, file, section string) string {
	t.Helper()
	text := must(os.ReadFile(file))
	if section == "" {
		return string(text)
	}
	_, found, ok := strings.Cut(string(text), "\n## "+section+"\n")
	if !ok {
		t.Fatalf("%s has no section %s", file, section)
	}
	found, _, _ = strings.Cut(found, "\n## ")
	return found
}

// matches returns what the group of a pattern has found in text, sorted.
func matches(pattern, text string) []string {
	var found []string
	for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		found = append(found, match[1])
	}
	slices.Sort(found)
	return found
}

func TestOperationsSayWhatToDoAboutEachLineOfTheLog(t *testing.T) {
	text, found := strings.Join(strings.Fields(readText(t, operations, "The log")), " "), 0
	for _, lines := range loggedLines(t) {
		for line := range lines {
			found++
			if !strings.Contains(text, line.text) {
				t.Errorf("%s does not have %q", operations, line.text)
			}
		}
	}
	if found == 0 {
		t.Fatal("found no line that is logged")
	}
}

func TestOperationsExplainEachStateOfThePage(t *testing.T) {
	explained := matches(`(?m)^\| \*\*([^*]+)\*\*[ !]*\| `, readText(t, operations, "When something is wrong"))
	equal(t, "states in the code and in "+operations, pageStates(t), explained)
}

// pageStates returns the states of informers, watchers, controllers and sets, sorted: the constants
// that the functions informerState, watcherState, controllerState and setState return, in whatever
// package they are.
func pageStates(t *testing.T) (states []string) {
	t.Helper()
	found := map[string]int{"informerState": 0, "watcherState": 0, "controllerState": 0, "setState": 0}
	for _, files := range moduleFiles(t) {
		for _, name := range files {
			file := must(parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution))
			for _, decl := range file.Decls {
				if f, ok := decl.(*ast.FuncDecl); ok {
					if n, names := found[f.Name.Name]; names {
						found[f.Name.Name] = n + 1
						states = append(states, returned(t, f)...)
					}
				}
			}
		}
	}
	for name, n := range found {
		if n != 1 {
			t.Fatalf("found %s %d times", name, n)
		}
	}
	slices.Sort(states)
	return states
}

// returned returns the constants that a function returns as its first result.
func returned(t *testing.T, f *ast.FuncDecl) (constants []string) {
	t.Helper()
	ast.Inspect(f, func(n ast.Node) bool {
		if ret, ok := n.(*ast.ReturnStmt); ok {
			literal, ok := ret.Results[0].(*ast.BasicLit)
			if !ok {
				t.Fatalf("%s returns a state that is no constant", f.Name.Name)
			}
			constant := must(strconv.Unquote(literal.Value))
			constants = append(constants, constant)
		}
		return true
	})
	if len(constants) == 0 {
		t.Fatalf("%s returns no states", f.Name.Name)
	}
	return constants
}

func TestOperationsHaveASectionForEachAlert(t *testing.T) {
	alerts := matches(`(?m)^ *- alert: *(\S+)$`, readText(t, "metrics/prometheus/alerts.yaml", ""))
	sections := matches(`(?m)^### (.+)$`, readText(t, operations, "Alerts"))
	if equal(t, "alerts in alerts.yaml and in "+operations, alerts, sections); len(alerts) == 0 {
		t.Error("found no alerts")
	}
}

func TestOperationsHaveEachMetricOnce(t *testing.T) {
	names := func(text string) []string {
		firstCells := strings.Join(matches("(?m)^\\| (`[^|]+`) \\|", text), "\n")
		return matches("`([a-z_]+)`", firstCells)
	}
	// The README has other tables, of labels.
	want := slices.DeleteFunc(names(readText(t, "metrics/prometheus/README.md", "")), func(name string) bool {
		return !strings.HasPrefix(name, "informer_") && !strings.HasPrefix(name, "workqueue_")
	})
	table, _, _ := strings.Cut(readText(t, operations, "Metrics"), "\n| client-go |")
	if equal(t, "metrics in metrics/prometheus/README.md and in "+operations, want, names(table)); len(want) == 0 {
		t.Error("found no metrics")
	}
}
