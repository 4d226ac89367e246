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

// ErrCrashed is wrapped by the errors of all operations of a [Durable] that has crashed.
var ErrCrashed = errors.New("the process that owned the store has crashed")

// Durable is an [informer.Durable] in memory, to test how an informer goes on after a stop or
// a crash. One Durable is the store as one process sees it: Crash ends that process, and
// Reopen returns the store as the next process finds it.
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
// With Fail instead of FailAfter it crashes before the effect. Use Resume, List and Tombstones
// to look at the stored state; after a crash, call them on the store that Reopen returns.
//
// It is always strict. The following calls have no effect and return an error that names the
// operation and the key:
//
//   - an Apply or Forget while another one is under way;
//   - after an Apply that failed with any error except [informer.ErrPermanent], a
//     different Apply before Resume is called;
//   - a Delete, in an Apply, of an object with another UID than the stored one, unless
//     there is a tombstone of the deleted object already;
//   - a change of an unknown type;
//   - a Scan with a limit less than 1;
//   - any call with nil, a [cache.DeletedFinalStateUnknown], a value that is no API object,
//     or an object without a name.
//
// Err returns the first of these errors, also those of the Durables that this one was reopened
// from.
//
// Fail, FailAfter and Calls use these names of operations: "resume", "scan", "apply",
// "tombstones", "forget", "get" (Get and GetByKey), "add", "update", "delete", "list", "list
// keys", "replace", "resync", "bookmark" and "last version" (LastStoreSyncResourceVersion).
// The key of "scan" is the key that the scan begins after, and the key of "apply" is that of
// the first change. Operations that take a ctx return its error once it has ended, also while
// they wait for Hang or Delay.
//
// It returns the same objects that were stored, not copies; the next process finds copies.
// Like client-go's stores, Add, Update, Delete and Replace accept objects whether they exist
// or not. It is no [cache.Indexer]. All methods may be called from any goroutine at any time.
// It starts no goroutine and takes time only from package time; to use it in a
// testing/synctest bubble, make or reopen it there. A Durable is made by [NewDurable] or
// Reopen and must not be copied.
type Durable struct {
	storeFaults

	state   sync.Mutex // protects the fields below; held only as long as an effect takes
	crashed bool
	now     contents
	lose    int        // how many of the last writes a crash undoes
	past    []contents // the contents before each of those writes
	failed  *attempt   // an Apply that failed and must be repeated; nil if there is none
}

var _ informer.Durable = (*Durable)(nil)

// NewDurable returns a store that holds nothing and has no bookmark. To fill it before an
// informer starts, use Add or Apply.
func NewDurable() *Durable {
	return &Durable{now: contents{objects: map[string]any{}, tombstones: map[identity]any{}}}
}

// Crash ends the process that owns the store. From now on every operation fails; operations
// that wait fail too, without effect. List and ListKeys, which cannot fail, return nothing.
// Writes that took effect stay, except those that LoseOnCrash drops. Crash ends the effects of
// Fail, FailAfter, Hang and Delay; the functions passed to Fail and FailAfter may call it. It
// does not block.
func (d *Durable) Crash() {
	d.state.Lock()
	defer d.state.Unlock()
	if !d.crashed && len(d.past) > 0 {
		d.now = d.past[0]
	}
	d.crashed, d.past = true, nil
	d.Heal()
}

// LoseOnCrash makes a crash undo the last n of the writes that follow this call, like a store
// that commits several writes at once: the next process finds the state before them. A write
// is an Apply, Forget, Add, Update, Delete or Replace that took effect. n is 0 by default. See
// informer.Durable for the events that an informer misses then. Writes before the call are
// safe: to model a process that ends well, call it with 0 before Reopen. If n is not 0, each
// write copies a map of all stored objects, and takes as long as that. It does not block.
func (d *Durable) LoseOnCrash(n int) {
	d.state.Lock()
	defer d.state.Unlock()
	d.lose, d.past = n, nil
}

// Reopen calls Crash and returns the store as the next process finds it. The objects in it are
// copies, and it has none of the faults of this store. Each call returns a store of its own.
// It does not block.
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
			err = errors.New("the previous Apply has failed and must be repeated first")
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

// Add stores an object. Like every write except Apply and Forget, it removes the bookmark.
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

// Get returns the object stored under the key of obj.
func (d *Durable) Get(obj any) (item any, exists bool, err error) {
	key, wrong := storable(obj)
	return d.get(key, wrong)
}

// GetByKey returns the object stored under key.
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

// Replace stores the objects of a list in place of all others. It removes the bookmark and
// keeps the tombstones.
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

// Bookmark does nothing: only Apply sets the bookmark that Resume returns.
func (d *Durable) Bookmark(string) { d.look("bookmark", func() {}) }

// LastStoreSyncResourceVersion returns "".
func (d *Durable) LastStoreSyncResourceVersion() string {
	d.look("last version", func() {})
	return ""
}

// operate runs an operation that can fail. It calls effect with state locked.
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

// alone runs an operation that must not overlap with another operation run by alone.
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

// write runs an operation that writes one object.
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

// look runs an operation that cannot fail.
func (d *Durable) look(op string, effect func()) {
	_ = d.begin(context.Background(), op)
	d.state.Lock()
	defer d.state.Unlock()
	if !d.crashed {
		effect()
	}
}

// keepPast keeps the contents before a write, for LoseOnCrash. It is called with state locked.
func (d *Durable) keepPast() {
	if d.lose <= 0 {
		return
	}
	d.past = append(d.past, d.now.clone())
	if len(d.past) > d.lose {
		d.past = slices.Delete(d.past, 0, 1)
	}
}

// noteApply notes whether an Apply must be repeated.
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
