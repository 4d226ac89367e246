package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"

	"github.com/customcacheinformer/informer/tools/internal/product"
	"github.com/customcacheinformer/informer/tools/internal/repo"
)

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
	// Without NeedDeps, the types of imports come from export data in the build cache. Checking
	// all of client-go from source takes more than a minute.
	loaded, err := product.Load(root, packages.NeedFiles|packages.NeedCompiledGoFiles|packages.NeedExportFile|
		packages.NeedTypes|packages.NeedSyntax|packages.NeedTypesInfo)
	if err != nil {
		return nil, err
	}
	for _, p := range loaded {
		for _, e := range p.Errors {
			err = errors.Join(err, e)
		}
		units = append(units, newUnit(product.Shorten(p.PkgPath, top[0].Path), p))
	}
	slices.SortFunc(units, func(u, v unit) int { return strings.Compare(u.name, v.name) })
	return units, err
}

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
