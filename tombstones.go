package informer

import (
	"context"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer/internal/object"
)

const (
	// forgetEvery is how often it is looked whether tombstones can be forgotten. A
	// crash in between means that what they stand for is told once more.
	forgetEvery = time.Second
	// inherit is for how long after the first watcher others may register to be told
	// what nobody was there to be told of. The controllers of a manager register one
	// by one, after the informer has synced.
	inherit = time.Minute
)

// tombstones are those of a durable store that are still needed: some watcher has not
// handled the delete. The store has their objects; here is only when each can go.
type tombstones struct {
	store Durable
	added chan struct{} // gets a token when there is a new one

	mu sync.Mutex // protects the rest
	at map[tombstoneID]ends
}

// ends are where the log tells of the end of one object: at 0 if that was in the time
// before, and more than once if a server has gone back in time. Every watcher must have
// handled the last.
type ends struct{ first, last int64 }

type tombstoneID struct {
	key string
	uid types.UID
}

// newTombstones returns nil for a store that is not durable.
func newTombstones(store any) *tombstones {
	durable, ok := store.(Durable)
	if !ok {
		return nil
	}
	return &tombstones{store: durable, at: map[tombstoneID]ends{}, added: make(chan struct{}, 1)}
}

// add notes what was deleted by records that the log has up to a position.
func (t *tombstones) add(ids []tombstoneID, position int64) {
	if len(ids) == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, id := range ids {
		first := position
		if before, again := t.at[id]; again {
			first = before.first
		}
		t.at[id] = ends{first, position}
	}
	select {
	case t.added <- struct{}{}:
	default:
	}
}

// passed returns those that begin after one position and end up to another, in the shape
// that Durable.Forget takes.
func (t *tombstones) passed(after, upTo int64) map[string][]types.UID {
	t.mu.Lock()
	defer t.mu.Unlock()
	gone := map[string][]types.UID{}
	for id, at := range t.at {
		if at.first > after && at.last <= upTo {
			gone[id.key] = append(gone[id.key], id.uid)
		}
	}
	return gone
}

// remove drops what passed has returned.
func (t *tombstones) remove(gone map[string][]types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, uids := range gone {
		for _, uid := range uids {
			delete(t.at, tombstoneID{key, uid})
		}
	}
}

// count returns how many there are. There may be no tombstones at all.
func (t *tombstones) count() int {
	if t == nil {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.at)
}

// read returns the objects of those up to a position.
func (t *tombstones) read(ctx context.Context, upTo int64) ([]any, error) {
	all, err := t.store.Tombstones(ctx)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	objs := all[:0:0]
	for _, obj := range all {
		if m, err := object.Meta(obj); err == nil {
			if at, ok := t.at[tombstoneID{object.Key(m), m.GetUID()}]; ok && at.first <= upTo {
				objs = append(objs, obj)
			}
		}
	}
	return objs, nil
}

// follow calls forget from time to time as long as there are any, until ctx ends. It is
// a goroutine of its own, so that what a watcher handles costs nothing.
func (t *tombstones) follow(ctx context.Context, forget func()) {
	for {
		select {
		case <-t.added:
		case <-ctx.Done():
			return
		}
		ticker := time.NewTicker(forgetEvery)
		for t.count() > 0 && ctx.Err() == nil {
			select {
			case <-ticker.C:
				forget()
			case <-ctx.Done():
			}
		}
		ticker.Stop()
	}
}

// handled returns which tombstones can go: those after one position of the log and up to
// another, which every registered listener has handled, or every one that was when the
// informer stopped. Without a listener there are none.
func (p *informerProcessor[T]) handled() (after, upTo int64) {
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
	}
	if len(listeners) == 0 {
		upTo = -1
	}
	return after, upTo
}

// inheritsLocked reports whether who registers now is told what nobody was there to be
// told of.
func (p *informerProcessor[T]) inheritsLocked() bool {
	return p.tombstones != nil && (p.state == processorNew || p.Now()-p.listening < inherit)
}
