// Command operator demonstrates the example operator. It starts a real Kubernetes API server
// with a real etcd inside this process, builds the program in examples/operator unchanged,
// runs it, and puts it through events that happen in production. It needs no cluster, ends by
// itself, and leaves nothing behind.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/customcacheinformer/informer/e2e/operator/internal/cluster"
)

func main() { cluster.Main(time.Minute, run) }

func run(ctx context.Context, program string) (err error) {
	c, err := cluster.Start(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	w, err := newWorld(c, program, "default")
	if err != nil {
		return err
	}
	defer w.close()
	return show(ctx, w, os.Stdout)
}

// show takes the operator through all steps and prints each one.
func show(ctx context.Context, w *world, out io.Writer) error {
	if err := w.start(ctx); err != nil {
		return err
	}
	fmt.Fprintf(out, "a Kubernetes API server is running at %s, and the operator is a process\n", w.Config().Host)
	for i, step := range steps {
		begun := time.Now()
		fmt.Fprintf(out, "\n%d. %s\n", i+1, step.what)
		if err := step.do(ctx, w, out); err != nil {
			return fmt.Errorf("step %d: %w", i+1, err)
		}
		fmt.Fprintf(out, "   (%v)\n", time.Since(begun).Round(time.Millisecond))
	}
	return nil
}
