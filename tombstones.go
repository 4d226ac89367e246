package informer

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// forgetEvery is how often it is looked whether tombstones can be forgotten. A crash
// in between means that what they stand for is told once more.
const forgetEvery = time.Second

// tombstones are those of a durable store that are still needed: some watcher has not
// handled the delete. The store has their objects; here is only when each can go. It
// belongs to the apply loop, but for what is atomic.
type tombstones struct {
	at    map[tombstoneID]int64 // the position in the log that every watcher must have handled
	count atomic.Int64          // len(at)
	first atomic.Int64          // none of at is less
	added chan struct{}         // gets a token when there is a new one
}

type tombstoneID struct {
	key string
	uid types.UID
}

func newTombstones() *tombstones {
	return &tombstones{at: map[tombstoneID]int64{}, added: make(chan struct{}, 1)}
}

// add notes what was deleted by records that the log has up to a position.
func (t *tombstones) add(ids []tombstoneID, position int64) {
	if len(ids) == 0 {
		return
	}
	if len(t.at) == 0 {
		t.first.Store(position)
	}
	for _, id := range ids {
		t.at[id] = position
	}
	t.count.Store(int64(len(t.at)))
	select {
	case t.added <- struct{}{}:
	default:
	}
}

// passed returns those that everybody has handled who has handled the log up to a
// position, in the shape that Durable.Forget takes.
func (t *tombstones) passed(handled int64) map[string][]types.UID {
	gone := map[string][]types.UID{}
	for id, position := range t.at {
		if position <= handled {
			gone[id.key] = append(gone[id.key], id.uid)
		}
	}
	return gone
}

// remove drops what passed has returned.
func (t *tombstones) remove(gone map[string][]types.UID) {
	for key, uids := range gone {
		for _, uid := range uids {
			delete(t.at, tombstoneID{key, uid})
		}
	}
	first := int64(math.MaxInt64)
	for _, position := range t.at {
		first = min(first, position)
	}
	t.first.Store(first)
	t.count.Store(int64(len(t.at)))
}

// follow calls forget, now and then, when handled says that some can go, until ctx
// ends. It is a goroutine of its own, so that what a watcher handles costs nothing.
func (t *tombstones) follow(ctx context.Context, handled func() int64, forget func()) {
	for {
		select {
		case <-t.added:
		case <-ctx.Done():
			return
		}
		ticker := time.NewTicker(forgetEvery)
		for t.count.Load() > 0 && ctx.Err() == nil {
			select {
			case <-ticker.C:
			case <-ctx.Done():
			}
			if handled() >= t.first.Load() {
				forget()
			}
		}
		ticker.Stop()
	}
}
