package informer

import (
	"context"
	"errors"
	"iter"
	"maps"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// plainStore is the storage over a store that is no Durable. Each change is one Add, Update
// or Delete.
type plainStore[T Object] struct {
	*access[T]
	store cache.Store
	// known has the UID of every object that exists, by key. A user's store may be slow to
	// list its keys, cannot report that the listing failed, and may have lost an object that
	// watchers know.
	known map[string]types.UID
}

func newPlainStore[T Object](a *access[T], store cache.Store) *plainStore[T] {
	return &plainStore[T]{access: a, store: store, known: map[string]types.UID{}}
}

// plainPace publishes up to 256 changes together, or the changes begun within 1 ms. No change
// waits for one that is not in the queue yet.
var plainPace = pace{records: maxChunk, time: time.Millisecond, immediate: true}

func (p *plainStore[T]) open(ctx context.Context) (versions map[string]string, ok bool) {
	ok = p.load(ctx, false, func(key string, obj T) { p.note(key, obj.GetUID()) })
	p.countKnown()
	return nil, ok
}

func (p *plainStore[T]) hasForeign() bool { return p.example != nil }

func (p *plainStore[T]) find(ctx context.Context, it *item[T], now time.Duration) (stored found[T], err error) {
	stored.obj, stored.exists, err = p.get(ctx, it.key, now)
	stored.uid, stored.known = p.known[it.key]
	return stored, err
}

// write makes the change, with retry.
func (p *plainStore[T]) write(ctx context.Context, c *change[T], now time.Duration) outcome {
	if c.write != writeNothing {
		op := c.write.String()
		err := p.attempt(op, c.key, now, 1, func() error { return p.try(c.write, c.after) })
		if err != nil {
			p.flush(ctx)
			err = p.repeat(ctx, op, c.key, err, func() error { return p.tryAgain(c) })
		}
		switch {
		case errors.Is(err, ErrPermanent):
			p.refused.Add(1)
			return refused
		case err != nil:
			return stopped
		}
	}
	switch {
	case c.kind != itemUpsert:
		delete(p.known, c.key)
	case !c.stored.known || c.stored.uid != c.obj.GetUID():
		p.note(c.key, c.obj.GetUID())
	}
	p.wrote(ctx, c, false)
	p.countKnown()
	if p.lost != nil {
		return stopped
	}
	return written
}

// countKnown corrects the number of objects: the store of a user may have lost some, or
// have listed some twice.
func (p *plainStore[T]) countKnown() {
	p.objects.Store(int64(len(p.known)))
}

func (p *plainStore[T]) note(key string, uid types.UID) {
	p.known[key] = uid
}

// try makes one attempt at a write.
func (p *plainStore[T]) try(w write, obj T) error {
	switch w {
	case writeAdd:
		return p.store.Add(obj)
	case writeUpdate:
		return p.store.Update(obj)
	default:
		return p.store.Delete(obj)
	}
}

// tryAgain makes a further attempt. The failed attempt may have taken effect anyway. A store
// may reject an add of an object that it has, and an update or a delete of an object that it
// lacks. So tryAgain reads the object first, and chooses the write that fits. If the store
// refuses the read, tryAgain repeats the write unchanged.
func (p *plainStore[T]) tryAgain(c *change[T]) error {
	stored, exists, err := p.store.GetByKey(c.key)
	switch {
	case errors.Is(err, ErrPermanent):
		return p.try(c.write, c.after)
	case err != nil:
		return err
	case c.write != writeDelete && exists:
		err := p.try(writeUpdate, c.after)
		if errors.Is(err, ErrPermanent) && c.madeOf(stored) {
			return nil // the store refuses the write now, but took it in an earlier attempt
		}
		return err
	case c.write != writeDelete:
		return p.try(writeAdd, c.after)
	case exists:
		return p.try(writeDelete, c.after)
	}
	return nil
}

// madeOf reports whether stored was written by an earlier, failed attempt at the change. For
// an add that is certain, because there was no object before.
func (c *change[T]) madeOf(stored any) bool {
	obj, ok := stored.(T)
	return ok && (c.write == writeAdd || sameVersion(obj, c.after) || reflect.DeepEqual(obj, c.after))
}

func (p *plainStore[T]) commit(context.Context) outcome { return written }
func (p *plainStore[T]) forget(context.Context)         {}
func (p *plainStore[T]) close(context.Context)          {}

// told gives the version to the store as a bookmark.
func (p *plainStore[T]) told(_ int64, version string) {
	if version == "" {
		return
	}
	p.call.Begin("bookmark", "", p.clock.Now())
	p.store.Bookmark(version)
	p.call.End()
}

func (p *plainStore[T]) keys(context.Context, string) iter.Seq[string] {
	return maps.Keys(p.known)
}
