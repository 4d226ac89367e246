package main

import (
	"fmt"
	"io"
	"runtime"

	"github.com/customcacheinformer/informer/internal/lab"
)

const heading = `# Watchers of an API server, and of a relay

%d Pods of %d bytes in protobuf. %d of them are changed in a second, for %v. Each watcher is a watch of client-go for all Pods, in
protobuf, and decodes every event. All watchers are in one process, and share %d connections. The API server with its
etcd, and the relay with its file, are processes of their own, on the same machine. The relay ran without
authentication and authorization. Each figure is the median of %d measurements.
Other programs ran on the machine, which has %d processors: its load was %s at the end.

The program fails unless every watcher gets every change in the order of the writes, the API server has one watch with a relay, and
the bytes that it sends to the relay stay the same, however many watchers there are.

"Latency" is from the moment before the write until the watcher has the event decoded. "Memory" is the live heap and the
stacks after a collection, and "resident" is the memory that the process has of the system.

`

// report writes the tables.
func (r results) report(out io.Writer, w *world) {
	fmt.Fprintf(out, heading, w.objects, w.size, w.writes, w.during, w.connections, w.rounds, runtime.NumCPU(), lab.Load())
	lab.Header(out, 2, "watchers", "on the", "watches at the API server", "sent by the API server", "events delivered", "latency p50", "p99",
		"API server: memory", "resident", "CPU time", "relay: memory", "resident", "CPU time")
	for _, n := range w.watchers {
		for _, on := range []string{direct, relayed} {
			r.row(out, way{n, on})
		}
	}
	for _, n := range w.watchers[1:] {
		added := func(of func(costs) float64) float64 {
			return (r.median(way{n, relayed}, of) - r.median(way{n, direct}, of)) * 1e3
		}
		fmt.Fprintf(out, "\nWith %d watchers, the relay adds %.1f ms to the p50, and %.1f ms to the p99.\n", n,
			added(func(c costs) float64 { return c.p50 }), added(func(c costs) float64 { return c.p99 }))
	}
	n := w.watchers[len(w.watchers)-1]
	fmt.Fprintf(out, `
This is what one watcher costs the server that it watches, from the rows with %d watchers and with none, and what one list of all
Pods costs. There are %d events a second for each watcher.

`, n, w.writes)
	lab.Header(out, 1, "", "memory", "CPU time", "CPU time of an event", "CPU time of a list", "bytes of a list")
	for i, name := range []string{direct, relayed} {
		idle, fully := way{0, name}, way{n, name}
		cpu := func(c costs) float64 { return c.servers[i].cpu }
		memory := r.median(fully, func(c costs) float64 { return c.servers[i].grown })
		used := (r.median(fully, cpu) - r.median(idle, cpu)) / float64(n)
		lab.Cells(out, name, fmt.Sprintf("%.1f kB | %.3f ms/s | %.0f µs | %.1f ms | %.2f MB",
			memory/float64(n)/1e3, used*1e3, used*1e6/float64(w.writes),
			r.median(idle, func(c costs) float64 { return c.list.CPU })*1e3,
			r.median(idle, func(c costs) float64 { return float64(c.list.Received) })/1e6))
	}
}

func (r results) median(of way, figure func(costs) float64) float64 {
	return lab.MedianOf(r[of], figure)
}

func (r results) row(out io.Writer, of way) {
	median := func(format string, figure func(costs) float64) string {
		return fmt.Sprintf(format, r.median(of, figure))
	}
	cells := []string{
		fmt.Sprint(of.watchers), of.on, median("%.0f", func(c costs) float64 { return float64(c.servers[0].watches) }),
		median("%.1f kB/s", func(c costs) float64 { return c.upstream / 1e3 }),
	}
	if of.watchers > 0 {
		cells = append(cells, median("%.0f", func(c costs) float64 { return float64(c.events) })+" of "+
			median("%.0f", func(c costs) float64 { return float64(c.wanted) }),
			median("%.1f ms", func(c costs) float64 { return c.p50 * 1e3 }), median("%.1f ms", func(c costs) float64 { return c.p99 * 1e3 }))
	} else {
		cells = append(cells, "-", "-", "-")
	}
	for i := range 2 {
		if i == 1 && of.on == direct {
			cells = append(cells, "-", "-", "-")
			continue
		}
		cells = append(cells, median("%.1f MB", func(c costs) float64 { return c.servers[i].memory / 1e6 }),
			median("%.0f MB", func(c costs) float64 { return c.servers[i].resident / 1e6 }),
			median("%.1f ms/s", func(c costs) float64 { return c.servers[i].cpu * 1e3 }))
	}
	lab.Cells(out, cells...)
}

// upstreamIsConstant returns an error if the API server sends more when the relay has more watchers.
func (r results) upstreamIsConstant(watchers []int) error {
	upstream := func(n int) float64 { return r.median(way{n, relayed}, func(c costs) float64 { return c.upstream }) }
	few, many := upstream(watchers[0]), upstream(watchers[len(watchers)-1])
	const noise = 1.5 // a bookmark more or less, and a write that was late
	if many > few*noise {
		return fmt.Errorf("the API server sends %.0f bytes/s to a relay with %d watchers, and %.0f with %d",
			few, watchers[0], many, watchers[len(watchers)-1])
	}
	return nil
}
