// Command release proves that the committed modules of the repository can be used at a version
// that is not released yet:
//
//	release -root .. -version v0.1.0 . store/disk
//
// From HEAD it makes the files that a proxy would serve once every module has its tag. With
// these files only, and without the work tree, it builds and vets each module including its
// tests. It then builds and runs a program that imports every package of all modules. With
// -write it only sets, in the go.mod files of the work tree, the versions in which the modules
// require each other.
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
