package source

import (
	"cmp"
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer/internal/framing"
)

// Wire holds a lister that may be replaced while it is read, such as by one with new credentials for the same
// server. NewWire makes a Wire. Its methods may be called from any goroutine.
type Wire struct {
	mu      sync.Mutex // protects the rest
	lister  cache.ListerWatcher
	framing framing.Type
	tweak   func(*metav1.ListOptions)
	moved   bool               // the next use must list, and compare contents
	end     context.CancelFunc // ends the use of lister; nil before the first
}

// NewWire returns a Wire with its first lister, which is nil if there is none yet. framing and tweak are
// Options.Framing and Options.Tweak for this lister.
func NewWire(lister cache.ListerWatcher, framing framing.Type, tweak func(*metav1.ListOptions)) *Wire {
	return &Wire{lister: lister, framing: framing, tweak: tweak}
}

// Set replaces the lister by the lister of another Wire. It does not block.
func (w *Wire) Set(by *Wire) { w.become(by, false) }

// Move is Set for a lister that delivers the same objects in another form. Because their versions stay the
// same, a list follows, and the sink compares the contents of the objects.
func (w *Wire) Move(by *Wire) { w.become(by, true) }

func (w *Wire) become(by *Wire, moved bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lister, w.framing, w.tweak = by.lister, by.framing, by.tweak
	w.moved = w.moved || moved
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

// plug is a lister in use.
type plug struct {
	cache.ListerWatcher
	framing framing.Type
	tweak   func(*metav1.ListOptions)
	moved   bool
}

// use returns the lister, and a ctx that ends when the lister is replaced.
func (w *Wire) use(ctx context.Context) (context.Context, plug) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.end != nil {
		w.end()
	}
	ctx, w.end = context.WithCancel(ctx)
	defer func() { w.moved = false }()
	return ctx, plug{w.lister, w.framing, w.tweak, w.moved}
}

// RunOver reads the resource as Run does, from the lister of wire. When the lister is replaced, RunOver
// continues at the version that it has reached. If a list was under way, it begins with a list, because a watch
// from before that list could lead back in time. giveUp must make the sink give up a list in parts, and return
// whether there is one. RunOver does not use the lister, Options.Framing and Options.Tweak of New.
func (s *Source) RunOver(ctx context.Context, sink Sink, wire *Wire, version string, giveUp func() (underWay bool)) {
	s.run = ctx
	moved, known, answers := false, version, (*answers)(nil)
	for ctx.Err() == nil {
		turn, plug := wire.use(ctx)
		moved = moved || plug.moved
		if plug.ListerWatcher == nil {
			<-turn.Done()
			continue
		}
		opts := s.opts
		opts.Framing, opts.Tweak = plug.framing, plug.tweak
		resume := version
		if moved {
			resume = ""
		}
		r := newReading(turn, &s.connection, opts, sink, resume)
		r.moved.Store(moved)
		if r.answers = cmp.Or(answers, r.answers); plug.moved {
			r.answers.kind.forget()
		}
		if resume == "" { // the list must not be older than what is known
			r.reached, r.answers.listed, r.parts.behind = known, known, known != ""
		}
		s.read(turn, newRequests(r, plug.ListerWatcher))
		s.close()
		s.calls.open()
		moved, answers = r.doubtful(), r.answers // doubtful if its list was not complete
		if version, known = r.reached, r.reached; giveUp() {
			version = ""
		}
	}
	wire.cut()
	s.calls.close()
}
