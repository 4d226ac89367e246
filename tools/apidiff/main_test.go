package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/customcacheinformer/informer/tools/internal/repo"
)

func TestTheExportedAPIIsComparedWithTheLastTag(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("there is no git")
	}
	for name, value := range map[string]string{
		"GOPROXY": "off", "GOFLAGS": "", "GOWORK": "", "GIT_AUTHOR_NAME": "x", "GIT_AUTHOR_EMAIL": "x@example.com",
		"GIT_COMMITTER_NAME": "x", "GIT_COMMITTER_EMAIL": "x@example.com",
	} {
		t.Setenv(name, value)
	}
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	git := func(args ...string) {
		t.Helper()
		if _, err := repo.Run(root, nil, "git", args...); err != nil {
			t.Fatal(err)
		}
	}
	tag := func(names ...string) {
		t.Helper()
		git("add", "-A")
		git("commit", "-q", "-m", "something", "--allow-empty")
		for _, name := range names {
			git("tag", name)
		}
	}
	// check runs the command, and fails the test unless its output contains want.
	check := func(next string, fails bool, want ...string) {
		t.Helper()
		var out strings.Builder
		err := run(&out, root, next, []string{".", "sub"})
		if (err != nil) != fails {
			t.Errorf("version %q: %v, want an error: %v", next, err, fails)
		}
		for _, text := range want {
			if !strings.Contains(out.String(), text) {
				t.Errorf("version %q: it prints\n%s\nwant %q", next, &out, text)
			}
		}
	}
	git("init", "-q")
	write("go.work", "go 1.26\n\nuse (\n\t.\n\t./sub\n)\n")
	write("go.mod", "module example.com/lib\n\ngo 1.26\n")
	write("lib.go", "package lib\n\nfunc F() {}\n")
	write("internal/in/in.go", "package in\n\nfunc F() {}\n")
	write("cmd/main.go", "package main\n\nfunc F() {}\n\nfunc main() { F() }\n")
	write("sub/go.mod", "module example.com/lib/sub\n\ngo 1.26\n\nrequire example.com/lib v0.0.0\n\nreplace example.com/lib => ..\n")
	write("sub/sub.go", "package sub\n\nimport \"example.com/lib\"\n\nfunc G() { lib.F() }\n")
	tag("something", "vista")
	check("", false, "there is no tag v* yet", "there is no tag sub/v* yet")
	tag("v0.1.0", "v0.9.0", "v0.10.0", "sub/v0.1.0")
	check("", false, "lib: the same as v0.10.0", "sub: the same as sub/v0.1.0")

	// Packages that users cannot import do not count.
	write("internal/in/in.go", "package in\n")
	write("cmd/main.go", "package main\n\nfunc main() {}\n")
	check("", false, "lib: the same as v0.10.0")
	write("lib.go", "package lib\n\nfunc F() {}\n\nfunc New() {}\n")
	check("", false, "lib: changed since v0.10.0\n", "New: added")
	write("lib.go", "package lib\n\nfunc F(...int) {}\n")
	check("", false, "can break users", "F: changed from func() to func(...int)")

	tag("v1.0.0", "sub/v1.0.0")
	check("", false, "lib: the same as v1.0.0")
	write("lib.go", "package lib\n\nfunc F(...int) {}\n\nfunc New() {}\n")
	check("", false, "New: added")
	write("sub/sub.go", "package sub\n")
	check("", true, "sub: changed since sub/v1.0.0, also", "G: removed")
	check("v1.0.1", true)
	check("v1.1.0", true)
	check("v2.0.0", false, "G: removed")
	check("two", true)
}
