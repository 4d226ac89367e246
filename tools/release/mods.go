package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"

	"github.com/customcacheinformer/informer/tools/internal/repo"
)

// open returns the modules, or an error if they cannot have that version.
func open(root, version string, dirs []string) ([]repo.Module, error) {
	if semver.Canonical(version) != version || version == "" {
		return nil, fmt.Errorf("VERSION is %q, want one such as v0.1.0", version)
	}
	modules, err := repo.Modules(root, dirs)
	if err != nil {
		return nil, err
	}
	for _, m := range modules {
		_, major, ok := module.SplitPathVersion(m.Path)
		if !ok {
			return nil, fmt.Errorf("%s is not the path of a module", m.Path)
		}
		if err := module.CheckPathMajor(version, major); err != nil {
			return nil, fmt.Errorf("%s: %w", m.Path, err)
		}
	}
	if len(modules) == 0 {
		return nil, fmt.Errorf("no modules are given")
	}
	return modules, nil
}

// siblings returns the requirements of file that are in modules, with their versions.
func siblings(file *modfile.File, modules []repo.Module) map[string]string {
	versions := map[string]string{}
	for _, r := range file.Require {
		if slices.ContainsFunc(modules, func(m repo.Module) bool { return m.Path == r.Mod.Path }) {
			versions[r.Mod.Path] = r.Mod.Version
		}
	}
	return versions
}

// require sets the version of all requirements in file that are in modules. It reports whether
// it changed any.
func require(file *modfile.File, modules []repo.Module, version string) (changed bool, err error) {
	for path, was := range siblings(file, modules) {
		if was == version {
			continue
		}
		if err := file.AddRequire(path, version); err != nil {
			return false, err
		}
		changed = true
	}
	return changed, nil
}

// prepare sets the versions in which all modules of the repository require the published ones.
func prepare(out io.Writer, root, version string, dirs []string) error {
	modules, err := open(root, version, dirs)
	if err != nil {
		return err
	}
	names, err := repo.Run(root, nil, "git", "ls-files", "-z", "--", "go.mod", "**/go.mod")
	if err != nil {
		return err
	}
	for _, name := range strings.FieldsFunc(names, func(r rune) bool { return r == 0 }) {
		at := filepath.Join(root, filepath.FromSlash(name))
		text, err := os.ReadFile(at)
		if err != nil {
			return err
		}
		file, err := modfile.Parse(name, text, nil)
		if err != nil {
			return err
		}
		changed, err := require(file, modules, version)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if !changed {
			continue
		}
		if err := os.WriteFile(at, modfile.Format(file.Syntax), 0o644); err != nil {
			return err
		}
		fmt.Fprintf(out, "%s requires %s\n", name, version)
	}
	return nil
}
