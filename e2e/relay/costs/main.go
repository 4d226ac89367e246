// Command costs measures what watchers cost an API server, and what they cost it behind a relay:
// watches, bytes, latency, memory and CPU time. It runs the API server, the relay and the watchers in
// processes of their own, and prints tables. It needs no cluster, ends by itself after about ten
// minutes, and leaves nothing behind. RESULTS.md is such a report.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"time"
)

// plan says how much is measured.
type plan struct {
	objects, connections int
	watchers             []int         // in rising order
	writes               int           // a second
	during               time.Duration // of writing
	repeat               int
}

func main() {
	if len(os.Args) == 3 {
		if run := roles[os.Args[1]]; run != nil {
			exit(run(os.Args[2]))
		}
	}
	var p plan
	flag.IntVar(&p.objects, "objects", 2_000, "how many Pods there are")
	flag.IntVar(&p.connections, "connections", 50, "how many HTTP/2 connections the watchers share")
	watchers := flag.String("watchers", "0,100,1000", "how many watchers there are, in rising order; 0 shows the costs without them")
	flag.IntVar(&p.writes, "writes", 10, "how many Pods are changed in a second")
	flag.DurationVar(&p.during, "for", 20*time.Second, "for how long they are changed")
	flag.IntVar(&p.repeat, "repeat", 3, "how often each row is measured; the report has medians")
	file := flag.String("write", "", "also write the report to this file")
	flag.Parse()
	for text := range strings.SplitSeq(*watchers, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			exit(fmt.Errorf("-watchers has %q, not a number from 0", text))
		}
		p.watchers = append(p.watchers, n)
	}
	if !slices.IsSorted(p.watchers) {
		exit(errors.New("-watchers is not in rising order"))
	}
	if min(p.objects, p.connections, p.writes, p.repeat) < 1 || p.during <= 0 {
		exit(errors.New("-objects, -connections, -writes, -for and -repeat must be more than 0"))
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
var roles = map[string]func(argument string) error{"apiserver": serveAPI, "relay": serveRelay, "agents": watchPods}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "costs:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// run measures all, and writes the report to out and what it does to progress.
func (p plan) run(ctx context.Context, out, progress io.Writer) (err error) {
	w, err := newWorld(ctx, p)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	direct, relayed := make([]samples, len(p.watchers)), make([]samples, len(p.watchers))
	for round := range p.repeat {
		for i, n := range p.watchers {
			for _, way := range []struct {
				name    string
				relayed bool
				rows    []samples
			}{{"API server", false, direct}, {"relay", true, relayed}} {
				fmt.Fprintf(progress, "round %d of %d: %d watchers on the %s\n", round+1, p.repeat, n, way.name)
				c, err := w.measure(ctx, n, way.relayed)
				if err != nil {
					return fmt.Errorf("%d watchers on the %s: %w", n, way.name, err)
				}
				way.rows[i] = append(way.rows[i], c)
			}
		}
	}
	report(out, w, direct, relayed)
	return upstreamIsConstant(p.watchers, relayed)
}
