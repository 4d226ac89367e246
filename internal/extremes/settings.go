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

// settings returns the names of the numbers that a user of the packages can set. patterns are
// those of go list. Internal packages and commands are left out.
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

// exported walks something that a package exports.
func (f *finder) exported(name string, obj types.Object) {
	switch obj.(type) {
	case *types.Func:
		f.given(name, obj.Type())
	case *types.TypeName:
		switch t := obj.Type().Underlying().(type) {
		case *types.Struct:
			f.fields(name, t)
		case *types.Signature: // a user writes such a function, and calls one that the library returns
			f.taken(name, t)
			f.given(name, t)
		}
		methods := types.NewMethodSet(types.NewPointer(obj.Type()))
		if types.IsInterface(obj.Type()) {
			methods = types.NewMethodSet(obj.Type())
		}
		for m := range methods.Methods() {
			if m.Obj().Exported() {
				f.given(name+"."+m.Obj().Name(), m.Type())
			}
		}
	}
}

// taken walks the type of something that a user makes and the library takes: the user sets its
// numbers. Of a function that a user writes, these are the results, and the numbers behind
// pointers that the function is called with.
func (f *finder) taken(name string, t types.Type) {
	if isNumber(t) {
		f.settings[name] = true
		return
	}
	if f.within[t] || isElsewhere(t) {
		return
	}
	f.within[t] = true
	defer delete(f.within, t)
	switch t := t.Underlying().(type) {
	case *types.Struct:
		f.fields(name, t)
	case *types.Signature:
		for v := range t.Params().Variables() {
			if _, ok := v.Type().(*types.Pointer); ok {
				f.taken(name+"("+nameOf(v)+")", v.Type())
			}
		}
		for v := range t.Results().Variables() {
			f.taken(name+" returns "+nameOf(v), v.Type())
		}
	case *types.Map:
		f.taken(name, t.Key())
		f.taken(name, t.Elem())
	case interface{ Elem() types.Type }: // a pointer, slice, array or channel
		f.taken(name, t.Elem())
	}
}

func (f *finder) fields(name string, s *types.Struct) {
	for field := range s.Fields() {
		if field.Embedded() {
			f.taken(name, field.Type())
		} else if field.Exported() {
			f.taken(name+"."+field.Name(), field.Type())
		}
	}
}

// given walks the type of something that the library makes and a user calls: the user sets the
// arguments of its functions.
func (f *finder) given(name string, t types.Type) {
	if f.within[t] || isElsewhere(t) {
		return
	}
	f.within[t] = true
	defer delete(f.within, t)
	switch t := t.Underlying().(type) {
	case *types.Signature:
		for v := range t.Params().Variables() {
			f.taken(name+"("+nameOf(v)+")", v.Type())
		}
		for v := range t.Results().Variables() {
			f.given(name+"()", v.Type())
		}
	case *types.Interface:
		for m := range t.Methods() {
			f.given(name+"."+m.Name(), m.Type())
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

// load returns the types of the packages. It reads the sources of these packages alone: those of
// their dependencies come from the build cache.
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
