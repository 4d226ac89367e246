// Command licences lists the modules in the build of any program that imports one of the given
// modules, with their versions and licences:
//
//	licences -root .. . store/disk
//
// It fails if a module has a licence that is not allowed, has no licence file, or has a
// licence file with other text that may be a licence. It reads the licence files in the
// directories of the packages that are built and in the directories above them, on Linux,
// macOS and Windows.
package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/customcacheinformer/informer/tools/internal/repo"
)

// allowed are the licences that are compatible with Apache-2.0, for sources and for binaries,
// and only require that their text and the names are included.
var allowed = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT"}

// read maps the beginning of a text's SHA-256 to its licence. The texts differ from the known
// texts, so a person has read them.
var read = map[string]string{
	"73ba74dfaa52": "Apache-2.0", // k8s.io/klog/v2: the items of its lists have no letters
}

var licenceFile = regexp.MustCompile(`(?i)^(un)?(licen[sc]e|copying)([.-].*)?$`)

// use is a module in a build.
type use struct {
	path, version, dir string
	by                 []string            // directories of our modules that use it
	packages           map[string]struct{} // directories of its packages in the build
}

func main() {
	root := flag.String("root", ".", "the `directory` of the repository")
	quiet := flag.Bool("quiet", false, "print only errors")
	flag.Parse()
	out := io.Writer(os.Stdout)
	if *quiet {
		out = io.Discard
	}
	if err := run(out, *root, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(out io.Writer, root string, dirs []string) error {
	uses, err := used(root, dirs)
	if err != nil {
		return err
	}
	var wrong []error
	table := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	among := licences()
	for _, u := range uses {
		names, err := u.licences(among)
		for _, name := range names {
			if !slices.Contains(allowed, name) {
				err = errors.Join(err, fmt.Errorf("%s is not allowed", name))
			}
		}
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%s@%s: %w", u.path, u.version, err))
			names = append(names, "?")
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", u.path, u.version, strings.Join(names, " AND "), strings.Join(u.by, " "))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	return errors.Join(wrong...)
}

// used returns the modules that programs build when they import our modules.
func used(root string, dirs []string) ([]*use, error) {
	found := map[string]*use{}
	for _, dir := range dirs {
		at := filepath.Join(root, dir)
		packages, err := importable(at)
		if err != nil {
			return nil, err
		}
		for _, system := range []string{"linux", "darwin", "windows"} {
			args := []string{"list", "-deps", "-f", `{{with .Module}}{{if not .Main}}{{with .Replace}}{{else}}{{$.Dir}}|{{.Path}}|{{.Version}}|{{.Dir}}{{end}}{{end}}{{end}}`}
			out, err := repo.Run(at, []string{"GOWORK=off", "GOOS=" + system}, "go", append(args, packages...)...)
			if err != nil {
				return nil, err
			}
			for _, line := range strings.Fields(out) {
				part := strings.Split(line, "|")
				if len(part) != 4 {
					return nil, fmt.Errorf("go list: %q", line)
				}
				id := part[1] + "@" + part[2]
				if found[id] == nil {
					found[id] = &use{path: part[1], version: part[2], dir: part[3], packages: map[string]struct{}{}}
				}
				found[id].packages[part[0]] = struct{}{}
				if !slices.Contains(found[id].by, dir) {
					found[id].by = append(found[id].by, dir)
				}
			}
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b *use) int {
		return cmp.Or(cmp.Compare(a.path, b.path), cmp.Compare(a.version, b.version))
	}), nil
}

// importable returns the packages of a module that users can import.
func importable(dir string) (packages []string, err error) {
	out, err := repo.Run(dir, []string{"GOWORK=off"}, "go", "list", "-f", "{{.ImportPath}}|{{.Name}}", "./...")
	for _, line := range strings.Fields(out) {
		if path, name, _ := strings.Cut(line, "|"); repo.Importable(path, name) {
			packages = append(packages, path)
		}
	}
	return packages, err
}

// licences returns the identifiers of all licences that apply to the used packages of a
// module.
func (u *use) licences(among []licence) (names []string, err error) {
	seen, found := map[string]bool{}, false
	for dir := range u.packages {
		for ; !seen[dir]; dir = filepath.Dir(dir) {
			seen[dir] = true
			entries, readErr := os.ReadDir(dir)
			if readErr != nil {
				return nil, readErr
			}
			for _, entry := range entries {
				// A directory or a Go file with such a name is not a licence file.
				if !entry.Type().IsRegular() || !licenceFile.MatchString(entry.Name()) || filepath.Ext(entry.Name()) == ".go" {
					continue
				}
				of, fileErr := identifyFile(filepath.Join(dir, entry.Name()), among)
				names, err = append(names, of...), errors.Join(err, fileErr)
				found = found || dir == u.dir
			}
			if dir == u.dir {
				break
			}
		}
	}
	if !found {
		err = errors.Join(err, errors.New("it has no licence file"))
	}
	slices.Sort(names)
	return slices.Compact(names), err
}

func identifyFile(name string, among []licence) ([]string, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(text)
	if names := read[hex.EncodeToString(sum[:])[:12]]; names != "" {
		return strings.Split(names, " AND "), nil
	}
	names, err := identify(string(text), among)
	if err != nil {
		return names, fmt.Errorf("%s: %w", name, err)
	}
	return names, nil
}
