// Package scrape compares what a program serves to Prometheus with what the README of
// metrics/prometheus says that there is.
package scrape

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

var (
	// row is a line of one of the README's tables of metrics.
	row = regexp.MustCompile("^\\| `([a-z_]+)` \\| (gauge|counter|histogram) \\|")
	// family is how a metric is announced in the text format.
	family = regexp.MustCompile(`^# TYPE ([a-zA-Z_:][a-zA-Z0-9_:]*) (\w+)$`)
)

// Compare reads the answer to a scrape, in the text format, and returns an error that
// names each metric which is documented and not there, is there and not documented, or
// is of another type. What does not begin with one of prefixes does not count.
func Compare(answer io.Reader, prefixes ...string) error {
	_, here, _, _ := runtime.Caller(0)
	readme, err := os.Open(filepath.Join(filepath.Dir(here), "../../metrics/prometheus/README.md"))
	if err != nil {
		return err
	}
	defer func() { _ = readme.Close() }()
	want, err := types(readme, row, prefixes)
	if err != nil {
		return err
	}
	got, err := types(answer, family, prefixes)
	if err != nil {
		return err
	}
	var wrong []string
	for name, documented := range want {
		if there := got[name]; there != documented {
			wrong = append(wrong, fmt.Sprintf("%s is documented as a %s, and is %q", name, documented, there))
		}
	}
	for name := range got {
		if want[name] == "" {
			wrong = append(wrong, name+" is not documented")
		}
	}
	switch {
	case len(want) == 0:
		return fmt.Errorf("nothing that begins with %v is documented", prefixes)
	case len(wrong) > 0:
		slices.Sort(wrong)
		return fmt.Errorf("%d of %d metrics:\n%s", len(wrong), len(want), strings.Join(wrong, "\n"))
	}
	return nil
}

// types returns the types of metrics by their names, from lines that match.
func types(r io.Reader, line *regexp.Regexp, prefixes []string) (map[string]string, error) {
	all := map[string]string{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		m := line.FindStringSubmatch(lines.Text())
		if m != nil && slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(m[1], p) }) {
			all[m[1]] = m[2]
		}
	}
	return all, lines.Err()
}
