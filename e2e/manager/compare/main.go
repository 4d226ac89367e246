// Command compare runs a manager with many controllers on one kind, once with client-go's
// informer and once with this library's, and prints one table. The two managers differ only in
// cache.Options.NewInformer and in informer.Transport.
//
// The API server runs in this process. Each manager runs in a fresh process of this program,
// so that its memory and CPU time are its own.
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
	work
	rounds int
	idle   time.Duration // how long an idle manager is measured
}

var roles = lab.Roles{"manager": lab.RoleOf(serve)}

func main() {
	c := config{idle: 5 * time.Second}
	flag.IntVar(&c.Objects, "objects", 10_000, "how many objects there are")
	flag.IntVar(&c.Controllers, "controllers", 20, "how many controllers there are on them")
	flag.IntVar(&c.Updates, "updates", 10_000, "how many updates are written while they run")
	flag.IntVar(&c.Rate, "rate", 0, "how many updates are written in a second; 0 for as many as the writers can")
	flag.BoolVar(&c.List, "list", false, "reconcilers list all objects, without copies, for each update")
	flag.IntVar(&c.rounds, "rounds", 5, "how often each side is measured; the table has the medians")
	lab.Main(roles, func(ctx context.Context, out io.Writer) error {
		if err := lab.Positive("objects", "controllers", "updates", "rounds"); err != nil {
			return err
		}
		results, err := measureAll(ctx, c)
		if err == nil {
			results.report(out, c)
		}
		return err
	})
}
