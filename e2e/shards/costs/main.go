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
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"
)

// plan says how much is measured.
type plan struct {
	objects, spaces int
	replicas        []int
	writes          int           // a second
	during          time.Duration // of writing
}

func main() {
	if len(os.Args) == 3 {
		if run := roles[os.Args[1]]; run != nil {
			exit(run(os.Args[2]))
		}
	}
	var p plan
	flag.IntVar(&p.objects, "objects", 20_000, "how many objects there are")
	flag.IntVar(&p.spaces, "namespaces", 500, "in how many namespaces they are")
	replicas := flag.String("replicas", "1,2,4,8", "how many replicas share the work")
	flag.IntVar(&p.writes, "writes", 100, "how many objects are changed in a second")
	flag.DurationVar(&p.during, "for", 20*time.Second, "for how long they are changed")
	file := flag.String("write", "", "also write the report to this file")
	flag.Parse()
	for _, text := range strings.Split(*replicas, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > buckets {
			exit(fmt.Errorf("-replicas has %q, not a number from 1 to %d", text, buckets))
		}
		p.replicas = append(p.replicas, n)
	}
	if p.objects < 1 || p.spaces < 1 || p.writes < 1 || p.during <= 0 {
		exit(errors.New("-objects, -namespaces, -writes and -for must be more than 0"))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	var report strings.Builder
	err := p.run(ctx, io.MultiWriter(os.Stdout, &report), os.Stderr)
	stop()
	if err == nil && *file != "" {
		err = os.WriteFile(*file, []byte(report.String()), 0o644)
	}
	exit(err)
}

// roles are the other things that this program can be, by its first argument.
var roles = map[string]func(argument string) error{"replica": replicate, "apiserver": serveBeside}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "costs:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// mode is how replicas share the work.
type mode string

const (
	clientGo mode = "client-go's informer"
	whole    mode = "all cached, work divided"
	ignored  mode = "own cached, server sends all"
	served   mode = "own cached, server selects"
)

const heading = `# A controller over several replicas, and the ways to share its work

%d objects of %d bytes in %d namespaces, %d buckets. Each replica is a process with one informer and one controller, and
reaches a real API server through a proxy that counts bytes. "At the start" is until each replica has its part. Then
the live heap is measured, and then %d objects are changed in a second, for %v. Each figure is the mean of
the replicas, except for the most objects that one has. Where replicas cache their own objects, the bytes and objects of the
start depend on how many have joined when the first one lists.

| replicas | | start: received | decoded | CPU time | live heap | most objects | changes: received | decoded | CPU time | writes of Leases |
|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|
`

const footing = `
Where replicas cache their own objects, the set had been used before. The first replica of a new set counts all objects
once, to cut the ranges of namespaces: it received %.1f MB until it had its part, and decoded %.0f objects.
`

// run measures all, and writes the table to out and what it does to progress.
func (p plan) run(ctx context.Context, out, progress io.Writer) (err error) {
	w, err := newWorld(ctx, p)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	fmt.Fprintf(out, heading, p.objects, w.size, p.spaces, buckets, p.writes, p.during)
	for _, n := range p.replicas {
		for _, m := range []mode{clientGo, whole, ignored, served} {
			if m == clientGo && n > p.replicas[0] {
				continue // each replica costs the same, however many there are
			}
			fmt.Fprintf(progress, "%d replicas, %s\n", n, m)
			c, err := w.measure(ctx, m, n)
			if err != nil {
				return fmt.Errorf("%d replicas, %s: %w", n, m, err)
			}
			seconds := p.during.Seconds()
			fmt.Fprintf(out, "| %d | %s | %.1f MB | %.0f | %.2f s | %.1f MB | %.0f | %.1f kB/s | %.0f/s | %.1f ms/s | %.0f/min |\n", n, m,
				c.start.Received/1e6, c.start.Decoded, c.start.CPU, c.heap/1e6, c.most,
				c.writing.Received/1e3/seconds, c.writing.Decoded/seconds, c.writing.CPU*1e3/seconds, c.writing.LeaseWrites*60/seconds)
		}
	}
	fmt.Fprintf(out, footing, w.first.Received/1e6, w.first.Decoded)
	return nil
}
