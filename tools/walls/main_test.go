package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// module writes a module of its own with these files, and returns its directory.
func module(t *testing.T, files map[string]string) string {
	t.Helper()
	t.Setenv("GOPROXY", "off")
	t.Setenv("GOFLAGS", "")
	t.Setenv("GOWORK", "off")
	dir := t.TempDir()
	for name, text := range files {
		if name != "go.mod" {
			text = "package lib\n\n" + text
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module example.com/lib\n\ngo 1.26\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// walls runs the command with a list, and returns the output and the error as texts.
func walls(t *testing.T, dir, list string, all bool) (out, failure string) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "pairs.txt")
	if err := os.WriteFile(name, []byte(list), 0o600); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := run(&b, dir, name, all); err != nil {
		failure = err.Error()
	}
	return b.String(), failure
}

// twoWay are two files that refer to each other, and one that refers to both.
var twoWay = map[string]string{
	"a.go": "func A() { B() }\n",
	"b.go": "func B() { A(); A() }\n",
	"c.go": "func C() { A(); B() }\n",
}

func TestEveryKindOfDeclarationCounts(t *testing.T) {
	for _, c := range []struct{ name, declared, used, want string }{
		{"a function", "func F() {}", "F()", "F"},
		{"a generic function", "func F[T any](T) {}", "F(1)", "F"},
		{"a constant", "const c = 1", "_ = c", "c"},
		{"a variable", "var v int", "v++", "v"},
		{"a type", "type T int", "_ = new(T)", "T"},
		{"a method", "func (*local) M() {}", "var l local; l.M()", "local.M"},
		{"a method of a generic type", "func (*generic[K, V]) M() {}", "var g generic[int, string]; g.M()", "generic.M"},
		{"a method of an interface", "type I interface{ M() }; func f() I { return nil }", "f().M()", "I.M, f"},
		{"a field", "type T struct{ f int }; var t T", "t.f++", "T.f, t"},
		{"a field of a generic type", "type T[K any] struct{ f K }; var t T[int]", "t.f++", "T.f, t"},
		{"a key of a literal", "type T struct{ f int }", "_ = T{f: 1}", "T, T.f"},
		{"a field of a nested struct", "type T struct{ f struct{ g int } }; var t T", "t.f.g++", "T.f, T.g, t"},
		{"an embedded field", "type E struct{}; type T struct{ *E }; var t T", "_ = t.E", "T.E, t"},
		{"an embedded generic field", "type E[K any] struct{}; type T struct{ E[int] }; var t T", "_ = t.E", "T.E, t"},
		{"a promoted field", "type e struct{ f int }; type T struct{ e }; var t T", "_ = t.f", "e.f, t"},
		{"an embedded type", "type E struct{}", "type T struct{ E }; _ = T{}", "E"},
		{"a type argument", "type E struct{}", "_ = generic[E, int]{}", "E"},
		{"each use", "func F() {}", "F(); F()", "F (2)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := module(t, map[string]string{
				"a.go": c.declared + "\n\nfunc back() { here() }\n",
				"b.go": "type local struct{}\n\ntype generic[K, V any] struct{}\n\nfunc here() {\n\t" + c.used + "\n}\n",
			})
			out, failure := walls(t, dir, "a.go b.go one reason\n", true)
			if failure != "" {
				t.Fatal(failure)
			}
			if want := "    b.go uses of a.go: " + c.want + "\n"; !strings.Contains(out, want) {
				t.Errorf("the output is\n%swant %q", out, want)
			}
			if want := "1 two-way pairs of files, 2 references between files\n"; !strings.HasSuffix(out, want) {
				t.Errorf("the output is\n%swant %q at the end", out, want)
			}
		})
	}
}

func TestAPairInTheListIsAccepted(t *testing.T) {
	dir := module(t, twoWay)
	const counts = "1 two-way pairs of files, 4 references between files\n"
	for _, list := range []string{"a.go b.go one reason\n", "# a comment\n\n  b.go\ta.go   one reason"} {
		if out, failure := walls(t, dir, list, false); failure != "" || out != counts {
			t.Errorf("with the list %q: %s, and the output is\n%s", list, failure, out)
		}
	}
	out, failure := walls(t, dir, "a.go b.go one reason\n", true)
	want := "a.go b.go\n    a.go uses of b.go: B\n    b.go uses of a.go: A (2)\n" + counts
	if failure != "" || out != want {
		t.Errorf("with -list: %s, and the output is\n%swant\n%s", failure, out, want)
	}
}

func TestANewPairFailsAndItsNamesAreShown(t *testing.T) {
	out, failure := walls(t, module(t, twoWay), "", false)
	if want := "pairs.txt: a.go and b.go refer to each other, and are not in the list"; !strings.Contains(failure, want) {
		t.Errorf("the error is %q, want %q", failure, want)
	}
	if want := "a.go b.go\n    a.go uses of b.go: B\n    b.go uses of a.go: A (2)\n1 two-way"; !strings.HasPrefix(out, want) {
		t.Errorf("the output is\n%swant %q", out, want)
	}
}

func TestAListThatIsWrongFails(t *testing.T) {
	dir := module(t, twoWay)
	for _, c := range []struct{ name, list, want string }{
		{"a pair that is one-way", "a.go b.go one reason\na.go c.go one reason\n", "pairs.txt:2: a.go and c.go no longer refer to each other: remove the line"},
		{"a file that is gone", "a.go b.go one reason\n\ngone.go a.go one reason\n", "pairs.txt:3: a.go and gone.go no longer refer to each other: remove the line"},
		{"no reason", "a.go b.go  \n", "pairs.txt:1: a.go and b.go have no reason"},
		{"one file", "a.go b.go one reason\na.go\n", "pairs.txt:2: the line does not begin with the names of two files"},
		{"a reason in place of a file", "a.go b.go one reason\na.go one reason\n", "pairs.txt:2: the line does not begin with the names of two files"},
		{"a pair twice", "a.go b.go one reason\nb.go a.go another\n", "pairs.txt:2: a.go and b.go are in line 1 already"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, failure := walls(t, dir, c.list, false); failure != c.want {
				t.Errorf("the error is %q, want %q", failure, c.want)
			}
		})
	}
}

func TestTestFilesMakeNoPair(t *testing.T) {
	dir := module(t, map[string]string{
		"a.go":             "func A() { B() }\n",
		"b.go":             "func B() {}\n",
		"b_test.go":        "func inTest() { A(); inExport() }\n",
		"export_test.go":   "func inExport() { inTest(); B() }\n",
		"other_windows.go": "func other() { A() }\n",
		"other_linux.go":   "func other() { A() }\n",
		"other_darwin.go":  "func other() { A() }\n",
	})
	if out, failure := walls(t, dir, "", true); failure != "" || !strings.HasPrefix(out, "0 two-way pairs of files, ") {
		t.Errorf("%s, and the output is\n%s", failure, out)
	}
}

func TestReferencesInOneDirectionOrToOtherPackagesMakeNoPair(t *testing.T) {
	dir := module(t, map[string]string{
		"a.go": "import \"strings\"\n\nfunc A(b *strings.Builder) { b.Len(); B() }\n",
		"b.go": "import \"strings\"\n\ntype local struct{ A int }\n\nfunc B() { var A strings.Builder; A.Len(); _ = local{A: 1} }\n",
	})
	if out, failure := walls(t, dir, "", true); failure != "" || out != "0 two-way pairs of files, 1 references between files\n" {
		t.Errorf("%s, and the output is\n%s", failure, out)
	}
}

func TestAPackageThatDoesNotCompileFails(t *testing.T) {
	dir := module(t, map[string]string{"a.go": "func A() { missing() }\n"})
	if _, failure := walls(t, dir, "", false); !strings.Contains(failure, "undefined: missing") {
		t.Errorf("the error is %q, want one about the missing name", failure)
	}
}
