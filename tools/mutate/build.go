package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// A build compiles the tests of a package once for many faults. Most faults change the body of one
// function. Such a function gets a copy of its body for each fault, and the environment chooses the
// copy that runs. A fault elsewhere, such as in a constant, needs a test binary of its own.
//
// The go command reads the changed files through an overlay. The files of the library stay as they are,
// so tests that read them do not notice a fault for that.
type build struct {
	dir      string            // of the library
	out      string            // a directory for what the build makes
	switches map[string]int    // the numbers of faults, by description, that the environment chooses
	binaries map[string]string // test binaries by the directories of their packages and the overlays
}

// The variables of the environment that the test binaries read.
const (
	chooses = "MUTATE_FAULT"   // the number of the fault
	reports = "MUTATE_REACHED" // a file that gets the numbers of the faults whose functions are called
)

// chooser is the file that a package with faults gets.
const chooser = `package %s

import (
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
)

var (
	mutateChosen, _ = strconv.Atoi(os.Getenv("` + chooses + `"))
	mutateReports   = os.Getenv("` + reports + `")
	mutateReached   [%d]atomic.Bool // allocates nothing, since there are tests that count allocations
)

func mutateFault(n int) bool {
	if mutateReports != "" && !mutateReached[n].Swap(true) {
		f, err := os.OpenFile(mutateReports, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err == nil {
			_, err = fmt.Fprintln(f, n)
		}
		if err != nil || f.Close() != nil {
			mutateReached[n].Store(false) // a test may limit the sizes of files for a moment
		}
	}
	return n == mutateChosen
}
`

// newBuild prepares a build of the library in dir with the faults. The caller removes out.
func newBuild(dir, out string, faults []fault) (*build, error) {
	b := &build{dir: dir, out: out, switches: map[string]int{}, binaries: map[string]string{}}
	replaced := map[string]string{}
	inserted := map[string][]insertion{}
	for n, f := range faults {
		text, err := os.ReadFile(filepath.Join(dir, f.File))
		if err != nil {
			return nil, err
		}
		in, ok, err := f.insertion(string(text), n+1)
		if err != nil {
			return nil, err
		}
		if ok {
			b.switches[f.What] = n + 1
			inserted[f.File] = append(inserted[f.File], in)
		}
	}
	for name, list := range inserted {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		slices.SortStableFunc(list, func(a, b insertion) int { return cmp.Compare(b.at, a.at) }) // from the end
		for _, in := range list {
			text = slices.Concat(text[:in.at], []byte(in.text), text[in.at:])
		}
		replaced[name] = string(text)
		replaced[path.Join(path.Dir(name), "mutate_chooser.go")] = fmt.Sprintf(chooser, list[0].pkg, len(faults)+1)
	}
	return b, b.writeOverlay("all", replaced)
}

// newCopy prepares a build of a copy of the library in root. The caller calls remove.
func newCopy(ctx context.Context, root string, faults []fault) (b *build, err error) {
	dir, err := os.MkdirTemp("", "mutate-")
	if err != nil {
		return nil, err
	}
	library, out := filepath.Join(dir, "library"), filepath.Join(dir, "out")
	if err = errors.Join(os.Mkdir(out, 0o700), copyModule(ctx, root, library)); err == nil {
		b, err = newBuild(library, out, faults)
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return b, nil
}

// remove removes the copy of the library that newCopy has made.
func (b *build) remove() { _ = os.RemoveAll(filepath.Dir(b.dir)) }

// insertion is a text to be inserted in a file.
type insertion struct {
	at   int    // offset
	text string // begins a function
	pkg  string // name of the package
}

// insertion returns the text that makes f number n of the faults that the environment chooses. It
// returns false if f changes anything but the body of one function.
func (f fault) insertion(text string, n int) (in insertion, ok bool, err error) {
	wrong, err := f.plant(text)
	if err != nil || path.Ext(f.File) != ".go" {
		return in, false, err
	}
	files, texts := token.NewFileSet(), [2]string{text, wrong}
	var parsed [2]*ast.File
	for side, text := range texts {
		if parsed[side], err = parser.ParseFile(files, f.File, text, parser.SkipObjectResolution); err != nil {
			return in, false, fmt.Errorf("it does not compile: %w", err)
		}
	}
	if len(parsed[0].Decls) != len(parsed[1].Decls) {
		return in, false, nil
	}
	at := func(pos token.Pos) int { return files.Position(pos).Offset }
	for d, decl := range parsed[0].Decls {
		other := parsed[1].Decls[d]
		if text[at(decl.Pos()):at(decl.End())] == wrong[at(other.Pos()):at(other.End())] {
			continue
		}
		from, isFunc := decl.(*ast.FuncDecl)
		to, isFuncToo := other.(*ast.FuncDecl)
		if !isFunc || !isFuncToo || ok || from.Body == nil || to.Body == nil || labelled(to) ||
			text[at(from.Pos()):at(from.Body.Lbrace)] != wrong[at(to.Pos()):at(to.Body.Lbrace)] {
			return insertion{}, false, nil
		}
		end := "\n}\n"
		if from.Type.Results == nil {
			end = "\nreturn }\n"
		}
		in = insertion{
			at:   at(from.Body.Lbrace) + 1,
			text: fmt.Sprintf("\nif mutateFault(%d) {%s%s", n, wrong[at(to.Body.Lbrace)+1:at(to.Body.Rbrace)], end),
			pkg:  parsed[0].Name.Name,
		}
		ok = true
	}
	return in, ok, nil
}

// labelled reports whether f has a label. A function cannot have a label twice.
func labelled(f *ast.FuncDecl) (found bool) {
	ast.Inspect(f, func(n ast.Node) bool {
		_, is := n.(*ast.LabeledStmt)
		found = found || is
		return !found
	})
	return found
}

// writeOverlay writes files, by their names from the library's directory, and the overlay name.
func (b *build) writeOverlay(name string, files map[string]string) error {
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for file, text := range files {
		copied := filepath.Join(b.out, name+"-"+strings.ReplaceAll(file, "/", "-"))
		if err := os.WriteFile(copied, []byte(text), 0o600); err != nil {
			return err
		}
		overlay.Replace[filepath.Join(b.dir, file)] = copied
	}
	text, err := json.Marshal(overlay)
	if err != nil {
		return err
	}
	return os.WriteFile(b.overlay(name), text, 0o600)
}

func (b *build) overlay(name string) string { return filepath.Join(b.out, name+".json") }

// compile returns the test binary of the package in dir, with f in it unless f is nil. It returns "" for a
// package without tests. It must not be called by several goroutines at the same time.
func (b *build) compile(ctx context.Context, f *fault, dir string) (binary string, err error) {
	name := "all"
	if f != nil && b.switches[f.What] == 0 {
		name = fmt.Sprintf("alone-%x", sha256.Sum256([]byte(f.What+f.Old+f.New)))[:16]
	}
	if binary, compiled := b.binaries[name+dir]; compiled {
		return binary, nil
	}
	if name != "all" {
		text, err := os.ReadFile(filepath.Join(b.dir, f.File))
		if err != nil {
			return "", err
		}
		wrong, err := f.plant(string(text))
		if err == nil {
			err = b.writeOverlay(name, map[string]string{f.File: wrong})
		}
		if err != nil {
			return "", err
		}
	}
	binary = filepath.Join(b.out, fmt.Sprintf("%d.test", len(b.binaries)))
	out, err := goRun(ctx, dir, "test", "-c", "-vet=off", "-overlay", b.overlay(name), "-o", binary, ".")
	if err != nil {
		return "", fmt.Errorf("it does not compile: %w\n%s", err, out)
	}
	if _, err := os.Stat(binary); err != nil {
		binary = ""
	}
	b.binaries[name+dir] = binary
	return binary, nil
}

// run runs a test binary in dir, with f unless f is nil. reached is the file that gets the numbers of the
// faults whose functions are called, or "".
func (b *build) run(ctx context.Context, binary string, f *fault, dir, reached string, args ...string) (string, error) {
	number := 0
	if f != nil {
		number = b.switches[f.What]
	}
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=", "GOFLAGS=", fmt.Sprintf("%s=%d", chooses, number), reports+"="+reached)
	// A server that the tests have started may outlive them, and keep the output open. It is of their process group.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	return string(out), err
}

// runTests runs the tests that should notice f, with the fault planted unless it is nil.
func (b *build) runTests(ctx context.Context, f fault, planted *fault) (out string, err error) {
	packages, err := f.testPackages(f.module(b.dir))
	if err != nil {
		return "", err
	}
	ran := false
	for _, dir := range packages {
		binary, err := b.compile(ctx, planted, dir)
		if err != nil {
			return "", err
		}
		o, err := b.run(ctx, binary, planted, dir, "", "-test.timeout="+patience, "-test.run="+f.Tests)
		if out += o; err != nil {
			return out, err
		}
		ran = ran || !strings.Contains(o, "no tests to run")
	}
	if !ran {
		return out, fmt.Errorf("no test matches %q", f.Tests)
	}
	return out, nil
}

// reached runs one test without a fault, and returns the numbers of the faults whose functions it calls.
func (b *build) reached(ctx context.Context, binary, dir, test string) (faults map[int]bool, err error) {
	file, err := os.CreateTemp(b.out, "reached-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close(), os.Remove(file.Name())) }()
	out, err := b.run(ctx, binary, nil, dir, file.Name(), "-test.short", "-test.timeout=5m", "-test.run=^"+test+"$")
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", test, err, out)
	}
	faults = map[int]bool{}
	for {
		n := 0
		if _, err := fmt.Fscan(file, &n); errors.Is(err, io.EOF) {
			return faults, nil
		} else if err != nil {
			return nil, err
		}
		faults[n] = true
	}
}
