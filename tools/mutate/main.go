// Command mutate plants faults in a copy of the library, one at a time, and runs the tests
// that should notice them. It fails if a fault is not noticed: then a promise is not tested.
// The faults are in faults.json. Each fault is a piece of text that occurs once in a file, and
// the text that replaces it.
//
// With -matrix, it runs the tests of all packages that could notice a fault, and keeps in a file which
// packages did.
package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

//go:embed faults.json
var faultsJSON []byte

// fault is a fault that can be planted.
type fault struct {
	What  string `json:"what"`  // description
	File  string `json:"file"`  // path from the root module, also of a file of a module inside it
	Old   string `json:"old"`   // must occur once in the file
	New   string `json:"new"`   // replaces Old
	Tests string `json:"tests"` // -run pattern of the tests that notice the fault
}

// outcome is the result of planting a fault.
type outcome struct {
	noticed bool
	by      []string // the tests that failed, without their subtests
	took    time.Duration
}

// patience is the time limit of the tests. If they hang, the fault counts as noticed.
const patience = "90s"

func main() {
	root := flag.String("root", ".", "the root module")
	only := flag.String("run", "", "only the faults whose description matches this regular expression")
	table := flag.String("table", "", "write the results to this `file`, as a table")
	m := matrix{}
	flag.StringVar(&m.file, "matrix", "", "keep in this `file` which packages notice each fault; leave out the faults that it has already")
	flag.BoolVar(&m.again, "again", false, "with -matrix, leave no fault out")
	flag.BoolVar(&m.summary, "summary", false, "with -matrix, run no tests, and print the summary of the file")
	flag.DurationVar(&m.budget, "budget", 5*time.Second, "with -matrix, how long the tests of a package may run for one fault; those that should notice it always run")
	modules := flag.String("modules", quickModules, "with -matrix, the `modules` whose packages are tried; a fault's own module always is")
	flag.Parse()
	m.modules = strings.Fields(*modules)

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	all, chosen, err := choose(*only)
	switch {
	case err != nil:
	case m.file == "":
		err = run(ctx, *root, chosen, *table)
	default:
		err = m.run(ctx, os.Stdout, *root, all, chosen)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, root string, faults []fault, table string) error {
	b, err := newCopy(ctx, root, faults)
	if err != nil {
		return err
	}
	defer b.remove()
	report := strings.Builder{}
	fmt.Fprintf(&report, "| fault | where | noticed by |\n|---|---|---|\n")
	if err := checkSound(ctx, b, faults); err != nil {
		return err
	}
	unnoticed := 0
	for _, f := range faults {
		o, err := try(ctx, b, f)
		if err != nil {
			return fmt.Errorf("%s: %w", f.What, err)
		}
		said := strings.Join(o.by, ", ")
		if !o.noticed {
			unnoticed++
			said = "NOBODY"
		}
		fmt.Printf("%-70s %5.0f s  %s\n", f.What, o.took.Seconds(), said)
		fmt.Fprintf(&report, "| %s | `%s` | %s |\n", f.What, f.File, said)
	}
	if table != "" {
		if err := os.WriteFile(table, []byte(report.String()), 0o600); err != nil {
			return err
		}
	}
	fmt.Printf("%d of %d faults were noticed\n", len(faults)-unnoticed, len(faults))
	if unnoticed > 0 {
		return fmt.Errorf("%d faults were not noticed", unnoticed)
	}
	return nil
}

// choose returns all faults, and those whose description matches only.
func choose(only string) (all, chosen []fault, err error) {
	wanted, err := regexp.Compile(only)
	if err != nil {
		return nil, nil, fmt.Errorf("-run: %w", err)
	}
	if all, err = read(faultsJSON); err != nil {
		return nil, nil, err
	}
	for _, f := range all {
		if wanted.MatchString(f.What) {
			chosen = append(chosen, f)
		}
	}
	if len(chosen) == 0 {
		return nil, nil, fmt.Errorf("-run: no fault matches %q", only)
	}
	return all, chosen, nil
}

// read returns the faults. It returns an error that names the first incomplete fault.
func read(text []byte) (faults []fault, err error) {
	if err := json.Unmarshal(text, &faults); err != nil {
		return nil, fmt.Errorf("faults.json: %w", err)
	}
	for n, f := range faults {
		if f.What == "" || f.File == "" || f.Old == "" || f.Tests == "" || f.Old == f.New {
			return nil, fmt.Errorf("faults.json: fault %d, %q, is incomplete, or changes nothing", n+1, f.What)
		}
	}
	return faults, nil
}

// checkSound returns an error unless the tests pass without a fault. Tests that always fail would
// notice everything.
func checkSound(ctx context.Context, b *build, faults []fault) error {
	sound := map[string]bool{}
	for _, f := range faults {
		if name := f.module(b.dir) + f.Tests; !sound[name] {
			sound[name] = true
			if out, err := b.runTests(ctx, f, nil); err != nil {
				return fmt.Errorf("%s: without any fault: %w\n%s", f.What, err, out)
			}
		}
	}
	return nil
}

// copyModule copies the tracked and untracked files of root to dir, except ignored ones.
func copyModule(ctx context.Context, root, dir string) error {
	list := exec.CommandContext(ctx, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		return fmt.Errorf("git ls-files: %w", err)
	}
	for _, name := range strings.Split(strings.TrimRight(string(out), "\x00"), "\x00") {
		text, err := os.ReadFile(filepath.Join(root, name))
		if errors.Is(err, os.ErrNotExist) {
			continue // deleted in the work tree, but still in git's index
		}
		if err != nil {
			return err
		}
		to := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(to, text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// module returns the directory of the module that has the file of f. dir is that of the root
// module.
func (f fault) module(dir string) string {
	for inside := path.Dir(f.File); inside != "."; inside = path.Dir(inside) {
		module := filepath.Join(dir, filepath.FromSlash(inside))
		if _, err := os.Stat(filepath.Join(module, "go.mod")); err == nil {
			return module
		}
	}
	return dir
}

var testFunc = regexp.MustCompile(`(?m)^func (Test\w+)\(`)

// testPackages returns the directories of the packages that have a test of f, in the module in dir. Most
// tests of the library are in other packages than the code.
func (f fault) testPackages(dir string) (packages []string, err error) {
	top, _, _ := strings.Cut(f.Tests, "/") // the rest chooses subtests
	chosen, err := regexp.Compile(top)
	if err != nil {
		return nil, err
	}
	err = filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if _, err := os.Stat(filepath.Join(name, "go.mod")); err == nil && name != dir {
				return filepath.SkipDir // another module
			}
			return nil
		}
		if !strings.HasSuffix(name, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		has := slices.ContainsFunc(testFunc.FindAllSubmatch(text, -1), func(m [][]byte) bool { return chosen.Match(m[1]) })
		if has && !slices.Contains(packages, filepath.Dir(name)) {
			packages = append(packages, filepath.Dir(name))
		}
		return nil
	})
	return packages, err
}

// plant returns the text of the file with the fault in it.
func (f fault) plant(text string) (string, error) {
	if n := strings.Count(text, f.Old); n != 1 {
		return "", fmt.Errorf("%s contains %d times the text that the fault replaces, want once: %q", f.File, n, f.Old)
	}
	return strings.Replace(text, f.Old, f.New, 1), nil
}

var (
	failed  = regexp.MustCompile(`(?m)^--- FAIL: (\w+)`)
	crashed = regexp.MustCompile(`(?m)^(panic|fatal error): `) // a test that times out panics
)

// try runs the tests of f with f in the library.
func try(ctx context.Context, b *build, f fault) (o outcome, err error) {
	begun := time.Now()
	out, err := b.runTests(ctx, f, &f)
	o.took = time.Since(begun)
	if ctx.Err() != nil {
		return o, ctx.Err()
	}
	if err == nil {
		return o, nil
	}
	if !crashed.MatchString(out) && !failed.MatchString(out) {
		return o, fmt.Errorf("the tests have not run: %w\n%s", err, out)
	}
	o.noticed = true
	seen := map[string]bool{}
	for _, m := range failed.FindAllStringSubmatch(out, -1) {
		if !seen[m[1]] {
			seen[m[1]] = true
			o.by = append(o.by, m[1])
		}
	}
	if len(o.by) == 0 {
		o.by = []string{"a panic or a hang in " + strings.TrimSuffix(f.Tests, "$")}
	}
	return o, nil
}

// goRun runs the go command in dir. It uses the work space of the library, if there is one, and not that of our caller.
func goRun(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=", "GOFLAGS=")
	out, err := cmd.CombinedOutput()
	return string(out), err
}
