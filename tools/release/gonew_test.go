package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/customcacheinformer/informer/tools/internal/repo"
)

// templates are the modules from which gonew makes programs.
var templates = []string{"examples/nodeagent", "examples/operator"}

// TestANewProgramWorks serves the committed modules as a proxy would after a release, and makes a
// program of each template outside of the repository, with the commands of the README.
func TestANewProgramWorks(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles Kubernetes clients for minutes: make new-program")
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	const version = "v0.1.0"
	modules, err := open(root, version, append([]string{".", "metrics/prometheus"}, templates...))
	if err != nil {
		t.Fatal(err)
	}
	c := &checking{out: t.Output(), root: root, version: version, modules: modules, temp: t.TempDir()}
	if err := c.prepare(); err != nil {
		t.Fatal(err)
	}
	for _, m := range modules {
		if err := c.publish(m); err != nil {
			t.Fatal(err)
		}
	}
	gonew := filepath.Join(c.temp, "gonew")
	run(t, ".", []string{"GOWORK=off"}, "go", "build", "-o", gonew, "golang.org/x/tools/cmd/gonew")
	// A user's go command does not change go.mod by itself, so -mod=mod is left out.
	env := slices.Concat(c.env, []string{"GOFLAGS=-modcacherw -trimpath -buildvcs=false"})
	for _, m := range modules[2:] {
		t.Run(m.Dir, func(t *testing.T) {
			within := t.TempDir()
			dir, program := filepath.Join(within, "op"), filepath.Join(within, "program")
			run(t, within, env, gonew, m.Path, "example.com/me/op")
			run(t, dir, env, "go", "mod", "tidy")
			checkRequirements(t, modules, version, filepath.Join(root, m.Dir, "go.mod"), filepath.Join(dir, "go.mod"))
			run(t, dir, env, "go", "build", "-o", program+string(filepath.Separator), "./...")
			run(t, dir, env, "go", "test", "./...")
			// It gets as far as it can without a cluster.
			_, err := repo.Run(dir, []string{"NODE_NAME=one"}, filepath.Join(program, "op"), "-kubeconfig", filepath.Join(within, "none"))
			if err == nil || !strings.Contains(err.Error(), filepath.Join(within, "none")) {
				t.Errorf("the program ended with %v, want that there is no such kubeconfig", err)
			}
		})
	}
}

func run(t *testing.T, dir string, env []string, name string, args ...string) {
	t.Helper()
	if _, err := repo.Run(dir, env, name, args...); err != nil {
		t.Fatal(err)
	}
}

// checkRequirements fails the test unless the template was tidy and has no replace line. A template
// cannot be tidied alone until the versions that it requires are released.
func checkRequirements(t *testing.T, modules []repo.Module, version, template, program string) {
	t.Helper()
	committed, err := parse(template)
	if err != nil {
		t.Fatal(err)
	}
	if len(committed.Replace) > 0 {
		t.Errorf("%s has replace lines, which a new program would inherit", template)
	}
	if _, err := require(committed, modules, version); err != nil {
		t.Fatal(err)
	}
	made, err := parse(program)
	if err != nil {
		t.Fatal(err)
	}
	if err := sameRequirements(committed, made); err != nil {
		t.Errorf("%s is not tidy: %v", template, err)
	}
	if err := sameRequirements(made, committed); err != nil {
		t.Errorf("%s is not tidy, it requires too much: %v", template, err)
	}
}
