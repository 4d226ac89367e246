package enqueue_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

var errInjected = errors.New("on purpose")

// uidKey identifies an object, also after another one was created with its name.
type uidKey struct {
	key string
	uid types.UID
}

func uidKeyOf(obj *corev1.Pod) uidKey { return uidKey{obj.Namespace + "/" + obj.Name, obj.UID} }

// need is a key that a controller must reconcile.
type need struct{ controller, key string }

// fate is what became of an object that the store has had.
type fate struct {
	obj     *corev1.Pod // the last state that the store had
	added   int         // the write that brought it; 0 if the store had it at the start of the process
	deleted int         // the moment at which the store had the delete; 0 if it has none
	dying   int         // the moment at which the store had the last update while it was being deleted; 0 if it is not, or since before the start of the process
	done    map[need]bool
	forgot  bool            // the store has forgotten the tombstone
	told    map[string]bool // the watchers that got an event of the object since the start of the process
	handled map[string]bool // the watchers that have handled the delete since the start of the process
	mapped  map[string]bool // the controllers whose function was called for the object since the start of the process
}

// ledger is a Durable that knows which deletes it has taken, and that checks, whenever it is asked
// to forget one, that every controller and every watcher has handled it.
type ledger struct {
	*informertest.Durable
	t        *testing.T
	seed     uint64
	life     int
	visiting sync.Mutex     // protects visits
	visits   map[string]int // how often chance was called for a place

	mu       sync.Mutex // protects the rest
	now      int        // the number of moments so far
	fates    map[uidKey]*fate
	crashed  bool
	calm     bool // no operation fails
	writes   int  // since the start of the process
	lose     int  // how many writes a crash undoes
	crashAt  int  // the write with which the process crashes; 0 for none
	removed  map[string]bool
	last     map[need]bool // for each key that was reconciled since the start: whether the last call was good
	underWay map[need]int
	begun    map[need]int // the moment at which the last call began
	calls    map[need]int // since the start
	lost     bool         // the elected controller has lost its lease

	deletes, exempt, kept, checked, losses int // in all processes
}

func newLedger(t *testing.T, seed uint64) *ledger {
	return &ledger{Durable: informertest.NewDurable(), t: t, seed: seed}
}

// chance returns the random numbers for the next visit of a place in the program, such as the calls for a
// key. They depend only on the seed, the life, the place and the number of the visit: goroutines that take
// turns in another order do not change them.
func (l *ledger) chance(place string) *rand.Rand {
	l.visiting.Lock()
	defer l.visiting.Unlock()
	l.visits[place]++
	return rand.New(rand.NewChaCha8(sha256.Sum256(fmt.Appendf(nil, "%d, %d, %s, %d", l.seed, l.life, place, l.visits[place]))))
}

// needs returns the keys that must be reconciled because of the delete of f.
func (l *ledger) needs(f *fate) (all []need) {
	for _, c := range controllersOf {
		if l.removed[c.name] {
			continue
		}
		for _, from := range c.sources {
			switch from {
			case "For":
				all = append(all, need{c.name, f.obj.Name})
			case "Owns":
				for _, ref := range f.obj.OwnerReferences {
					all = append(all, need{c.name, ref.Name})
				}
			case "Watches":
				// If the add was merged with the delete, neither was delivered. The add of an object
				// that the store had at the start is not merged.
				if key := f.obj.Labels["of"]; key != "" && (f.mapped[c.name] || f.added == 0) {
					all = append(all, need{c.name, key}, need{c.name, key + "-other"})
				}
			}
		}
	}
	return all
}

// superseded reports whether the store keeps the delete of another object of that name. Such a delete
// stands for that of f on standby.
func (l *ledger) superseded(f *fate) bool {
	for _, other := range l.fates {
		if other != f && other.obj.Name == f.obj.Name && other.deleted > 0 && !other.forgot {
			return true
		}
	}
	return false
}

// missing returns what has not handled the delete of f.
func (l *ledger) missing(f *fate) (who []string) {
	for _, n := range l.needs(f) {
		if !f.done[n] && (n.controller != elected || !l.superseded(f)) {
			who = append(who, fmt.Sprintf("%s has not reconciled %s", n.controller, n.key))
		}
	}
	for name := range f.told {
		if !f.handled[name] {
			who = append(who, "watcher "+name)
		}
	}
	if f.added == 0 {
		for _, name := range []string{"slow", "workers"} {
			if !f.handled[name] {
				who = append(who, "watcher "+name)
			}
		}
	}
	return who
}

// disturb makes a write fail, or the process crash, at random. It reports whether the write takes
// effect. It is called with mu locked.
func (l *ledger) disturb(write string) (effect bool, err error) {
	random := l.chance(write)
	switch {
	case l.crashed:
		return false, fs.ErrClosed
	case l.crashAt > 0 && l.writes+1 >= l.crashAt:
		effect = random.IntN(2) == 0
		return effect, fs.ErrClosed
	case !l.calm && random.IntN(20) == 0:
		return random.IntN(2) == 0, errInjected
	}
	return true, nil
}

func (l *ledger) Apply(ctx context.Context, changes []informer.Change, bookmark string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	effect, failed := l.disturb("apply")
	if effect {
		before := map[string]*corev1.Pod{}
		for _, change := range changes {
			key := uidKeyOf(change.Object.(*corev1.Pod)).key
			if obj, exists, _ := l.Get(ctx, key); exists {
				before[key] = obj.(*corev1.Pod)
			}
		}
		if err := l.Durable.Apply(ctx, changes, bookmark); err != nil {
			return err
		}
		l.writes++
		for _, change := range changes {
			l.applied(change, before)
		}
	}
	if errors.Is(failed, fs.ErrClosed) {
		l.crashLocked()
	}
	return failed
}

// applied notes a change. before has the stored states before it.
func (l *ledger) applied(change informer.Change, before map[string]*corev1.Pod) {
	obj := change.Object.(*corev1.Pod)
	id := uidKeyOf(obj)
	f := l.fates[id]
	if f == nil {
		f = &fate{}
		f.fresh()
		l.fates[id] = f
	}
	l.now++
	old := before[id.key]
	if !change.Delete {
		if old == nil || old.UID != id.uid { // perhaps for the second time, because a crash has undone writes
			f.added, f.deleted, f.forgot = l.writes, 0, false
		}
		f.obj, before[id.key] = obj, obj
		if f.dying = 0; obj.DeletionTimestamp != nil {
			f.dying = l.now
		}
		return
	}
	if old != nil && old.UID == id.uid {
		f.obj = old
	}
	if f.obj == nil {
		l.t.Errorf("the delete of %v, which the store never had", id)
		f.obj = obj
	}
	delete(before, id.key)
	if f.deleted == 0 {
		l.deletes++
		f.deleted, f.done = l.now, map[need]bool{}
	}
}

// fresh begins the knowledge of one process.
func (f *fate) fresh() {
	f.told, f.handled, f.mapped = map[string]bool{}, map[string]bool{}, map[string]bool{}
}

func (l *ledger) Forget(ctx context.Context, tombstones map[string][]types.UID) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	effect, failed := l.disturb("forget")
	if effect {
		if err := l.Durable.Forget(ctx, tombstones); err != nil {
			return err
		}
		l.writes++
		for key, uids := range tombstones {
			for _, uid := range uids {
				f := l.fates[uidKey{key, uid}]
				if f == nil || f.deleted == 0 {
					l.t.Errorf("the delete of %s (%s) is forgotten, which there was not", key, uid)
					continue
				}
				if who := l.missing(f); len(who) > 0 {
					l.t.Errorf("the delete of %s (%s) is forgotten, but %s", key, uid, strings.Join(who, ", "))
				}
				f.forgot = true
			}
		}
	}
	if errors.Is(failed, fs.ErrClosed) {
		l.crashLocked()
	}
	return failed
}

// crash ends the process. From now on nothing that it does counts.
func (l *ledger) crash() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.crashLocked()
}

func (l *ledger) crashLocked() {
	l.crashed = true
	l.Crash()
}

func (l *ledger) hasCrashed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.crashed
}

// reopen returns the ledger of the next process. lose is how many writes its crash will undo.
func (l *ledger) reopen(lose int, calm bool) *ledger {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.crashed {
		l.LoseOnCrash(0)
		l.lose = 0
	}
	next := &ledger{
		Durable: l.Reopen(), t: l.t, seed: l.seed, life: l.life + 1, visits: map[string]int{}, now: l.now, calm: calm, lose: lose, fates: map[uidKey]*fate{},
		removed: map[string]bool{}, last: map[need]bool{}, underWay: map[need]int{}, begun: map[need]int{}, calls: map[need]int{},
		deletes: l.deletes, exempt: l.exempt, kept: l.kept, checked: l.checked, losses: l.losses,
	}
	objects, tombstones := contentsOf(l.t, next)
	for id, f := range l.fates {
		switch {
		case tombstones[id] != nil:
			f.forgot = false
			next.kept++
		case objects[id] != nil:
			f.obj, f.deleted, f.forgot = objects[id], 0, false
		case f.forgot:
		case f.added > l.writes-l.lose: // the store has lost the object itself, see promise 5
			if f.deleted > 0 {
				next.exempt++
			}
			continue
		default:
			l.t.Errorf("the store has lost %v", id)
		}
		f.fresh()
		f.added, f.dying = 0, 0
		next.fates[id] = f
	}
	for id := range objects {
		if next.fates[id] == nil {
			l.t.Errorf("%v was never written", id)
		}
	}
	next.LoseOnCrash(lose)
	return next
}

// contentsOf returns the objects and the tombstones of a store.
func contentsOf(t *testing.T, l *ledger) (objects, tombstones map[uidKey]*corev1.Pod) {
	kept, err := l.Tombstones(context.Background())
	if err != nil {
		t.Error(err)
	}
	stored, err := l.Scan(context.Background(), "", 10_000)
	if err != nil {
		t.Error(err)
	}
	byKey := func(entries []informer.Entry) map[uidKey]*corev1.Pod {
		all := map[uidKey]*corev1.Pod{}
		for _, e := range entries {
			all[uidKeyOf(e.Object.(*corev1.Pod))] = e.Object.(*corev1.Pod)
		}
		return all
	}
	return byKey(stored), byKey(kept)
}

// begins notes that a call of reconcile begins. It returns a function to call when the call has
// returned. good is true if it has handled the deletes that the store had when it began.
func (l *ledger) begins(n need) (returned func(good bool)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now++
	began := l.now
	if l.underWay[n]++; l.underWay[n] > 1 {
		l.t.Errorf("two calls for %v at once", n)
	}
	if l.lost && n.controller == elected {
		l.t.Errorf("a call for %v begins without the lease", n)
	}
	l.begun[n] = began
	if l.calls[n]++; l.calls[n] == 10_000 {
		l.t.Fatalf("%d calls for %v: they do not slow down", l.calls[n], n)
	}
	return func(good bool) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.underWay[n]--
		l.last[n] = good
		if l.crashed || !good {
			return
		}
		for _, f := range l.fates {
			if f.deleted > 0 && f.deleted < began {
				f.done[n] = true
			}
		}
	}
}

// loseLease notes that the elected controller may begin no call any more.
func (l *ledger) loseLease() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost = true
}

// checkDying checks that each controller of objects has seen the last update of each that is being
// deleted. It is called when everything was delivered and no call is under way.
func (l *ledger) checkDying() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, f := range l.fates {
		if f.dying > 0 && f.deleted == 0 {
			l.checked++
		}
		for _, c := range controllersOf {
			n := need{c.name, id.key[len("ns/"):]}
			if f.dying > 0 && f.deleted == 0 && slices.Contains(c.sources, "For") && !l.removed[c.name] && (c.name != elected || !l.lost) && l.begun[n] < f.dying {
				l.t.Errorf("%s has not reconciled %s since its last update, and it is being deleted", n.controller, n.key)
			}
		}
	}
}

// release notes that a controller is removed: it need not reconcile anything any more.
func (l *ledger) release(controller string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.removed[controller] = true
}

// on calls note for the fate of an object of an event.
func (l *ledger) on(obj *corev1.Pod, note func(*fate)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.crashed {
		return
	}
	if f := l.fates[uidKeyOf(obj)]; f != nil {
		note(f)
	} else {
		l.t.Errorf("an event was of %v, which the store never had", uidKeyOf(obj))
	}
}

// idle returns the tombstones that are no longer needed. It is called when every event was delivered.
func (l *ledger) idle() (ids []uidKey) {
	_, tombstones := contentsOf(l.t, l)
	l.mu.Lock()
	defer l.mu.Unlock()
	for id := range tombstones {
		if !slices.ContainsFunc(l.needs(l.fates[id]), func(n need) bool { return !l.last[n] || n.controller == elected && l.lost }) {
			ids = append(ids, id)
		}
	}
	return ids
}

// checkDone fails the test if a delete was not reconciled, or if an object is in the store that the
// source does not have.
func (l *ledger) checkDone(source *informertest.Source[*corev1.Pod]) {
	objects, tombstones := contentsOf(l.t, l)
	exist := map[uidKey]bool{}
	for _, obj := range source.Objects() {
		exist[uidKeyOf(obj)] = true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for id := range objects {
		if !exist[id] {
			l.t.Errorf("%v is in the store, but not in the source", id)
		}
	}
	for id := range tombstones {
		l.t.Errorf("the tombstone of %v is left", id)
	}
	for id, f := range l.fates {
		switch {
		case f.deleted == 0 && !exist[id]:
			l.t.Errorf("%v was deleted, but the store does not know", id)
		case f.deleted > 0:
			for _, n := range l.needs(f) {
				if !f.done[n] && !f.forgot {
					l.t.Errorf("%s has not reconciled %s because of the delete of %v", n.controller, n.key, id)
				}
			}
		}
	}
}
