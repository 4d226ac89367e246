// Command compare gives the same work to the example operator and to the same operator written
// with controller-runtime, and prints one table.
//
// The API server runs in this process. Each operator is a fresh process, so that its memory
// and CPU time are its own. Each round has a new API server, so that it starts without objects
// of earlier rounds.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"
)

// config holds the values of the flags.
type config struct {
	sites, workers, rounds int
	idle                   time.Duration
	write                  string
}

func main() {
	var c config
	flag.IntVar(&c.sites, "sites", 2000, "how many Websites there are")
	flag.IntVar(&c.workers, "workers", 4, "how many Websites the operators reconcile at once")
	flag.IntVar(&c.rounds, "rounds", 5, "how often each side is measured; the table has the medians")
	flag.DurationVar(&c.idle, "idle", 30*time.Second, "how long nothing happens at the end")
	flag.StringVar(&c.write, "write", "", "also write the report to this file")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, c)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, c config) error {
	if min(c.sites, c.workers, c.rounds) < 1 {
		return errors.New("-sites, -workers and -rounds must be at least 1")
	}
	if c.idle <= 0 {
		return errors.New("-idle must be more than 0")
	}
	found, err := measureAll(ctx, c)
	if err != nil {
		return err
	}
	report := found.report(c)
	fmt.Print(report)
	if c.write != "" {
		return os.WriteFile(c.write, []byte(report), 0o644)
	}
	return nil
}
