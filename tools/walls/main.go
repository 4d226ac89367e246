// Command walls counts the references between the files of a package, and fails when more
// files refer to each other than a list allows:
//
//	walls -root ..
//
// File a refers to file b if an identifier in a resolves to a function, type, method, field,
// constant or variable that b declares. Two files that refer to each other are a two-way
// pair: neither can be read, tested or moved without the other. Test files do not count, and
// neither do files that the build for this system leaves out.
//
// The list has one accepted pair on a line: two files and a reason. Lines that begin with #
// are comments. The command fails if a two-way pair is not in the list, if a pair in the list
// is no longer two-way, or if a line has no reason. So the number of pairs only goes down,
// unless somebody adds a line and says why.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

func main() {
	root := flag.String("root", ".", "the `directory` of the module whose root package is read")
	pairs := flag.String("pairs", "", "the `file` that lists the accepted pairs (default tools/walls/pairs.txt in the root)")
	list := flag.Bool("list", false, "print all two-way pairs with the names behind them, not only new ones")
	flag.Parse()
	if *pairs == "" {
		*pairs = filepath.Join(*root, "tools", "walls", "pairs.txt")
	}
	if err := run(os.Stdout, *root, *pairs, *list); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(out io.Writer, root, list string, all bool) error {
	text, err := os.ReadFile(list)
	if err != nil {
		return err
	}
	accepted, wrong := parse(filepath.Base(list), string(text))
	refs, err := load(root)
	if err != nil {
		return errors.Join(wrong, err)
	}
	pairs := refs.pairs()
	for _, p := range pairs {
		_, known := accepted[p]
		if !known {
			wrong = errors.Join(wrong, fmt.Errorf("%s: %s and %s refer to each other, and are not in the list: "+
				"remove one direction, or add the pair with a reason", filepath.Base(list), p.a, p.b))
		}
		if all || !known {
			refs.print(out, p)
		}
	}
	for _, p := range gone(accepted, pairs) {
		wrong = errors.Join(wrong, fmt.Errorf("%s:%d: %s and %s no longer refer to each other: remove the line",
			filepath.Base(list), accepted[p], p.a, p.b))
	}
	fmt.Fprintf(out, "%d two-way pairs of files, %d references between files\n", len(pairs), len(refs))
	return wrong
}
