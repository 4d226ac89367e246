package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Every fault must still fit the code when the code changes.
func TestEveryFaultFitsTheLibrary(t *testing.T) {
	faults, err := read(faultsJSON)
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/reliability.md")
	if err != nil {
		t.Fatal(err)
	}
	if len(faults) < 20 {
		t.Errorf("there are %d faults", len(faults))
	}
	tests, err := testNames("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range faults {
		text, err := os.ReadFile(filepath.Join("../..", f.File))
		if err != nil {
			t.Errorf("%s: %v", f.What, err)
			continue
		}
		if _, err := f.plant(string(text)); err != nil {
			t.Errorf("%s: %v", f.What, err)
		}
		for name := range strings.SplitSeq(f.Tests, "|") {
			name, _, _ = strings.Cut(name, "/")
			if !slices.ContainsFunc(tests, regexp.MustCompile(name).MatchString) {
				t.Errorf("%s: no test matches %q", f.What, name)
			}
		}
		if row := fmt.Sprintf("| %s | `%s` |", f.What, f.File); !bytes.Contains(page, []byte(row)) {
			t.Errorf("docs/reliability.md has no row %s", row)
		}
	}
	if n := len(faults); !bytes.Contains(page, fmt.Appendf(nil, "%d faults, all noticed", n)) {
		t.Errorf("docs/reliability.md does not speak of %d faults", n)
	}
}

// testNames returns the names of all tests in the repository.
func testNames(root string) (names []string, err error) {
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Example)\w*)\(`)
	err = filepath.WalkDir(root, func(name string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, "_test.go") {
			return err
		}
		text, err := os.ReadFile(name)
		for _, m := range declared.FindAllSubmatch(text, -1) {
			names = append(names, string(m[1]))
		}
		return err
	})
	return names, err
}

func TestAFaultIsNoticedOrNot(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":    "module example.com/m\n\ngo 1.26\n",
		"m.go":      "package m\n\nimport \"os\"\n\nfunc one() int { return 1 }\n\nfunc two() int { return 2 }\n\nfunc Three() int { return one() + two() }\n\nvar _ = os.Exit\n",
		"m_test.go": "package m\n\nimport \"testing\"\n\nfunc TestOne(t *testing.T) {\n\tif one() != 1 {\n\t\tt.Error(one())\n\t}\n}\n",

		"other/other.go":      "package other\n",
		"other/other_test.go": "package other\n\nimport (\n\t\"example.com/m\"\n\t\"testing\"\n)\n\nfunc TestElsewhere(t *testing.T) {\n\tif m.Three() != 3 {\n\t\tt.Error(m.Three())\n\t}\n}\n",

		"nested/go.mod":            "module example.com/m/nested\n\ngo 1.26\n",
		"nested/in/nested.go":      "package in\n\nfunc four() int { return 4 }\n",
		"nested/in/nested_test.go": "package in\n\nimport \"testing\"\n\nfunc TestNested(t *testing.T) {\n\tif four() != 4 {\n\t\tt.Error(four())\n\t}\n}\n",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	good := fault{What: "one", File: "m.go", Old: "return 1", New: "return 3", Tests: "TestOne"}
	for _, test := range []struct {
		what    string
		change  func(*fault)
		noticed bool
		err     string
	}{
		{"noticed", func(*fault) {}, true, ""},
		{"not noticed", func(f *fault) { f.Old, f.New = "return 2", "return 3" }, false, ""},
		{"noticed by a test of another package", func(f *fault) { f.Tests = "TestElse" }, true, ""},
		{"noticed in a module inside", func(f *fault) { f.File, f.Old, f.Tests = "nested/in/nested.go", "return 4", "TestNested" }, true, ""},
		{"a test of another module", func(f *fault) { f.Tests = "TestNested" }, false, "no test matches"},
		{"a hang", func(f *fault) { f.New = "panic(1)" }, true, ""},
		{"no such text", func(f *fault) { f.Old = "return 4" }, false, "0 times"},
		{"more than once", func(f *fault) { f.Old = "return" }, false, "3 times"},
		{"no Go", func(f *fault) { f.New = "return x" }, false, "does not compile"},
		{"no test", func(f *fault) { f.Tests = "TestTwo" }, false, "no test matches"},
		{"tests that do not run", func(f *fault) { f.New = "return 3 }\n\nfunc init() { os.Exit(1)" }, false, "have not run"},
		{"no file", func(f *fault) { f.File = "n.go" }, false, "n.go"},
	} {
		f := good
		test.change(&f)
		b, err := newBuild(dir, t.TempDir(), []fault{f})
		o := outcome{}
		if err == nil {
			o, err = try(t.Context(), b, f)
		}
		switch {
		case test.err == "" && err != nil, test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)):
			t.Errorf("%s: %v, want %q", test.what, err, test.err)
		case o.noticed != test.noticed || test.what == "noticed" && !slices.Equal(o.by, []string{"TestOne"}):
			t.Errorf("%s: %+v", test.what, o)
		}
		if text, err := os.ReadFile(filepath.Join(dir, "m.go")); err != nil || !strings.Contains(string(text), "return 1 }") {
			t.Fatalf("%s: the fault has stayed: %s, %v", test.what, text, err)
		}
	}
}

func TestTestsThatFailAnyhowNoticeNothing(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":    "module example.com/m\n\ngo 1.26\n",
		"m.go":      "package m\n\nfunc one() int { return 1 }\n",
		"m_test.go": "package m\n\nimport \"testing\"\n\nfunc TestOne(t *testing.T) {\n\tif one() != 2 {\n\t\tt.Error(one())\n\t}\n}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	faults := []fault{{What: "one", File: "m.go", Old: "return 1", New: "return 3", Tests: "TestOne"}}
	b, err := newBuild(dir, t.TempDir(), faults)
	if err != nil {
		t.Fatal(err)
	}
	err = checkSound(t.Context(), b, faults)
	if err == nil || !strings.Contains(err.Error(), "without any fault") {
		t.Errorf("the tests fail without a fault: %v", err)
	}
}

func TestAFaultThatSaysTooLittleIsNamed(t *testing.T) {
	for _, text := range []string{`[{"what": "x"}]`, `[{"what": "x", "file": "f", "old": "a", "new": "a", "tests": "T"}]`, `{`} {
		if _, err := read([]byte(text)); err == nil {
			t.Errorf("%s is taken", text)
		}
	}
}

// Many faults are compiled at once, so this takes no longer than to compile the library.
func TestEveryFaultCompiles(t *testing.T) {
	faults, err := read(faultsJSON)
	if err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	b, err := newBuild(root, t.TempDir(), faults)
	if err != nil {
		t.Fatal(err)
	}
	packages := map[string]bool{}
	for _, f := range faults {
		dir := filepath.Join(root, filepath.Dir(f.File))
		if b.switches[f.What] == 0 || packages[dir] {
			continue
		}
		packages[dir] = true
		if out, err := goRun(t.Context(), dir, "build", "-overlay", b.overlay("all"), "."); err != nil {
			t.Errorf("%s: %v\n%s", dir, err, out)
		}
	}
	t.Logf("%d of %d faults need a build of their own", len(faults)-len(b.switches), len(faults))
}

// A fault that changes more than one body is not switched on in a build of all faults.
func TestOnlyAFaultInOneBodyIsChosenByTheEnvironment(t *testing.T) {
	const text = "package m\n\nconst one = 1\n\nfunc two() int { return 2 }\n\nfunc three(a, b int) {}\n\nfunc loop() {\nouter:\n\tfor {\n\t\tbreak outer\n\t}\n}\n"
	for _, test := range []struct {
		what, old, new string
		insertion      string // "" if the fault needs a build of its own
	}{
		{"a body", "return 2", "return 3", "\nif mutateFault(7) { return 3 \n}\n"},
		{"a body without results", "{}", "{ a++ }", "\nif mutateFault(7) { a++ \nreturn }\n"},
		{"a constant", "= 1", "= 2", ""},
		{"two bodies", "return 2 }\n\nfunc three(a, b int) {", "return 3 }\n\nfunc three(a, b int) { a++", ""},
		{"a signature", "three(a, b int)", "three(b, a int)", ""},
		{"another function", "func three(a, b int) {}\n", "", ""},
		{"a body with a label", "for {", "for range 2 {", ""},
	} {
		f := fault{What: test.what, File: "m.go", Old: test.old, New: test.new}
		in, ok, err := f.insertion(text, 7)
		if err != nil || ok != (test.insertion != "") || in.text != test.insertion {
			t.Errorf("%s: %q, %v, %v, want %q", test.what, in.text, ok, err, test.insertion)
		}
	}
}
