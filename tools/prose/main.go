// Command prose checks the English of the documentation and of the comments:
//
//	prose -root ..
//
// It reads all Markdown files and the comments of all Go files in a directory. It fails if they have a
// phrase that CONTRIBUTING.md rules out, or a sentence that begins with "What" or "Who" and is not a question.
// Code, quotations and headings do not count.
//
// With -lengths it prints how long the sentences of each Markdown file are instead.
package main

import (
	"errors"
	"flag"
	"fmt"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
)

func main() {
	root := flag.String("root", ".", "the `directory` to read")
	lengths := flag.Bool("lengths", false, "print the lengths of sentences of each Markdown file")
	flag.Parse()
	if err := run(os.Stdout, os.DirFS(*root), *lengths); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(out io.Writer, root fs.FS, lengths bool) error {
	files, err := textFiles(root)
	if err != nil {
		return err
	}
	found := 0
	for _, file := range files {
		text, err := fs.ReadFile(root, file)
		if err != nil {
			return err
		}
		var parts []part
		if path.Ext(file) == ".md" {
			parts = markdown(string(text))
		} else if parts, err = comments(file, text); err != nil {
			return err
		}
		if lengths {
			if path.Ext(file) == ".md" {
				printLengths(out, file, parts)
			}
			continue
		}
		for _, p := range parts {
			for _, fault := range faults(p.text) {
				found++
				fmt.Fprintf(out, "%s:%d: %s\n", file, p.line, fault)
			}
		}
	}
	if found > 0 {
		return fmt.Errorf("%d sentences are not in the English of CONTRIBUTING.md", found)
	}
	if len(files) == 0 {
		return errors.New("there is nothing to read")
	}
	return nil
}

// textFiles returns the Markdown files and Go files in a directory, except those that tools leave there.
func textFiles(root fs.FS) (files []string, err error) {
	err = fs.WalkDir(root, ".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() && file != "." && (strings.HasPrefix(name, ".") || name == "bin" || name == "testdata") {
			return fs.SkipDir
		}
		if ext := path.Ext(name); !entry.IsDir() && (ext == ".md" || ext == ".go") {
			files = append(files, file)
		}
		return nil
	})
	return files, err
}

// comments returns the comments of a Go file, without directives and indented code.
func comments(name string, text []byte) (parts []part, err error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, group := range file.Comments {
		var lines []string
		for line := range strings.SplitSeq(group.Text(), "\n") {
			if strings.HasPrefix(line, "\t") || strings.HasPrefix(line, "# ") {
				line = ""
			}
			lines = append(lines, line)
		}
		parts = append(parts, part{set.Position(group.Pos()).Line, unquoted(strings.Join(lines, "\n"))})
	}
	return parts, nil
}

func printLengths(out io.Writer, file string, parts []part) {
	var lengths []int
	for _, p := range parts {
		for _, s := range sentences(p.text) {
			if n := len(strings.Fields(s)); n > 2 { // others are cells and titles
				lengths = append(lengths, n)
			}
		}
	}
	if len(lengths) == 0 {
		return
	}
	slices.Sort(lengths)
	at := func(percent int) int { return lengths[(len(lengths)-1)*percent/100] }
	fmt.Fprintf(out, "%-45s %5d sentences, words: median %2d, 90th percentile %2d, longest %3d\n", file, len(lengths), at(50), at(90), at(100))
}
