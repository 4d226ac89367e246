// Command apidiff compares the exported API of modules with their last tag:
//
//	apidiff -root .. . store/disk
//
// From v1.0.0 on it fails if the API has changed in a way that can break users, unless
// -version names a release with another major version. Before v1.0.0 it only prints the
// changes.
package main

import (
	"archive/zip"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"go/types"
	"io"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/exp/apidiff"
	"golang.org/x/mod/semver"
	"golang.org/x/tools/go/packages"

	"github.com/customcacheinformer/informer/tools/internal/repo"
)

func main() {
	root := flag.String("root", ".", "the `directory` of the repository")
	next := flag.String("version", "", "the `version` of the next release (default: one that must not break users)")
	flag.Parse()
	if err := run(os.Stdout, *root, *next, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(out io.Writer, root, next string, dirs []string) error {
	if next != "" && !semver.IsValid(next) {
		return fmt.Errorf("%q is not a valid version", next)
	}
	modules, err := repo.Modules(root, dirs)
	if err != nil {
		return err
	}
	var broken []error
	for _, m := range modules {
		last, err := m.LastTag(root)
		if err != nil {
			return err
		}
		if last == "" {
			fmt.Fprintf(out, "%s: there is no tag %s yet to compare with\n", m.Path, m.Tag("v*"))
			continue
		}
		report, err := compare(root, m, last)
		if err != nil {
			return fmt.Errorf("%s: %w", m.Path, err)
		}
		breaks := slices.ContainsFunc(report.Changes, func(c apidiff.Change) bool { return !c.Compatible })
		switch {
		case len(report.Changes) == 0:
			fmt.Fprintf(out, "%s: the same as %s\n", m.Path, m.Tag(last))
			continue
		case breaks:
			fmt.Fprintf(out, "%s: changed since %s, also in ways that can break users\n", m.Path, m.Tag(last))
		default:
			fmt.Fprintf(out, "%s: changed since %s\n", m.Path, m.Tag(last))
		}
		if err := report.Text(out); err != nil {
			return err
		}
		if breaks && semver.Major(last) != "v0" && (next == "" || semver.Major(next) == semver.Major(last)) {
			broken = append(broken, fmt.Errorf("%s: the next release must have another major version than %s", m.Path, semver.Major(last)))
		}
	}
	return errors.Join(broken...)
}

// compare compares a module with its state at a version.
func compare(root string, m repo.Module, version string) (report apidiff.Report, err error) {
	was, err := os.MkdirTemp("", "apidiff")
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(was)) }()
	if err := extract(root, m.Tag(version), was); err != nil {
		return report, err
	}
	before, err := load(filepath.Join(was, m.Dir), m.Path)
	if err != nil {
		return report, err
	}
	now, err := load(filepath.Join(root, m.Dir), m.Path)
	if err != nil {
		return report, err
	}
	return apidiff.ModuleChanges(before, now), nil
}

// extract writes the files of a tag into a directory.
func extract(root, commit, to string) error {
	archive, err := repo.Run(root, nil, "git", "archive", "--format=zip", "refs/tags/"+commit)
	if err != nil {
		return err
	}
	files, err := zip.NewReader(bytes.NewReader([]byte(archive)), int64(len(archive)))
	if err != nil {
		return err
	}
	return os.CopyFS(to, files)
}

// load returns the packages of a module that users can import.
func load(dir, path string) (*apidiff.Module, error) {
	loaded, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedTypes | packages.NeedImports | packages.NeedDeps | packages.NeedExportFile,
		Dir:  dir,
	}, "./...")
	if err != nil {
		return nil, err
	}
	m := &apidiff.Module{Path: path}
	for _, p := range loaded {
		if !repo.Importable(p.PkgPath, p.Name) {
			continue
		}
		for _, err := range p.Errors {
			return nil, fmt.Errorf("%s: %w", p.PkgPath, err)
		}
		m.Packages = append(m.Packages, p.Types)
	}
	slices.SortFunc(m.Packages, func(a, b *types.Package) int { return bytes.Compare([]byte(a.Path()), []byte(b.Path())) })
	return m, nil
}
