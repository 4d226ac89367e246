package informer

import (
	"context"
	"errors"
	"slices"

	"k8s.io/client-go/tools/cache"
)

// batchSize is how many records a batch may hold: as many as RealFIFO hands out at
// once. It is not bounded by time, as a durable store commits slowly, and what has
// arrived meanwhile is the next batch.
const batchSize = 1000

// batch is what a durable store is to be given in one step: the changes that were
// decided on since the last.
type batch[T Object] struct {
	store   Durable
	changes []change[T]
	next    map[string]T // what there will be, by key; the zero T for nothing

	place    place  // in the history of the source, after the changes
	bookmark string // that the store has

	left []tombstoneID // by what was applied and is still to be told
	over bool          // the informer stops, and something was decided on that is not applied
}

// place is where the store stands in the history of the source.
type place struct {
	version string
	exact   bool // the store is what the source was at that version
	spoiled bool // something of the list that is being taken in could not be
}

// newBatch returns nil if the store is not durable.
func newBatch[T Object](store cache.Store) *batch[T] {
	durable, ok := store.(Durable)
	if !ok {
		return nil
	}
	return &batch[T]{store: durable, next: map[string]T{}}
}

// add takes in a change that was decided on.
func (b *batch[T]) add(c *change[T]) {
	if c.write == writeNothing {
		return
	}
	b.changes = append(b.changes, *c)
	var next T
	if c.write != writeDelete {
		next = c.stored
	}
	b.next[c.key] = next
}

// get returns what there will be under key, unless the batch does not change it.
func (b *batch[T]) get(key string) (obj T, exists, changed bool) {
	var none T
	obj, changed = b.next[key]
	return obj, obj != none, changed
}

// leaves reports whether what was added under key is there after the batch, or without one.
func (b *batch[T]) leaves(key string) bool {
	if b == nil {
		return true
	}
	_, exists, _ := b.get(key)
	return exists
}

// pass notes that an item is done with. A list leads from one exact state to another
// through states that never were; and what could not be taken in is missing until the
// next list.
func (p *place) pass(kind itemKind, broken bool, version string) {
	if broken {
		p.spoil()
	}
	switch kind {
	case itemForget:
		return
	case itemList:
		p.exact, p.spoiled = false, false
	case itemListed:
		p.exact = !p.spoiled && version != "" && version != "0"
	case itemResumed:
		p.exact = true
	default:
		p.exact = p.exact && version != "" // else it is of a list, or nobody knows when it was
	}
	if version != "" {
		p.version = version
	}
}

// spoil notes that something could not be taken in.
func (p *place) spoil() { p.exact, p.spoiled = false, true }

// bookmark returns what the store's bookmark is to be.
func (p place) bookmark() string {
	if !p.exact {
		return ""
	}
	return p.version
}

// transactions returns the changes as the store takes them, and the tombstones that
// they leave.
func (b *batch[T]) transactions() (all []cache.Transaction, left []tombstoneID) {
	for i := range b.changes {
		c := &b.changes[i]
		if c.ends {
			all = append(all, cache.Transaction{Object: c.old, Type: cache.TransactionTypeDelete})
			left = append(left, tombstoneID{c.key, c.old.GetUID()})
		}
		switch {
		case c.write == writeDelete:
		case c.write == writeUpdate && !c.ends:
			all = append(all, cache.Transaction{Object: c.stored, Type: cache.TransactionTypeUpdate})
		default:
			all = append(all, cache.Transaction{Object: c.stored, Type: cache.TransactionTypeAdd})
		}
	}
	return all, left
}

// settle begins the next batch.
func (b *batch[T]) settle() {
	clear(b.changes)
	b.changes = b.changes[:0]
	clear(b.next)
}

// commit gives the batch to the store, with retry. It returns false if ctx ended before
// that was done; then nobody is told any of it.
func (a *applier[T]) commit(ctx context.Context) bool {
	b := a.batch
	if b.over {
		return false // or what follows would pass for all there is
	}
	a.processor.begun.Add(int64(a.done))
	defer b.settle()
	bookmark := b.place.bookmark()
	if len(b.changes) == 0 && bookmark == b.bookmark {
		return true
	}
	key := ""
	if len(b.changes) > 0 {
		key = b.changes[0].key
	}
	if b.over = ctx.Err() != nil; b.over {
		return false
	}
	changes, left := b.transactions()
	refused := false
	err := a.insist(ctx, "apply", key, func() error {
		err := b.store.Apply(ctx, changes, bookmark)
		if refused = errors.Is(err, ErrPermanent) && len(b.changes) > 1; refused {
			return nil // it is not known yet which of them
		}
		return err
	})
	switch {
	case refused:
		a.splitUp(ctx)
	case err == nil:
		b.bookmark = bookmark
		a.doubted = a.doubted && bookmark == ""
		b.left = append(b.left, left...)
		for i := range b.changes {
			a.wrote(ctx, &b.changes[i])
		}
	case errors.Is(err, ErrPermanent):
		a.refused.Add(int64(len(b.changes)))
		a.void()
		b.place.spoil()
	default:
		b.over = true
	}
	return !b.over
}

// splitUp applies the items of a batch that was refused one by one. What was announced
// of the batch has not happened.
func (a *applier[T]) splitUp(ctx context.Context) {
	items := slices.Clone(a.leaving)
	a.leaving = a.leaving[:0]
	a.void()
	a.batch.settle()
	a.distribute()
	for _, it := range items {
		if !a.apply(ctx, it) {
			return
		}
		a.tell(ctx)
	}
}

// void takes back what is done of the records.
func (a *applier[T]) void() {
	for i := range a.records[:a.done] {
		if a.records[i].kind != recordMarker {
			a.records[i] = record[T]{kind: recordVoid}
		}
	}
	a.observed = a.observed[:0]
}
