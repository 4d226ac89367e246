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

func TestOperationsExplainEachLoggedLine(t *testing.T) {
	text := strings.Join(strings.Fields(readText(t, operations, "The log")), " ")
	for _, lines := range loggedLines(t) {
		for line := range lines {
			if !strings.Contains(text, line.text) {
				t.Errorf("%s does not have %q", operations, line.text)
			}
		}
	}
}

func TestOperationsExplainEachStateOfThePage(t *testing.T) {
	explained := matches(`(?m)^\| \*\*([^*]+)\*\*[ !]*\| `, readText(t, operations, "When something is wrong"))
	equal(t, "states in the code and in "+operations, explained, pageStates(t))
}

// pageStates returns the states of informers, watchers, controllers and sets, sorted: the constants
// that the functions informerState, watcherState, controllerState and setState return, in whatever
// package they are.
func pageStates(t *testing.T) (states []string) {
	t.Helper()
	functions, found := []string{"controllerState", "informerState", "setState", "watcherState"}, []string(nil)
	for _, files := range moduleFiles(t) {
		for _, name := range files {
			file := must(parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution))
			for _, decl := range file.Decls {
				if f, ok := decl.(*ast.FuncDecl); ok && slices.Contains(functions, f.Name.Name) {
					found = append(found, f.Name.Name)
					states = append(states, returned(f)...)
				}
			}
		}
	}
	equal(t, "functions", sorted(found), functions)
	return sorted(states)
}

// returned returns the constants that a function returns as its first result. It panics if
// that is not a constant.
func returned(f *ast.FuncDecl) (constants []string) {
	ast.Inspect(f, func(n ast.Node) bool {
		if ret, ok := n.(*ast.ReturnStmt); ok {
			constants = append(constants, must(strconv.Unquote(ret.Results[0].(*ast.BasicLit).Value)))
		}
		return true
	})
	return constants
}

func TestOperationsHaveASectionForEachAlert(t *testing.T) {
	alerts := matches(`(?m)^ *- alert: *(\S+)$`, readText(t, "metrics/prometheus/alerts.yaml", ""))
	sections := matches(`(?m)^### (.+)$`, readText(t, operations, "Alerts"))
	if equal(t, "alerts in alerts.yaml and in "+operations, sections, alerts); len(alerts) == 0 {
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
	if equal(t, "metrics in metrics/prometheus/README.md and in "+operations, names(table), want); len(want) == 0 {
		t.Error("found no metrics")
	}
}
