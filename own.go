package informer

import (
	"context"
	"iter"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer/internal/memory"
	"github.com/customcacheinformer/informer/internal/object"
)

// ownStore is the storage over the informer's own store. It collects changes in a batch, and commit applies them in
// one step. Each state of the store belongs to a position of the log, and a snapshot has both.
type ownStore[T Object] struct {
	*access[T]
	store    *memory.Store
	source   func(key string) string
	moment   func() moment // after the batch
	at       moment        // after the last batch
	bookmark func(version string)

	changes []memory.Change // the batch
	next    map[string]int  // the last of changes[:noted] for each key
	noted   int

	// inserts is true until a key of a first list is found in the store. Until then, objects of first lists
	// are not looked up.
	inserts bool

	// These fields are for calling index functions again that have failed.
	mu     sync.Mutex
	timer  *time.Timer // nil if none has failed
	pause  time.Duration
	opened bool
	ctx    context.Context // of open
	asking sync.WaitGroup
}

// newMemory returns a new store of the informer's own, and the cache.Store with which the program uses it. failed is
// called with the errors of index functions for objects that the program writes.
func newMemory(source func(key string) string, failed func(memory.Ref, []error)) (*memory.Store, cache.Store, error) {
	own, err := memory.New(nil)
	if err != nil {
		return nil, nil, err
	}
	return own, memory.NewIndexer(own, memory.IndexerOptions{KeyFunc: object.CacheKey, Source: source, Failed: failed}), nil
}

// moment describes a state of the own store.
type moment struct {
	end int64 // the log position whose state it is
	// versions has for each source the version at which it was exactly in this state, or "" if there is none. It is
	// nil if the queue does not keep the order of the source.
	versions []string
}

func (m moment) is(other moment) bool {
	return m.end == other.end && slices.Equal(m.versions, other.versions)
}

// version returns the version of the state if there is exactly one source, and otherwise "".
func (m moment) version() string {
	if len(m.versions) != 1 {
		return ""
	}
	return m.versions[0]
}

func momentOf(v *memory.Snapshot) moment {
	if m, ok := v.At().(*moment); ok {
		return *m
	}
	return moment{}
}

// ownPace publishes up to 256 changes together, or the changes begun within 1 ms. No change waits for a change that
// is not in the queue yet.
var ownPace = pace{records: maxChunk, time: time.Millisecond}

// partTime is how long the store should take to write a part of a first list. If it writes more objects at once, it
// copies fewer of its nodes. But a stop waits until a part is written.
const partTime = 20 * time.Millisecond

// open finds the objects that the program has put into the store before Run.
func (o *ownStore[T]) open(ctx context.Context) (versions map[string]string, ok bool) {
	ok = o.load(ctx, false, func(string, T) {})
	o.inserts = o.example == nil
	o.mu.Lock()
	o.opened, o.ctx = true, ctx
	o.mu.Unlock()
	for r, errs := range o.store.Failed() {
		o.indexed(ctx, r.Key, errs)
	}
	return nil, ok
}

func (o *ownStore[T]) hasForeign() bool { return o.example != nil }

func (o *ownStore[T]) find(ctx context.Context, it *item[T], _ time.Duration) (stored found[T], err error) {
	if o.inserted(it) {
		return stored, nil
	}
	n, pending := o.pending(it.key)
	if pending && o.changes[n].Insert { // it may be left out
		if o.flush(ctx); ctx.Err() != nil {
			return stored, ctx.Err()
		}
		n, pending = o.pending(it.key)
	}
	var raw any
	if !pending {
		raw, _ = o.store.Part(o.source(it.key)).Get(it.key)
	} else if c := &o.changes[n]; !c.Delete {
		raw = c.Object
	}
	stored.obj, stored.exists = raw.(T) // another type counts as absent: open has reported it
	return stored, nil
}

// inserted reports whether an object of a first list is stored without looking up its key. commit finds out whether
// the key was taken.
func (o *ownStore[T]) inserted(it *item[T]) bool {
	return o.inserts && it.listed && it.kind == itemUpsert && !it.broken && it.scope.isLate()
}

// pending returns the index in the batch of the last change of a key, or false if there is none.
func (o *ownStore[T]) pending(key string) (n int, exists bool) {
	for ; o.noted < len(o.changes); o.noted++ {
		o.next[o.changes[o.noted].Key] = o.noted
	}
	n, exists = o.next[key]
	return n, exists
}

// write adds the change to the batch.
func (o *ownStore[T]) write(_ context.Context, c *change[T], _ time.Duration) outcome {
	if c.write != writeNothing {
		o.changes = append(o.changes, memory.Change{
			Part: o.store.Part(o.source(c.key)), Key: c.key, Object: c.after, Delete: c.write == writeDelete, Insert: o.inserted(c.item),
		})
	}
	return written
}

// commit applies the batch. The new state of the store belongs to the log position after the batch.
func (o *ownStore[T]) commit(ctx context.Context) outcome {
	at := o.moment()
	if len(o.changes) == 0 && at.is(o.at) {
		return written
	}
	o.at = at
	if len(o.changes) == 0 {
		o.store.Apply(nil, &at)
		return written
	}
	_ = o.attempt("apply", o.changes[0].Key, o.clock.Now(), 1, func() error {
		o.store.Apply(o.changes, &at)
		return nil
	})
	result := written
	for i := range o.changes {
		if o.changes[i].Kept() {
			o.inserts, result = false, kept
		} else {
			o.wrote(ctx, &o.changes[i])
		}
	}
	if result == written {
		o.empty()
	}
	return result
}

// empty begins the next batch.
func (o *ownStore[T]) empty() {
	clear(o.changes)
	clear(o.next)
	o.changes, o.noted = o.changes[:0], 0
}

// wrote reports the errors of index functions after a change.
func (o *ownStore[T]) wrote(ctx context.Context, c *memory.Change) {
	if c.Delete {
		o.reports.ended(ctx, "index", c.Key, false)
	} else {
		o.indexed(ctx, c.Key, c.Failed)
	}
}

// indexed reports the errors of the index functions for an object. If there are any, the functions are called again
// later, with growing pauses, because their results may depend on more than the object.
func (o *ownStore[T]) indexed(ctx context.Context, key string, errs []error) {
	o.reportIndex(ctx, key, errs)
	if len(errs) == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.timer == nil && o.opened {
		o.pause = time.Second
		o.asking.Add(1)
		o.timer = time.AfterFunc(o.pause, o.askAgain)
	}
}

// maxAskPause is the longest pause before failed index functions are called again.
const maxAskPause = time.Minute

func (o *ownStore[T]) askAgain() {
	for r := range o.store.Failed() {
		if !o.isOpen() {
			break
		}
		errs := o.store.Part(r.Source).Reindex(r.Key)
		o.reportIndex(o.ctx, r.Key, errs)
		if now := o.store.Failure(r); (len(now) > 0) != (len(errs) > 0) { // there was a write between
			o.reportIndex(o.ctx, r.Key, now)
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.opened || len(o.store.Failed()) == 0 {
		o.timer = nil
		o.asking.Done()
		return
	}
	o.pause = min(2*o.pause, maxAskPause)
	o.timer.Reset(o.pause)
}

func (o *ownStore[T]) isOpen() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.opened
}

func (o *ownStore[T]) stored() int { return o.store.Now().Entries().Len() }

func (o *ownStore[T]) drop(of *scope) {
	o.access.drop(of)
	o.store.Part(of.name()).Drop()
}

func (o *ownStore[T]) close(context.Context) {
	o.mu.Lock()
	o.opened = false
	if o.timer != nil && o.timer.Stop() {
		o.asking.Done()
	}
	o.mu.Unlock()
	o.asking.Wait()
}

func (o *ownStore[T]) forget(context.Context) {}

// published gives the version to the store as a bookmark.
func (o *ownStore[T]) published(version string) {
	if version != "" {
		o.bookmark(version)
	}
}

// trim releases the memory of a large batch that was committed.
func (o *ownStore[T]) trim() { o.changes, o.next, o.noted = nil, map[string]int{}, 0 }

func (o *ownStore[T]) keys(_ context.Context, prefix string) iter.Seq[string] {
	v := o.store.Snapshot()
	if prefix != "" {
		v = v.In(o.source(prefix))
	}
	return slices.Values(v.Entries().Keys())
}

// takeKept returns, for each key, how many of its last inserts the store has left out. It then begins the next
// batch.
func (o *ownStore[T]) takeKept() map[string]int {
	kept := map[string]int{}
	for i := range o.changes {
		if c := &o.changes[i]; c.Kept() {
			kept[c.Key]++
		}
	}
	o.empty()
	return kept
}
