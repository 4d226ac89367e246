package docs_test

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var quantity = regexp.MustCompile(`^([\d.,]+)\s*(\S*)$`)

// scale has the units of figures, as powers of ten of one unit.
var scale = map[string]float64{
	"": 1, "/min": 1, "B": 1, "kB": 1e3, "MB": 1e6, "kB/s": 1e3, "MB/s": 1e6, "µs": 1e-6, "ms": 1e-3, "s": 1, "ms/s": 1e-3,
}

// agree reports whether a figure is another one, rounded.
func agree(t *testing.T, rounded, exact string) bool {
	t.Helper()
	value := func(text string) (n, last float64) {
		parts := quantity.FindStringSubmatch(strings.TrimSpace(text))
		if parts == nil {
			t.Fatalf("%q is not a figure", text)
		}
		unit, known := scale[parts[2]]
		n, err := strconv.ParseFloat(strings.ReplaceAll(parts[1], ",", ""), 64)
		if err != nil || !known {
			t.Fatalf("%q: %v, unit known: %t", text, err, known)
		}
		_, decimals, _ := strings.Cut(parts[1], ".")
		return n * unit, unit * math.Pow10(-len(decimals))
	}
	n, last := value(rounded)
	m, _ := value(exact)
	return math.Abs(n-m) <= last*0.501
}

// find returns the cells of the row that begins with these cells.
func find(t *testing.T, file string, begin ...string) []string {
	t.Helper()
	for line := range strings.Lines(read(t, file)) {
		cells := cellsOf(line)
		if len(cells) > len(begin) && strings.Join(cells[:len(begin)], "|") == strings.Join(begin, "|") {
			return cells
		}
	}
	t.Fatalf("%s has no row %q", file, begin)
	return nil
}

// cellsOf returns the cells of a row of a table.
func cellsOf(line string) []string {
	cells := strings.Split(strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(line), "|"), "|"), "|")
	for i := range cells {
		cells[i] = strings.TrimSpace(cells[i])
	}
	return cells
}

func TestTheFiguresOfTheRelayAreThoseOfTheResults(t *testing.T) {
	const page, results = "docs/relay.md", "e2e/relay/costs/RESULTS.md"
	// The last table of the results has one row for each side, in this order.
	lines := strings.Split(strings.TrimSpace(read(t, results)), "\n")
	each := [][]string{cellsOf(lines[len(lines)-2]), cellsOf(lines[len(lines)-1])}
	watchers := func(n string) [][]string {
		return [][]string{find(t, results, n, "API server"), find(t, results, n, "relay")}
	}
	for _, r := range []struct {
		name    string
		from    [][]string
		columns []int
	}{
		{"watches at the API server, with 1,000 watchers", watchers("1000"), []int{2}},
		{"sent by the API server, with 1,000 watchers", watchers("1000"), []int{3}},
		{"the same, with 100 watchers", watchers("100"), []int{3}},
		{"memory of a watcher", each, []int{1}},
		{"CPU time of an event for a watcher", each, []int{3}},
		{"CPU time of a list of 2,000 Pods", each, []int{4}},
		{"latency with 100 watchers: p50, p99", watchers("100"), []int{5, 6}},
		{"latency with 1,000 watchers: p50, p99", watchers("1000"), []int{5, 6}},
	} {
		for side, measured := range r.from {
			said := strings.Split(find(t, page, r.name)[side+1], ", ")
			for n, column := range r.columns {
				if !agree(t, said[n], measured[column]) {
					t.Errorf("%s, %q: says %s, measured were %s", page, r.name, said[n], measured[column])
				}
			}
		}
	}
}

func TestTheFiguresOfShardingAreThoseOfTheResults(t *testing.T) {
	const page, results = "docs/sharding.md", "e2e/shards/costs/RESULTS.md"
	columns := []int{2, 5, 7, 9, 10} // of the results, in the order of the page
	for _, r := range []struct{ replicas, page, results string }{
		{"1", "client-go's informer, not sharded", "client-go's informer"},
		{"8", "all cached, work divided", "all cached, work divided"},
		{"8", "own cached, the server sends all", "own cached, server sends all"},
		{"8", "own cached, the server selects", "own cached, server selects"},
	} {
		said, measured := find(t, page, r.replicas, r.page), find(t, results, r.replicas, r.results)
		for n, column := range columns {
			figure := said[n+2]
			if figure == "" {
				continue
			}
			exact := strings.TrimSuffix(measured[column], "/s")
			exact = strings.TrimSuffix(exact, "/min")
			if !agree(t, figure, exact) {
				t.Errorf("%s, %q, column %d: says %s, measured were %s", page, r.page, n+3, figure, measured[column])
			}
		}
	}
}
