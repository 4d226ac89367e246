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
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/customcacheinformer/informer/e2e/internal/process"
	"github.com/customcacheinformer/informer/e2e/operator/internal/cluster"
)

func main() {
	patience := flag.Duration("timeout", 3*time.Minute, "when to give up")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *patience, steps, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "shards:", err)
		os.Exit(1)
	}
}

// run does steps in a world of its own, within a time.
func run(ctx context.Context, patience time.Duration, steps []step, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "operator-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	program, err := process.Build(ctx, dir, cluster.Program) // the first build takes long
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("it is not done after %v", patience))
	defer cancel()
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
