package informer

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/customcacheinformer/informer/internal/eventlog"
	"github.com/customcacheinformer/informer/internal/stopwatch"
)

// idleSeal is how long the log must have been quiet for its last chunk to be
// let go.
const idleSeal = 10 * time.Second

// informerProcessor owns the event log and the listeners that follow it. What is
// distributed is appended to the log once; the listeners help themselves.
type informerProcessor[T Object] struct {
	name       string // Options.Name
	log        *eventlog.Log[record[T]]
	scan       scan        // of the store
	tombstones *tombstones // nil unless the store is durable
	report     func(context.Context, error)
	observer   *Observer
	stopwatch.Stopwatch

	// startedCh is closed once the pop and run goroutines of every listener
	// registered so far are live. The controller waits for it.
	startedCh chan struct{}
	// begun is the position up to which changes of the store may have been started. The
	// apply loop raises it before it touches the store; see snapshot for the other half.
	begun atomic.Int64
	// syncedAt is the position of the synced marker, -1 before it is known.
	syncedAt atomic.Int64
	// filled is closed when it is known whether the store held anything before
	// the first record; seeded says so.
	filled chan struct{}
	seeded bool
	// draining is closed when nothing will be appended any more and the
	// listeners are to tell what is left, until drained.
	draining chan struct{}
	drained  time.Duration
	// spawn starts a goroutine that the processor waits for.
	spawn func(func())
	wg    sync.WaitGroup

	mu        sync.Mutex // protects the rest
	state     processorState
	ctx       context.Context // of the watchers' calls; set when running
	listeners map[*informerProcessorListener[T]]struct{}
	alive     map[*informerProcessorListener[T]]struct{} // those that run, also once they are removed
	added     int                                        // how many there ever were
	unheard   int64                                      // the position up to which nobody was registered
	listening time.Duration                              // since when somebody has been
	starting  int                                        // goroutines that are started and not yet live
	left      []*informerProcessorListener[T]            // those there were at the stop
}

type processorState uint8

const (
	processorNew processorState = iota
	processorRunning
	processorStopped // no new listeners, while those there are may go on
)

func newProcessor[T Object](store scan, s stopwatch.Stopwatch, opts Options[T]) *informerProcessor[T] {
	p := &informerProcessor[T]{
		name:       opts.Name,
		log:        eventlog.New(countEvents[T]),
		scan:       store,
		tombstones: newTombstones(store.store),
		report:     opts.ErrorHandler,
		observer:   opts.Observer,
		Stopwatch:  s,
		draining:   make(chan struct{}),
		startedCh:  make(chan struct{}),
		filled:     make(chan struct{}),
		listeners:  map[*informerProcessorListener[T]]struct{}{},
		alive:      map[*informerProcessorListener[T]]struct{}{},
	}
	p.spawn = p.wg.Go
	p.syncedAt.Store(-1)
	return p
}

// distribute tells every listener, present and future. It never blocks: what
// comes before the listeners are live waits in the log.
func (p *informerProcessor[T]) distribute(records []record[T]) {
	if len(records) == 0 {
		return
	}
	now := p.Now()
	for i := range records {
		records[i].since = now
	}
	p.log.Append(records)
}

// willSync announces that the synced marker comes next, so that a listener which joins
// behind it does not wait for it.
func (p *informerProcessor[T]) willSync() { p.syncedAt.Store(p.log.End()) }

// hasSynced reports whether what is decided now comes after the marker.
func (p *informerProcessor[T]) hasSynced() bool { return p.syncedAt.Load() >= 0 }

// add registers a listener as of the end of the log.
func (p *informerProcessor[T]) add(w ResourceWatcher[T], opts WatcherOptions) (*informerProcessorListener[T], error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state == processorStopped {
		return nil, ErrStopped
	}
	p.added++
	opts.Name = cmp.Or(opts.Name, fmt.Sprintf("%s-%d", watcherName(w), p.added))
	l := newListener(p, w, opts)
	l.number = p.added
	if len(p.listeners) == 0 {
		p.unheard, p.listening = l.cursor.Position(), p.Now()
	}
	if p.inheritsLocked() {
		l.inherit(p.unheard)
	}
	p.listeners[l] = struct{}{}
	if p.state == processorRunning {
		p.startLocked(l)
	}
	return l, nil
}

// startLocked starts the two goroutines of l.
func (p *informerProcessor[T]) startLocked(l *informerProcessorListener[T]) {
	logger := klog.FromContext(p.ctx)
	ctx, cancel := context.WithCancel(klog.NewContext(p.ctx, klog.LoggerWithValues(logger, "watcher", l.opts.Name)))
	ctx = context.WithValue(ctx, callOf{}, l)
	l.cancel = cancel
	p.starting += 2
	p.alive[l] = struct{}{}
	p.spawn(func() { p.live(); l.pop(ctx) })
	p.spawn(func() { p.live(); defer p.ended(l); l.run(ctx) })
}

// ended notes that l's run has ended, which waits for its pop.
func (p *informerProcessor[T]) ended(l *informerProcessorListener[T]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.alive, l)
}

// callOf is the key under which the ctx of a watcher's call has the listener.
type callOf struct{}

// live notes that one of the listeners' goroutines has begun.
func (p *informerProcessor[T]) live() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.starting--
	p.checkStartedLocked()
}

func (p *informerProcessor[T]) checkStartedLocked() {
	if p.starting > 0 {
		return
	}
	if !closed(p.startedCh) { // later listeners come and go
		close(p.startedCh)
	}
}

// remove takes l off and ends the ctx of its calls. It does not wait.
func (p *informerProcessor[T]) remove(l *informerProcessorListener[T]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, there := p.listeners[l]; there {
		p.dropLocked(l)
	}
}

func (p *informerProcessor[T]) dropLocked(l *informerProcessorListener[T]) {
	delete(p.listeners, l)
	l.gone.Store(true)
	close(l.removed)
	if l.cancel != nil {
		l.cancel()
		l.news.Poke()
		l.cursor.Poke()
		return
	}
	l.cursor.Close() // it never ran
	close(l.stopped)
}

// shown returns the registered listeners, or those there were at the stop, by name and
// in the order in which they were added.
func (p *informerProcessor[T]) shown() []*informerProcessorListener[T] {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left != nil {
		return p.left
	}
	return p.allLocked()
}

// all returns the registered listeners, by name.
func (p *informerProcessor[T]) all() []*informerProcessorListener[T] {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.allLocked()
}

func (p *informerProcessor[T]) allLocked() []*informerProcessorListener[T] {
	return slices.SortedFunc(maps.Keys(p.listeners), byName)
}

func byName[T Object](a, b *informerProcessorListener[T]) int {
	return cmp.Or(strings.Compare(a.opts.Name, b.opts.Name), cmp.Compare(a.number, b.number))
}

// start starts the listeners, whose calls get ctx. It does not wait for them:
// startedCh does.
func (p *informerProcessor[T]) start(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state, p.ctx, p.listening = processorRunning, ctx, p.Now()
	for l := range p.listeners {
		p.startLocked(l)
	}
	p.checkStartedLocked()
}

// run keeps the log from holding on to old chunks until ctx ends. stop must have
// been called by then: run waits for the listeners' goroutines, and says what they
// have not told.
func (p *informerProcessor[T]) run(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-p.log.Stirred():
			p.sealWhenIdle(ctx)
		case <-ctx.Done():
		}
	}
	p.wg.Wait()
	for _, l := range p.left {
		if n := l.stats().Pending; n > 0 {
			klog.FromContext(ctx).Info("A watcher was not told everything before the informer stopped", "watcher", l.opts.Name, "events", n)
			if p.observer.Undelivered != nil {
				p.observer.Undelivered(UndeliveredInfo{Informer: p.name, Watcher: l.opts.Name, Events: n})
			}
		}
	}
}

// drain lets the listeners tell what is left, for as long as timeout. Nothing may
// be appended any more.
func (p *informerProcessor[T]) drain(timeout time.Duration) {
	if timeout == 0 {
		return
	}
	p.drained = p.Now() + timeout
	close(p.draining)
	enough := time.NewTimer(timeout)
	defer enough.Stop()
	listeners := p.all()
	for _, l := range listeners {
		l.news.Poke()
	}
	for _, l := range listeners {
		select {
		case <-l.stopped:
		case <-enough.C:
			return
		}
	}
}

// sealWhenIdle waits until nothing has been appended for idleSeal.
func (p *informerProcessor[T]) sealWhenIdle(ctx context.Context) {
	ticker := time.NewTicker(idleSeal)
	defer ticker.Stop()
	for last := p.log.End(); ; {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		end := p.log.SealIfIdle(last)
		if end == last {
			return
		}
		last = end
	}
}

// refuse lets no further listener register.
func (p *informerProcessor[T]) refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state = processorStopped
}

// stop removes all listeners.
func (p *informerProcessor[T]) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left = p.allLocked()
	for _, l := range p.left {
		p.dropLocked(l)
	}
}

// underWay names the calls of listeners that have not returned.
func (p *informerProcessor[T]) underWay() []string {
	p.mu.Lock()
	live := slices.SortedFunc(maps.Keys(p.alive), byName)
	p.mu.Unlock()
	var calls []string
	for _, l := range live {
		for _, call := range l.calling() {
			calls = append(calls, fmt.Sprintf("watcher %s: %s", l.opts.Name, call))
		}
		if l.listing.Load() {
			calls = append(calls, fmt.Sprintf("watcher %s: store: list", l.opts.Name))
		}
	}
	return calls
}

// closed reports whether c is closed. Nothing is ever sent on it.
func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
