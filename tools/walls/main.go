// Command walls counts the references between the files of each package of the product, and
// fails when more files depend on each other than a list allows:
//
//	walls -root ..
//
// The product is all packages that users can import or run, and the packages that those import,
// see package product.
//
// File a refers to file b if an identifier in a resolves to a function, type, method, field,
// constant or variable that b declares. Two files that refer to each other are a two-way
// pair: neither can be read, tested or moved without the other. Files that lead to each other,
// directly or over other files, are a circle. Test files do not count, and neither do files that
// the build for this system leaves out.
//
// The list has a line for each package with a circle: the package, the number of its pairs, and
// the number of files in its largest circle. The command fails if a package has more of either.
// It also fails if a package has less, until the line is lowered, so the numbers only go down.
// Below its line, a package can have all its pairs, each with a reason on one line. Then another
// pair in place of one of these fails too. Lines that begin with # are comments.
//
// A file of the product with more than 500 lines fails in any case.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"text/tabwriter"
)

func main() {
	root := flag.String("root", ".", "the `directory` of the repository")
	pairs := flag.String("pairs", "", "the `file` with the list (default tools/walls/pairs.txt in the root)")
	all := flag.Bool("list", false, "print all two-way pairs with the names behind them")
	pattern := flag.String("package", "", "print only packages whose path in the repository matches the `pattern`, such as . or relay/*")
	flag.Parse()
	if *pairs == "" {
		*pairs = filepath.Join(*root, "tools", "walls", "pairs.txt")
	}
	if err := run(os.Stdout, *root, *pairs, *pattern, *all); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(out io.Writer, root, name, pattern string, all bool) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	units, err := load(root)
	if err != nil {
		return err
	}
	shown := slices.DeleteFunc(slices.Clone(units), func(u unit) bool {
		ok, _ := path.Match(pattern, u.name)
		return pattern != "" && !ok
	})
	if len(shown) == 0 {
		return fmt.Errorf("no package of the product matches %q", pattern)
	}
	if err := show(out, shown, all); err != nil {
		return err
	}
	l := parse(filepath.Base(name), string(text))
	l.check(units)
	return l.wrong
}

// show writes a table of the packages that have a circle, and before it all pairs if they are
// wanted.
func show(out io.Writer, units []unit, all bool) error {
	table := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(table, "package\tfiles\tpairs\tlargest circle")
	for _, u := range units {
		for _, p := range u.pairs {
			if all {
				fmt.Fprintf(out, "%s: %s %s\n%s\n", u.name, p.a, p.b, u.refs.describe(p))
			}
		}
		if len(u.circle) > 0 {
			fmt.Fprintf(table, "%s\t%d\t%d\t%d\n", u.name, u.files, len(u.pairs), len(u.circle))
		}
	}
	return table.Flush()
}
