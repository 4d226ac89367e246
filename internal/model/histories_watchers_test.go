package model_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/channel"
)

// The watchers of TestHistories, and the events they are owed.

type kind struct {
	name string
	opts informer.WatcherOptions
	slow time.Duration
}

var kinds = []kind{
	{"plain", informer.WatcherOptions{}, 0},
	{"slow", informer.WatcherOptions{}, 30 * time.Millisecond},
	{"merging", informer.WatcherOptions{MaxBacklog: 1}, 0},
	{"slow merging", informer.WatcherOptions{MaxBacklog: 2}, 20 * time.Millisecond},
	{"keeping", informer.WatcherOptions{MaxBacklog: -1}, time.Millisecond},
	{"workers", informer.WatcherOptions{Workers: 2}, 5 * time.Millisecond},
	{"retry", informer.WatcherOptions{Retry: informer.Backoff(20*time.Millisecond, 2*time.Second, 0)}, 0},
	{"resync", informer.WatcherOptions{ResyncPeriod: 7 * time.Second}, 0},
}

// keeper is a watcher of one process.
type keeper struct {
	name string
	kind
	life         *life
	history      *history
	recorder     recorder
	registration *informer.Registration
	founder      bool               // added before the process started
	heir         bool               // gets first the deletes that happened while there was no watcher
	inherits     map[types.UID]bool // the tombstones of these deletes; there may be more
	removed      bool

	mu      sync.Mutex         // protects the rest
	heard   []string           // the events so far, for the report
	told    map[types.UID]bool // objects it got an event of
	ended   map[types.UID]bool // objects whose delete it handled
	blocked chan struct{}      // nil unless it is in trouble
	fails   bool               // the watcher in trouble fails instead of blocking
	deletes bool               // the watcher is in trouble with deletes only
}

func (l *life) add(h *history, what kind) *keeper {
	k := &keeper{
		name: fmt.Sprintf("%s-%d", what.name, len(l.keepers)), kind: what, life: l, history: h,
		told: map[types.UID]bool{}, ended: map[types.UID]bool{},
	}
	k.heir, k.inherits = l.inherit()
	h.say("add %s", k.name)
	var err error
	k.registration, err = l.informer.AddWatcher(informer.WatcherFunc[configMap](k.tell), k.opts)
	if err != nil {
		h.problem("AddWatcher: %v", err)
	}
	l.keepers = append(l.keepers, k)
	return k
}

// patience is how long after the first watcher a new watcher still gets the deletes that
// happened while there was no watcher.
const patience = time.Minute

// inherit reports whether a watcher added now gets the deletes that happened while there was
// no watcher, and returns their tombstones.
func (l *life) inherit() (heir bool, of map[types.UID]bool) {
	if !l.listened() {
		l.opened, l.inheritance = time.Now(), l.tombstones()
	}
	if time.Since(l.opened) < patience {
		return true, l.inheritance
	}
	return false, nil
}

func (l *life) listened() bool {
	return slices.ContainsFunc(l.keepers, func(k *keeper) bool { return !k.removed })
}

// tell is called for each event. It ignores events after the process has crashed.
func (k *keeper) tell(ctx context.Context, e event) error {
	if k.life.crashed.Load() {
		return nil
	}
	blocked, fails := k.note(e)
	if fails {
		return errInjected
	}
	linger(ctx, k.slow, blocked)
	if err := ctx.Err(); err != nil {
		return err
	}
	switch e.Type {
	case informer.EventAdded:
		return k.recorder.Add(ctx, e)
	case informer.EventUpdated:
		return k.recorder.Update(ctx, e)
	}
	k.end(e.Old.UID)
	return k.recorder.Delete(ctx, e)
}

// end records that a delete is handled.
func (k *keeper) end(uid types.UID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.life.crashed.Load() {
		k.ended[uid] = true
	}
}

// note records the start of a call, and returns how the call must behave.
func (k *keeper) note(e event) (blocked chan struct{}, fails bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	uid, before := e.Object().UID, &k.life.before
	if e.Origin != informer.OriginResync {
		k.heard = append(k.heard, fmt.Sprintf("%s %s %s uid %s", e.Origin, e.Type, e.Object().Name, idOf(uid)))
	}
	if e.Type == informer.EventDeleted {
		if known := k.told[uid] || k.heir || k.founder && before.objects[uid]; !known {
			k.history.problem("%s got the delete of %s, which it never saw", k.name, idOf(uid))
		}
	} else {
		for tomb := range k.inherits {
			if !k.crew() && len(k.told) == 0 && !k.ended[tomb] && !k.life.wasAlive(tomb) {
				k.history.problem("%s got an event of %s before the delete of %s", k.name, idOf(uid), idOf(tomb))
			}
		}
		k.told[uid] = true
		if k.life.lose == 0 { // otherwise a crash may undo that the object came back
			delete(k.ended, uid)
		}
	}
	if k.blocked == nil || k.deletes && e.Type != informer.EventDeleted {
		return nil, false
	}
	return k.blocked, k.fails
}

// crew reports whether the watcher may be called for several objects at once.
func (k *keeper) crew() bool { return k.opts.Workers > 1 || k.opts.Retry != nil }

// owedLocked reports whether the watcher is owed the delete of an object. An event that told
// it of the object does not count if a crash may have lost the object.
func (k *keeper) owedLocked(uid types.UID) bool {
	return k.told[uid] && k.life.lose == 0 || k.founder && k.life.before.objects[uid] ||
		k.inherits[uid] && (k.founder || !k.life.wasAlive(uid))
}

// wasAlive reports whether an object was stored. If it has a tombstone too, the object came
// back because the source was restored. Its next delete is then an ordinary event: watchers
// need not get it first, and later watchers need not get it.
func (l *life) wasAlive(uid types.UID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.alive[uid]
}

func (k *keeper) trouble(deletes, fails bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.blocked == nil {
		k.blocked, k.deletes, k.fails = make(chan struct{}), deletes, fails
	}
}

func (k *keeper) relieve() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.blocked != nil {
		close(k.blocked)
		k.blocked = nil
	}
}

// check fails unless the watcher's events add up to want.
func (k *keeper) check(want string) {
	if !channel.Closed(k.registration.Synced()) {
		k.history.problem("%s has not synced", k.name)
	}
	seen := slices.Collect(maps.Values(k.recorder.View()))
	if k.life.lenient {
		seen = within(seen, k.history.in...)
	}
	if got := words(seen); got != want {
		k.history.problem("%s believes\n    %s\n  but the source has\n    %s", k.name, got, want)
	}
	// The recorder keeps no event that failed, so an object may be missing.
	if err := k.recorder.Err(); err != nil && k.opts.Retry == nil {
		k.history.problem("%s: %v", k.name, err)
	}
}

// anyKeeper returns a watcher that is not removed, or nil.
func (h *history) anyKeeper(r *rand.Rand) *keeper {
	all := slices.DeleteFunc(slices.Clone(h.life.keepers), func(k *keeper) bool { return k.removed })
	if len(all) == 0 {
		return nil
	}
	return all[r.IntN(len(all))]
}
