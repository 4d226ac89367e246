package source

import (
	"context"
	"sync"

	"k8s.io/client-go/tools/cache"
)

// Wire is a lister that another one may replace while it is read, such as one with new credentials for the same server. It is
// made by NewWire.
type Wire struct {
	mu     sync.Mutex // protects the rest
	lister cache.ListerWatcher
	end    context.CancelFunc // ends the use of lister; nil before the first
}

// NewWire returns a Wire with its first lister.
func NewWire(lister cache.ListerWatcher) *Wire { return &Wire{lister: lister} }

// Set replaces the lister. It does not block.
func (w *Wire) Set(lister cache.ListerWatcher) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lister = lister
	if w.end != nil {
		w.end()
	}
}

// use returns the lister, and a ctx that ends when it is replaced.
func (w *Wire) use(ctx context.Context) (context.Context, cache.ListerWatcher) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.end != nil {
		w.end()
	}
	ctx, w.end = context.WithCancel(ctx)
	return ctx, w.lister
}

// RunOver reads the resource as Run does, over a wire. When the lister is replaced, it continues at the version that it has reached,
// or with a list if one was under way: another watch from before that list could lead back in time. RunOver does not use the
// lister of New. giveUp has the sink end a list that comes in, and reports whether there is one.
func (s *Source) RunOver(ctx context.Context, sink Sink, wire *Wire, version string, giveUp func() (underWay bool)) {
	for ctx.Err() == nil {
		turn, lister := wire.use(ctx)
		r := newReading(turn, &s.connection, s.opts, sink, version)
		s.read(turn, newRequests(r, lister))
		s.close()
		s.calls.open()
		if version = r.reached; giveUp() {
			version = ""
		}
	}
	wire.Set(nil)
	s.calls.close()
}
