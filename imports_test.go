package informer_test

import (
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestTheRootModuleNeedsOnlyWhatItSays guards the module graph of every user.
func TestTheRootModuleNeedsOnlyWhatItSays(t *testing.T) {
	goList := func(args ...string) []string {
		cmd := exec.Command("go", append([]string{"list"}, args...)...)
		cmd.Env = append(cmd.Environ(), "GOWORK=off")
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.Fields(string(out))
	}
	direct := goList("-m", "-f", "{{if not (or .Indirect .Main)}}{{.Path}}{{end}}", "all")
	want := []string{
		"github.com/google/go-cmp", "go.uber.org/goleak",
		"k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go", "k8s.io/klog/v2", "k8s.io/utils",
	}
	if slices.Sort(direct); !slices.Equal(direct, want) {
		t.Errorf("go.mod requires %v, want %v", direct, want)
	}

	library := regexp.MustCompile(`^(k8s\.io/(client-go|apimachinery|utils|klog/v2)|github\.com/customcacheinformer/informer)(/|$)`)
	for _, pkg := range []string{".", "./informertest", "./store", "./store/storetest"} {
		for _, path := range goList("-f", `{{join .Imports "\n"}}`, pkg) {
			first, _, _ := strings.Cut(path, "/")
			if strings.Contains(first, ".") && !library.MatchString(path) {
				t.Errorf("%s imports %s", pkg, path)
			}
		}
	}
	for _, path := range goList("-f", `{{join .Imports "\n"}}`, ".") {
		if path == "testing" {
			t.Error("the library imports testing")
		}
	}
}
