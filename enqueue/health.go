package enqueue

import (
	"cmp"
	"time"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/channel"
)

// defaultHangTimeout is the default of Options.HangTimeout.
const defaultHangTimeout = time.Hour

// stopLimit is how long after a stop a call may last until Live of the controller fails.
const stopLimit = time.Minute

// Health returns how the controller is doing. Name, Started, Stopped, Synced and Controller are
// set, and SourceError if something keeps the controller from syncing; the other fields are those
// of informers. It does not block, and may be called at any time.
func (c *Controller[K]) Health() informer.Health {
	c.mu.Lock()
	h := informer.Health{
		Name: c.opts.Name, Started: c.ctx != nil, Stopped: c.removed || c.ctx != nil && c.ctx.Err() != nil,
		Synced: channel.Closed(c.synced), Objects: -1, Watchers: []informer.WatcherHealth{},
	}
	s := &informer.ControllerHealth{
		Standby: c.opts.Elected != nil && c.queue == nil, Workers: max(1, c.opts.Workers), Queued: len(c.isEarly), Dropped: c.dropped,
	}
	queue := c.queue
	c.mu.Unlock()
	if queue != nil {
		s.Queued, s.OldestQueued = c.ready.oldest()
		var foreign func(K) bool
		if c.shard != nil {
			foreign = c.shard.foreign
		}
		s.Waiting = queue.waiting(foreign)
	}
	if limit := cmp.Or(c.opts.HangTimeout, defaultHangTimeout); limit > 0 {
		s.Stuck = c.state.stuck(s.Workers, s.Queued > 0, limit)
	}
	if h.Started && !h.Synced {
		s.Late, h.SourceError = c.late()
	}
	c.state.health(s, queue.next)
	h.Controller = s
	return h
}

// stuck returns for how long no worker has been able to take a key that waits, if that is limit or
// more, or else for how long a stop has waited for calls, if that is stopLimit or more. Otherwise it
// returns 0.
func (s *state[K]) stuck(workers int, waiting bool, limit time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	var full time.Time // since when all workers are in their calls
	if waiting && len(s.calls) == workers {
		for _, c := range s.calls {
			if c.begun.After(full) {
				full = c.begun
			}
		}
	}
	if d := time.Since(full); !full.IsZero() && d >= limit {
		return d
	}
	if d := time.Since(s.stopped); len(s.calls) > 0 && !s.stopped.IsZero() && d >= min(limit, stopLimit) {
		return d
	}
	return 0
}
