package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/customcacheinformer/informer/e2e/internal/process"
	"github.com/customcacheinformer/informer/e2e/operator/internal/cluster"
)

type side struct {
	name  string
	build func(ctx context.Context, dir string) (file string, err error)
	flags []string
	file  string // that build has made
}

func (s side) String() string { return s.name }

// sides are compared with the last one, which is ours. By default, controller-runtime handles the objects
// that exist at the start after everything that changes. This library has both in one queue.
var sides = []side{
	{name: "controller-runtime", build: buildPeer},
	{name: "without its priority queue", build: buildPeer, flags: []string{"-priority-queue=false"}},
	{name: "this library", build: buildExample},
}

func buildPeer(ctx context.Context, dir string) (string, error) {
	return process.Build(ctx, dir, compare+"controllerruntime")
}

const compare = "github.com/customcacheinformer/informer/e2e/operator/compare/"

// counted is the code that the build puts into the example. It counts the reconciles and
// answers requests.
const counted = "probe.Count(o.reconcile), enqueue.Options"

// buildExample builds the example operator with a probe in it. The sources stay unchanged: an
// overlay gives the compiler another file in place of one of them.
func buildExample(ctx context.Context, dir string) (string, error) {
	sources, err := cluster.Sources(ctx)
	if err != nil {
		return "", err
	}
	original := filepath.Join(sources, "operator.go")
	source, err := os.ReadFile(original)
	if err != nil {
		return "", err
	}
	plain := strings.NewReplacer("probe.Count(", "", "),", ",").Replace(counted)
	if strings.Count(string(source), plain) != 1 {
		return "", errors.New("the example operator no longer contains " + plain)
	}
	probed := strings.NewReplacer(plain, counted, "import (\n", "import (\n\t\""+compare+"probe\"\n").Replace(string(source))
	changed, overlay := filepath.Join(dir, "operator.go"), filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(changed, []byte(probed), 0o600); err != nil {
		return "", err
	}
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{original: changed}})
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(overlay, replace, 0o600); err != nil {
		return "", err
	}
	return process.Build(ctx, dir, cluster.Program, "-overlay", overlay)
}
