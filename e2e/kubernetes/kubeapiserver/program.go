package kubeapiserver

import (
	"context"
	"fmt"
	"os"

	"github.com/customcacheinformer/informer/e2e/internal/process"
)

const command = "github.com/customcacheinformer/informer/e2e/kubernetes/kubeapiserver/serve"

// Program is the executable of the server. Its methods may be called concurrently.
type Program struct{ dir, file string }

// Build builds the program, without the race detector, and blocks until that is done. It takes up to
// ten minutes on two processors if no package is in Go's build cache, and otherwise 12 s, to link.
// The caller must call Remove.
func Build(ctx context.Context) (*Program, error) {
	dir, err := os.MkdirTemp("", "kube-apiserver-program-")
	if err != nil {
		return nil, fmt.Errorf("building kube-apiserver: %w", err)
	}
	// Without tables for debuggers, the link takes 12 s instead of 18 s.
	file, err := process.Build(ctx, dir, command, "-race=false", "-ldflags=-s -w")
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	return &Program{dir, file}, nil
}

// Remove removes the executable. Servers that run go on.
func (p *Program) Remove() error { return os.RemoveAll(p.dir) }
