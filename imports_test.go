package informer_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/customcacheinformer/informer/internal/testkit"
)

const module = "github.com/customcacheinformer/informer"

// testPackages are the packages under internal that only tests and examples use.
var testPackages = []string{"model", "parity", "testkit", "demo", "migrating", "restart", "extremes", "callbacks", "mix", "sample", "lab"}

func isTestPackage(dir string) bool {
	name, internal := strings.CutPrefix(filepath.ToSlash(dir), "internal/")
	name, _, _ = strings.Cut(name, "/")
	return internal && slices.Contains(testPackages, name)
}

// moduleFiles returns the Go files of the root module except tests, by directory.
func moduleFiles(t *testing.T) map[string][]string {
	t.Helper()
	files := map[string][]string{}
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil || path == ".":
			return err
		case entry.IsDir():
			_, err := os.Stat(filepath.Join(path, "go.mod"))
			if err == nil || entry.Name() == "testdata" || strings.HasPrefix(entry.Name(), ".") || isTestPackage(path) {
				return filepath.SkipDir
			}
			if !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		case strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go"):
			files[filepath.Dir(path)] = append(files[filepath.Dir(path)], path)
		}
		return nil
	})
	noError(t, err)
	for _, dir := range []string{".", "debug", "enqueue", "internal/source"} {
		if len(files[filepath.FromSlash(dir)]) == 0 {
			t.Fatalf("found no files in %s", dir)
		}
	}
	return files
}

// goList returns the lines that go list prints about the root module.
func goList(t *testing.T, args ...string) []string {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list"}, args...)...)
	cmd.Env = append(cmd.Environ(), "GOWORK=off")
	var reason strings.Builder
	cmd.Stderr = &reason
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list %s: %v\n%s", strings.Join(args, " "), err, &reason)
	}
	return strings.Fields(string(out))
}

// importsOf returns what the package pkg imports itself.
func importsOf(t *testing.T, pkg string) []string {
	t.Helper()
	return goList(t, "-f", `{{join .Imports "\n"}}`, pkg)
}

// TestTheRootModuleHasOnlyTheDocumentedRequirements guards the module graph of every user.
func TestTheRootModuleHasOnlyTheDocumentedRequirements(t *testing.T) {
	direct := goList(t, "-m", "-f", "{{if not (or .Indirect .Main)}}{{.Path}}{{end}}", "all")
	want := []string{
		"github.com/google/go-cmp", "go.uber.org/goleak",
		"k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go", "k8s.io/klog/v2", "k8s.io/utils",
	}
	equal(t, "requirements of go.mod", sorted(direct), want)

	library := regexp.MustCompile(`^(k8s\.io/(client-go|apimachinery|utils|klog/v2)|github\.com/customcacheinformer/informer)(/|$)`)
	for _, pkg := range []string{".", "./debug", "./enqueue", "./indexes", "./informertest", "./kinds", "./store", "./store/storetest"} {
		for _, path := range importsOf(t, pkg) {
			first, _, _ := strings.Cut(path, "/")
			if strings.Contains(first, ".") && !library.MatchString(path) {
				t.Errorf("%s imports %s", pkg, path)
			}
		}
	}
}

func TestProgramsContainOnlyPackagesThatTheyNeed(t *testing.T) {
	for pkg, unwanted := range map[string]string{
		".":         "template",         // a program without the page
		"./enqueue": module + "/shards", // a program with one replica does not divide keys
	} {
		for _, path := range goList(t, "-deps", pkg) {
			if strings.Contains(path, unwanted) {
				t.Errorf("%s depends on %s", pkg, path)
			}
		}
	}
}

// The root package is built from the packages under internal, so none of those imports it.
func TestImportsPointOneWay(t *testing.T) {
	seen := 0
	for _, line := range goList(t, "-f", `{{.ImportPath}}:{{join .Imports ","}}`, "./internal/...") {
		path, imports, _ := strings.Cut(line, ":")
		if isTestPackage(strings.TrimPrefix(path, module+"/")) {
			continue
		}
		seen++
		if slices.Contains(strings.Split(imports, ","), module) {
			t.Errorf("%s imports the root package", path)
		}
	}
	testkit.AtLeast(t, "packages under internal", seen, 3)
	for pkg, unwanted := range map[string]string{"./internal/eventlog": `^k8s\.io/`, ".": `^(k8s\.io/api/|testing$)`} {
		for _, path := range importsOf(t, pkg) {
			if regexp.MustCompile(unwanted).MatchString(path) {
				t.Errorf("%s imports %s", pkg, path)
			}
		}
	}
}

// TestAKeyIsMadeInThreePlaces guards the rule that an object gets its key where it enters, and keeps it.
func TestAKeyIsMadeInThreePlaces(t *testing.T) {
	want := map[string]int{
		"sink.go":                  1, // where an object of a source enters
		"internal/object/entry.go": 2, // client-go's key function, for stores and programs that make keys of objects
	}
	makes := regexp.MustCompile(`(\bobject\.|[ (])Key\(\w|MetaNamespaceKeyFunc\(`)
	got := map[string]int{}
	for _, files := range moduleFiles(t) {
		for _, file := range files {
			text := must(os.ReadFile(file))
			for line := range strings.Lines(string(text)) {
				code, _, _ := strings.Cut(line, "//")
				if !strings.HasPrefix(code, "func Key(") && makes.MatchString(code) {
					got[filepath.ToSlash(file)]++
				}
			}
		}
	}
	equal(t, "calls of object.Key and of client-go's key function", got, want)
}
