// Package repo finds the modules of a repository and runs commands in it.
package repo

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"
)

// Module is a module of the repository.
type Module struct {
	Dir  string // directory in the repository, with slashes; "." for the root
	Path string
}

// Tag returns the name of the tag for a version.
func (m Module) Tag(version string) string {
	if m.Dir == "." {
		return version
	}
	return m.Dir + "/" + version
}

// LastTag returns the highest version that has a tag, or "" if there is none.
func (m Module) LastTag(root string) (version string, err error) {
	out, err := Run(root, nil, "git", "tag", "--list", m.Tag("v*"))
	if err != nil {
		return "", err
	}
	for _, tag := range strings.Fields(out) {
		v := strings.TrimPrefix(tag, m.Tag(""))
		// semver.Compare sorts an invalid version, such as "", before all others.
		if semver.IsValid(v) && semver.Canonical(v) == v && semver.Compare(v, version) > 0 {
			version = v
		}
	}
	return version, nil
}

// Modules returns the modules in the given directories of the repository.
func Modules(root string, dirs []string) (modules []Module, err error) {
	for _, dir := range dirs {
		name := filepath.Join(root, filepath.FromSlash(dir), "go.mod")
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		path := modfile.ModulePath(text)
		if path == "" {
			return nil, fmt.Errorf("%s does not name a module", name)
		}
		modules = append(modules, Module{Dir: dir, Path: path})
	}
	return modules, nil
}

// Run runs a command in dir and returns its standard output. env is added to the environment
// of the process. An error contains the command's output.
func Run(dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s%s", strings.Join(cmd.Args, " "), err, complaints.String(), out)
	}
	return string(out), nil
}

// Importable reports whether users can import a package.
func Importable(path, name string) bool {
	return name != "main" && !strings.Contains("/"+path+"/", "/internal/")
}
