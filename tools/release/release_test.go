package main

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/customcacheinformer/informer/tools/internal/repo"
)

// good is a repository of two modules that can be released.
var good = map[string]string{
	"go.work":            "go 1.26\n\nuse (\n\t.\n\t./sub\n\t./test\n)\n",
	"LICENSE":            "free\n",
	"go.mod":             "module example.com/lib\n\ngo 1.26\n",
	"lib.go":             "package lib\n\nimport _ \"embed\"\n\n//go:embed page/page.txt\nvar Page string\n",
	"lib_test.go":        "package lib_test\n\nimport (\n\t\"testing\"\n\n\t\"example.com/lib\"\n)\n\nfunc TestPage(t *testing.T) { t.Log(lib.Page) }\n",
	"page/page.txt":      "a page\n",
	"internal/in/in.go":  "package in\n",
	"cmd/main.go":        "package main\n\nfunc main() {}\n",
	"sub/go.mod":         "module example.com/lib/sub\n\ngo 1.26\n\nrequire example.com/lib v0.0.0\n\nreplace example.com/lib => ..\n",
	"sub/sub.go":         "package sub\n\nimport \"example.com/lib\"\n\nfunc Page() string { return lib.Page }\n",
	"test/go.mod":        "module example.com/lib/test\n\ngo 1.26\n\nrequire example.com/lib/sub v0.0.0\n\nrequire example.com/lib v0.0.0 // indirect\n\nreplace (\n\texample.com/lib => ..\n\texample.com/lib/sub => ../sub\n)\n",
	"test/test.go":       "package test\n\nimport _ \"example.com/lib/sub\"\n",
	"sub/testdata/x.txt": "x\n",
}

// makeRepo makes a repository of good with changes. It commits all files except those that
// .gitignore names. A change with an empty text removes a file.
func makeRepo(t *testing.T, changes map[string]string) (root string) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("there is no git")
	}
	// The go command must not download anything.
	t.Setenv("GOPROXY", "off")
	t.Setenv("GOMODCACHE", t.TempDir())
	t.Setenv("GOSUMDB", "off")
	t.Setenv("GOFLAGS", "-modcacherw")
	for _, who := range []string{"AUTHOR", "COMMITTER"} {
		t.Setenv("GIT_"+who+"_NAME", "somebody")
		t.Setenv("GIT_"+who+"_EMAIL", "somebody@example.com")
	}
	root = t.TempDir()
	files := maps.Clone(good)
	maps.Copy(files, changes)
	for name, text := range files {
		write(t, root, name, text)
	}
	git(t, root, "init", "-q")
	commit(t, root)
	return root
}

func write(t *testing.T, root, name, text string) {
	t.Helper()
	at := filepath.Join(root, filepath.FromSlash(name))
	if text == "" {
		if err := os.RemoveAll(at); err != nil {
			t.Fatal(err)
		}
		return
	}
	if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func git(t *testing.T, root string, args ...string) {
	t.Helper()
	if _, err := repo.Run(root, nil, "git", args...); err != nil {
		t.Fatal(err)
	}
}

func commit(t *testing.T, root string) {
	t.Helper()
	git(t, root, "add", "-A")
	git(t, root, "commit", "-q", "-m", "something")
}

// tree returns all files of a directory, except git's own.
func tree(t *testing.T, root string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.Walk(root, func(path string, info os.FileInfo, err error) error {
		switch {
		case err != nil:
			return err
		case info.Name() == ".git":
			return filepath.SkipDir
		case info.IsDir():
			return nil
		}
		text, err := os.ReadFile(path)
		files[path] = string(text) + info.Mode().String()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

var published = []string{".", "sub"}

func TestCommittedFilesAreChecked(t *testing.T) {
	for _, c := range []struct {
		name    string
		changes map[string]string
		version string
		wrong   string // "" if it can be released
	}{
		{name: "all is well"},
		{name: "a pre-release", version: "v0.1.0-rc.1"},
		{name: "no version", version: "0.1.0", wrong: "VERSION is"},
		{name: "half a version", version: "v0.1", wrong: "VERSION is"},
		{name: "a version with metadata", version: "v0.1.0+incompatible", wrong: "VERSION is"},
		{name: "the version of another path", version: "v2.0.0", wrong: "should be v0 or v1"},
		{name: "a sibling is not required", wrong: "its go.mod lacks example.com/lib v0.1.0", changes: map[string]string{
			"sub/go.mod": "module example.com/lib/sub\n\ngo 1.26\n",
		}},
		{name: "an embedded file is not committed", wrong: "no matching files found", changes: map[string]string{
			".gitignore": "*.txt\n",
		}},
		{name: "an embedded file is in another module", wrong: "no matching files found", changes: map[string]string{
			"page/go.mod": "module example.com/lib/page\n\ngo 1.26\n",
		}},
		{name: "a replacement is needed", wrong: "example.com/other", changes: map[string]string{
			"sub/go.mod":   good["sub/go.mod"] + "\nrequire example.com/other v0.0.0\n\nreplace example.com/other => ../other\n",
			"sub/other.go": "package sub\n\nimport _ \"example.com/other\"\n",
			"other/go.mod": "module example.com/other\n", "other/other.go": "package other\n",
		}},
		{name: "a test does not compile", wrong: "lib_test.go", changes: map[string]string{
			"lib_test.go": "package lib\n\nvar x int = \"\"\n",
		}},
		{name: "a test needs another module of the work space", wrong: "example.com/lib/test", changes: map[string]string{
			"sub/sub_test.go": "package sub_test\n\nimport _ \"example.com/lib/test\"\n",
		}},
		{name: "vet reports something", wrong: "lib.go", changes: map[string]string{
			"lib.go": "package lib\n\nimport \"fmt\"\n\nvar Page = fmt.Sprintf(\"%d\", \"x\")\n",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := makeRepo(t, c.changes)
			before := tree(t, root)
			var out strings.Builder
			if c.version == "" {
				c.version = "v0.1.0"
			}
			err := check(&out, root, c.version, published)
			if (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
				t.Errorf("%v, want %q\n%s", err, c.wrong, &out)
			}
			if !maps.Equal(before, tree(t, root)) {
				t.Error("the work tree has changed")
			}
			if err == nil && !strings.Contains(out.String(), "NOT READY") {
				t.Errorf("it prints\n%s\nand not that go.mod has another version", &out)
			}
		})
	}
}

func TestUncommittedFilesDoNotCount(t *testing.T) {
	root := makeRepo(t, map[string]string{"sub/sub.go": "package sub\n\nimport \"example.com/lib\"\n\nfunc Page() string { return lib.Pages }\n"})
	write(t, root, "lib.go", good["lib.go"]+"\nvar Pages = Page\n")
	var out strings.Builder
	if err := check(&out, root, "v0.1.0", published); err == nil || !strings.Contains(err.Error(), "undefined: lib.Pages") {
		t.Errorf("%v, want that Pages is not there", err)
	}
	if !strings.Contains(out.String(), " M lib.go") {
		t.Errorf("it prints %q, and not that lib.go is changed", &out)
	}
}

func TestAVersionIsSetAndThenItCanBeTagged(t *testing.T) {
	root := makeRepo(t, nil)
	var out strings.Builder
	if err := prepare(&out, root, "v0.1.0", published); err != nil {
		t.Fatal(err)
	}
	after := tree(t, root)
	for name, text := range good {
		want := strings.ReplaceAll(text, "v0.0.0", "v0.1.0")
		if got := after[filepath.Join(root, filepath.FromSlash(name))]; got != want+"-rw-------" {
			t.Errorf("%s is\n%s\nwant\n%s", name, got, want)
		}
	}
	commit(t, root)
	out.Reset()
	if err := check(&out, root, "v0.1.0", published); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"ready:", " v0.1.0 ", " sub/v0.1.0 "} {
		if !strings.Contains(out.String(), want) || strings.Contains(out.String(), "NOT READY") {
			t.Errorf("it prints\n%s\nwant %q", &out, want)
		}
	}
}
