package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/customcacheinformer/informer/e2e/internal/process"
	"github.com/customcacheinformer/informer/internal/lab"
)

// often is the time between two looks at something that will come.
const often = 200 * time.Millisecond

// costs is one measurement.
type costs struct {
	servers        [2]server // the API server, and the relay
	upstream       float64   // bytes per second that the API server sends
	events, wanted int
	p50, p99       float64 // seconds
	list           figures // CPU and bytes of one list; without watchers alone
}

// server is what a server has and uses.
type server struct {
	memory, grown float64 // bytes; since before the watchers came
	resident      float64 // bytes
	cpu           float64 // seconds per second
	watches       int
}

// measure measures watchers on the API server, or on a relay that it starts.
func (w *world) measure(ctx context.Context, watchers int, relayed bool) (c costs, err error) {
	servers, at := []*lab.Child{w.api}, w.at
	if relayed {
		relay, its, err := process.StartServer(ctx, "relay", w.at)
		if err != nil {
			return c, err
		}
		defer func() { err = errors.Join(err, relay.End()) }()
		servers, at = append(servers, relay), process.AddressOf(its)
	}
	empty, err := askAll(servers, "heap")
	if err != nil {
		return c, err
	}
	agents, err := w.startAgents(ctx, at, watchers)
	if agents != nil {
		defer func() { err = errors.Join(err, agents.End()) }()
	}
	if err != nil {
		return c, err
	}
	full, err := askAll(servers, "heap")
	if err != nil {
		return c, err
	}
	if relayed && full[0].Watches != 1 {
		return c, fmt.Errorf("the API server has %d watches of Pods, want 1", full[0].Watches)
	}
	if err := w.whileChanging(ctx, &c, servers, agents, watchers); err != nil {
		return c, err
	}
	for i := range servers {
		s := &c.servers[i]
		s.memory, s.grown, s.watches = full[i].Memory, full[i].Memory-empty[i].Memory, full[i].Watches
	}
	if watchers == 0 {
		c.list, err = listCosts(servers[len(servers)-1], agents)
	}
	return c, err
}

// startAgents starts a process of watchers, and waits until all watch.
func (w *world) startAgents(ctx context.Context, at process.Address, watchers int) (*lab.Child, error) {
	agents, err := lab.StartChild(ctx, "agents", crowd{at, watchers, w.connections, w.changes})
	if err != nil {
		return nil, err
	}
	var now got
	return agents, lab.Poll(ctx, often, func() (bool, error) {
		err := agents.Ask("state", &now)
		return err == nil && now.Watching == watchers, err
	})
}

// whileChanging changes Pods, and measures until every watcher has every change.
func (w *world) whileChanging(ctx context.Context, c *costs, servers []*lab.Child, agents *lab.Child, watchers int) error {
	before, err := askAll(servers, "state")
	if err != nil {
		return err
	}
	var start, end got
	if err := agents.Ask("state", &start); err != nil {
		return err
	}
	begun, changes := time.Now(), w.changes
	if err := lab.Pace(ctx, w.writes, w.during, func() error { return w.change(ctx) }); err != nil {
		return err
	}
	c.wanted = (w.changes - changes) * watchers
	err = lab.Poll(ctx, often, func() (bool, error) {
		err := agents.Ask("state", &end)
		return err == nil && end.Events >= c.wanted, err
	})
	if err != nil {
		return errors.Join(err, fmt.Errorf("%d of %d events came", end.Events, c.wanted))
	}
	after, err := askAll(servers, "state")
	if err != nil {
		return err
	}
	seconds := time.Since(begun).Seconds()
	received := end.Received - start.Received
	if len(servers) > 1 {
		received = after[1].Received - before[1].Received
	}
	c.upstream = float64(received) / seconds
	c.events, c.p50, c.p99 = end.Events, end.P50, end.P99
	for i := range servers {
		s := &c.servers[i]
		s.cpu, s.resident = (after[i].CPU-before[i].CPU)/seconds, after[i].Resident
	}
	return nil
}

// listCosts has the agents list, and returns what one list costs.
func listCosts(server, agents *lab.Child) (f figures, err error) {
	var before, after figures
	var start, end got
	err = errors.Join(server.Ask("state", &before), agents.Ask("state", &start), agents.Ask("list", &end), server.Ask("state", &after))
	return figures{CPU: (after.CPU - before.CPU) / lists, Received: (end.Received - start.Received) / lists}, err
}

func askAll(all []*lab.Child, question string) ([]figures, error) {
	answers := make([]figures, len(all))
	for i, c := range all {
		if err := c.Ask(question, &answers[i]); err != nil {
			return nil, err
		}
	}
	return answers, nil
}
