package callbacks_test

import (
	"context"
	"go/ast"
	"go/doc"
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
		names, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		fset := token.NewFileSet()
		var files []*ast.File
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, file)
		}
		p, err := doc.NewFromFiles(fset, files, dir)
		if err != nil {
			t.Fatal(err)
		}
		s.add(prefix, p)
	}
	return s
}

func (s source) add(prefix string, p *doc.Package) {
	add := func(name, comment string) { s.comments[prefix+name] = strings.Join(strings.Fields(comment), " ") }
	for _, f := range p.Funcs {
		add(f.Name, f.Doc)
	}
	for _, typ := range p.Types {
		add(typ.Name, typ.Doc)
		for _, m := range typ.Methods {
			add(typ.Name+"."+m.Name, m.Doc)
			if m.Level == 0 { // not of an embedded type
				s.receivers[prefix+typ.Name] = true
			}
		}
		ast.Inspect(typ.Decl, func(n ast.Node) bool {
			if field, ok := n.(*ast.Field); ok {
				for _, name := range field.Names {
					add(typ.Name+"."+name.Name, field.Doc.Text())
				}
			}
			return true
		})
	}
}

func TestADocCommentForbidsEachOmittedCall(t *testing.T) {
	comments := parse(t).comments
	for _, f := range forbidden {
		if !strings.Contains(comments[f.declaration], f.sentence) {
			t.Errorf("the comment of %s lacks the sentence: %s", f.declaration, f.sentence)
		}
	}
	callbacks, methods := callbacksOver(t, stores...), methodNames(t)
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
