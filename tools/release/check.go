package main

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	modzip "golang.org/x/mod/zip"

	"github.com/customcacheinformer/informer/tools/internal/repo"
)

// checking is the check of one version. It works in a temporary directory.
type checking struct {
	out     io.Writer
	root    string
	version string
	commit  string
	modules []repo.Module
	temp    string
	env     []string
	behind  []string // go.mod files that do not require the version yet
}

// check proves that the committed state of the modules in dirs can be used at a version.
func check(out io.Writer, root, version string, dirs []string) (err error) {
	modules, err := open(root, version, dirs)
	if err != nil {
		return err
	}
	root, err = filepath.Abs(root)
	if err != nil {
		return err
	}
	temp, err := os.MkdirTemp("", "release")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()
	c := &checking{out: out, root: root, version: version, modules: modules, temp: temp}
	if err := c.prepare(); err != nil {
		return err
	}
	for _, m := range modules {
		if err := c.publish(m); err != nil {
			return fmt.Errorf("%s: %w", m.Path, err)
		}
	}
	for _, m := range modules {
		if err := c.build(m); err != nil {
			return fmt.Errorf("%s: %w", m.Path, err)
		}
	}
	if err := c.consume(); err != nil {
		return fmt.Errorf("a program that imports all of it: %w", err)
	}
	c.conclude()
	return nil
}

// prepare finds out the commit, and sets up the environment of the go commands.
func (c *checking) prepare() error {
	commit, err := repo.Run(c.root, nil, "git", "rev-parse", "HEAD")
	if err != nil {
		return err
	}
	c.commit = strings.TrimSpace(commit)
	dirty, err := repo.Run(c.root, nil, "git", "status", "--porcelain")
	if err != nil {
		return err
	}
	if dirty != "" {
		fmt.Fprintf(c.out, "not committed, so not part of the release:\n%s", dirty)
	}
	known, err := repo.Run(c.root, nil, "go", "env", "GOPROXY", "GOMODCACHE", "GONOSUMDB")
	if err != nil {
		return err
	}
	said := strings.Split(known, "\n")
	proxy, cache, unsummed := said[0], said[1], said[2]
	paths := []string{unsummed}
	for _, m := range c.modules {
		paths = append(paths, m.Path)
	}
	c.env = []string{
		"GOWORK=off",
		// Unreleased modules must not stay in the user's module cache. Modules that the user
		// has downloaded already need not be downloaded again.
		"GOMODCACHE=" + filepath.Join(c.temp, "cache"),
		"GOPROXY=" + fileURL(c.proxy()) + "," + fileURL(filepath.Join(cache, "cache", "download")) + "," + proxy,
		"GONOSUMDB=" + strings.Trim(strings.Join(paths, ","), ","),
		"GOPRIVATE=", "GONOPROXY=",
		// With -trimpath, a second check can reuse packages that the first has compiled.
		"GOFLAGS=-mod=mod -modcacherw -trimpath -buildvcs=false",
	}
	return nil
}

func (c *checking) proxy() string { return filepath.Join(c.temp, "proxy") }

// copyOf returns the directory where the zip of a module is unpacked.
func (c *checking) copyOf(m repo.Module) string {
	return filepath.Join(c.temp, "modules", filepath.FromSlash(m.Dir), "module")
}

func fileURL(path string) string {
	return "file://" + strings.TrimSuffix("/"+strings.TrimPrefix(filepath.ToSlash(path), "/"), "/")
}

// publish writes the files that a proxy would serve for a module. If its go.mod does not
// require the version of the other modules yet, publish sets that version. It also leaves an
// unpacked copy of the module.
func (c *checking) publish(m repo.Module) error {
	var committed bytes.Buffer
	id := module.Version{Path: m.Path, Version: c.version}
	dir := m.Dir
	if dir == "." {
		dir = ""
	}
	if err := modzip.CreateFromVCS(&committed, id, c.root, c.commit, dir); err != nil {
		return err
	}
	files, err := zip.NewReader(bytes.NewReader(committed.Bytes()), int64(committed.Len()))
	if err != nil {
		return err
	}
	tree, to := c.copyOf(m), filepath.Join(c.proxy(), "extracted")
	if err := os.CopyFS(to, files); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(tree), 0o700); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(to, filepath.FromSlash(m.Path)+"@"+c.version), tree); err != nil {
		return err
	}
	text, err := c.released(m)
	if err != nil {
		return err
	}
	escaped, err := module.EscapePath(m.Path)
	if err != nil {
		return err
	}
	at := filepath.Join(c.proxy(), filepath.FromSlash(escaped), "@v")
	if err := os.MkdirAll(at, 0o700); err != nil {
		return err
	}
	var released bytes.Buffer
	if err := modzip.CreateFromDir(&released, id, tree); err != nil {
		return err
	}
	for name, content := range map[string][]byte{
		"list":              []byte(c.version + "\n"),
		c.version + ".info": fmt.Appendf(nil, `{"Version":%q,"Time":%q}`, c.version, time.Now().UTC().Format(time.RFC3339)),
		c.version + ".mod":  text,
		c.version + ".zip":  released.Bytes(),
	} {
		if err := os.WriteFile(filepath.Join(at, name), content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// released sets the version of the other modules in the go.mod of a module's copy. It returns
// the go.mod as dependents will see it.
func (c *checking) released(m repo.Module) ([]byte, error) {
	name := filepath.Join(c.copyOf(m), "go.mod")
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	file, err := modfile.Parse(name, text, nil)
	if err != nil {
		return nil, err
	}
	behind, err := require(file, c.modules, c.version)
	if err != nil || !behind {
		return text, err
	}
	c.behind = append(c.behind, filepath.ToSlash(filepath.Join(m.Dir, "go.mod")))
	text = modfile.Format(file.Syntax)
	return text, os.WriteFile(name, text, 0o600)
}

// build builds and vets the copy of a module, without its replace lines.
func (c *checking) build(m repo.Module) error {
	begun := time.Now()
	name := filepath.Join(c.copyOf(m), "go.mod")
	file, err := parse(name)
	if err != nil {
		return err
	}
	for _, r := range slices.Clone(file.Replace) {
		if err := file.DropReplace(r.Old.Path, r.Old.Version); err != nil {
			return err
		}
	}
	file.Cleanup()
	if err := os.WriteFile(name, modfile.Format(file.Syntax), 0o600); err != nil {
		return err
	}
	for _, args := range [][]string{{"build", "./..."}, {"vet", "./..."}} {
		if _, err := repo.Run(c.copyOf(m), c.env, "go", args...); err != nil {
			return err
		}
	}
	after, err := parse(name)
	if err != nil {
		return err
	}
	if err := sameRequirements(file, after); err != nil {
		return err
	}
	fmt.Fprintf(c.out, "%s@%s: built and vetted in %s\n", m.Path, c.version, time.Since(begun).Round(time.Second))
	return nil
}

func parse(name string) (*modfile.File, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return modfile.Parse(name, text, nil)
}

// sameRequirements returns an error if a build had to add or raise a requirement.
func sameRequirements(committed, built *modfile.File) error {
	before, after := requirements(committed), requirements(built)
	var wrong []string
	for _, path := range slices.Sorted(maps.Keys(after)) {
		switch was := before[path]; {
		case was == "":
			wrong = append(wrong, fmt.Sprintf("its go.mod lacks %s %s", path, after[path]))
		case was != after[path]:
			wrong = append(wrong, fmt.Sprintf("its go.mod requires %s %s, but needs %s", path, was, after[path]))
		}
	}
	if wrong != nil {
		return errors.New(strings.Join(wrong, "\n"))
	}
	return nil
}

func requirements(file *modfile.File) map[string]string {
	versions := map[string]string{}
	for _, r := range file.Require {
		versions[r.Mod.Path] = r.Mod.Version
	}
	return versions
}

// consume gets all modules into a new module, and runs a program that imports all their
// packages.
func (c *checking) consume() error {
	begun := time.Now()
	dir := filepath.Join(c.temp, "consumer")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	var program, sums strings.Builder
	fmt.Fprintf(&program, "package main\n\nimport (\n\t\"fmt\"\n\n")
	for _, m := range c.modules {
		// These sums are known already, so no checksum database is needed for them.
		known, err := os.ReadFile(filepath.Join(c.copyOf(m), "go.sum"))
		if err != nil && !os.IsNotExist(err) {
			return err
		}
		sums.Write(known)
		packages, err := repo.Run(c.copyOf(m), c.env, "go", "list", "-f", "{{.ImportPath}} {{.Name}}", "./...")
		if err != nil {
			return err
		}
		for _, line := range strings.Split(strings.TrimSpace(packages), "\n") {
			if path, name, _ := strings.Cut(line, " "); repo.Importable(path, name) {
				fmt.Fprintf(&program, "\t_ %q\n", path)
			}
		}
	}
	fmt.Fprintf(&program, ")\n\nfunc main() { fmt.Println(\"hello\") }\n")
	for name, text := range map[string]string{
		"go.mod": "module example.com/consumer\n", "go.sum": sums.String(), "main.go": program.String(),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	commands := [][]string{{"run", "."}}
	for _, m := range slices.Backward(c.modules) {
		commands = slices.Insert(commands, 0, []string{"get", m.Path + "@" + c.version})
	}
	for _, args := range commands {
		if _, err := repo.Run(dir, c.env, "go", args...); err != nil {
			return err
		}
	}
	fmt.Fprintf(c.out, "a program that imports all of it: built and run in %s\n", time.Since(begun).Round(time.Second))
	return nil
}

// conclude prints the remaining steps.
func (c *checking) conclude() {
	if len(c.behind) > 0 {
		fmt.Fprintf(c.out, "NOT READY to be tagged: these do not require %s yet (make release-prepare): %s\n", c.version, strings.Join(c.behind, " "))
		return
	}
	fmt.Fprintln(c.out, "ready:")
	var tags []string
	for _, m := range c.modules {
		tags = append(tags, m.Tag(c.version))
		fmt.Fprintf(c.out, "  git tag -a -m %s %[1]s %s\n", m.Tag(c.version), c.commit)
	}
	fmt.Fprintf(c.out, "  git push --atomic origin %s\n", strings.Join(tags, " "))
}
