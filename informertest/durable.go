package informertest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
)

// ErrCrashed is wrapped by the errors of all operations of a [Durable] that has
// crashed.
var ErrCrashed = errors.New("the process that has the store has crashed")

// Durable is an [informer.Durable] in memory, to test what becomes of an informer
// that is stopped or crashes and begins anew. It is what one process has of its
// store: Crash ends that process, and Reopen returns what the next one finds.
//
//	d := informertest.NewDurable()
//	d.FailAfter(func(op, _ string) error {
//		if op == "apply" && d.Calls(op) == 3 {
//			d.Crash() // the third Apply has taken effect, but nobody learns of it
//		}
//		return nil
//	})
//	… // run an informer, and stop it
//	next := d.Reopen()
//	… // run another one
//
// With Fail in the place of FailAfter it crashes before the effect. What is stored can
// be looked at with Resume, List and Tombstones, after a crash those of what Reopen
// returns.
//
// It is always strict. These are errors that name the operation and the key, and have
// no effect: an Apply or Forget while another one is under way; an Apply that is not
// the one before it, if that has failed with anything but [informer.ErrPermanent] and
// Resume was not called since; a Delete, in an Apply, of an object with another UID
// than the one that is stored, unless there is a tombstone of it already; a change of
// an unknown type; a Scan with a limit less than 1; and to hand in nil, a
// [cache.DeletedFinalStateUnknown], what is no API object, or has no name. Err returns
// the first of them, also of the Durables that this one was reopened from.
//
// Its operations are, as Fail, FailAfter and Calls name them, "resume", "scan",
// "apply", "tombstones", "forget", "get" (Get and GetByKey), "add", "update",
// "delete", "list", "list keys", "replace", "resync", "bookmark" and "last version"
// (LastStoreSyncResourceVersion). The key of "scan" is the one that it begins after,
// and that of "apply" the one of the first change. Those that are given a ctx return
// its error once it has ended, also while they wait for Hang or Delay.
//
// It hands out the very objects that it was given; the next process finds copies.
// Add, Update, Delete and Replace take what is there and what is not, as those of
// client-go's stores do. It is no [cache.Indexer]. All methods may be called from any
// goroutine at any time. It starts no goroutine and takes time only from package time;
// to use it in a testing/synctest bubble, make or reopen it there. A Durable is made
// by [NewDurable] or Reopen and must not be copied.
type Durable struct {
	storeFaults

	state   sync.Mutex // protects the rest; held for no longer than an effect takes
	crashed bool
	now     contents
	lose    int        // how many writes a crash takes along
	past    []contents // what there was before each of those
	failed  *attempt   // an Apply that must be made again
}

var _ informer.Durable = (*Durable)(nil)

// NewDurable returns a store that holds nothing and has no bookmark. To fill it
// before an informer begins, use Add or Apply.
func NewDurable() *Durable {
	return &Durable{now: contents{objects: map[string]any{}, tombstones: map[identity]any{}}}
}

// Crash ends the process that has the store: every operation fails from now on, and
// so do, without effect, those that wait. List and ListKeys, which cannot fail, return
// nothing. What took effect stays, but for what LoseOnCrash says. The functions that
// Fail and FailAfter were given may call it. It ends what they, Hang and Delay have
// begun, and does not block.
func (d *Durable) Crash() {
	d.state.Lock()
	defer d.state.Unlock()
	if !d.crashed && len(d.past) > 0 {
		d.now = d.past[0]
	}
	d.crashed, d.past = true, nil
	d.Heal()
}

// LoseOnCrash lets a crash take along the last n writes, of those that are made from
// now on, as a store does that commits several at once: what is found then is what
// there was before them. A write is an Apply, Forget, Add, Update, Delete or Replace
// that took effect. n is 0 by default. See informer.Durable for what an informer misses then. What was written before a call is safe: call it
// with 0 before Reopen for what a process leaves that ends well. With an n that is not
// 0 a write takes as long as to copy a map of all that is stored. It does not block.
func (d *Durable) LoseOnCrash(n int) {
	d.state.Lock()
	defer d.state.Unlock()
	d.lose, d.past = n, nil
}

// Reopen returns what the next process finds after a Crash, which it calls. The
// objects in it are copies, and nothing that was wrong with this store is with that
// one. Each call returns a store of its own. It does not block.
func (d *Durable) Reopen() *Durable {
	d.Crash()
	d.state.Lock()
	defer d.state.Unlock()
	next := &Durable{now: d.now.copied()}
	next.misuse = d.Err()
	return next
}

// Resume returns the bookmark.
func (d *Durable) Resume(ctx context.Context) (resourceVersion string, err error) {
	err = d.operate(ctx, "resume", "", func() error {
		resourceVersion, d.failed = d.now.bookmark, nil
		return nil
	})
	if err != nil {
		return "", err
	}
	return resourceVersion, nil
}

// Scan returns objects in the order of their keys.
func (d *Durable) Scan(ctx context.Context, after string, limit int) (objs []any, err error) {
	err = d.operate(ctx, "scan", after, func() error {
		if limit < 1 {
			return d.refuse("scan", after, fmt.Errorf("the limit is %d, less than 1", limit))
		}
		objs = d.now.scan(after, limit)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return objs, nil
}

// Apply makes changes and sets the bookmark.
func (d *Durable) Apply(ctx context.Context, changes []cache.Transaction, bookmark string) error {
	key := ""
	if len(changes) > 0 {
		key, _ = storable(changes[0].Object)
	}
	asked := &attempt{changes: slices.Clone(changes), bookmark: bookmark}
	err := d.alone(ctx, "apply", key, func() error {
		err := d.now.check(changes)
		if err == nil && !d.failed.allows(asked) {
			err = errors.New("the one before it has failed and must be made again")
		}
		if err != nil {
			return d.refuse("apply", key, err)
		}
		d.keepPast()
		d.now.apply(changes, bookmark)
		return nil
	})
	d.noteApply(asked, err)
	return err
}

// Tombstones returns all tombstones.
func (d *Durable) Tombstones(ctx context.Context) (objs []any, err error) {
	err = d.operate(ctx, "tombstones", "", func() error {
		objs = slices.Collect(maps.Values(d.now.tombstones))
		return nil
	})
	if err != nil {
		return nil, err
	}
	return objs, nil
}

// Forget removes tombstones.
func (d *Durable) Forget(ctx context.Context, tombstones map[string][]types.UID) error {
	return d.alone(ctx, "forget", "", func() error {
		d.keepPast()
		for key, uids := range tombstones {
			for _, uid := range uids {
				delete(d.now.tombstones, identity{key, uid})
			}
		}
		return nil
	})
}

// Add stores an object. As all writes but Apply and Forget, it removes the bookmark.
func (d *Durable) Add(obj any) error {
	return d.write("add", obj, func(key string) { d.now.set(key, obj) })
}

// Update stores an object.
func (d *Durable) Update(obj any) error {
	return d.write("update", obj, func(key string) { d.now.set(key, obj) })
}

// Delete removes an object, and keeps no tombstone.
func (d *Durable) Delete(obj any) error {
	return d.write("delete", obj, func(key string) { d.now.remove(key) })
}

// Get returns what is stored under the key of obj.
func (d *Durable) Get(obj any) (item any, exists bool, err error) {
	key, wrong := storable(obj)
	return d.get(key, wrong)
}

// GetByKey returns what is stored under a key.
func (d *Durable) GetByKey(key string) (item any, exists bool, err error) { return d.get(key, nil) }

// List returns all objects, in the order of their keys.
func (d *Durable) List() (objs []any) {
	d.look("list", func() { objs = d.now.scan("", len(d.now.keys)) })
	return objs
}

// ListKeys returns the keys of all objects, in order.
func (d *Durable) ListKeys() (keys []string) {
	d.look("list keys", func() { keys = slices.Clone(d.now.keys) })
	return keys
}

// Replace stores the objects of a list in place of all others. It removes the bookmark,
// while the tombstones stay.
func (d *Durable) Replace(objs []any, _ string) error {
	return d.operate(context.Background(), "replace", "", func() error {
		for _, obj := range objs {
			if key, err := storable(obj); err != nil {
				return d.refuse("replace", key, err)
			}
		}
		d.keepPast()
		d.now.keys, d.now.objects, d.now.bookmark = nil, map[string]any{}, ""
		for _, obj := range objs {
			key, _ := storable(obj)
			d.now.set(key, obj)
		}
		return nil
	})
}

// Resync does nothing.
func (d *Durable) Resync() error {
	return d.operate(context.Background(), "resync", "", func() error { return nil })
}

// Bookmark does nothing: the bookmark that Resume returns is set by Apply alone.
func (d *Durable) Bookmark(string) { d.look("bookmark", func() {}) }

// LastStoreSyncResourceVersion returns "".
func (d *Durable) LastStoreSyncResourceVersion() string {
	d.look("last version", func() {})
	return ""
}

// operate makes an operation that can fail. effect is called with state locked.
func (d *Durable) operate(ctx context.Context, op, key string, effect func() error) error {
	err := d.do(ctx, op, key, func() error {
		d.state.Lock()
		defer d.state.Unlock()
		if d.crashed {
			return ErrCrashed
		}
		return effect()
	})
	d.state.Lock()
	defer d.state.Unlock()
	if d.crashed {
		return fmt.Errorf("informertest: %s of %q: %w", op, key, ErrCrashed)
	}
	return err
}

// alone makes an operation that must not be under way twice, nor beside another one
// of them.
func (d *Durable) alone(ctx context.Context, op, key string, effect func() error) error {
	const what = "apply or forget"
	free := d.claim(what)
	if free {
		defer d.unclaim(what)
	}
	return d.operate(ctx, op, key, func() error {
		if !free {
			return d.refuse(op, key, errors.New("another Apply or Forget is under way"))
		}
		return effect()
	})
}

// write makes an operation that writes one object.
func (d *Durable) write(op string, obj any, effect func(key string)) error {
	key, wrong := storable(obj)
	return d.operate(context.Background(), op, key, func() error {
		if wrong != nil {
			return d.refuse(op, key, wrong)
		}
		d.keepPast()
		effect(key)
		d.now.bookmark = ""
		return nil
	})
}

func (d *Durable) get(key string, wrong error) (item any, exists bool, err error) {
	err = d.operate(context.Background(), "get", key, func() error {
		if wrong != nil {
			return d.refuse("get", key, wrong)
		}
		item, exists = d.now.objects[key]
		return nil
	})
	if err != nil {
		return nil, false, err
	}
	return item, exists, nil
}

// look makes an operation that cannot fail.
func (d *Durable) look(op string, effect func()) {
	_ = d.begin(context.Background(), op)
	d.state.Lock()
	defer d.state.Unlock()
	if !d.crashed {
		effect()
	}
}

// keepPast is called before a write. state is locked.
func (d *Durable) keepPast() {
	if d.lose <= 0 {
		return
	}
	d.past = append(d.past, d.now.clone())
	if len(d.past) > d.lose {
		d.past = slices.Delete(d.past, 0, 1)
	}
}

// noteApply notes whether an Apply must be made again.
func (d *Durable) noteApply(asked *attempt, err error) {
	d.state.Lock()
	defer d.state.Unlock()
	switch {
	case errors.As(err, new(misuse)):
	case err == nil, errors.Is(err, informer.ErrPermanent):
		d.failed = nil
	default:
		d.failed = asked
	}
}
