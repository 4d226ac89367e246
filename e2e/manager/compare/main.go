// Command compare runs a manager with many controllers on one kind, once with client-go's
// informer and once with this library's, and prints one table. The two managers differ only in
// cache.Options.NewInformer.
//
// The API server runs in this process. Each manager runs in a fresh process of this program,
// so that its memory and CPU time are its own.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"
)

// config holds the values of the flags.
type config struct {
	work
	rounds int
	idle   time.Duration // how long an idle manager is measured
	write  string
}

func main() {
	if isChild(os.Args) {
		exit(beChild(os.Stdin, os.Stdout))
	}
	c := config{idle: 5 * time.Second}
	flag.IntVar(&c.Objects, "objects", 10_000, "how many objects there are")
	flag.IntVar(&c.Controllers, "controllers", 20, "how many controllers there are on them")
	flag.IntVar(&c.Updates, "updates", 10_000, "how many updates are written while they run")
	flag.IntVar(&c.rounds, "rounds", 0, "how often each side is measured; the table has the medians (default: 5, or 2 if -quick)")
	flag.StringVar(&c.write, "write", "", "also write the report to this file")
	quick := flag.Bool("quick", false, "a tenth of the objects and updates, and fewer rounds")
	flag.Parse()
	rounds := 5
	if *quick {
		c.Objects, c.Updates, rounds = c.Objects/10, c.Updates/10, 2
	}
	c.rounds = cmp.Or(c.rounds, rounds)

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, c)
	stop()
	exit(err)
}

// exit ends the process. It prints err and exits with 1 unless err is nil.
func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func run(ctx context.Context, c config) error {
	for _, n := range []int{c.Objects, c.Controllers, c.Updates, c.rounds} {
		if n < 1 {
			return fmt.Errorf("-objects, -controllers, -updates and -rounds must be at least 1")
		}
	}
	results, err := measureAll(ctx, c)
	if err != nil {
		return err
	}
	report := results.report(c)
	fmt.Print(report)
	if c.write != "" {
		return os.WriteFile(c.write, []byte(report), 0o644)
	}
	return nil
}
