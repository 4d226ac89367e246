package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
)

// samples are the measurements of one row.
type samples []costs

// median returns the median of a figure.
func (s samples) median(of func(costs) float64) float64 {
	var all []float64
	for _, c := range s {
		all = append(all, of(c))
	}
	slices.Sort(all)
	return all[len(all)/2]
}

const heading = `# Watchers of an API server, and of a relay

%d Pods of %d bytes in protobuf. %d of them are changed in a second, for %v. Each watcher is a watch of client-go for all Pods, in
protobuf, and decodes every event. All watchers are in one process, and share %d connections. The API server with its
etcd, and the relay with its file, are processes of their own, on the same machine. The relay ran without
authentication and authorization. Each figure is the median of %d measurements.
Other programs ran on the machine, which has %d processors: its load was from %.1f to %.1f.

The program fails unless every watcher gets every change in the order of the writes, the API server has one watch with a relay, and
the bytes that it sends to the relay stay the same, however many watchers there are.

"Latency" is from the moment before the write until the watcher has the event decoded. "Memory" is the live heap and the
stacks after a collection, and "resident" is the memory that the process has of the system.

| watchers | on the | watches at the API server | sent by the API server | events delivered | latency p50 | p99 | API server: memory | resident | CPU time | relay: memory | resident | CPU time |
|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|
`

// report writes the tables.
func report(out io.Writer, w *world, direct, relayed []samples) {
	fmt.Fprintf(out, heading, w.objects, w.size, w.writes, w.during, w.connections, w.repeat, processors,
		slices.Min(loads(direct, relayed)), slices.Max(loads(direct, relayed)))
	for i, n := range w.watchers {
		row(out, n, "API server", direct[i])
		row(out, n, "relay", relayed[i])
	}
	for i, n := range w.watchers {
		if n > 0 {
			added := func(of func(costs) float64) float64 { return (relayed[i].median(of) - direct[i].median(of)) * 1e3 }
			fmt.Fprintf(out, "\nWith %d watchers, the relay adds %.1f ms to the p50, and %.1f ms to the p99.\n", n,
				added(func(c costs) float64 { return c.p50 }), added(func(c costs) float64 { return c.p99 }))
		}
	}
	last := len(w.watchers) - 1
	if n := w.watchers[last]; w.watchers[0] == 0 && n > 0 {
		fmt.Fprintf(out, perWatcher, n, w.writes)
		for _, s := range []struct {
			name  string
			of    func(costs) server
			idle  samples
			fully samples
		}{
			{"API server", func(c costs) server { return c.api }, direct[0], direct[last]},
			{"relay", func(c costs) server { return c.relay }, relayed[0], relayed[last]},
		} {
			cpu := func(c costs) float64 { return s.of(c).cpu }
			memory := s.fully.median(func(c costs) float64 { return s.of(c).grown })
			used := (s.fully.median(cpu) - s.idle.median(cpu)) / float64(n)
			fmt.Fprintf(out, "| %s | %.1f kB | %.3f ms/s | %.0f µs | %.1f ms | %.2f MB |\n", s.name,
				memory/float64(n)/1e3, used*1e3, used*1e6/float64(w.writes),
				s.idle.median(func(c costs) float64 { return c.list.CPU })*1e3,
				s.idle.median(func(c costs) float64 { return float64(c.list.Received) })/1e6)
		}
	}
}

const perWatcher = `
This is what one watcher costs the server that it watches, from the rows with %d watchers and with none, and what one list of all
Pods costs. There are %d events a second for each watcher.

| | memory | CPU time | CPU time of an event | CPU time of a list | bytes of a list |
|---|---:|---:|---:|---:|---:|
`

func row(out io.Writer, watchers int, on string, s samples) {
	delivered, p50, p99 := "-", "-", "-"
	if watchers > 0 {
		delivered = fmt.Sprintf("%.0f of %.0f", s.median(func(c costs) float64 { return float64(c.events) }),
			s.median(func(c costs) float64 { return float64(c.wanted) }))
		p50 = fmt.Sprintf("%.1f ms", s.median(func(c costs) float64 { return c.p50 })*1e3)
		p99 = fmt.Sprintf("%.1f ms", s.median(func(c costs) float64 { return c.p99 })*1e3)
	}
	fmt.Fprintf(out, "| %d | %s | %.0f | %.1f kB/s | %s | %s | %s | %s | %s |\n", watchers, on,
		s.median(func(c costs) float64 { return float64(c.api.watches) }),
		s.median(func(c costs) float64 { return c.upstream })/1e3, delivered, p50, p99,
		serverCells(s, func(c costs) server { return c.api }), serverCells(s, func(c costs) server { return c.relay }))
}

// serverCells returns the cells of a server, which are empty if there is none.
func serverCells(s samples, of func(costs) server) string {
	memory := s.median(func(c costs) float64 { return of(c).memory })
	if memory == 0 {
		return "- | - | -"
	}
	return fmt.Sprintf("%.1f MB | %.0f MB | %.1f ms/s", memory/1e6,
		s.median(func(c costs) float64 { return of(c).resident })/1e6, s.median(func(c costs) float64 { return of(c).cpu })*1e3)
}

// upstreamIsConstant returns an error if the API server sends more when the relay has more watchers.
func upstreamIsConstant(watchers []int, relayed []samples) error {
	upstream := func(c costs) float64 { return c.upstream }
	few, many := relayed[0].median(upstream), relayed[len(relayed)-1].median(upstream)
	const noise = 1.5 // a bookmark more or less, and a write that was late
	if many > few*noise {
		return fmt.Errorf("the API server sends %.0f bytes/s to a relay with %d watchers, and %.0f with %d",
			few, watchers[0], many, watchers[len(watchers)-1])
	}
	return nil
}

// loads returns the load of the machine at the end of each measurement.
func loads(ways ...[]samples) (all []float64) {
	for _, c := range slices.Concat(slices.Concat(ways...)...) {
		all = append(all, c.load)
	}
	return all
}

// load returns the load average of the last minute.
func load() (average float64, err error) {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0, err
	}
	_, err = fmt.Fscan(bytes.NewReader(text), &average)
	return average, err
}
