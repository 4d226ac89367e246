package source

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"

	"github.com/customcacheinformer/informer/internal/stopwatch"
)

// backoffReset is how long list and watch must work before the back-off starts over.
const backoffReset = 2 * time.Minute

// pauses are the pauses between attempts. client-go's own pauses start over every two minutes, even in an
// outage.
type pauses struct {
	clock stopwatch.Stopwatch
	first wait.Backoff
	good  atomic.Int64      // since when list and watch have worked, on clock; 0 if they do not
	end   *stopwatch.Moment // of the last pause

	mu   sync.Mutex
	next wait.Backoff // protected by mu
}

// worked records that list and watch work.
func (p *pauses) worked() {
	if p.good.Load() == 0 { // the usual case, kept cheap
		p.good.CompareAndSwap(0, int64(p.clock.Now()))
	}
}

// interrupted records that list or watch has failed or must be repeated. If both have worked for backoffReset,
// the pauses start over.
func (p *pauses) interrupted() {
	if since := p.good.Swap(0); since != 0 && p.clock.Now()-time.Duration(since) >= backoffReset {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.next = p.first
	}
}

// step returns the pause before the next attempt.
func (p *pauses) step() time.Duration {
	p.interrupted()
	p.mu.Lock()
	defer p.mu.Unlock()
	pause := p.next.Step()
	p.end.SetAfter(p.clock, pause)
	return pause
}

// stopClock is a real clock whose After waits for the next of pauses, or until ctx ends. The reflector calls
// After between its own attempts, and does not look at its ctx while it waits.
type stopClock struct {
	clock.RealClock
	ctx    context.Context
	pauses *pauses
}

func (c stopClock) After(time.Duration) <-chan time.Time {
	fired := make(chan time.Time, 1)
	ctx, cancel := context.WithTimeout(c.ctx, c.pauses.step())
	context.AfterFunc(ctx, func() {
		fired <- c.Now()
		cancel()
	})
	return fired
}
