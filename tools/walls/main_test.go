package main

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// repository writes a repository with these files, and returns its directory. Without a go.work
// file among them, it has one module.
func repository(t *testing.T, files map[string]string) string {
	t.Helper()
	t.Setenv("GOPROXY", "off")
	t.Setenv("GOFLAGS", "")
	t.Setenv("GOWORK", "off")
	dir := t.TempDir()
	write := func(name, text string) {
		name = filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module example.com/lib\n\ngo 1.26\n")
	write("go.work", "go 1.26\n\nuse .\n")
	for name, text := range files {
		if strings.HasSuffix(name, ".go") && !strings.HasPrefix(text, "package") {
			text = "package lib\n\n" + text
		}
		write(name, text)
	}
	return dir
}

// walls runs the command with a list, and returns the output and the error as texts. The words
// of the output's table have one space between them.
func walls(t *testing.T, dir, text, pattern string, all bool) (out, failure string) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "pairs.txt")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := run(&b, dir, name, pattern, all); err != nil {
		failure = err.Error()
	}
	return regexp.MustCompile(`(\S) +`).ReplaceAllString(b.String(), "$1 "), failure
}

const (
	header = "package files pairs largest circle\n"
	used   = "    a.go uses of b.go: B\n    b.go uses of a.go: A (2)\n"
)

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
			dir := repository(t, map[string]string{
				"a.go": c.declared + "\n\nfunc back() { here() }\n",
				"b.go": "type local struct{}\n\ntype generic[K, V any] struct{}\n\nfunc here() {\n\t" + c.used + "\n}\n",
			})
			out, failure := walls(t, dir, ". 1 2\na.go b.go one reason\n", "", true)
			if failure != "" {
				t.Fatal(failure)
			}
			if want := "    b.go uses of a.go: " + c.want + "\n"; !strings.Contains(out, want) {
				t.Errorf("the output is\n%swant %q", out, want)
			}
			if want := header + ". 2 1 2\n"; !strings.HasSuffix(out, want) {
				t.Errorf("the output is\n%swant %q at the end", out, want)
			}
		})
	}
}

func TestAPairInTheListIsAccepted(t *testing.T) {
	dir := repository(t, twoWay)
	const numbers = header + ". 3 1 2\n"
	for _, list := range []string{". 1 2", ". 1 2\na.go b.go one reason\n", "# a comment\n\n. 1  2\n  b.go\ta.go   one reason"} {
		if out, failure := walls(t, dir, list, "", false); failure != "" || out != numbers {
			t.Errorf("with the list %q: %s, and the output is\n%s", list, failure, out)
		}
	}
	out, failure := walls(t, dir, ". 1 2", "", true)
	if want := ".: a.go b.go\n" + used + numbers; failure != "" || out != want {
		t.Errorf("with -list: %s, and the output is\n%swant\n%s", failure, out, want)
	}
}

func TestAWrongListFails(t *testing.T) {
	dir := repository(t, twoWay)
	const good = ". 1 2\na.go b.go one reason\n"
	for _, c := range []struct{ name, list, want string }{
		{"a pair that is one-way", good + "a.go c.go one reason\n", "pairs.txt:3: package .: a.go and c.go no longer refer to each other: remove the line"},
		{"a file that is gone", good + "\ngone.go a.go one reason\n", "pairs.txt:4: package .: a.go and gone.go no longer refer to each other: remove the line"},
		{"another pair", ". 1 2\na.go c.go one reason", "pairs.txt:1: package .: a.go and b.go refer to each other, and are not in the list: remove one direction, or add the pair with a reason\n" +
			used + "pairs.txt:2: package .: a.go and c.go no longer refer to each other: remove the line"},
		{"no reason", ". 1 2\na.go b.go  \n", "pairs.txt:2: a.go and b.go have no reason"},
		{"one file", good + "a.go\n", "pairs.txt:3: the line has neither two files and a reason nor a package and two numbers"},
		{"one number", good + "other 1\n", "pairs.txt:3: the line has neither two files and a reason nor a package and two numbers"},
		{"three numbers", good + "other 1 2 3\n", "pairs.txt:3: the line has neither two files and a reason nor a package and two numbers"},
		{"a pair twice", good + "b.go a.go another\n", "pairs.txt:3: a.go and b.go are in line 2 already"},
		{"a package twice", good + ". 1 2\n", "pairs.txt:3: package . is in line 1 already"},
		{"a pair of no package", "a.go b.go one reason\n. 1 2\n", "pairs.txt:1: a.go and b.go are not below the line of a package"},
		{"a package that is gone", good + "gone 1 2\n", "pairs.txt:3: the product has no package gone: remove the line"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, failure := walls(t, dir, c.list, "", false); failure != c.want {
				t.Errorf("the error is %q, want %q", failure, c.want)
			}
		})
	}
}

func TestTheNumbersOfAPackageOnlyGoDown(t *testing.T) {
	dir := repository(t, map[string]string{
		"a.go":        "func A() { B() }\n",
		"b.go":        "func B() {}\n",
		"ring/a.go":   "func A() { B() }\n",
		"ring/b.go":   "func B() { C() }\n",
		"ring/c.go":   "func C() { A(); D() }\n",
		"ring/d.go":   "func D() { C(); E(); X() }\n",
		"ring/e.go":   "func E() {}\n",
		"ring/1.go":   "func X() { Y() }\n",
		"ring/2.go":   "func Y() { X() }\n",
		"triple/a.go": "func A() { B() }\n",
		"triple/b.go": "func B() { C() }\n",
		"triple/c.go": "func C() { A() }\n",
	})
	const pairs = "remove one direction (-list -package ring prints the names)\n    1.go 2.go\n    c.go d.go"
	const files = "move the declarations that close it\n    a.go b.go c.go d.go"
	for _, c := range []struct{ name, list, want string }{
		{"the same", "ring 2 4", ""},
		{"more pairs", "ring 1 4", "pairs.txt:1: package ring has 2 two-way pairs of files, and the list allows 1: " + pairs},
		{"a larger circle", "ring 2 3", "pairs.txt:1: package ring has a circle of 4 files, and the list allows 3: " + files},
		{"no line", "", "package ring has 2 two-way pairs of files, and the list allows 0: " + pairs +
			"\npackage ring has a circle of 4 files, and the list allows 0: " + files},
		{"fewer pairs", "ring 3 4", `pairs.txt:1: package ring has less than the list allows: lower the line to "ring 2 4"`},
		{"a smaller circle", "ring 2 6", `pairs.txt:1: package ring has less than the list allows: lower the line to "ring 2 4"`},
		{"fewer pairs and a larger circle", "ring 5 3", "pairs.txt:1: package ring has a circle of 4 files, and the list allows 3: " + files +
			"\n" + `pairs.txt:1: package ring has less than the list allows: lower the line to "ring 2 3"`},
		{"no circle", "ring 2 4\n. 1 2", "pairs.txt:2: package . has no circle of files: remove the line"},
		{"a line that allows nothing", "ring 2 4\n. 0 0", "pairs.txt:2: package . has no circle of files: remove the line"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, failure := walls(t, dir, c.list+"\ntriple 0 3", "", false)
			if failure != c.want {
				t.Errorf("the error is %q, want %q", failure, c.want)
			}
			if want := header + "ring 7 2 4\ntriple 3 0 3\n"; out != want {
				t.Errorf("the output is\n%swant\n%s", out, want)
			}
		})
	}
}

func TestThePackagesOfTheProductCount(t *testing.T) {
	files := map[string]string{
		"go.work":              "go 1.26\n\nuse (\n\t.\n\t./disk\n\t./e2e\n)\n",
		"disk/go.mod":          "module example.com/lib/disk\n\ngo 1.26\n",
		"e2e/go.mod":           "module example.com/lib/e2e\n\ngo 1.26\n",
		"a.go":                 "import _ \"example.com/lib/internal/direct\"\n",
		"a_test.go":            "import _ \"example.com/lib/internal/tested\"\n",
		"internal/direct/i.go": "import _ \"example.com/lib/internal/far\"\n",
		"disk/measure/m.go":    "import _ \"example.com/lib/disk/internal/measured\"\n",
		"disk/cmd/d/a.go":      "package main\n\nfunc main() { B() }\n",
		"disk/cmd/d/b.go":      "package main\n\nfunc B() { main() }\n",
	}
	for _, dir := range []string{".", "disk", "disk/internal/measured", "disk/measure", "e2e", "examples/one", "internal/direct", "internal/far", "internal/tested"} {
		files[dir+"/p.go"], files[dir+"/q.go"] = "func P() { Q() }\n", "func Q() { P() }\n"
	}
	dir := repository(t, files)
	const list = ". 1 2\ndisk 1 2\ndisk/cmd/d 1 2\ninternal/direct 1 2\ninternal/far 1 2\n"
	for pattern, want := range map[string]string{
		"":           ". 3 1 2\ndisk 2 1 2\ndisk/cmd/d 2 1 2\ninternal/direct 3 1 2\ninternal/far 2 1 2\n",
		".":          ". 3 1 2\n",
		"internal/*": "internal/direct 3 1 2\ninternal/far 2 1 2\n",
	} {
		if out, failure := walls(t, dir, list, pattern, false); failure != "" || out != header+want {
			t.Errorf("with -package %q: %s, and the output is\n%s", pattern, failure, out)
		}
	}
	if _, failure := walls(t, dir, list, "e2e", false); failure != `no package of the product matches "e2e"` {
		t.Errorf("with -package e2e, the error is %q", failure)
	}
}

func TestALongFileFails(t *testing.T) {
	lines := strings.Repeat("//\n", 498)
	dir := repository(t, map[string]string{"sub/fits.go": lines, "sub/long.go": lines + "//\n", "sub/long_test.go": lines + "//\n"})
	const want = "package sub: long.go has 501 lines, more than 500: divide the file"
	if _, failure := walls(t, dir, "", "", false); failure != want {
		t.Errorf("the error is %q, want %q", failure, want)
	}
}

func TestNoPair(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"with test files and other systems": {
			"a.go":             "func A() { B() }\n",
			"b.go":             "func B() {}\n",
			"b_test.go":        "func inTest() { A(); inExport() }\n",
			"export_test.go":   "func inExport() { inTest(); B() }\n",
			"other_windows.go": "func other() { A() }\n",
			"other_linux.go":   "func other() { A() }\n",
			"other_darwin.go":  "func other() { A() }\n",
		},
		"with other packages": {
			"a.go": "import \"strings\"\n\nfunc A(b *strings.Builder) { b.Len(); B() }\n",
			"b.go": "import \"strings\"\n\ntype local struct{ A int }\n\nfunc B() { var A strings.Builder; A.Len(); _ = local{A: 1} }\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if out, failure := walls(t, repository(t, files), "", "", true); failure != "" || out != header {
				t.Errorf("%s, and the output is\n%s", failure, out)
			}
		})
	}
}

func TestAPackageThatDoesNotCompileFails(t *testing.T) {
	dir := repository(t, map[string]string{"a.go": "func A() { missing() }\n"})
	if _, failure := walls(t, dir, "", "", false); !strings.Contains(failure, "undefined: missing") {
		t.Errorf("the error is %q, want one about the missing name", failure)
	}
}
