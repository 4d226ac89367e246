package informer

import (
	"context"
	"strings"
	"time"

	"github.com/customcacheinformer/informer/internal/channel"
	"github.com/customcacheinformer/informer/internal/memory"
	"github.com/customcacheinformer/informer/internal/object"
	"github.com/customcacheinformer/informer/internal/retry"
)

// join returns the state at the listener's cursor, which was made when the listener was added. If the
// synced marker lies before the cursor, the state ends with a marker. join returns false if the
// listener was removed before the state was read. It returns a nil state and true if the informer stops
// first.
func (l *informerProcessorListener[T]) join(ctx context.Context) (*state[T], bool) {
	p := l.processor
	select {
	case <-p.filled:
	case <-p.draining:
	case <-l.removed:
		l.first = nil // the program may keep the registration
		return nil, false
	}
	if !channel.Closed(p.filled) { // the informer stops before it has read the store
		return nil, true
	}
	if l.first != nil {
		return l.joinOwn()
	}
	s := l.newState(OriginInitial)
	if !l.readDeletes(ctx, s) {
		s.close()
		return nil, false
	}
	ok := true
	if s.end > 0 || p.seeded {
		ok = l.nextPage(ctx, s)
	} else { // the store was empty before the first change
		s.setPage(object.Entries{}, "")
	}
	l.markState(s)
	if l.follower != nil {
		s.version = l.follower.version
	}
	return s, ok
}

// markState adds the synced marker to the state if the marker of the log lies before the position of
// the state.
func (l *informerProcessorListener[T]) markState(s *state[T]) {
	at := l.processor.syncedAt.Load()
	s.marker = at >= 0 && at < s.end
}

// sync calls OnSynced and closes synced, unless the listener was removed.
func (l *informerProcessorListener[T]) sync(ctx context.Context) {
	if l.life.removed() {
		return
	}
	if l.opts.OnSynced != nil {
		l.syncing.Store(true)
		l.protect(ctx, func() { l.opts.OnSynced(ctx) })
		l.syncing.Store(false)
	}
	if !l.life.removed() {
		close(l.synced)
	}
}

// joinOwn returns the state that the own store had when the listener was added. The position of the state may
// lie after the listener's cursor, because the store gets a batch shortly before the log does. joinOwn waits
// for the log and moves the cursor there. It returns false if the listener is removed first.
func (l *informerProcessorListener[T]) joinOwn() (*state[T], bool) {
	at := momentOf(l.first)
	s := &state[T]{since: l.processor.Now(), origin: OriginInitial, end: max(at.end, l.cursor.Position()), keyed: l.crew != nil || l.processor.clusters, clusters: l.processor.clusters, walk: l.first.Walk()}
	l.first = nil
	for l.processor.log.Sleep(&l.popWake, s.end) {
		select {
		case <-l.popWake.Wake():
		case <-l.removed:
			return nil, false
		}
	}
	l.skip(s.end)
	l.markState(s)
	if l.follower != nil {
		s.version = at.version()
	}
	return s, true
}

// skip moves the cursor to a position that the log has reached.
func (l *informerProcessorListener[T]) skip(to int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for at := l.cursor.Position(); at < to; at = l.cursor.Position() {
		l.cursor.Next(int(min(to-at, maxChunk)))
	}
	l.counts.read.Store(l.cursor.Events())
}

// readDeletes puts the deletes that the listener inherits into the state. It returns false if the
// listener is removed or the informer stops first.
func (l *informerProcessorListener[T]) readDeletes(ctx context.Context, s *state[T]) bool {
	if s.inherit = l.inheritUpTo >= 0; !s.inherit {
		return true
	}
	return l.readStore(ctx, "tombstones", func() (err error) {
		s.deletes, err = l.processor.tombstones.Read(ctx, l.inheritUpTo)
		return err
	}, s)
}

// snapshot returns the state at the listener's cursor, with its first page. It holds no lock for which
// the applier would have to wait, so a store that hangs delays only this listener.
func (l *informerProcessorListener[T]) snapshot(ctx context.Context, origin Origin) (*state[T], bool) {
	s := l.newState(origin)
	return s, l.nextPage(ctx, s)
}

// snapshotOwn returns the state of the own store, or nil if the store has changes that the log does not have yet.
func (l *informerProcessorListener[T]) snapshotOwn(origin Origin) *state[T] {
	v, at := l.processor.own.Snapshot(), l.cursor.Position()
	if momentOf(v).end > at {
		return nil
	}
	return &state[T]{since: l.processor.Now(), origin: origin, end: at, keyed: l.crew != nil || l.processor.clusters, clusters: l.processor.clusters, walk: v.Walk()}
}

// newState returns a state at the listener's cursor, without any page. It must be called before the
// store is read, because the cursor may move during the read.
func (l *informerProcessorListener[T]) newState(origin Origin) *state[T] {
	return &state[T]{since: l.processor.Now(), origin: origin, end: l.cursor.Position(), keyed: l.crew != nil || l.processor.clusters, clusters: l.processor.clusters, log: l.cursor.Clone(), more: true}
}

// nextPage reads the next page of a state. No other goroutine may use the state until nextPage returns.
// It returns false if the listener is removed or the informer stops before the page is read.
func (l *informerProcessorListener[T]) nextPage(ctx context.Context, s *state[T]) bool {
	var (
		page object.Entries
		last string
	)
	if !l.readStore(ctx, "scan", func() (err error) {
		page, last, err = l.processor.pages.Next(ctx, l.removed, s.last)
		return err
	}, s) {
		s.close()
		return false
	}
	begun := l.processor.begun.Load()
	for s.log.Position() < begun {
		if s.follow() || !s.log.Sleep() {
			continue
		}
		select {
		case <-s.log.Wake():
		case <-l.processor.draining: // the changes in progress were given up
			s.close()
			return false
		case <-l.removed:
			s.close()
			return false
		}
	}
	s.setPage(page, last)
	return true
}

// readStore repeats read until it succeeds, the listener is removed or the informer stops. It reports
// whether read succeeded.
func (l *informerProcessorListener[T]) readStore(ctx context.Context, op string, read func() error, s *state[T]) bool {
	return retry.Do(func() error {
		l.listing.Store(true)
		defer l.listing.Store(false)
		return read()
	}, func(f retry.Failure) error {
		if f.Count == 1 && !l.life.removed() {
			l.processor.report(ctx, &StoreError{Op: op, Failures: f.Count, Err: f.Err})
		}
		if !l.rest(ctx, f.Pause, s) {
			return f.Err
		}
		return nil
	}) == nil
}

// rest waits between two attempts to read the store. Meanwhile the backlog and the state follow the
// log, so that memory for the log is released. rest returns false if the listener is removed or the
// informer stops.
func (l *informerProcessorListener[T]) rest(ctx context.Context, pause time.Duration, s *state[T]) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for over := false; !over; {
		select {
		case <-timer.C:
			over = true
		case <-l.popWake.Wake():
		case <-l.processor.draining:
			return false
		case <-l.removed:
			return false
		}
		l.keepUp(ctx)
		s.followLog()
	}
	return true
}

// state is the state of the store at a log position. A listener that joins or is resynced delivers this
// state before it continues with the log. The state is read from the store page by page, while the
// store changes. Its records are made only when they are taken, so a large state needs little more
// memory than its pages. It owns no goroutine.
//
// A page is read later than the log was at the position, so it may contain newer changes. All of these
// changes are in the log up to the processor's position begun. If the log has an event of an object
// after the position, the state has Old of the first such event instead of the listed object. Each page
// has higher keys than the page before. So a change to an object of an earlier page reaches the watcher
// as an event, and a change to an object of a later page is undone when that page is read.
type state[T Object] struct {
	since   time.Duration
	origin  Origin
	end     int64          // the log position
	deletes object.Entries // deleted objects that a durable store has kept
	inherit bool           // the deletes are still to be taken, before all other records
	keyed   bool           // the records must have keys, which only a crew needs, and an informer over clusters

	clusters bool     // the objects are those of several clusters
	from     *Cluster // of the last record

	walk *memory.Walk // the rest of a snapshot; nil if the store has no snapshots

	// The page that was read last.
	listed  object.Entries // objects of the store
	changed []object.Entry // objects that the log has changed since, as they were at end
	last    string         // later pages have only later keys
	more    bool           // there is a further page

	log    *cursor[T]     // reads the log after end; nil after the last page
	before map[string]any // objects changed after end, as they were at end; nil if one did not exist
	key    []byte         // the room of isChanged for a key

	marker  bool   // the synced marker follows the state
	ended   bool   // the end of the state was taken
	version string // the version of the state that a follower gets, "" for none
}

// left returns how many objects of the pages that were read are not taken yet. It returns 0 for a nil
// state.
func (s *state[T]) left() int64 {
	if s == nil {
		return 0
	}
	return int64(s.deletes.Len() + s.walk.Len() + s.listed.Len() + len(s.changed))
}

// setPage sets the current page to listed, which ends with the key last. For the last page, last is "".
// The caller must have followed the log up to begun.
func (s *state[T]) setPage(listed object.Entries, last string) {
	for key := range s.before {
		if key <= s.last {
			delete(s.before, key)
		}
	}
	s.listed, s.last, s.more = listed, last, last != ""
	for key, old := range s.before {
		if old != nil && (key <= last || !s.more) {
			s.changed = append(s.changed, object.Keyed(key, old))
		}
	}
	if !s.more {
		s.close()
	}
}

// close releases the log.
func (s *state[T]) close() {
	s.log.Close()
	s.log = nil
}

// follow reads the next records of the log, and returns false if there are none.
func (s *state[T]) follow() bool {
	seg, ok := s.log.Next(maxChunk)
	if ok {
		s.undo(seg.Records)
	}
	return ok
}

// followLog reads all records of the log, so that the log need not keep them for the state.
func (s *state[T]) followLog() {
	for s.log != nil && s.follow() {
	}
}

// undo notes how each object was before its first event after the position.
func (s *state[T]) undo(records []record[T]) {
	for i := range records {
		r := &records[i]
		if !r.isEvent() || r.key <= s.last {
			continue
		}
		if _, seen := s.before[r.key]; seen {
			continue
		}
		if s.before == nil {
			s.before = map[string]any{}
		}
		if r.event.Type == EventAdded {
			s.before[r.key] = nil
		} else {
			s.before[r.key] = r.event.Old
		}
	}
}

// stateChunk is how many objects of a state run takes at a time. When many watchers join at once, the
// rest of the informer waits for a CPU while one of them gets this many objects.
const stateChunk = 32

// next returns the next part of the current page, or false if there is none.
func (s *state[T]) next() (segment[T], bool) {
	if s.inherit {
		return s.nextDeletes(), true
	}
	records := make([]record[T], 0, min(s.walk.Len()+s.listed.Len()+len(s.changed)+3, stateChunk))
	for len(records) < cap(records) && s.walk.Len() > 0 {
		if e, obj, ok := s.walked(); ok {
			records = append(records, s.record(e, obj))
		}
	}
	for len(records) < cap(records) && s.listed.Len() > 0 {
		e := s.listed.At(0)
		if obj, ok := e.Object.(T); ok && !s.isChanged(e) {
			records = append(records, s.record(e, obj))
		}
		s.listed = s.listed.From(1)
	}
	for len(records) < cap(records) && len(s.changed) > 0 {
		records = append(records, s.record(s.changed[0], s.changed[0].Object.(T)))
		s.changed = s.changed[1:]
	}
	if len(records) < cap(records) && s.origin == OriginInitial && !s.more && !s.ended {
		records = append(records, record[T]{kind: recordTold, since: s.since})
		s.ended = true
	}
	if len(records) < cap(records) && s.marker && !s.more {
		records = append(records, record[T]{kind: recordMarker, since: s.since})
		s.marker = false
	}
	if len(records) < cap(records) && s.version != "" && !s.more {
		records = append(records, record[T]{kind: recordVersion, key: s.version, since: s.since})
		s.version = ""
	}
	if len(records) == 0 {
		return segment[T]{}, false
	}
	return segment[T]{Records: records, Events: countEvents(records), End: s.end, AsOf: s.end}, true
}

// nextDeletes returns the next part of the inherited deletes, which may be empty. The last part ends at
// the position of the state.
func (s *state[T]) nextDeletes() segment[T] {
	n := min(s.deletes.Len(), maxChunk)
	part := segment[T]{Events: n, End: -1, AsOf: s.end}
	for i := range n {
		stored := s.deletes.At(i)
		key := stored.Key()
		e := Event[T]{Old: stored.Object.(T), From: s.clusterOf(key), Type: EventDeleted, Origin: OriginInitial, FinalStateUnknown: true}
		part.Records = append(part.Records, record[T]{key: key, event: e, since: s.since})
	}
	if s.deletes = s.deletes.From(n); s.deletes.Len() == 0 {
		s.inherit, part.End = false, s.end
	}
	return part
}

// walked returns the next object of the snapshot, or false if that is not a T.
func (s *state[T]) walked() (object.Entry, T, bool) {
	key, raw, _ := s.walk.Next()
	obj, ok := raw.(T)
	return object.Keyed(key, raw), obj, ok
}

// isChanged reports whether the log has an event of a listed object after the position of the state.
func (s *state[T]) isChanged(e object.Entry) bool {
	if len(s.before) == 0 {
		return false
	}
	s.key = e.AppendKey(s.key[:0])
	_, changed := s.before[string(s.key)]
	return changed
}

// untold returns how many events of the pages that were read are not taken yet. Unlike left it is
// exact, but it takes time for each object. The state cannot be used afterwards.
func (s *state[T]) untold() int64 {
	n := s.deletes.Len() + len(s.changed)
	for s.walk.Len() > 0 {
		if _, _, ok := s.walked(); ok {
			n++
		}
	}
	for i := range s.listed.Len() {
		stored := s.listed.At(i)
		if _, ok := stored.Object.(T); ok && !s.isChanged(stored) {
			n++
		}
	}
	return int64(n)
}

func (s *state[T]) record(stored object.Entry, obj T) record[T] {
	key := ""
	if s.keyed {
		key = stored.Key()
	}
	e := Event[T]{New: obj, From: s.clusterOf(key), Type: EventAdded, Origin: s.origin}
	if s.origin == OriginResync {
		e.Type, e.Old = EventUpdated, obj
	}
	return record[T]{key: key, event: e, since: s.since}
}

// clusterOf returns the cluster of a key, or nil if it has none.
func (s *state[T]) clusterOf(key string) *Cluster {
	if !s.clusters {
		return nil
	}
	name, _, found := strings.Cut(key, object.ClusterMark)
	switch {
	case !found: // an earlier informer has left the object in a Durable
		return nil
	case s.from.name() != name:
		s.from = &Cluster{name}
	}
	return s.from
}
