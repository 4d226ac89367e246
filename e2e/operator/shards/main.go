// Command shards demonstrates several replicas of the example operator that divide the Websites.
// It starts a real Kubernetes API server with a real etcd inside this process, builds the program
// in examples/operator unchanged, and runs replicas of it as processes. Replicas join, leave, are
// killed and are paused, while Websites are made all the time. It needs no cluster, ends by itself
// after about a minute, and leaves nothing behind. It fails if a Website is left without its
// Ingress or its status, or if the replicas do not come to agree.
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

func main() {
	cluster.Main(3*time.Minute, func(ctx context.Context, program string) error { return run(ctx, program, steps, os.Stdout) })
}

// run does steps in a world of its own.
func run(ctx context.Context, program string, steps []step, out io.Writer) (err error) {
	w, err := newWorld(ctx, program, out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	w.say("a Kubernetes API server is running at %s", w.Config().Host)
	return w.do(ctx, steps)
}

// do does the steps, and prints each one. Websites are made meanwhile.
func (w *world) do(ctx context.Context, steps []step) (err error) {
	w.startMaking(ctx)
	defer func() { err = errors.Join(err, w.stopMaking()) }()
	for i, step := range steps {
		begun := time.Now()
		fmt.Fprintf(w.out, "\n%d. %s\n", i+1, step.what)
		if err := step.do(ctx, w); err != nil {
			return fmt.Errorf("step %d: %w\n%s", i+1, err, w.logs())
		}
		w.say("(%v)", time.Since(begun).Round(time.Millisecond))
	}
	return nil
}
