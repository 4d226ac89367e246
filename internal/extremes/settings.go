package extremes

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
)

const module = "github.com/customcacheinformer/informer/"

// finder collects the numbers that a user of some packages can set.
type finder struct {
	settings map[string]bool     // by name
	within   map[types.Type]bool // the types that the walk is inside of
}

// settings returns the names of the numbers that a user of the packages can set. patterns are as for go list.
// settings leaves out internal packages and commands.
func settings(patterns ...string) ([]string, error) {
	packages, err := load(patterns)
	if err != nil {
		return nil, err
	}
	return find(slices.DeleteFunc(packages, func(p *types.Package) bool {
		return p.Name() == "main" || strings.Contains(p.Path()+"/", "/internal/")
	})), nil
}

func find(packages []*types.Package) []string {
	f := finder{map[string]bool{}, map[types.Type]bool{}}
	for _, p := range packages {
		for _, name := range p.Scope().Names() {
			if obj := p.Scope().Lookup(name); obj.Exported() {
				f.exported(p.Name()+"."+name, obj)
			}
		}
	}
	return slices.Sorted(maps.Keys(f.settings))
}

// exported walks the type of an exported name.
func (f *finder) exported(name string, obj types.Object) {
	switch obj.(type) {
	case *types.Func:
		f.parts(name, obj.Type(), false)
	case *types.TypeName:
		f.parts(name, obj.Type().Underlying(), true)
		receiver := obj.Type()
		if _, ok := receiver.Underlying().(*types.Signature); ok { // a user also calls one that the library returns
			f.parts(name, receiver.Underlying(), false)
		}
		if !types.IsInterface(receiver) {
			receiver = types.NewPointer(receiver)
		}
		for m := range types.NewMethodSet(receiver).Methods() {
			if m.Obj().Exported() {
				f.parts(name+"."+m.Obj().Name(), m.Type(), false)
			}
		}
	}
}

// walk records a number that a user sets. For other types it walks the parts, unless it is inside this type
// already. ours is true if a user makes the value and the library takes it.
func (f *finder) walk(name string, t types.Type, ours bool) {
	if isNumber(t) && ours {
		f.settings[name] = true
	} else if !f.within[t] && !isElsewhere(t) {
		f.within[t] = true
		f.parts(name, t.Underlying(), ours)
		delete(f.within, t)
	}
}

// parts walks the parts of a type. For a function that a user writes, the user sets the results, and the
// numbers behind pointer arguments. For a function of the library, the user sets the arguments.
func (f *finder) parts(name string, t types.Type, ours bool) {
	switch t := t.(type) {
	case *types.Signature:
		for v := range t.Params().Variables() {
			if _, pointer := v.Type().(*types.Pointer); pointer || !ours {
				f.walk(name+"("+nameOf(v)+")", v.Type(), true)
			}
		}
		for v := range t.Results().Variables() {
			if ours {
				f.walk(name+" returns "+nameOf(v), v.Type(), true)
			} else {
				f.walk(name+"()", v.Type(), false)
			}
		}
	case *types.Interface:
		for m := range t.Methods() {
			if !ours {
				f.walk(name+"."+m.Name(), m.Type(), false)
			}
		}
	case *types.Struct:
		for field := range t.Fields() {
			if ours && field.Embedded() {
				f.walk(name, field.Type(), true)
			} else if ours && field.Exported() {
				f.walk(name+"."+field.Name(), field.Type(), true)
			}
		}
	case interface{ Elem() types.Type }: // a pointer, map, slice, array or channel
		if ours {
			f.walk(name, t.Elem(), true)
		}
	}
}

// isNumber reports whether t is a number, such as int, time.Duration or an enumeration.
func isNumber(t types.Type) bool {
	basic, ok := t.Underlying().(*types.Basic)
	return ok && basic.Info()&types.IsNumeric != 0
}

// isElsewhere reports whether the walk leaves out t: a type of the standard library, a type
// parameter, or an exported type of this library, which is walked where it is declared.
func isElsewhere(t types.Type) bool {
	switch t := types.Unalias(t).(type) {
	case *types.TypeParam:
		return true
	case *types.Named:
		if t.Obj().Pkg() == nil { // error
			return true
		}
		path := t.Obj().Pkg().Path()
		first, _, _ := strings.Cut(path, "/")
		return !strings.Contains(first, ".") || strings.HasPrefix(path+"/", module) && t.Obj().Exported()
	}
	return false
}

// nameOf returns the name of an argument or a result, or its type if it has no name.
func nameOf(v *types.Var) string {
	return cmp.Or(v.Name(), types.TypeString(v.Type(), (*types.Package).Name))
}

// load returns the types of the packages. It reads the sources of only these packages; the types of their
// dependencies come from the build cache.
func load(patterns []string) ([]*types.Package, error) {
	list := []string{"list", "-export", "-deps", "-f", "{{.DepOnly}}\t{{.ImportPath}}\t{{.Export}}\t{{.Dir}}\t{{join .GoFiles \" \"}}"}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "-race" { // go test has built the packages this way already
				list = append(list, "-race="+s.Value)
			}
		}
	}
	cmd := exec.Command("go", append(list, patterns...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%v: %w: %s", cmd, err, stderr.String())
	}
	exports := map[string]string{} // file names by import path
	fset := token.NewFileSet()
	imports := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	var packages []*types.Package
	for line := range strings.Lines(string(out)) {
		words := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		dependency, path, export, dir, names := words[0] == "true", words[1], words[2], words[3], strings.Fields(words[4])
		exports[path] = export
		if dependency {
			continue
		}
		var files []*ast.File
		for _, name := range names {
			file, err := parser.ParseFile(fset, filepath.Join(dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				return nil, err
			}
			files = append(files, file)
		}
		checked, err := (&types.Config{Importer: imports}).Check(path, fset, files, nil)
		if err != nil {
			return nil, err
		}
		packages = append(packages, checked)
	}
	return packages, nil
}
