// Package scrape compares the metrics that a program serves to Prometheus with those that the
// README of metrics/prometheus documents.
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
	// row matches a line of one of the README's tables of metrics.
	row = regexp.MustCompile("^\\| `([a-z_]+)` \\| (gauge|counter|histogram) \\|")
	// family matches the line that announces a metric in the text format.
	family = regexp.MustCompile(`^# TYPE ([a-zA-Z_:][a-zA-Z0-9_:]*) (\w+)$`)
)

// Compare reads the answer to a scrape, in the text format, and returns an error that names each
// metric that is documented but missing, exists but is not documented, or has another type. It
// compares only the names that begin with one of prefixes. A prefix after a minus sign excludes
// names, such as those of controllers in a program without controllers.
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

// types returns the types of metrics by name, from the lines that match line.
func types(r io.Reader, line *regexp.Regexp, prefixes []string) (map[string]string, error) {
	all := map[string]string{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		m := line.FindStringSubmatch(lines.Text())
		begins := func(sign string) bool {
			return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(sign+m[1], p) })
		}
		if m != nil && begins("") && !begins("-") {
			all[m[1]] = m[2]
		}
	}
	return all, lines.Err()
}
