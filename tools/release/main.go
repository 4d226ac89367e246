// Command release proves that the modules of the repository, as they are committed, can
// be used at a version that is not released yet:
//
//	release -root .. -version v0.1.0 . store/disk
//
// It makes of HEAD what a proxy would serve once every module has its tag, and with that,
// and without the work tree, builds and vets each module, its tests too, and then a
// program that imports every package of all of them. With -write it only sets, in the
// go.mod files of the work tree, the versions in which the modules require each other.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	root := flag.String("root", ".", "the `directory` of the repository")
	version := flag.String("version", "", "the `version` that all modules will have")
	write := flag.Bool("write", false, "set that version in the go.mod files")
	flag.Parse()
	act := check
	if *write {
		act = prepare
	}
	if err := act(os.Stdout, *root, *version, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}
