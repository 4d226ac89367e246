package informer

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer/internal/object"
	"github.com/customcacheinformer/informer/internal/stopwatch"
	"github.com/customcacheinformer/informer/internal/tombstone"
)

// durablePace limits a batch to as many records as RealFIFO returns items at once. There is no
// limit in time: a durable store commits slowly, and the items that arrive during a commit form
// the next batch.
var durablePace = pace{records: 1000, time: math.MaxInt64}

// durableStore is the storage over a Durable. It collects changes in a batch, and gives
// them to the store in one Apply, with the bookmark that is true after them.
type durableStore[T Object] struct {
	*access[T]
	durable    Durable
	tombstones *tombstone.Set
	// forgettable returns the tombstones that every watcher has handled.
	forgettable func() map[string][]types.UID

	batch []change[T]
	next  map[string]T // what the store will have after the batch, by key; the zero T for a deleted object

	intakes  []*intake[T]
	bookmark string         // the bookmark that the store has now
	foreign  bool           // the store may hold objects of namespaces that the informer does not read
	deleted  []tombstone.ID // tombstones of committed deletes that are not in the log yet
	over     bool           // ctx has ended before a decided change was committed
}

func newDurableStore[T Object](a *access[T], durable Durable, intakes []*intake[T], tombstones *tombstone.Set, forgettable func() map[string][]types.UID) *durableStore[T] {
	return &durableStore[T]{access: a, durable: durable, intakes: intakes, tombstones: tombstones, forgettable: forgettable, next: map[string]T{}}
}

// open reads the bookmark and the tombstones. It reads all objects only if the informer must
// index them. If the store has indexes of its own, open reads only the first page.
func (d *durableStore[T]) open(ctx context.Context) bool {
	return d.recall(ctx) && d.load(ctx, d.index.Native(), func(string, T) {})
}

func (d *durableStore[T]) hasForeign() bool { return d.foreign }

// recall reads the bookmark and the tombstones.
func (d *durableStore[T]) recall(ctx context.Context) bool {
	var tombs []any
	if !d.insistOnReading(ctx, "resume", func() (err error) { d.bookmark, err = d.durable.Resume(ctx); return err }) ||
		!d.insistOnReading(ctx, "tombstones", func() (err error) { tombs, err = d.durable.Tombstones(ctx); return err }) {
		return false
	}
	d.foreign = d.readBookmark()
	var ids []tombstone.ID
	for _, stored := range tombs {
		obj, err := object.As[T](stored)
		if err != nil {
			d.report(ctx, &ObjectError{Op: "store", Err: fmt.Errorf("a tombstone: %w", err)})
			continue
		}
		ids = append(ids, tombstone.ID{Key: object.Key(obj), UID: obj.GetUID()})
	}
	d.tombstones.Add(ids, 0)
	return true
}

func (d *durableStore[T]) find(ctx context.Context, it *item[T], now time.Duration) (stored found[T], err error) {
	stored.doubtful = it.from.place.doubtful
	if obj, changed := d.next[it.key]; changed {
		var none T
		stored.obj, stored.exists = obj, obj != none
		return stored, nil
	}
	stored.obj, stored.exists, err = d.get(ctx, it.key, now)
	if errors.Is(err, ErrPermanent) {
		it.from.place.spoil()
	}
	return stored, err
}

// write adds the change to the batch.
func (d *durableStore[T]) write(_ context.Context, c *change[T], _ time.Duration) outcome {
	if c.restored {
		c.from.place.doubtful = true
	}
	if c.write == writeNothing {
		return written
	}
	d.batch = append(d.batch, *c)
	var next T
	if c.write != writeDelete {
		next = c.after
	}
	d.next[c.key] = next
	return written
}

func (d *durableStore[T]) pass(it *item[T]) {
	if it.kind == itemCleaned {
		d.foreign = false
	}
	it.from.place.pass(it.kind, it.broken && it.kind != itemDelete, it.rv)
}

// commit gives the batch to the store, with retry. Once it has returned stopped, it never
// calls Apply again: a later bookmark would cover the lost changes of this batch.
func (d *durableStore[T]) commit(ctx context.Context) outcome {
	if d.over {
		return stopped
	}
	defer d.clear()
	bookmark := d.nextBookmark()
	if len(d.batch) == 0 && bookmark == d.bookmark {
		return written
	}
	if d.over = ctx.Err() != nil; d.over {
		return stopped
	}
	key := ""
	if len(d.batch) > 0 {
		key = d.batch[0].key
	}
	transactions, deleted := d.transactions()
	mustSplit := false
	err := d.insist(ctx, "apply", key, func() error {
		err := d.durable.Apply(ctx, transactions, bookmark)
		if mustSplit = errors.Is(err, ErrPermanent) && len(d.batch) > 1; mustSplit {
			return nil // it is not known yet which change the store refuses
		}
		return err
	})
	switch {
	case mustSplit:
		return split
	case errors.Is(err, ErrPermanent):
		d.refused.Add(int64(len(d.batch)))
		for i := range d.batch {
			d.batch[i].from.place.spoil()
		}
		return refused
	case err != nil:
		d.over = true
		return stopped
	}
	d.bookmark = bookmark
	for _, from := range d.intakes {
		from.place.doubtful = from.place.doubtful && (bookmark == "" || from.place.bookmark() == "")
	}
	d.deleted = append(d.deleted, deleted...)
	var none T
	for i := range d.batch {
		c := &d.batch[i]
		d.wrote(ctx, c, d.next[c.key] == none)
	}
	return written
}

// clear empties the batch.
func (d *durableStore[T]) clear() {
	clear(d.batch)
	d.batch = d.batch[:0]
	clear(d.next)
}

// transactions returns the batch in the form that Apply takes, and the tombstones that it
// creates.
func (d *durableStore[T]) transactions() (all []cache.Transaction, deleted []tombstone.ID) {
	for i := range d.batch {
		c := &d.batch[i]
		if c.ends {
			all = append(all, cache.Transaction{Object: c.stored.obj, Type: cache.TransactionTypeDelete})
			deleted = append(deleted, tombstone.ID{Key: c.key, UID: c.stored.obj.GetUID()})
		}
		switch {
		case c.write == writeDelete:
		case c.write == writeUpdate && !c.ends:
			all = append(all, cache.Transaction{Object: c.after, Type: cache.TransactionTypeUpdate})
		default:
			all = append(all, cache.Transaction{Object: c.after, Type: cache.TransactionTypeAdd})
		}
	}
	return all, deleted
}

// told notes the log position of the committed deletes. Their tombstones can be removed once
// every watcher has handled that position.
func (d *durableStore[T]) told(position int64, _ string) {
	d.tombstones.Add(d.deleted, position)
	d.deleted = d.deleted[:0]
}

// keys reads the store page by page, with retry.
func (d *durableStore[T]) keys(ctx context.Context) iter.Seq[string] {
	return func(yield func(string) bool) {
		for after, more := "", true; more; {
			objs, last, ok := d.page(ctx, after)
			if !ok {
				return
			}
			for _, stored := range objs {
				if m, err := object.Meta(stored); err == nil && !yield(object.Key(m)) {
					return
				}
			}
			after, more = last, last != ""
		}
	}
}

// forget removes the tombstones that every watcher has handled.
func (d *durableStore[T]) forget(ctx context.Context) {
	passed := d.forgettable()
	if len(passed) == 0 {
		return // a watcher has registered in the meantime
	}
	if d.insist(ctx, "forget", "", func() error { return d.durable.Forget(ctx, passed) }) == nil {
		d.tombstones.Remove(passed)
	}
}

// close makes one attempt to forget tombstones. The next start delivers the deletes of the
// tombstones that are left.
func (d *durableStore[T]) close(ctx context.Context) {
	passed := d.forgettable()
	if len(passed) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopwatch.HungCall)
	defer cancel()
	err := d.attempt("forget", "", d.clock.Now(), 1, func() error { return d.durable.Forget(ctx, passed) })
	if err != nil {
		d.report(ctx, &StoreError{Op: "forget", Failures: 1, GaveUp: true, Err: err})
	}
}
