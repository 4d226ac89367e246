package informer_test

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
	type row struct {
		name     string
		from     func(side string) []string
		column   int
		column99 int // of a second figure, after a comma
	}
	watchers := func(n string) func(string) []string {
		return func(side string) []string { return find(t, results, n, side) }
	}
	each := func(side string) []string {
		for line := range strings.Lines(read(t, results)) {
			if cells := cellsOf(line); len(cells) == 6 && cells[0] == side {
				return cells
			}
		}
		t.Fatalf("%s does not say what a watcher costs the %s", results, side)
		return nil
	}
	for _, r := range []row{
		{"watches at the API server, with 1,000 watchers", watchers("1000"), 2, 0},
		{"sent by the API server, with 1,000 watchers", watchers("1000"), 3, 0},
		{"the same, with 100 watchers", watchers("100"), 3, 0},
		{"memory of a watcher", each, 1, 0},
		{"CPU time of an event for a watcher", each, 3, 0},
		{"CPU time of a list of 2,000 Pods", each, 4, 0},
		{"latency with 100 watchers: p50, p99", watchers("100"), 5, 6},
		{"latency with 1,000 watchers: p50, p99", watchers("1000"), 5, 6},
	} {
		for i, side := range []string{"API server", "relay"} {
			said, measured := find(t, page, r.name)[i+1], r.from(side)
			exact := []string{measured[r.column]}
			if r.column99 > 0 {
				exact = append(exact, measured[r.column99])
			}
			figures := []string{said}
			if r.column99 > 0 {
				figures = strings.Split(said, ", ")
			}
			for n := range exact {
				if !agree(t, figures[n], exact[n]) {
					t.Errorf("%s, %q, %s: says %s, measured were %s", page, r.name, side, figures[n], exact[n])
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
