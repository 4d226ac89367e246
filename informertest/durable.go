package informertest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer"
)

// errCrashed is the error of all operations of a [Durable] that has crashed.
var errCrashed = fmt.Errorf("the process that owned the store has crashed: %w", fs.ErrClosed)

// Durable is an [informer.Durable] in memory, to test how an informer continues after a stop or a
// crash. One Durable is the store as one process sees it. Crash simulates the end of that process,
// and Reopen returns the store as the next process finds it.
//
//	d := informertest.NewDurable()
//	d.FailAfter(func(op, _ string) error {
//		if op == "apply" && d.Calls(op) == 3 {
//			d.Crash() // the third Apply has taken effect, but its caller does not learn of it
//		}
//		return nil
//	})
//	… // run an informer, and stop it
//	next := d.Reopen()
//	… // run another one
//
// With Fail instead of FailAfter, the crash comes before the third Apply takes effect. Resume, Scan
// and Tombstones return the stored state. After a crash, call them on the store that Reopen
// returns.
//
// A Durable is always strict. The following calls have no effect and return an error that names the
// operation and the key:
//
//   - an Apply or Forget while another Apply or Forget is under way;
//   - a different Apply after an Apply that failed, until that one has been repeated with success or
//     Resume is called, unless the failed Apply returned an error that wraps [informer.ErrPermanent];
//   - a Delete, in an Apply, of an object with another UID than the stored one, unless
//     there is a tombstone of the deleted object already;
//   - a Scan with a limit less than 1;
//   - an Apply of a change that has no key, no object, or an object without a name.
//
// Err returns the first of these errors, including the errors of the Durables that this one was
// reopened from.
//
// Fail, FailAfter and Calls use these names of operations: "resume", "scan", "apply", "tombstones",
// "forget" and "get". The key of "scan" is the key that the scan begins after, and the key of
// "apply" is that of the first change. Once its ctx is done, an operation returns the error of
// the ctx, even while it waits for Hang or Delay.
//
// A Durable returns the same objects that were stored, not copies. The store that Reopen returns
// holds copies. A Durable does not implement [informer.DurableIndexer]. All methods may be called
// from any goroutine at any time. It starts no goroutine. To use it in a testing/synctest bubble,
// make or reopen it there. [NewDurable] and Reopen make a Durable. A Durable must not be copied.
type Durable struct {
	informer.Durable // its operations
	*StoreFaults

	memory *durable
}

// NewDurable returns a store that holds nothing and has no bookmark. To fill it before an
// informer starts, use Apply.
func NewDurable() *Durable {
	return of(&durable{now: contents{objects: map[string]informer.AnyObject{}, tombstones: map[identity]informer.AnyObject{}}})
}

func of(d *durable) *Durable { return &Durable{d, &d.StoreFaults, d} }

// Crash simulates the end of the process that owns the store. From now on every operation returns
// an error that wraps [fs.ErrClosed]. Operations that are waiting return such an error, too, and
// have no effect. Writes that took effect stay, except those that LoseOnCrash undoes. Crash ends
// the effects of Fail, FailAfter, FailRandomly, Hang and Delay. The functions passed to Fail and
// FailAfter may call it. Crash does not block, and may be called more than once.
func (d *Durable) Crash() {
	m := d.memory
	m.state.Lock()
	defer m.state.Unlock()
	if !m.crashed && len(m.past) > 0 {
		m.now = m.past[0]
	}
	m.crashed, m.past = true, nil
	m.Heal()
}

// LoseOnCrash makes a crash undo the last n writes after this call, like a store that commits
// several writes at once. The next process finds the state before these writes. A write is an Apply
// or Forget that took effect. By default n is 0, and a crash undoes nothing. [informer.Durable]
// describes which events an informer then misses. Writes before the call are safe: to model a
// process that ends well, call LoseOnCrash(0) before Reopen. If n is not 0, each write copies the
// maps of all stored objects and tombstones. LoseOnCrash does not block.
func (d *Durable) LoseOnCrash(n int) {
	d.memory.state.Lock()
	defer d.memory.state.Unlock()
	d.memory.lose, d.memory.past = n, nil
}

// Reopen calls Crash and returns the store as the next process finds it. The new store holds copies
// of the objects, and has none of the faults of this store. Its Err returns the error that Err of
// this store returns. Each call returns a new store. Reopen does not block.
func (d *Durable) Reopen() *Durable {
	d.Crash()
	d.memory.state.Lock()
	defer d.memory.state.Unlock()
	next := &durable{now: d.memory.now.copied()}
	next.misuse = d.Err()
	return of(next)
}

type durable struct {
	StoreFaults

	state   sync.Mutex // protects the fields below; held only as long as an effect takes
	crashed bool
	now     contents
	lose    int        // how many of the last writes a crash undoes
	past    []contents // the contents before each of those writes
	failed  *attempt   // an Apply that failed and must be repeated; nil if there is none
}

func (d *durable) Get(ctx context.Context, key string) (obj informer.AnyObject, exists bool, err error) {
	err = d.operate(ctx, "get", key, func() error {
		obj, exists = d.now.objects[key]
		return nil
	})
	if err != nil {
		return nil, false, err
	}
	return obj, exists, nil
}

func (d *durable) Scan(ctx context.Context, after string, limit int) (entries []informer.Entry, err error) {
	err = d.operate(ctx, "scan", after, func() error {
		if limit < 1 {
			return d.refuse("scan", after, fmt.Errorf("the limit is %d, less than 1", limit))
		}
		entries = d.now.scan(after, limit)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return entries, nil
}

func (d *durable) Resume(ctx context.Context) (bookmark string, err error) {
	err = d.operate(ctx, "resume", "", func() error {
		bookmark, d.failed = d.now.bookmark, nil
		return nil
	})
	if err != nil {
		return "", err
	}
	return bookmark, nil
}

func (d *durable) Apply(ctx context.Context, changes []informer.Change, bookmark string) error {
	key := ""
	if len(changes) > 0 {
		key = changes[0].Key
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

func (d *durable) Tombstones(ctx context.Context) (entries []informer.Entry, err error) {
	err = d.operate(ctx, "tombstones", "", func() error {
		for id, obj := range d.now.tombstones {
			entries = append(entries, informer.Entry{Key: id.key, Object: obj})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return entries, nil
}

func (d *durable) Forget(ctx context.Context, tombstones map[string][]types.UID) error {
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

// operate runs an operation that can fail. It calls effect with state locked.
func (d *durable) operate(ctx context.Context, op, key string, effect func() error) error {
	err := d.do(ctx, op, key, func() error {
		d.state.Lock()
		defer d.state.Unlock()
		if d.crashed {
			return errCrashed
		}
		return effect()
	})
	d.state.Lock()
	defer d.state.Unlock()
	if d.crashed {
		return fmt.Errorf("informertest: %s of %q: %w", op, key, errCrashed)
	}
	return err
}

// alone runs an Apply or a Forget. It refuses the operation if another Apply or Forget is under
// way.
func (d *durable) alone(ctx context.Context, op, key string, effect func() error) error {
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

// keepPast keeps the contents before a write, for LoseOnCrash. It is called with state locked.
func (d *durable) keepPast() {
	if d.lose <= 0 {
		return
	}
	d.past = append(d.past, d.now.clone())
	if len(d.past) > d.lose {
		d.past = slices.Delete(d.past, 0, 1)
	}
}

func (d *durable) noteApply(asked *attempt, err error) {
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
