package source

import (
	"context"
	"sync"

	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer/internal/framing"
)

// Wire is a lister that another one may replace while it is read, such as one with new credentials for the same server. It is
// made by NewWire.
type Wire struct {
	mu      sync.Mutex // protects the rest
	lister  cache.ListerWatcher
	framing framing.Type
	end     context.CancelFunc // ends the use of lister; nil before the first
}

// NewWire returns a Wire with its first lister, nil if there is none yet, and the Options.Framing of that.
func NewWire(lister cache.ListerWatcher, framing framing.Type) *Wire {
	return &Wire{lister: lister, framing: framing}
}

// Set replaces the lister by that of another Wire. It does not block.
func (w *Wire) Set(by *Wire) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lister, w.framing = by.lister, by.framing
	if w.end != nil {
		w.end()
	}
}

// cut ends the use of the lister.
func (w *Wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.end != nil {
		w.end()
	}
}

// Loose reports whether there is no lister yet.
func (w *Wire) Loose() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lister == nil
}

// use returns the lister, and a ctx that ends when it is replaced.
func (w *Wire) use(ctx context.Context) (context.Context, cache.ListerWatcher, framing.Type) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.end != nil {
		w.end()
	}
	ctx, w.end = context.WithCancel(ctx)
	return ctx, w.lister, w.framing
}

// RunOver reads the resource as Run does, over a wire. When the lister is replaced, it continues at the version that it has reached,
// or with a list if one was under way: another watch from before that list could lead back in time. RunOver uses neither the
// lister of New nor its Options.Framing. giveUp has the sink end a list that comes in, and reports whether there is one.
func (s *Source) RunOver(ctx context.Context, sink Sink, wire *Wire, version string, giveUp func() (underWay bool)) {
	for ctx.Err() == nil {
		turn, lister, framing := wire.use(ctx)
		if lister == nil {
			<-turn.Done()
			continue
		}
		opts := s.opts
		opts.Framing = framing
		r := newReading(turn, &s.connection, opts, sink, version)
		s.read(turn, newRequests(r, lister))
		s.close()
		s.calls.open()
		if version = r.reached; giveUp() {
			version = ""
		}
	}
	wire.cut()
	s.calls.close()
}
