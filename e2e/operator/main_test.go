package main

import (
	"context"
	"log"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/customcacheinformer/informer/e2e/internal/process"
	"github.com/customcacheinformer/informer/e2e/operator/internal/cluster"

	"github.com/customcacheinformer/informer/e2e/apiserver"
)

var (
	shared  *cluster.Cluster
	program string // file of the operator
)

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "operator-")
	if err != nil {
		log.Fatal(err)
	}
	if program, err = process.Build(context.Background(), dir, cluster.Program); err != nil {
		log.Fatal(err)
	}
	if shared, err = cluster.Start(context.Background()); err != nil {
		log.Fatal(err)
	}
	code := m.Run()
	if err := shared.Stop(); err != nil {
		log.Print(err)
		code = 1
	}
	if err := os.RemoveAll(dir); err != nil {
		log.Print(err)
	}
	os.Exit(apiserver.ExitCode(code))
}

// patience limits every wait. The work should take seconds, but the machine may be busy.
const patience = 5 * time.Minute

// sized returns n, or a quarter of n with -short.
func sized(n int) int {
	if testing.Short() {
		return n / 4
	}
	return n
}

// begin starts an operator with flags, in a namespace of the test's own. The returned ctx ends
// long after all work should be done.
func begin(t *testing.T, flags ...string) (context.Context, *world) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	w, err := newWorld(shared, program, strings.ToLower(t.Name()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.close)
	if err := w.start(ctx, flags...); err != nil {
		t.Fatal(err)
	}
	return ctx, w
}
