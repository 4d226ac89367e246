package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// costs is one measurement.
type costs struct {
	api, relay     server
	upstream       float64 // bytes per second that the API server sends
	events, wanted int
	p50, p99       float64 // seconds
	list           figures // CPU and bytes of one list; without watchers alone
	load           float64 // of the machine
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
	servers, at := []*child{w.api}, w.at
	if relayed {
		relay, its, err := startServer("relay", w.at.String())
		if err != nil {
			return c, err
		}
		defer func() { err = errors.Join(err, relay.end()) }()
		servers, at = append(servers, relay), its
	}
	empty, err := askAll(servers, "heap")
	if err != nil {
		return c, err
	}
	agents, err := w.startAgents(ctx, at, watchers)
	if agents != nil {
		defer func() { err = errors.Join(err, agents.end()) }()
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
	for i, s := range []*server{&c.api, &c.relay}[:len(servers)] {
		s.memory, s.grown, s.watches = full[i].Memory, full[i].Memory-empty[i].Memory, full[i].Watches
	}
	if c.load, err = load(); err != nil {
		return c, err
	}
	if watchers == 0 {
		c.list, err = listCosts(servers[len(servers)-1], agents)
	}
	return c, err
}

// startAgents starts a process of watchers, and waits until all watch.
func (w *world) startAgents(ctx context.Context, at address, watchers int) (*child, error) {
	at.Watchers, at.Connections, at.After = watchers, w.connections, w.changes
	agents, err := startChild("agents", at.String())
	if err != nil {
		return nil, err
	}
	return agents, poll(ctx, func() (bool, error) {
		got, err := ask[got](agents, "state")
		return err == nil && got.Watching == watchers, err
	})
}

// whileChanging changes Pods, and measures until every watcher has every change.
func (w *world) whileChanging(ctx context.Context, c *costs, servers []*child, agents *child, watchers int) error {
	before, err := askAll(servers, "state")
	if err != nil {
		return err
	}
	start, err := ask[got](agents, "state")
	if err != nil {
		return err
	}
	begun, changes := time.Now(), w.changes
	if err := w.change(ctx); err != nil {
		return err
	}
	c.wanted = (w.changes - changes) * watchers
	var end got
	err = poll(ctx, func() (bool, error) {
		end, err = ask[got](agents, "state")
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
	for i, s := range []*server{&c.api, &c.relay}[:len(servers)] {
		s.cpu, s.resident = (after[i].CPU-before[i].CPU)/seconds, after[i].Resident
	}
	return nil
}

// listCosts has the agents list, and returns what one list costs.
func listCosts(server, agents *child) (f figures, err error) {
	before, err := ask[figures](server, "state")
	if err != nil {
		return f, err
	}
	start, err := ask[got](agents, "state")
	if err != nil {
		return f, err
	}
	end, err := ask[got](agents, "list")
	if err != nil {
		return f, err
	}
	after, err := ask[figures](server, "state")
	return figures{CPU: (after.CPU - before.CPU) / lists, Received: (end.Received - start.Received) / lists}, err
}

func askAll(all []*child, question string) (answers []figures, err error) {
	for _, c := range all {
		f, err := ask[figures](c, question)
		if err != nil {
			return nil, err
		}
		answers = append(answers, f)
	}
	return answers, nil
}
