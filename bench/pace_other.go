//go:build !linux

package main

import "time"

// pacer is a timer of the Go runtime. Its lateness is part of every measured latency.
type pacer struct {
	begun time.Time
	ticks int // number of periods that are over
}

func newPacer() (*pacer, error) { return &pacer{}, nil }

// start starts the timer, and returns the time of the start.
func (p *pacer) start() (time.Time, error) {
	p.begun = time.Now()
	return p.begun, nil
}

// wait blocks until at least one more period is over, and returns the number of such periods.
func (p *pacer) wait() (int, error) {
	time.Sleep(time.Until(due(p.begun, p.ticks)))
	over := max(1, int(time.Since(p.begun)/period)-p.ticks)
	p.ticks += over
	return over, nil
}

func (p *pacer) close() {}
