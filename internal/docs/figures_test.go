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
	"": 1, "/min": 1, "B": 1, "kB": 1e3, "MB": 1e6, "kB/s": 1e3, "MB/s": 1e6, "µs": 1e-6, "ms": 1e-3, "s": 1, "ms/s": 1e-3, "MiB": 1 << 20,
}

// agree reports whether a figure is another one, rounded to its last digit, or to two or three digits.
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
	short := func(digits int) bool { // large figures are rounded to two or three digits
		short, _ := strconv.ParseFloat(strconv.FormatFloat(m, 'g', digits, 64), 64)
		return math.Abs(n-short) <= 1e-9*n
	}
	return math.Abs(n-m) <= last*0.501 || short(2) || short(3)
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
	atRoot(t)
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
			var exact []string
			for _, column := range r.columns {
				exact = append(exact, measured[column])
			}
			fits(t, page, r.name, side+1, exact...)
		}
	}
}

func TestTheFiguresOfShardingAreThoseOfTheResults(t *testing.T) {
	atRoot(t)
	const page, results = "docs/sharding.md", "e2e/shards/costs/RESULTS.md"
	columns := []int{2, 5, 7, 9, 10} // of the results, in the order of the page
	for _, r := range []struct{ replicas, page, results string }{
		{"1", "client-go's informer, not sharded", "client-go's informer"},
		{"8", "all cached, work divided", "all cached, work divided"},
		{"8", "own cached, the server sends all", "own cached, server sends all"},
		{"8", "own cached, the server selects", "own cached, server selects"},
	} {
		measured := find(t, results, r.replicas, r.results)
		for n, column := range columns {
			if find(t, page, r.replicas, r.page)[n+2] != "" {
				fits(t, page, r.replicas+"|"+r.page, n+2, strings.TrimSuffix(strings.TrimSuffix(measured[column], "/s"), "/min"))
			}
		}
	}
}

func TestTheFiguresOfStoresAreThoseOfTheResults(t *testing.T) {
	atRoot(t)
	const page, disk, valkey = "docs/stores.md", "store/disk/measure/RESULTS.md", "store/valkey/measure/RESULTS.md"
	onDisk := func(column int, names ...string) (exact []string) {
		for _, name := range names {
			exact = append(exact, find(t, disk, name)[column])
		}
		return exact
	}
	onServer := func(role string, names ...string) (exact []string) {
		for _, name := range names {
			exact = append(exact, find(t, valkey, role+": "+name)[1])
		}
		return exact
	}
	check := func(name string, column int, exact []string) {
		t.Helper()
		fits(t, page, name, column, exact...)
	}
	writes := func(per string) []string {
		return []string{"writes " + per + " second, 1" + at(per), "writes " + per + " second, 100" + at(per), "writes " + per + " second, 1000" + at(per)}
	}
	for name, rows := range map[string][]string{
		"memory of its own when all is quiet":                  {"steady state: anonymous memory"},
		"the same after a warm start":                          {"warm start: anonymous memory afterwards"},
		"its peak in a warm start":                             {"warm start: peak of anonymous memory"},
		"the peak of a cold start":                             {"cold start: peak of anonymous memory"},
		"cold start, of the file, until `Synced`":              {"cold start: until Synced"},
		"gets a second":                                        {"gets per second"},
		"lists of 100 objects by an index, a second":           {"lists of 100 by index per second"},
		"writes a second to it, 1 / 100 / 1,000 in an `Apply`": writes("per"),
		"file": {"file"},
	} {
		for column := 1; column <= 3; column++ {
			check(name, column, onDisk(column, rows...))
		}
	}
	start := []string{"warm start: until Synced", "warm start: until the watcher has all"}
	check("warm start of the file, until `Synced` / until the watcher has all", 2, onDisk(2, start...))
	check("warm start of the file, until `Synced` / until the watcher has all", 3, onDisk(3, start...))

	for name, row := range map[string][2]string{ // the row of the results, and its objects
		"onto disk, a whole list (client-go's way)":            {"disk, a whole list", "200,000"},
		"onto disk, as it comes in":                            {"disk, as it comes in", "200,000"},
		"the same, of half as many":                            {"disk, as it comes in", "100,000"},
		"the same, of five times as many":                      {"disk, as it comes in", "1,000,000"},
		"a relist after 410, on disk":                          {"disk, a relist after 410", "1,000,000"},
		"in memory, reduced to metadata: client-go's informer": {"in memory, metadata: client-go's informer", "200,000"},
		"the same here, a whole list":                          {"in memory, metadata: a whole list", "200,000"},
		"the same here, as it comes in":                        {"in memory, metadata: as it comes in", "200,000"},
	} {
		pages, stream := find(t, disk, row[0], row[1], "pages of 500"), find(t, disk, row[0], row[1], "stream")
		check(name, 3, []string{pages[3], stream[3]})
		check(name, 4, []string{pages[5], stream[5]})
	}

	const cold, warm, use, reader = "writer, cold start", "writer, warm start", "reads and writes", "reader, in memory"
	for name, rows := range map[string][3][]string{ // on disk, of the writer, of a reader
		"memory when all is quiet":   {{"steady state: anonymous memory"}, {"memory afterwards"}, {"memory afterwards"}},
		"its peak in a cold start":   {{"cold start: peak of anonymous memory"}, {"peak of memory"}, {"peak of memory"}},
		"cold start, until `Synced`": {{"cold start: until Synced"}, {"until Synced"}, {"until Synced"}},
	} {
		check(name, 1, onDisk(1, rows[0]...))
		check(name, 2, onDisk(2, rows[0]...))
		check(name, 3, onServer(cold, rows[1]...))
		check(name, 4, onServer(reader, rows[2]...))
	}
	check("warm start, until `Synced` / until the watcher has all", 3, onServer(warm, "until Synced", "until the watcher has all"))
	check("gets a second, 1 caller / 100 callers", 3, onServer(use, "gets a second", "gets a second, 100 callers"))
	check("writes a second, 1 / 100 / 1,000 in an `Apply`", 1, onDisk(1, writes("per")...))
	check("writes a second, 1 / 100 / 1,000 in an `Apply`", 2, onDisk(2, writes("per")...))
	check("writes a second, 1 / 100 / 1,000 in an `Apply`", 3, onServer(use, writes("a")...))
	check("the server's memory, without a log / with 100,000 changes in it", 3, []string{onServer(warm, "server: memory")[0], onServer(use, "server: memory")[0]})
}

// at ends the name of a row with the number of changes in a write: those of the two programs differ.
func at(per string) string {
	if per == "per" {
		return " at a time"
	}
	return " in an Apply"
}
