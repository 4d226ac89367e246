// Command costs measures what watchers cost an API server, and what they cost it behind a relay:
// watches, bytes, latency, memory and CPU time. It runs the API server, the relay and the watchers in
// processes of their own, and prints tables. It needs no cluster, ends by itself after about ten
// minutes, and leaves nothing behind. RESULTS.md is such a report.
package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"time"

	"github.com/customcacheinformer/informer/internal/lab"
)

// plan is how much is measured.
type plan struct {
	objects, connections int
	watchers             []int         // in rising order, from 0, which shows the costs without them
	writes               int           // a second
	during               time.Duration // of writing
	rounds               int
}

var roles = lab.Roles{"apiserver": lab.RoleOf(serveAPI), "relay": lab.RoleOf(serveRelay), "agents": lab.RoleOf(watchPods)}

func main() {
	p := plan{connections: 50, writes: 10}
	flag.IntVar(&p.objects, "objects", 2_000, "how many Pods there are")
	watchers := flag.Int("watchers", 1000, "how many watchers there are at most")
	flag.DurationVar(&p.during, "for", 20*time.Second, "for how long Pods are changed")
	flag.IntVar(&p.rounds, "rounds", 3, "how often each row is measured; the report has medians")
	lab.Main(roles, func(ctx context.Context, out io.Writer) error {
		if err := lab.Positive("objects", "watchers", "for", "rounds"); err != nil {
			return err
		}
		p.watchers = []int{0, max(1, *watchers/10), *watchers}
		return p.run(ctx, out)
	})
}

// way is what a row of the table is about.
type way struct {
	watchers int
	on       string
}

const direct, relayed = "API server", "relay"

// results are the measurements of each row.
type results map[way][]costs

// run measures all, and writes the report.
func (p plan) run(ctx context.Context, out io.Writer) (err error) {
	w, err := newWorld(ctx, p)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.api.End()) }()
	var ways []way
	for _, n := range p.watchers {
		ways = append(ways, way{n, direct}, way{n, relayed})
	}
	found := results{}
	err = lab.Rounds(p.rounds, ways, func(_ int, on way) error {
		c, err := w.measure(ctx, on.watchers, on.on == relayed)
		found[on] = append(found[on], c)
		return err
	})
	if err != nil {
		return err
	}
	found.report(out, w)
	return found.upstreamIsConstant(p.watchers)
}
