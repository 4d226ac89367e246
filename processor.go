package informer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/customcacheinformer/informer/internal/channel"
	"github.com/customcacheinformer/informer/internal/eventlog"
	"github.com/customcacheinformer/informer/internal/index"
	"github.com/customcacheinformer/informer/internal/memory"
	"github.com/customcacheinformer/informer/internal/object"
	"github.com/customcacheinformer/informer/internal/stopwatch"
	"github.com/customcacheinformer/informer/internal/tombstone"
)

// inheritance is how long after the first watcher further watchers still get the deletes that happened
// while no watcher was registered. The controllers of a manager add their watchers one by one, after the
// informer has synced.
const inheritance = time.Minute

// idleSeal is how long no record must have been appended before the processor releases the last chunk of
// the log.
const idleSeal = 10 * time.Second

// informerProcessor owns the event log and the listeners that follow it. It appends each
// event to the log once; the listeners read the log themselves.
type informerProcessor[T Object] struct {
	name       string // Options.Name
	log        *eventlog.Log[record[T]]
	pages      *index.Pages   // reads the store for listeners
	clusters   bool           // the objects are those of several clusters
	own        *memory.Store  // the informer's own store, which needs no pages; nil for another one
	tombstones *tombstone.Set // nil unless the store is durable
	report     func(context.Context, error)
	observer   *Observer
	stopwatch.Stopwatch

	// startedCh is closed once the pop and run goroutines of all listeners registered so far have started.
	// CustomCacheInformer.control waits for that.
	startedCh chan struct{}
	// begun is the log position after the records of all changes that may be in the store. The applier
	// raises it before it writes to the store. See state for its use.
	begun atomic.Int64
	// syncedAt is the log position of the synced marker, or -1 until that is known.
	syncedAt atomic.Int64
	// filled is closed once the store was read at the start. From then on, seeded is true if the store had
	// objects.
	filled chan struct{}
	seeded bool
	// draining is closed when the log has its last record. Until the time drained, the listeners then
	// deliver the remaining events.
	draining chan struct{}
	drained  time.Duration
	// spawn starts a goroutine that the processor waits for.
	spawn func(func())
	wg    sync.WaitGroup

	mu        sync.Mutex // protects the rest
	state     processorState
	ctx       context.Context // of the watchers' calls; set when running
	listeners map[*informerProcessorListener[T]]struct{}
	alive     map[*informerProcessorListener[T]]struct{} // listeners whose run has not ended, also removed ones
	added     int                                        // number of listeners ever added
	starting  int                                        // goroutines that were started and are not live yet
	atStop    []*informerProcessorListener[T]            // the listeners when the informer stopped; nil before
	leaving   *leave                                     // the leave that happens next
	version   string                                     // the version of the source that the store matches at the end of the log; "" for none

	// Deletes before the log position inheritUpTo happened while no watcher was registered. listening is
	// when the first watcher after them was added or started.
	inheritUpTo int64
	listening   time.Duration
}

type processorState uint8

const (
	processorNew processorState = iota
	processorRunning
	processorStopped // takes no new listeners; the present ones may continue
)

func newProcessor[T Object](scan index.Scan, own *memory.Store, s stopwatch.Stopwatch, clusters bool, opts Options[T]) *informerProcessor[T] {
	p := &informerProcessor[T]{
		name:      opts.Name,
		own:       own,
		clusters:  clusters,
		log:       eventlog.New(countEvents[T]),
		report:    opts.ErrorHandler,
		observer:  opts.Observer,
		Stopwatch: s,
		draining:  make(chan struct{}),
		startedCh: make(chan struct{}),
		filled:    make(chan struct{}),
		listeners: map[*informerProcessorListener[T]]struct{}{},
		alive:     map[*informerProcessorListener[T]]struct{}{},
		leaving:   &leave{},
	}
	if opts.durable() {
		p.tombstones = tombstone.New(keyed{opts.Durable}, p.handled)
	}
	p.pages = index.NewPages(scan, func() (done, begun int64) { return p.log.End(), p.begun.Load() })
	p.spawn = p.wg.Go
	p.syncedAt.Store(-1)
	return p
}

// distribute appends records to the log, from which all listeners read them. It never blocks: records wait
// in the log if the listeners have not started yet. version is the version at which the source was exactly
// as the store is after these records, or "" if there is none.
func (p *informerProcessor[T]) distribute(records []record[T], version string) {
	now := p.Now()
	for i := range records {
		records[i].since = now
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.version = version
	if len(records) > 0 {
		p.log.Append(records)
	}
}

// leave notes that the objects with these keys have left the store without deletes. Their waiting events
// are no longer delivered.
func (p *informerProcessor[T]) leave(keys map[string]struct{}) {
	now, records := p.Now(), make([]record[T], 0, len(keys))
	for key := range keys {
		records = append(records, record[T]{kind: recordLeft, key: key, since: now})
	}
	p.begun.Add(int64(len(records)))
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.leaving
	l.keys, l.at = keys, p.log.End()+int64(len(records))-1
	p.leaving = &leave{}
	l.next.Store(p.leaving) // before the log has it: no listener reaches a leave that it does not know
	for listener := range p.listeners {
		listener.life.look(true)
	}
	p.log.Append(records)
}

// fill notes that the store was read at the start. seeded is true if it had objects. version is the version
// of the source whose state they are, or "" if that is not known.
func (p *informerProcessor[T]) fill(seeded bool, version string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seeded, p.version = seeded, version
	for l := range p.listeners {
		l.beginAt(version)
		l.takeFirst()
	}
	close(p.filled)
}

// willSync notes that the synced marker will be the next record. A listener that joins after the marker can
// then add a marker to its state.
func (p *informerProcessor[T]) willSync() { p.syncedAt.Store(p.log.End()) }

// add registers a listener that begins at the end of the log. It returns ErrStopped if the informer has
// stopped.
func (p *informerProcessor[T]) add(w ResourceWatcher[T], opts WatcherOptions) (*informerProcessorListener[T], error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state == processorStopped {
		return nil, ErrStopped
	}
	p.added++
	opts.Name = cmp.Or(opts.Name, fmt.Sprintf("%s-%d", watcherName(w), p.added))
	l := newListener(p, w, opts, p.added)
	l.beginAt(p.version)
	if channel.Closed(p.filled) {
		l.takeFirst()
	}
	if len(p.listeners) == 0 {
		p.inheritUpTo, p.listening = l.cursor.Position(), p.Now()
	}
	if p.inheritsLocked() {
		l.inherit(p.inheritUpTo)
	}
	if k, ok := w.(tombstone.Keeper); ok && p.tombstones != nil {
		k.Keep()
	}
	p.listeners[l] = struct{}{}
	if p.state == processorRunning {
		p.startLocked(l)
	}
	return l, nil
}

func (p *informerProcessor[T]) startLocked(l *informerProcessorListener[T]) {
	p.starting += 2
	p.alive[l] = struct{}{}
	pop, run := l.goroutines(p.ctx)
	p.spawn(func() { p.live(); pop() })
	p.spawn(func() { p.live(); defer p.ended(l); run() })
}

// ended notes that both goroutines of l are done. run ends after pop.
func (p *informerProcessor[T]) ended(l *informerProcessorListener[T]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.alive, l)
}

// live notes that a goroutine of a listener has started.
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
	if !channel.Closed(p.startedCh) { // closed already if the informer ran before the listener was added
		close(p.startedCh)
	}
}

// remove removes l and ends the ctx of its calls. It does not wait for these calls.
func (p *informerProcessor[T]) remove(l *informerProcessorListener[T]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, there := p.listeners[l]; there {
		p.dropLocked(l)
	}
}

func (p *informerProcessor[T]) dropLocked(l *informerProcessorListener[T]) {
	delete(p.listeners, l)
	l.mu.Lock()
	l.life.remove()
	l.mu.Unlock()
	close(l.removed)
	if l.cancel != nil {
		l.cancel()
		l.popWake.Poke()
		l.cursor.Poke()
		return
	}
	l.cursor.Close() // l never ran
	l.ahead = ahead{}
	close(l.stopped)
}

// shown returns the registered listeners, sorted by name and then in the order in which they were added.
// After stop it returns the listeners that stop has removed.
func (p *informerProcessor[T]) shown() []*informerProcessorListener[T] {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.atStop != nil {
		return p.atStop
	}
	return p.allLocked()
}

// late returns the names of those listeners that have not synced, with the calls that they wait for. It leaves out those that
// were removed, except by the stop.
func (p *informerProcessor[T]) late(listeners []*informerProcessorListener[T]) (late []string) {
	shown := p.shown()
	for _, l := range listeners {
		if _, counts := slices.BinarySearchFunc(shown, l, byName); !counts || channel.Closed(l.synced) {
			continue
		}
		name := fmt.Sprintf("watcher %q", l.opts.Name)
		if calls := l.calling(); len(calls) > 0 {
			name += " (called for " + strings.Join(calls, ", ") + ")"
		}
		late = append(late, name)
	}
	slices.Sort(late)
	return late
}

// all returns the registered listeners in the order of shown.
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

// start starts the listeners. The ctx of their watchers' calls comes from ctx. start does not wait until
// the goroutines run: see startedCh.
func (p *informerProcessor[T]) start(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state, p.ctx, p.listening = processorRunning, ctx, p.Now()
	for l := range p.listeners {
		p.startLocked(l)
	}
	p.checkStartedLocked()
}

// run releases the last chunk of the log whenever the log is idle, until ctx ends. Then it waits for the
// listeners' goroutines and reports the events that watchers did not get. stop must be called before ctx
// ends.
func (p *informerProcessor[T]) run(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-p.log.Stirred():
			p.sealWhenIdle(ctx)
		case <-ctx.Done():
		}
	}
	p.wg.Wait()
	for _, l := range p.atStop {
		if n := l.stats().Pending; n > 0 {
			klog.FromContext(ctx).Info("A watcher did not get every event before the informer stopped", "watcher", l.opts.Name, "events", n)
			if p.observer.Undelivered != nil {
				p.observer.Undelivered(BacklogInfo{Informer: p.name, Watcher: l.opts.Name, Events: n})
			}
		}
	}
}

// drain lets the listeners deliver the rest of the log, and blocks until they have, or for at most timeout.
// If the lease is lost, it does not wait. run is the ctx of Run, which is done. The log must not get further records.
func (p *informerProcessor[T]) drain(run context.Context, timeout time.Duration) {
	if timeout == 0 || errors.Is(context.Cause(run), ErrLeaseLost) {
		return
	}
	timeout = min(timeout, maxWait)
	p.drained = p.Now() + timeout
	close(p.draining)
	enough := time.NewTimer(timeout)
	defer enough.Stop()
	listeners := p.all()
	for _, l := range listeners {
		l.popWake.Poke()
	}
	for _, l := range listeners {
		select {
		case <-l.stopped:
		case <-enough.C:
			return
		}
	}
}

// sealWhenIdle waits until no record was appended for idleSeal, and then releases the last chunk of the
// log. It returns early if ctx ends.
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

// refuse makes add return ErrStopped from now on.
func (p *informerProcessor[T]) refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state = processorStopped
}

func (p *informerProcessor[T]) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.atStop = p.allLocked()
	for _, l := range p.atStop {
		p.dropLocked(l)
	}
}

// underWay returns the names of the calls that have not returned: calls of watchers, and reads of the store
// for a watcher.
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

// handled returns two log positions between which every delete is handled, and the watchers that may keep
// tombstones nevertheless. upTo is the position up to which all listeners have handled the log, or -1 if there
// are no listeners. After stop, the listeners that stop has removed count. after is inheritUpTo while a new
// listener would inherit deletes, and otherwise -1.
func (p *informerProcessor[T]) handled() (after, upTo int64, keepers []tombstone.Keeper) {
	p.mu.Lock()
	defer p.mu.Unlock()
	listeners := p.atStop
	if listeners == nil {
		listeners = slices.Collect(maps.Keys(p.listeners))
	}
	after, upTo = -1, math.MaxInt64
	if p.inheritsLocked() {
		after = p.inheritUpTo
	}
	for _, l := range listeners {
		upTo = min(upTo, l.handled.Load())
		if k, ok := l.watcher.(tombstone.Keeper); ok {
			keepers = append(keepers, k)
		}
	}
	if len(listeners) == 0 {
		upTo = -1
	}
	return after, upTo, keepers
}

// inheritsLocked reports whether a watcher that is added now would get the deletes that happened while no
// watcher was registered: before Run, and for the time inheritance after the first watcher.
func (p *informerProcessor[T]) inheritsLocked() bool {
	return p.tombstones != nil && (p.state == processorNew || p.Now()-p.listening < inheritance)
}

// watcherName returns the name of w's type. For a wrapper, a selection or a handler it returns the name of the type
// inside.
func watcherName[T Object](w ResourceWatcher[T]) string {
	switch w := unwrap(w).(type) {
	case selection[T]:
		return watcherName(w.ResourceWatcher)
	case *handler[T]:
		return object.TypeName(reflect.TypeOf(w.ResourceEventHandler))
	}
	return object.TypeName(reflect.TypeOf(w))
}
