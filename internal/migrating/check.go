package migrating

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

var (
	fence   = regexp.MustCompile("(?ms)^```(go[^\n]*)\n(.*?)^```$")
	heading = regexp.MustCompile(`(?m)^## `)
)

// Check fails t unless each block of Go in a Markdown file is, literally, a part of one of the
// sources, which the caller compiles. about selects the sections to check by their heading;
// nil selects the whole file. Blocks whose fence says more than "go" are not checked. Check
// returns the number of blocks for each text of a fence.
func Check(t testing.TB, markdown string, about func(heading string) bool, sources ...string) map[string]int {
	t.Helper()
	read := func(name string) string {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	var compiled []string
	for _, source := range sources {
		compiled = append(compiled, read(source))
	}
	blocks := map[string]int{}
	for _, section := range heading.Split(read(markdown), -1) {
		title, _, _ := strings.Cut(section, "\n")
		if about != nil && !about(title) {
			continue
		}
		for _, block := range fence.FindAllStringSubmatch(section, -1) {
			blocks[block[1]]++
			if block[1] == "go" && !strings.Contains(strings.Join(compiled, "\x00"), block[2]) {
				t.Errorf("%s, %s: this code is not in %s:\n%s", markdown, title, strings.Join(sources, " or "), block[2])
			}
		}
	}
	return blocks
}

// Manager is the heading of the section whose code needs controller-runtime.
const Manager = "A controller-runtime manager"
