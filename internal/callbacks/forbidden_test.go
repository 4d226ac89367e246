package callbacks_test

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

// source has what the files of packages informer and enqueue declare. The names of package enqueue
// begin with "enqueue.".
type source struct {
	comments  map[string]string // by declaration, such as "New", "Group.Remove" or "Options.Store"
	receivers map[string]bool   // the exported types that have exported methods
}

func parse(t *testing.T) source {
	s := source{map[string]string{}, map[string]bool{}}
	for prefix, dir := range map[string]string{"": "../..", "enqueue.": "../../enqueue"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range file.Decls {
				s.add(prefix, d)
			}
		}
	}
	return s
}

func (s source) add(prefix string, d ast.Decl) {
	add := func(name string, doc *ast.CommentGroup) {
		s.comments[prefix+name] = strings.Join(strings.Fields(doc.Text()), " ")
	}
	switch d := d.(type) {
	case *ast.FuncDecl:
		name := d.Name.Name
		if d.Recv != nil {
			of := receiver(d.Recv.List[0].Type)
			if ast.IsExported(of) && ast.IsExported(name) {
				s.receivers[prefix+of] = true
			}
			name = of + "." + name
		}
		add(name, d.Doc)
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			t, ok := spec.(*ast.TypeSpec)
			if !ok {
				continue
			}
			add(t.Name.Name, d.Doc)
			if s, ok := t.Type.(*ast.StructType); ok {
				for _, field := range s.Fields.List {
					for _, name := range field.Names {
						add(t.Name.Name+"."+name.Name, field.Doc)
					}
				}
			}
		}
	}
}

func receiver(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.StarExpr:
		return receiver(t.X)
	case *ast.IndexExpr:
		return receiver(t.X)
	case *ast.IndexListExpr:
		return receiver(t.X)
	case *ast.Ident:
		return t.Name
	}
	return ""
}

func TestADocCommentForbidsEachCallThatIsNotMade(t *testing.T) {
	comments := parse(t).comments
	for _, f := range forbidden {
		if !strings.Contains(comments[f.declaration], f.sentence) {
			t.Errorf("the comment of %s does not say: %s", f.declaration, f.sentence)
		}
	}
	var callbacks []string
	for _, store := range stores {
		callbacks = append(callbacks, callbacksOver(t, store)...)
	}
	methods := methodNames(t)
	for _, f := range forbidden {
		if !slices.ContainsFunc(callbacks, func(c string) bool { return matches(f.callback, c) }) {
			t.Errorf("there is no callback %s", f.callback)
		}
		if !slices.ContainsFunc(methods, func(m string) bool { return matches(f.method, m) }) {
			t.Errorf("there is no method %s", f.method)
		}
	}
}

func methodNames(t *testing.T) (names []string) {
	synctest.Test(t, func(t *testing.T) {
		newWorld(t, context.WithoutCancel(t.Context()), "plain", func(w *world, c callback) {
			if c.name == "Options.Transform" {
				for _, m := range w.methods(c) {
					names = append(names, m.name)
				}
			}
		}).live()
	})
	return names
}

// values are the exported types whose methods depend on nothing but the value.
var values = []string{
	"Event", "EventType", "Origin", "Health", "SourceHealth", "DecodingHealth", "MemoryHealth", "Snapshot", "WatcherStats", "WatcherFunc", "WatcherFuncs",
	"EventError", "ObjectError", "PanicError", "StoreError", "SyncError", "WatchError", "enqueue.Error", "enqueue.Health", "enqueue.Key",
}

// elsewhere are types that another package tries: internal/sinks and internal/clusters.
var elsewhere = []string{"SinkInformer", "Clusters"}

// TestEachTypeWithMethodsIsTried fails when a type gets methods that no callback calls.
func TestEachTypeWithMethodsIsTried(t *testing.T) {
	tried := map[string]bool{}
	for _, name := range methodNames(t) {
		of, _ := parts(name)
		tried[of] = true
	}
	receivers := parse(t).receivers
	for of := range receivers {
		if !tried[of] && !slices.Contains(slices.Concat(values, elsewhere), of) {
			t.Errorf("no callback calls the methods of %s", of)
		}
	}
	for _, of := range values {
		if !receivers[of] {
			t.Errorf("%s has no methods", of)
		}
	}
}
