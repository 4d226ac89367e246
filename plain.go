package informer

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"maps"
	"reflect"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// plainStore is the storage over a cache.Store of the program. Each change is one Add, Update or Delete.
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

// plainPace publishes up to 256 changes together, or the changes begun within 1 ms. No change waits for a
// change that is not in the queue yet.
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

// write makes the change. It retries until the store takes or refuses it, or ctx ends.
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

// countKnown sets the number of objects to that of the known keys, because a store of the program may have
// lost objects, or have listed some twice.
func (p *plainStore[T]) countKnown() {
	p.objects.Store(int64(len(p.known)))
}

func (p *plainStore[T]) note(key string, uid types.UID) {
	p.known[key] = uid
}

// try makes one attempt at a write of obj.
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

// tryAgain makes another attempt after a failure. The failed attempt may have taken effect anyway, and a
// store may reject an add of an object that it has, or an update or a delete of an object that it lacks. So
// tryAgain reads the object first, and chooses the write that fits. If the store refuses the read, tryAgain
// repeats the write unchanged.
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

// madeOf reports whether an earlier attempt at the change that failed has nevertheless written stored. For
// an add that is certain, because there was no object before.
func (c *change[T]) madeOf(stored any) bool {
	obj, ok := stored.(T)
	return ok && (c.write == writeAdd || sameVersion(obj, c.after) || reflect.DeepEqual(obj, c.after))
}

func (p *plainStore[T]) commit(context.Context) outcome { return written }
func (p *plainStore[T]) forget(context.Context)         {}
func (p *plainStore[T]) close(context.Context)          {}

// published gives the version to the store as a bookmark.
func (p *plainStore[T]) published(version string) {
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

// sinkStore is the Options.Store of an informer over a Sink. Its cache.Store stays empty.
type sinkStore[T Object] struct {
	cache.Store
	sink Sink[T]
}

// String returns the type of the sink, which Health shows.
func (s sinkStore[T]) String() string { return fmt.Sprintf("%T", s.sink) }

// sinkStorage is the storage over a Sink.
type sinkStorage[T Object] struct {
	*access[T]
	sink  Sink[T]
	known identities
	odd   map[string]oddIdentity // of the keys whose identity is zero
	found T                      // in place of the object that find has found; no code keeps it
}

// identities holds the identity of each object that the sink has, by key. A map of small values and a list take less memory
// than a map of identities.
type identities struct {
	places map[string]uint32
	chunks [][]identity
	free   []uint32 // places without a key
}

// identitiesPerChunk is how many identities are in one piece of memory.
const identitiesPerChunk = 1024

func (i *identities) at(place uint32) *identity {
	return &i.chunks[place/identitiesPerChunk][place%identitiesPerChunk]
}

func (i *identities) get(key string) (identity, bool) {
	place, ok := i.places[key]
	if !ok {
		return identity{}, false
	}
	return *i.at(place), true
}

func (i *identities) set(key string, id identity) {
	place, ok := i.places[key]
	switch n := len(i.free); {
	case ok:
	case n > 0:
		place, i.free = i.free[n-1], i.free[:n-1]
	default:
		place = uint32(len(i.places))
		if place%identitiesPerChunk == 0 {
			i.chunks = append(i.chunks, make([]identity, identitiesPerChunk))
		}
	}
	i.places[key], *i.at(place) = place, id
}

func (i *identities) remove(key string) {
	if place, ok := i.places[key]; ok {
		i.free = append(i.free, place)
		delete(i.places, key)
	}
}

// identity is the UID and the version of an object, as an API server makes them. It is zero if they have
// another form.
type identity struct {
	uid     [16]byte
	version uint64
}

type oddIdentity struct {
	uid     types.UID
	version string
}

func newSinkStorage[T Object](a *access[T], sink Sink[T], found T) *sinkStorage[T] {
	return &sinkStorage[T]{access: a, sink: sink, known: identities{places: map[string]uint32{}}, odd: map[string]oddIdentity{}, found: found}
}

func (s *sinkStorage[T]) open(context.Context) (versions map[string]string, ok bool) {
	return nil, true
}

func (s *sinkStorage[T]) hasForeign() bool { return false }

func (s *sinkStorage[T]) find(_ context.Context, it *item[T], _ time.Duration) (stored found[T], err error) {
	id, exists := s.known.get(it.key)
	if !exists {
		return stored, nil
	}
	uid, version := s.odd[it.key].uid, s.odd[it.key].version
	if id != (identity{}) {
		uid, version = id.text()
	}
	identify(s.found, it.key, uid)
	s.found.SetResourceVersion(version)
	return found[T]{obj: s.found, exists: true, known: true, uid: uid}, nil
}

func (s *sinkStorage[T]) write(ctx context.Context, c *change[T], now time.Duration) outcome {
	if c.ends || c.write == writeDelete {
		err := s.do(ctx, "remove", c.key, now, func() error { return s.sink.Remove(ctx, c.key, c.stored.uid) })
		if err != nil {
			return s.failed(err)
		}
		s.known.remove(c.key)
		delete(s.odd, c.key)
	}
	if c.write == writeAdd || c.write == writeUpdate {
		if err := s.do(ctx, "put", c.key, now, func() error { return s.sink.Put(ctx, c.key, c.after) }); err != nil {
			return s.failed(err)
		}
		s.note(c.key, c.after.GetUID(), c.after.GetResourceVersion())
	}
	s.objects.Store(int64(len(s.known.places)))
	return written
}

// do repeats call until it succeeds, the sink refuses it, or ctx ends.
func (s *sinkStorage[T]) do(ctx context.Context, op, key string, now time.Duration, call func() error) error {
	err := s.attempt(op, key, now, 1, call)
	if err != nil {
		s.flush(ctx)
		err = s.repeat(ctx, op, key, err, call)
	}
	return err
}

func (s *sinkStorage[T]) failed(err error) outcome {
	s.objects.Store(int64(len(s.known.places)))
	if errors.Is(err, ErrPermanent) {
		s.refused.Add(1)
		return refused
	}
	return stopped
}

func (s *sinkStorage[T]) note(key string, uid types.UID, version string) {
	id, ok := pack(uid, version)
	s.known.set(key, id)
	if ok {
		delete(s.odd, key)
	} else {
		s.odd[key] = oddIdentity{uid, version}
	}
}

// pack returns an identity for which text returns uid and version, or the zero identity and false if there
// is none.
func pack(uid types.UID, version string) (id identity, ok bool) {
	var err error
	if id.version, err = strconv.ParseUint(version, 10, 64); err != nil || len(uid) != 36 {
		return identity{}, false
	}
	digits := string(uid[:8] + uid[9:13] + uid[14:18] + uid[19:23] + uid[24:])
	if _, err = hex.Decode(id.uid[:], []byte(digits)); err != nil {
		return identity{}, false
	}
	if again, v := id.text(); id == (identity{}) || again != uid || v != version {
		return identity{}, false
	}
	return id, true
}

func (id identity) text() (types.UID, string) {
	h := hex.EncodeToString(id.uid[:])
	return types.UID(h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]), strconv.FormatUint(id.version, 10)
}

func (s *sinkStorage[T]) keys(context.Context, string) iter.Seq[string] {
	return maps.Keys(s.known.places)
}

func (s *sinkStorage[T]) commit(context.Context) outcome { return written }
func (s *sinkStorage[T]) published(string)               {}
func (s *sinkStorage[T]) forget(context.Context)         {}
func (s *sinkStorage[T]) close(context.Context)          {}
