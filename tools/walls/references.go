package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// pair is two files of a package. The name a sorts before b.
type pair struct{ a, b string }

func comparePairs(p, q pair) int { return cmp.Or(cmp.Compare(p.a, q.a), cmp.Compare(p.b, q.b)) }

func newPair(a, b string) pair { return pair{min(a, b), max(a, b)} }

// reference is the direction from a file to another that it refers to.
type reference struct{ from, to string }

// references counts the uses of each name for each reference.
type references map[reference]map[string]int

// add adds the references of a package.
func (refs references) add(p *packages.Package) {
	file := func(at token.Pos) string { return filepath.Base(p.Fset.PositionFor(at, false).Filename) }
	owners := memberOwners(p.Syntax)
	for id, object := range p.TypesInfo.Uses {
		if object.Pkg() != p.Types || !object.Pos().IsValid() {
			continue
		}
		r := reference{file(id.Pos()), file(object.Pos())}
		if r.from == r.to {
			continue
		}
		if refs[r] == nil {
			refs[r] = map[string]int{}
		}
		refs[r][owners[object.Pos()]+object.Name()]++
	}
}

// memberOwners returns, for the places where fields and methods are declared, the name of
// their type and a dot.
func memberOwners(files []*ast.File) map[token.Pos]string {
	owners := map[token.Pos]string{}
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Recv != nil && len(n.Recv.List) == 1 {
					owners[n.Name.Pos()] = typeName(n.Recv.List[0].Type).Name + "."
				}
			case *ast.TypeSpec:
				addMembers(owners, n)
			}
			return true
		})
	}
	return owners
}

// addMembers adds the fields of a struct type or the methods of an interface type.
func addMembers(owners map[token.Pos]string, spec *ast.TypeSpec) {
	ast.Inspect(spec.Type, func(n ast.Node) bool {
		field, ok := n.(*ast.Field)
		if !ok {
			return true
		}
		names := field.Names
		if len(names) == 0 {
			names = []*ast.Ident{typeName(field.Type)} // an embedded field
		}
		for _, name := range names {
			owners[name.Pos()] = spec.Name.Name + "."
		}
		return true
	})
}

// typeName returns the name in the expression of a type, without its package, pointer and
// type arguments. If the type has no name, an empty identifier is returned.
func typeName(of ast.Expr) *ast.Ident {
	switch of := of.(type) {
	case *ast.Ident:
		return of
	case *ast.StarExpr:
		return typeName(of.X)
	case *ast.ParenExpr:
		return typeName(of.X)
	case *ast.IndexExpr:
		return typeName(of.X)
	case *ast.IndexListExpr:
		return typeName(of.X)
	case *ast.SelectorExpr:
		return of.Sel
	}
	return &ast.Ident{}
}

// pairs returns the files that refer to each other, sorted by name.
func (refs references) pairs() (pairs []pair) {
	for r := range refs {
		if _, back := refs[reference{r.to, r.from}]; back && r.from < r.to {
			pairs = append(pairs, newPair(r.from, r.to))
		}
	}
	slices.SortFunc(pairs, comparePairs)
	return pairs
}

// circle returns the files of the largest circle, sorted by name. Each file of a circle leads to
// all others of the circle, by one reference or by several.
func (refs references) circle() (largest []string) {
	reached := map[string]map[string]bool{}
	for r := range refs {
		if reached[r.from] == nil {
			reached[r.from] = refs.follow(r.from, map[string]bool{})
		}
	}
	for _, from := range slices.Sorted(maps.Keys(reached)) {
		files := slices.Sorted(maps.Keys(reached[from]))
		files = slices.DeleteFunc(files, func(to string) bool { return !reached[to][from] })
		if len(files) > len(largest) {
			largest = files
		}
	}
	return largest
}

// follow adds the files to which a file leads.
func (refs references) follow(from string, reached map[string]bool) map[string]bool {
	for r := range refs {
		if r.from == from && !reached[r.to] {
			reached[r.to] = true
			refs.follow(r.to, reached)
		}
	}
	return reached
}

// describe returns the names that the files of a pair use of each other, in two lines.
func (refs references) describe(p pair) string {
	var lines []string
	for _, r := range []reference{{p.a, p.b}, {p.b, p.a}} {
		var names []string
		for _, name := range slices.Sorted(maps.Keys(refs[r])) {
			if uses := refs[r][name]; uses > 1 {
				name = fmt.Sprintf("%s (%d)", name, uses)
			}
			names = append(names, name)
		}
		lines = append(lines, fmt.Sprintf("    %s uses of %s: %s", r.from, r.to, strings.Join(names, ", ")))
	}
	return strings.Join(lines, "\n")
}
