package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// declared returns the exported names of the packages that users import, such as "enqueue.Options", and those of
// their fields and methods, such as "Options.Workers". A type that embeds another one, whose members it
// has too, is in open.
func declared(t *testing.T) (names, open map[string]bool) {
	t.Helper()
	names, open = map[string]bool{}, map[string]bool{}
	err := filepath.WalkDir("../..", func(dir string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if slices.Contains([]string{"internal", "e2e", "bench", "examples", "tools", "measure", "testdata", "cmd", "bin", ".git"}, d.Name()) {
			return fs.SkipDir
		}
		found, err := os.ReadDir(dir)
		for _, file := range found {
			if !strings.HasSuffix(file.Name(), ".go") || strings.HasSuffix(file.Name(), "_test.go") {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, file.Name()), nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			for _, d := range f.Decls {
				addNames(names, open, f.Name.Name, d)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names, open
}

func addNames(names, open map[string]bool, pkg string, d ast.Decl) {
	add := func(of string, ids ...*ast.Ident) {
		for _, id := range ids {
			if of == pkg || ast.IsExported(of) {
				names[of+"."+id.Name] = true
			}
		}
	}
	switch d := d.(type) {
	case *ast.FuncDecl:
		of := pkg
		if d.Recv != nil {
			of = typeName(d.Recv.List[0].Type)
		}
		add(of, d.Name)
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.ValueSpec:
				add(pkg, spec.Names...)
			case *ast.TypeSpec:
				add(pkg, spec.Name)
				var fields *ast.FieldList
				switch of := spec.Type.(type) {
				case *ast.StructType:
					fields = of.Fields
				case *ast.InterfaceType:
					fields = of.Methods
				default:
					open[spec.Name.Name] = true
					continue
				}
				for _, f := range fields.List {
					add(spec.Name.Name, f.Names...)
					open[spec.Name.Name] = open[spec.Name.Name] || len(f.Names) == 0
				}
			}
		}
	}
}

// typeName returns the name of the type of a receiver.
func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.IndexExpr:
		return typeName(e.X)
	case *ast.IndexListExpr:
		return typeName(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

var qualified = regexp.MustCompile("`\\**&?([A-Za-z]+)\\.([A-Z][A-Za-z]*)")

// A page that names something removed would send its readers to look for it.
func TestTheNamesInTheDocumentsExist(t *testing.T) {
	names, open := declared(t)
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{} // packages and types
	for name := range names {
		of, _, _ := strings.Cut(name, ".")
		known[of] = true
	}
	checked := 0
	for _, page := range append(pages, "../../README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range qualified.FindAllStringSubmatch(string(text), -1) {
			if !known[m[1]] || open[m[1]] {
				continue
			}
			checked++
			if !names[m[1]+"."+m[2]] {
				t.Errorf("%s: there is no %s.%s", page, m[1], m[2])
			}
		}
	}
	if checked < 100 {
		t.Errorf("only %d names were checked", checked)
	}
}
