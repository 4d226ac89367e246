package main

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/tools/go/packages"

	"github.com/customcacheinformer/informer/tools/internal/repo"
)

// apart are the names of folders whose packages are not of the product.
var apart = []string{"bench", "e2e", "examples", "measure", "tools"}

// maxLines is the number of lines that a file of the product may have.
const maxLines = 500

// unit is a package of the product.
type unit struct {
	name   string // its path in the repository; "." for the root package
	files  int
	long   []string // files with more than maxLines lines
	refs   references
	pairs  []pair
	circle []string // the files of the largest circle
}

// load returns the packages of the product, sorted by name.
func load(root string) (units []unit, err error) {
	root, err = filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	top, err := repo.Modules(root, []string{"."})
	if err != nil {
		return nil, err
	}
	loaded, err := readPackages(root, filepath.Join(root, "go.work"))
	if err != nil {
		return nil, err
	}
	for _, p := range product(loaded, top[0].Path) {
		for _, e := range p.Errors {
			err = errors.Join(err, e)
		}
		units = append(units, newUnit(shorten(p.PkgPath, top[0].Path), p))
	}
	slices.SortFunc(units, func(u, v unit) int { return strings.Compare(u.name, v.name) })
	return units, err
}

// readPackages returns the packages of the modules in a go.work file. One load for all modules
// takes less time than one for each.
func readPackages(root, work string) ([]*packages.Package, error) {
	patterns, err := modules(work)
	if err != nil {
		return nil, err
	}
	// Without NeedDeps, the types of imports come from export data in the build cache. Checking
	// all of client-go from source takes more than a minute.
	return packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports |
			packages.NeedExportFile | packages.NeedTypes | packages.NeedSyntax | packages.NeedTypesInfo,
		Dir: root,
		Env: append(os.Environ(), "GOWORK="+work),
	}, patterns...)
}

// modules returns patterns for the packages of the modules in a go.work file. Without the
// modules in folders apart, the load needs no kube-apiserver.
func modules(work string) (patterns []string, err error) {
	text, err := os.ReadFile(work)
	if err != nil {
		return nil, err
	}
	file, err := modfile.ParseWork(work, text, nil)
	if err != nil {
		return nil, err
	}
	for _, use := range file.Use {
		if !within(use.Path, apart...) {
			patterns = append(patterns, "./"+path.Join(use.Path, "..."))
		}
	}
	return patterns, nil
}

// within reports whether a path has one of the names among its elements.
func within(of string, names ...string) bool {
	return slices.ContainsFunc(strings.Split(of, "/"), func(name string) bool { return slices.Contains(names, name) })
}

// product returns the packages that users can import or run, and those that such packages
// import. So an internal package that only tests and measuring programs use is left out.
func product(loaded []*packages.Package, top string) []*packages.Package {
	var users []*packages.Package
	for _, p := range loaded {
		if name := shorten(p.PkgPath, top); !within(name, "internal") && !within(name, apart...) {
			users = append(users, p)
		}
	}
	reached := map[string]bool{}
	packages.Visit(users, func(p *packages.Package) bool {
		reached[p.ID] = true
		return true
	}, nil)
	return slices.DeleteFunc(loaded, func(p *packages.Package) bool { return !reached[p.ID] })
}

// shorten returns the path of a package in the module top.
func shorten(of, top string) string { return path.Join(".", strings.TrimPrefix(of, top)) }

func newUnit(name string, p *packages.Package) unit {
	u := unit{name: name, files: len(p.Syntax), refs: references{}}
	for _, f := range p.Syntax {
		file := p.Fset.File(f.FileStart)
		if lines := file.LineCount(); lines > maxLines {
			u.long = append(u.long, fmt.Sprintf("%s has %d lines", filepath.Base(file.Name()), lines))
		}
	}
	u.refs.add(p)
	u.pairs, u.circle = u.refs.pairs(), u.refs.circle()
	return u
}
