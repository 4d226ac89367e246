package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	base = "github.com/customcacheinformer/informer" // the root module

	// quickModules are the modules whose tests need no other program, such as a browser or etcd.
	quickModules = ". controllerruntime store/disk metrics/prometheus tracing/opentelemetry relay examples"

	// packagePatience is the time limit of a package. If its tests hang, it has noticed the fault.
	packagePatience = "5m"
)

// A matrix is a file that shows which packages notice each fault, so that tests can be found that
// notice nothing more than others. After a comment, it has a line for each fault that was tried. The
// description is the identity of a fault.
type matrix struct {
	file    string
	modules []string // directories, from the root module
	again   bool
	summary bool
}

// row is a line of a matrix, without the description.
type row struct {
	place   string // of the fault when it was tried
	seconds int
	by      []string // the packages that noticed it, sorted
}

// suite is a package with tests.
type suite struct {
	module, name string   // directory of the module, and import path
	needs        []string // import paths
}

// place returns the file of f, and a short hash of its texts.
func (f fault) place() string {
	sum := sha256.Sum256([]byte(f.Old + "\x00" + f.New))
	return fmt.Sprintf("%s | %x", f.File, sum[:4])
}

// run tries the chosen faults, and prints the summary.
func (m matrix) run(ctx context.Context, w io.Writer, root string, all, chosen []fault) error {
	rows, err := m.read(all)
	if err != nil {
		return err
	}
	var todo []fault
	modules := slices.Clone(m.modules)
	for _, f := range chosen {
		r, tried := rows[f.What]
		if tried && r.place != f.place() {
			fmt.Fprintf(w, "moved: %s: from %s to %s\n", f.What, r.place, f.place())
		} else if tried && !m.again {
			continue
		}
		todo = append(todo, f)
		own, err := filepath.Rel(root, f.module(root)) // belongs to modules even if it needs a server
		if own = filepath.ToSlash(own); err == nil && !slices.Contains(modules, own) {
			modules = append(modules, own)
		}
	}
	suites, err := load(ctx, root, modules)
	if err == nil && len(todo) > 0 && !m.summary {
		err = m.fill(ctx, w, root, suites, all, todo, rows)
	}
	if err == nil {
		summarize(w, suites, all, rows)
	}
	return err
}

// read returns the rows by the descriptions of their faults.
func (m matrix) read(all []fault) (map[string]row, error) {
	text, err := os.ReadFile(m.file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	rows := map[string]row{}
	for n, line := range strings.Split(string(text), "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		cells := strings.Split(line, " | ")
		if len(cells) != 5 {
			return nil, fmt.Errorf("%s: line %d has %d cells, want 5", m.file, n+1, len(cells))
		}
		seconds, err := strconv.Atoi(cells[3])
		if _, twice := rows[cells[0]]; err != nil || twice {
			return nil, fmt.Errorf("%s: line %d has a bad number, or repeats %q", m.file, n+1, cells[0])
		}
		if !slices.ContainsFunc(all, func(f fault) bool { return f.What == cells[0] }) {
			return nil, fmt.Errorf("%s: line %d is of a fault that does not exist: %q", m.file, n+1, cells[0])
		}
		var by []string
		if cells[4] != "-" {
			by = strings.Split(cells[4], ", ")
		}
		rows[cells[0]] = row{place: cells[1] + " | " + cells[2], seconds: seconds, by: by}
	}
	return rows, nil
}

// write writes the rows in the order of the faults.
func (m matrix) write(all []fault, rows map[string]row) error {
	text := "# fault | file | hash of its texts | seconds | packages that noticed it (make mutations-matrix)\n"
	for _, f := range all {
		if r, ok := rows[f.What]; ok {
			by := strings.Join(r.by, ", ")
			text += fmt.Sprintf("%s | %s | %d | %s\n", f.What, r.place, r.seconds, cmp.Or(by, "-"))
		}
	}
	return os.WriteFile(m.file, []byte(text), 0o644)
}

// load returns the packages of modules that have tests.
func load(ctx context.Context, root string, modules []string) (suites []suite, err error) {
	for _, module := range modules {
		out, err := goRun(ctx, filepath.Join(root, module), "list", "-test", "-f", `{{.ImportPath}}|{{join .Deps "|"}}`, "./...")
		if err != nil {
			return nil, fmt.Errorf("go list in %s: %w\n%s", module, err, out)
		}
		for line := range strings.Lines(out) {
			words := strings.Split(strings.TrimSpace(line), "|")
			for n := range words {
				words[n], _, _ = strings.Cut(words[n], " ") // the rest names the test for which it is compiled
			}
			if name, ok := strings.CutSuffix(words[0], ".test"); ok {
				suites = append(suites, suite{module: module, name: name, needs: words[1:]})
			}
		}
	}
	return suites, nil
}

// couldNotice returns, by module, the packages whose tests are built from the package of f. A file
// that a package embeds can be in a directory inside it.
func (m matrix) couldNotice(root string, suites []suite, f fault) map[string][]string {
	names := map[string][]string{}
	for dir := path.Dir(f.File); len(names) == 0; dir = path.Dir(dir) {
		for _, s := range suites {
			own := filepath.Join(root, s.module) == f.module(root)
			if slices.Contains(s.needs, path.Join(base, dir)) && (own || slices.Contains(m.modules, s.module)) {
				names[s.module] = append(names[s.module], s.name)
			}
		}
		if dir == "." {
			break
		}
	}
	return names
}

// fill tries the faults todo in a copy of the library, and writes the matrix after each of them.
func (m matrix) fill(ctx context.Context, w io.Writer, root string, suites []suite, all, todo []fault, rows map[string]row) error {
	dir, err := os.MkdirTemp("", "mutate-")
	// A test that is skipped for want of another program would look like one that notices nothing.
	err = errors.Join(err, os.Setenv("VALKEY", "required"), os.Setenv("BROWSER", "required"))
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := copyModule(ctx, root, dir); err != nil {
		return err
	}
	used := map[string][]string{}
	for _, f := range todo {
		for module, names := range m.couldNotice(dir, suites, f) {
			used[module] = slices.Compact(slices.Sorted(slices.Values(append(used[module], names...))))
		}
	}
	by, err := failing(ctx, dir, used)
	if err == nil && len(by) > 0 {
		err = fmt.Errorf("tests fail in %s", strings.Join(by, ", "))
	}
	if err != nil {
		return fmt.Errorf("without any fault: %w", err)
	}
	for n, f := range todo {
		begun := time.Now()
		restore, err := f.plantIn(dir)
		if err != nil {
			return err
		}
		by, err := failing(ctx, dir, m.couldNotice(dir, suites, f))
		if err := errors.Join(err, restore()); err != nil {
			return fmt.Errorf("%s: %w", f.What, err)
		}
		rows[f.What] = row{place: f.place(), seconds: int(time.Since(begun).Seconds()), by: by}
		fmt.Fprintf(w, "%d/%d %s: %d s: %s\n", n+1, len(todo), f.What, rows[f.What].seconds, strings.Join(by, ", "))
		if err := m.write(all, rows); err != nil {
			return err
		}
	}
	return nil
}

var failedPackage = regexp.MustCompile(`(?m)^FAIL\t(\S+)( \[\w+ failed\])?`)

// failing runs the tests of packages, which are grouped by their modules, and returns those that fail.
func failing(ctx context.Context, dir string, packages map[string][]string) (by []string, err error) {
	for _, module := range slices.Sorted(maps.Keys(packages)) {
		args := append([]string{"test", "-short", "-failfast", "-vet=off", "-timeout", packagePatience}, packages[module]...)
		out, err := goRun(ctx, filepath.Join(dir, module), args...)
		failures := failedPackage.FindAllStringSubmatch(out, -1)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil && len(failures) == 0 || slices.ContainsFunc(failures, func(f []string) bool { return f[2] != "" }) {
			return nil, fmt.Errorf("the tests have not run: %w\n%s", err, out)
		}
		for _, f := range failures {
			by = append(by, short(f[1]))
		}
	}
	slices.Sort(by)
	return by, nil
}

// short returns the directory of a package, from the root module.
func short(name string) string {
	return path.Clean("./" + strings.TrimPrefix(name, base))
}

// summarize prints how many faults each package notices, and how many of them no other package notices.
func summarize(w io.Writer, suites []suite, all []fault, rows map[string]row) {
	notices, only := map[string]int{}, map[string]int{}
	for _, s := range suites {
		notices[short(s.name)] = 0
	}
	seconds, unnoticed := 0, 0
	for _, f := range all {
		r, tried := rows[f.What]
		seconds += r.seconds
		for _, by := range r.by {
			notices[by]++
		}
		switch {
		case len(r.by) == 1:
			only[r.by[0]]++
		case tried && len(r.by) == 0:
			unnoticed++
			fmt.Fprintf(w, "no package notices: %s\n", f.What)
		}
	}
	fmt.Fprintf(w, "notices  only it  package\n")
	for _, name := range slices.Sorted(maps.Keys(notices)) {
		fmt.Fprintf(w, "%7d  %7d  %s\n", notices[name], only[name], name)
	}
	fmt.Fprintf(w, "%d of %d faults were tried, in %.1f hours; no package notices %d of them\n",
		len(rows), len(all), float64(seconds)/3600, unnoticed)
}
