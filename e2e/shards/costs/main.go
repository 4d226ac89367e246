// Command costs measures what each replica of a sharded controller costs: bytes from the API server,
// objects that it decodes, memory, CPU time and writes of Leases. It starts a real API server that
// selects by shards, and another one that does not, over the same etcd, and runs 1, 2, 4 and 8
// replicas in processes of their own. It prints a table. It needs no cluster, ends by itself after
// about ten minutes, and leaves nothing behind. RESULTS.md is such a table.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/customcacheinformer/informer/e2e/internal/process"
	"github.com/customcacheinformer/informer/internal/lab"
)

// plan is how much is measured.
type plan struct {
	objects, spaces int
	replicas        []int
	writes          int           // a second
	during          time.Duration // of writing
}

var roles = lab.Roles{"replica": lab.RoleOf(replicate), "apiserver": lab.RoleOf(process.ServeBeside)}

func main() {
	p := plan{spaces: 500, writes: 100, replicas: []int{1, 2, 4, 8}}
	flag.IntVar(&p.objects, "objects", 20_000, "how many objects there are")
	flag.DurationVar(&p.during, "for", 20*time.Second, "for how long objects are changed")
	lab.Main(roles, func(ctx context.Context, out io.Writer) error {
		if err := lab.Positive("objects", "for"); err != nil {
			return err
		}
		return p.run(ctx, out)
	})
}

// mode is how replicas share the work.
type mode string

const (
	clientGo mode = "client-go's informer"
	whole    mode = "all cached, work divided"
	ignored  mode = "own cached, server sends all"
	served   mode = "own cached, server selects"
)

// run measures all, and writes the report.
func (p plan) run(ctx context.Context, out io.Writer) (err error) {
	w, err := newWorld(ctx, p)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	fmt.Fprintf(out, `# A controller over several replicas, and the ways to share its work

%d objects of %d bytes in %d namespaces, %d buckets. Each replica is a process with one informer and one controller, and
reaches a real API server through a proxy that counts bytes. "At the start" is until each replica has its part. Then
the live heap is measured, and then %d objects are changed in a second, for %v. Each figure is the mean of
the replicas, except for the most objects that one has. Where replicas cache their own objects, the bytes and objects of the
start depend on how many have joined when the first one lists.

`, p.objects, w.size, p.spaces, buckets, p.writes, p.during)
	lab.Header(out, 2, "replicas", "", "start: received", "decoded", "CPU time", "live heap", "most objects",
		"changes: received", "decoded", "CPU time", "writes of Leases")
	for _, n := range p.replicas {
		for _, m := range []mode{clientGo, whole, ignored, served} {
			if m == clientGo && n > p.replicas[0] {
				continue // each replica costs the same, however many there are
			}
			lab.Progress("%d replicas, %s", n, m)
			c, err := w.measure(ctx, m, n)
			if err != nil {
				return fmt.Errorf("%d replicas, %s: %w", n, m, err)
			}
			seconds := p.during.Seconds()
			fmt.Fprintf(out, "| %d | %s | %.1f MB | %.0f | %.2f s | %.1f MB | %.0f | %.1f kB/s | %.0f/s | %.1f ms/s | %.0f/min |\n", n, m,
				c.start[received]/1e6, c.start[decoded], c.start[cpu], c.heap/1e6, c.most,
				c.writing[received]/1e3/seconds, c.writing[decoded]/seconds, c.writing[cpu]*1e3/seconds, c.writing[leaseWrites]*60/seconds)
		}
	}
	fmt.Fprintf(out, `
Where replicas cache their own objects, the set had been used before. The first replica of a new set counts all objects
once, to cut the ranges of namespaces: it received %.1f MB until it had its part, and decoded %.0f objects.
`, w.first[received]/1e6, w.first[decoded])
	return nil
}
