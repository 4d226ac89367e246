package pairs

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

var quoted = regexp.MustCompile("`([^`]+)`")

// TestPairs reads the tables of docs/together.md. It builds each pair of a row that names it, and expects that the pair works,
// or that it leads to the error of the row. Each two parts must be in one row.
func TestPairs(t *testing.T) {
	page, err := os.ReadFile("../../docs/together.md")
	if err != nil {
		t.Fatal(err)
	}
	var parts, section []string
	seen := map[[2]string]bool{}
	for line := range strings.Lines(string(page)) {
		if heading, ok := strings.CutPrefix(strings.TrimSpace(line), "## "); ok {
			section = strings.Split(heading, ", ")
			for n, name := range section { // a heading begins with a capital letter
				section[n] = parts[slices.IndexFunc(parts, func(p string) bool { return strings.EqualFold(p, name) })]
			}
		}
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if len(cells) == 2 && section == nil {
			parts = append(parts, strings.Split(strings.TrimPrefix(cells[0], "| "), ", ")...) // and "part"
		}
		if len(cells) != 3 || cells[0] == "| with" {
			continue
		}
		with := strings.Split(strings.TrimPrefix(cells[0], "| "), ", ")
		if with[0] == "each other" {
			with = section
		}
		for n, a := range section {
			for m, b := range with {
				if &with[0] == &section[0] && m >= n {
					continue
				}
				p := [2]string{b, a}
				if seen[p] || !slices.Contains(parts, b) {
					t.Errorf("%s and %s are in two rows, or there is no section about %s", b, a, b)
				}
				seen[p] = true
				check(t, p, cells[1], strings.TrimSuffix(cells[2], "|"))
			}
		}
	}
	if n := len(parts) - 1; len(seen) != n*(n-1)/2 || n != 16 {
		t.Errorf("the page has %d pairs of %d parts", len(seen), n)
	}
}

// check checks the row of a pair.
func check(t *testing.T, parts [2]string, result, test string) {
	t.Run(parts[0]+"+"+parts[1], func(t *testing.T) {
		switch {
		case strings.HasPrefix(result, "not a pair: "):
			if words := strings.Fields(result); len(words) > 6 || strings.TrimSpace(test) != "" {
				t.Errorf("more than three words, or a test: %q, %q", words[3:], test)
			}
		case !strings.Contains(test, "Test"):
			t.Error("the row names no test")
		case strings.Contains(test, "`TestPairs`"):
			synctest.Test(t, func(t *testing.T) {
				err := (&pair{parts: parts}).works(t)
				want := quoted.FindStringSubmatch(strings.Replace(result, "no effect", "`framing has an effect: false`", 1))
				switch {
				case strings.HasPrefix(result, "works") && err != nil:
					t.Error(err)
				case !strings.HasPrefix(result, "works") && (want == nil || err == nil || !strings.Contains(err.Error(), want[1])):
					t.Errorf("got %v, the page has %s", err, result)
				}
			})
		}
	})
}
