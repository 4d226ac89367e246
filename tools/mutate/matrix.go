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
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	base = "github.com/customcacheinformer/informer" // the root module

	// quickModules are the modules whose tests need no other program, such as a browser or etcd.
	quickModules = ". controllerruntime multicluster store/disk metrics/prometheus tracing/opentelemetry relay examples examples/nodeagent examples/operator"
)

// A matrix is a file that shows which packages notice each fault, so that tests can be found that
// notice nothing more than others. After a comment, it has a line for each fault that was tried. The
// description is the identity of a fault.
type matrix struct {
	file    string
	modules []string // directories, from the root module
	again   bool
	summary bool
	budget  time.Duration
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
	imports      []string // of the package and its tests
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
	const format = `{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{join .Imports " "}} {{join .TestImports " "}} {{join .XTestImports " "}}{{end}}`
	for _, module := range modules {
		out, err := goRun(ctx, filepath.Join(root, module), "list", "-f", format, "./...")
		if err != nil {
			return nil, fmt.Errorf("go list in %s: %w\n%s", module, err, out)
		}
		for line := range strings.Lines(out) {
			if words := strings.Fields(line); len(words) > 0 {
				suites = append(suites, suite{module: module, name: words[0], imports: words[1:]})
			}
		}
	}
	return suites, nil
}

// couldNotice returns the directories of the packages that are tried with f: its own, and those that import it
// themselves. Through others, nearly all packages import the root package. A file that a package embeds can be
// in a directory inside it.
func (m matrix) couldNotice(root string, suites []suite, f fault) (names []string) {
	for dir := path.Dir(f.File); len(names) == 0; dir = path.Dir(dir) {
		for _, s := range suites {
			own := filepath.Join(root, s.module) == f.module(root)
			imports := s.name == path.Join(base, dir) || slices.Contains(s.imports, path.Join(base, dir))
			if imports && (own || slices.Contains(m.modules, s.module)) {
				names = append(names, short(s.name))
			}
		}
		if dir == "." {
			break
		}
	}
	return names
}

// A check is a test of a package, and what it does without a fault.
type check struct {
	name    string
	took    time.Duration
	reached map[int]bool // the faults whose functions it calls
}

// A trial fills a matrix.
type trial struct {
	*build
	budget time.Duration
	checks map[string][]check // of the packages, by their directories, the shortest first
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
	library, out := filepath.Join(dir, "library"), filepath.Join(dir, "out")
	if err := errors.Join(os.Mkdir(out, 0o700), copyModule(ctx, root, library)); err != nil {
		return err
	}
	b, err := newBuild(library, out, all)
	if err != nil {
		return err
	}
	t := trial{build: b, budget: m.budget, checks: map[string][]check{}}
	begun := time.Now()
	for _, f := range todo {
		for _, name := range m.couldNotice(library, suites, f) {
			if err := t.watch(ctx, filepath.Join(library, name)); err != nil {
				return fmt.Errorf("without any fault: %s: %w", name, err)
			}
		}
	}
	fmt.Fprintf(w, "without any fault: %d packages in %d s\n", len(t.checks), int(time.Since(begun).Seconds()))
	for n, f := range todo {
		begun := time.Now()
		by, err := t.try(ctx, f, m.couldNotice(library, suites, f))
		if err != nil {
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

var testName = regexp.MustCompile(`(?m)^(Test|Example|Fuzz)\w*$`)

// watch runs each test of the package in dir, without a fault. A test that fails may try once more.
func (t trial) watch(ctx context.Context, dir string) error {
	if _, done := t.checks[dir]; done {
		return nil
	}
	binary, err := t.compile(ctx, nil, dir)
	if err != nil {
		return err
	}
	list, err := t.run(ctx, binary, nil, dir, "", "-test.list=.")
	if err != nil {
		return fmt.Errorf("%w\n%s", err, list)
	}
	names := testName.FindAllString(list, -1)
	checks := make([]check, len(names))
	t.checks[dir] = checks
	err = atOnce(len(names), func(n int) error {
		begun := time.Now()
		reached, err := t.reached(ctx, binary, dir, names[n])
		if err != nil {
			reached, err = t.reached(ctx, binary, dir, names[n])
		}
		checks[n] = check{name: names[n], took: time.Since(begun), reached: reached}
		return err
	})
	slices.SortFunc(checks, func(a, b check) int { return cmp.Compare(a.took, b.took) })
	return err
}

// chosen returns the tests of the package in dir that are run with f, as a regular expression, and the time that
// they need without a fault. They call the function of f. The shortest come first, until the budget is used up.
// Those that should notice f are always chosen.
func (t trial) chosen(f fault, dir string) (names string, took time.Duration) {
	top, _, _ := strings.Cut(f.Tests, "/") // the rest chooses subtests
	should := regexp.MustCompile(top)
	for _, c := range t.checks[dir] {
		if number := t.switches[f.What]; number != 0 && !c.reached[number] {
			continue
		}
		if names == "" || took+c.took <= t.budget || should.MatchString(c.name) {
			names += "|" + c.name
			took += c.took
		}
	}
	return strings.TrimPrefix(names, "|"), took
}

// try returns the packages that notice f, sorted.
func (t trial) try(ctx context.Context, f fault, packages []string) (by []string, err error) {
	noticed := make([]bool, len(packages))
	runs := make([]func() error, 0, len(packages))
	for n, name := range packages {
		dir := filepath.Join(t.dir, name)
		names, took := t.chosen(f, dir)
		if names == "" {
			continue
		}
		binary, err := t.compile(ctx, &f, dir)
		if err != nil {
			return nil, err
		}
		runs = append(runs, func() error {
			// A test that hangs has noticed the fault.
			limit := 20*time.Second + 3*took
			_, err := t.run(ctx, binary, &f, dir, "", "-test.short", "-test.failfast", "-test.timeout="+limit.String(), "-test.run=^("+names+")$")
			noticed[n] = err != nil
			return ctx.Err()
		})
	}
	err = atOnce(len(runs), func(n int) error { return runs[n]() })
	for n, name := range packages {
		if noticed[n] {
			by = append(by, name)
		}
	}
	slices.Sort(by)
	return by, err
}

// atOnce calls f with each number below n, on as many goroutines as there are processors.
func atOnce(n int, f func(n int) error) error {
	g := errgroup.Group{}
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i := range n {
		g.Go(func() error { return f(i) })
	}
	return g.Wait()
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
