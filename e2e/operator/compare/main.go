// Command compare gives the same work to the example operator and to the same operator written
// with controller-runtime, and prints one table.
//
// The API server runs in this process. Each operator is a fresh process, so that its memory
// and CPU time are its own. Each round has a new API server, so that it starts without objects
// of earlier rounds.
package main

import (
	"context"
	"flag"
	"io"
	"time"

	"github.com/customcacheinformer/informer/internal/lab"
)

// config holds the values of the flags.
type config struct {
	sites, workers, rounds int
	idle                   time.Duration
}

func main() {
	var c config
	flag.IntVar(&c.sites, "sites", 2000, "how many Websites there are")
	flag.IntVar(&c.workers, "workers", 4, "how many Websites the operators reconcile at once")
	flag.IntVar(&c.rounds, "rounds", 5, "how often each side is measured; the table has the medians")
	flag.DurationVar(&c.idle, "idle", 30*time.Second, "how long nothing happens at the end")
	lab.Main(nil, func(ctx context.Context, out io.Writer) error {
		if err := lab.Positive("sites", "workers", "rounds", "idle"); err != nil {
			return err
		}
		found, err := measureAll(ctx, c)
		if err == nil {
			found.report(out, c)
		}
		return err
	})
}
