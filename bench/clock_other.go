//go:build !linux

package main

import (
	"time"

	"github.com/customcacheinformer/informer/internal/lab"
)

// pacer is a timer of the Go runtime. Its lateness is part of every measured latency.
type pacer struct {
	begun time.Time
	ticks int // number of periods that are over
}

// startPacer returns a timer, and the time of its start.
func startPacer() (*pacer, time.Time, error) {
	p := &pacer{begun: time.Now()}
	return p, p.begun, nil
}

// wait blocks until at least one more period is over, and returns the number of such periods.
func (p *pacer) wait() (int, error) {
	time.Sleep(time.Until(due(p.begun, p.ticks)))
	over := max(1, int(time.Since(p.begun)/period)-p.ticks)
	p.ticks += over
	return over, nil
}

func (p *pacer) close() {}

// threadTime returns the processor time of this process so far: there is no clock for a thread that
// all systems have. So the garbage collector's time is in it, too.
func threadTime() time.Duration { return lab.CPU() }
