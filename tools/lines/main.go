// Command lines prints how many lines a person must read to take over the repository, package by
// package:
//
//	lines -root ..
//
// It counts every file that Git has and that is read as a program: Go, scripts, styles,
// templates, configuration, tables and makefiles, with blank lines and comments. Documents, licences,
// pictures, inputs that a fuzzer found and files that a tool writes do not count.
//
// Product is what users import or run. Tests are the test files in its packages, with what they read.
// Other is the rest: packages that only tests import, programs that measure, examples and tools. The
// last line has the totals, how many lines of tests and other there are for each line of product, and
// which share of the Go code in test files, and in packages that only tests import, are functions that
// go test does not run.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/customcacheinformer/informer/tools/internal/product"
	"github.com/customcacheinformer/informer/tools/internal/repo"
)

func main() {
	root := flag.String("root", ".", "the `directory` of the repository")
	flag.Parse()
	if err := run(os.Stdout, *root); err != nil {
		fmt.Fprintln(os.Stderr, "lines:", err)
		os.Exit(1)
	}
}

// count holds the lines of a package.
type count struct{ product, tests, other int }

func (c *count) add(d count) {
	c.product, c.tests, c.other = c.product+d.product, c.tests+d.tests, c.other+d.other
}

func run(out io.Writer, root string) error {
	root, err := filepath.Abs(root)
	if err != nil {
		return err
	}
	packages, err := product.Load(root, 0)
	if err != nil {
		return err
	}
	top, err := repo.Modules(root, []string{"."})
	if err != nil {
		return err
	}
	ours := map[string]bool{} // the directories of the product's packages
	for _, p := range packages {
		ours[product.Shorten(p.PkgPath, top[0].Path)] = true
	}
	list, err := repo.Run(root, nil, "git", "ls-files", "-z")
	if err != nil {
		return err
	}
	files := slices.DeleteFunc(strings.Split(list, "\x00"), func(name string) bool { return !counts(name) })
	code := map[string]bool{} // the directories with Go files
	for _, name := range files {
		code[path.Dir(name)] = code[path.Dir(name)] || path.Ext(name) == ".go"
	}

	rows, total, helpers, proof := map[string]count{}, count{}, 0, 0
	for _, name := range files {
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil {
			return err
		}
		dir := path.Dir(name) // of the package that a file belongs to
		for dir != "." && !code[dir] {
			dir = path.Dir(dir)
		}
		n, c := bytes.Count(text, []byte("\n")), count{}
		switch test := strings.HasSuffix(name, "_test.go") || strings.Contains(name, "testdata/"); {
		case !ours[dir] || dir == "." && path.Dir(name) != ".":
			c.other = n
		case test:
			c.tests = n
		default:
			c.product = n
		}
		row := rows[dir]
		row.add(c)
		rows[dir] = row
		total.add(c)
		if c.product == 0 && path.Ext(name) == ".go" {
			all, some, err := helperLines(name, text)
			if err != nil {
				return err
			}
			proof, helpers = proof+all, helpers+some
		}
	}
	return show(out, rows, total, float64(helpers)/float64(max(proof, 1)))
}

// show writes the table.
func show(out io.Writer, rows map[string]count, total count, helpers float64) error {
	table := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(table, "package\tproduct\ttests\tother")
	for _, dir := range slices.Sorted(maps.Keys(rows)) {
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\n", dir, rows[dir].product, rows[dir].tests, rows[dir].other)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	proof := total.tests + total.other
	_, err := fmt.Fprintf(out, "%d lines: %d product, %d tests, %d other; %.2f lines of proof for each of product; %.0f %% of it helpers\n",
		total.product+proof, total.product, total.tests, total.other, float64(proof)/float64(max(total.product, 1)), 100*helpers)
	return err
}

// read are the endings, or the names, of files that count.
var read = []string{".go", ".txtar", ".yaml", ".yml", ".json", ".lua", ".js", ".css", ".html", ".tmpl", ".sh", ".txt", ".d2", "Makefile", ".ci/run"}

// left are files that no person reads as a program.
var left = regexp.MustCompile(`^tools/licences/known/|^tools/mutate/matrix\.txt$|testdata/fuzz/`)

// counts reports whether a person must read a file.
func counts(name string) bool {
	return !left.MatchString(name) && slices.ContainsFunc(read, func(end string) bool { return strings.HasSuffix(name, end) })
}

var runs = regexp.MustCompile(`^(Test|Benchmark|Fuzz|Example)([^a-z]|$)`)

// helperLines returns how many lines a Go file has, and how many of them are in functions and methods
// that go test does not run. It returns 0 for a file of a program.
func helperLines(name string, text []byte) (all, helpers int, err error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, text, parser.SkipObjectResolution)
	if err != nil || file.Name.Name == "main" && !strings.HasSuffix(name, "_test.go") {
		return 0, 0, err
	}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && (f.Recv != nil || !runs.MatchString(f.Name.Name)) {
			helpers += files.Position(f.End()).Line - files.Position(f.Pos()).Line + 1
		}
	}
	return bytes.Count(text, []byte("\n")), helpers, nil
}
