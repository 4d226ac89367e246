// Package product finds the packages of the product: those that users can import or run, and those
// that such packages import, in the modules of go.work. Folders named bench, e2e, examples, measure
// and tools are left out.
package product

import (
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

// Load returns the packages of the product in the repository at root, which is an absolute path. A
// Package has the fields that mode asks for, its name and its imports. Load returns an error if the
// go command fails, but not if a package has errors.
func Load(root string, mode packages.LoadMode) ([]*packages.Package, error) {
	top, err := repo.Modules(root, []string{"."})
	if err != nil {
		return nil, err
	}
	work := filepath.Join(root, "go.work")
	patterns, err := modules(work)
	if err != nil {
		return nil, err
	}
	// One load for all modules takes less time than one for each.
	loaded, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedImports | mode,
		Dir:  root,
		Env:  append(os.Environ(), "GOWORK="+work),
	}, patterns...)
	return product(loaded, top[0].Path), err
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
		if name := Shorten(p.PkgPath, top); !within(name, "internal") && !within(name, apart...) {
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

// Shorten returns the path of a package in the module top.
func Shorten(of, top string) string { return path.Join(".", strings.TrimPrefix(of, top)) }
