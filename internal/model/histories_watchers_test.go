package model_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer"
)

// The watchers of TestHistories, and what is owed to them.

// kind is a kind of watcher.
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
	founder      bool               // there from the start
	heir         bool               // told first of the tombstones that nobody was there to be told of,
	inherits     map[types.UID]bool // which are these, and maybe others
	removed      bool

	mu      sync.Mutex // protects the rest
	heard   []string   // for whoever reads of a failure
	told    map[types.UID]bool
	ended   map[types.UID]bool // told as deleted, and handled
	blocked chan struct{}      // nil unless it is in trouble
	fails   bool               // rather than blocks
	deletes bool               // and only these
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

// patience is for how long after the first watcher others are told what nobody was there
// to be told of.
const patience = time.Minute

// inherit says what a watcher is told that is added now of what nobody was told.
func (l *life) inherit() (heir bool, of map[types.UID]bool) {
	if !l.listened() {
		l.opened, l.inheritance = time.Now(), l.tombstones()
	}
	if time.Since(l.opened) < patience {
		return true, l.inheritance
	}
	return false, nil
}

// listened says whether there is a watcher.
func (l *life) listened() bool {
	return slices.ContainsFunc(l.keepers, func(k *keeper) bool { return !k.removed })
}

// tell takes an event. After the process has crashed there is nobody to take it.
func (k *keeper) tell(ctx context.Context, e event) error {
	if k.life.crashed.Load() {
		return nil
	}
	fails, err := k.begin(ctx, e)
	if err != nil {
		return err
	}
	if fails {
		return errInjected
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

// end notes that a delete is handled.
func (k *keeper) end(uid types.UID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.life.crashed.Load() {
		k.ended[uid] = true
	}
}

// begin takes as long as the watcher does, and returns whether it is to fail, or that
// the informer stops.
func (k *keeper) begin(ctx context.Context, e event) (fails bool, err error) {
	blocked, fails := k.note(e)
	if fails {
		return true, nil
	}
	if k.slow > 0 {
		select {
		case <-time.After(k.slow):
		case <-ctx.Done():
		}
	}
	if blocked != nil {
		select {
		case <-blocked:
		case <-ctx.Done():
		}
	}
	return false, ctx.Err()
}

// note notes that a call has begun, and says what is to come of it.
func (k *keeper) note(e event) (blocked chan struct{}, fails bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	uid, before := e.Object().UID, &k.life.before
	if e.Origin != informer.OriginResync {
		k.heard = append(k.heard, fmt.Sprintf("%s %s %s uid %s", e.Origin, e.Type, e.Object().Name, idOf(uid)))
	}
	if e.Type == informer.EventDeleted {
		if known := k.told[uid] || k.heir || k.founder && before.objects[uid]; !known {
			k.history.problem("%s was told of the end of %s, which it never saw", k.name, idOf(uid))
		}
	} else {
		for tomb := range k.inherits {
			if !k.crew() && len(k.told) == 0 && !k.ended[tomb] && !k.life.wasAlive(tomb) {
				k.history.problem("%s was told of %s before it was told of the end of %s", k.name, idOf(uid), idOf(tomb))
			}
		}
		k.told[uid] = true
		if k.life.lose == 0 { // else a crash may undo that it has come back
			delete(k.ended, uid)
		}
	}
	if k.blocked == nil || k.deletes && e.Type != informer.EventDeleted {
		return nil, false
	}
	return k.blocked, k.fails
}

// crew says whether it may be called for several objects at once.
func (k *keeper) crew() bool { return k.opts.Workers > 1 || k.opts.Retry != nil }

// owedLocked reports whether it is to be told of the end of an object. That it was told
// that there is one does not count if a crash may have taken that along.
func (k *keeper) owedLocked(uid types.UID) bool {
	return k.told[uid] && k.life.lose == 0 || k.founder && k.life.before.objects[uid] ||
		k.inherits[uid] && (k.founder || !k.life.wasAlive(uid))
}

// wasAlive reports whether an object was stored. If there is a tombstone too, it has come
// back, because the source was restored. When it is deleted again that is news to those
// who are there, and need not be told first, nor to who registers later.
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

// check fails unless what it was told adds up to what there is.
func (k *keeper) check(want string) {
	select {
	case <-k.registration.Synced():
	default:
		k.history.problem("%s has not synced", k.name)
	}
	var seen []configMap
	for _, obj := range k.recorder.View() {
		seen = append(seen, obj)
	}
	if got := words(seen); got != want {
		k.history.problem("%s believes\n    %s\n  and the source is\n    %s", k.name, got, want)
	}
	// The recorder keeps no event that failed, so an object may be missing.
	if err := k.recorder.Err(); err != nil && k.opts.Retry == nil {
		k.history.problem("%s: %v", k.name, err)
	}
}

// anyKeeper returns one that is not removed, or nil.
func (h *history) anyKeeper(r *rand.Rand) *keeper {
	var all []*keeper
	for _, k := range h.life.keepers {
		if !k.removed {
			all = append(all, k)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all[r.IntN(len(all))]
}
