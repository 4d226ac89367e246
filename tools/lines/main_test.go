package main

import (
	"strings"
	"testing"
)

func TestOnlyFunctionsThatGoTestDoesNotRunAreHelpers(t *testing.T) {
	text := strings.Join([]string{
		"package p",
		"func TestA(t *testing.T) {}",
		"func Testify() {",
		"}",
		"func (x) TestB() {}",
		"func ExampleX_y() {}",
		"",
	}, "\n")
	if all, helpers, err := helperLines("p_test.go", []byte(text)); all != 6 || helpers != 3 || err != nil {
		t.Errorf("helperLines returned %d, %d, %v", all, helpers, err)
	}
	if all, helpers, err := helperLines("main.go", []byte("package main\n\nfunc main() {}\n")); all != 0 || helpers != 0 || err != nil {
		t.Errorf("a program: helperLines returned %d, %d, %v", all, helpers, err)
	}
	if _, _, err := helperLines("p_test.go", []byte("packag")); err == nil {
		t.Error("a file that is not Go: no error")
	}
}

func TestTheFilesThatAreReadCount(t *testing.T) {
	for name, want := range map[string]bool{
		"informer.go": true, "store/valkey/lua/apply.lua": true, "Makefile": true, ".ci/run": true,
		"README.md": false, "go.sum": false, "docs/page.png": false, "tools/mutate/matrix.txt": false,
		"internal/model/testdata/fuzz/FuzzModel/a.txt": false,
	} {
		if counts(name) != want {
			t.Errorf("counts(%q) is %v", name, !want)
		}
	}
}

func TestTheTableOfThisRepository(t *testing.T) {
	var out strings.Builder
	if err := run(&out, "../.."); err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for row := range strings.Lines(out.String()) {
		name, rest, _ := strings.Cut(row, " ")
		rows[name] = strings.Join(strings.Fields(rest), " ")
	}
	for name, end := range map[string]string{".": "", "enqueue": " 0", "store/valkey": " 0"} {
		if row := rows[name]; strings.HasPrefix(row, "0 ") || !strings.HasSuffix(row, end) || row == "" {
			t.Errorf("row of %s: %q", name, row)
		}
	}
	if row := rows["tools/lines"]; !strings.HasPrefix(row, "0 0 ") {
		t.Errorf("row of tools/lines: %q", row)
	}
}
