package model_test

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer"
)

// The processes of TestHistories, and their checks.

type life struct {
	store    *durable
	informer *ci
	cancel   context.CancelFunc
	done     chan error
	before   standing // the state of the store at the start
	lose     int      // number of writes that a crash loses
	indexed  bool
	lenient  bool // the store may have refused to delete an object of a namespace that has left

	keepers     []*keeper
	opened      time.Time          // time of the first watcher
	inheritance map[types.UID]bool // the tombstones at that time

	errs     errorLog
	crashed  atomic.Bool
	refused  atomic.Bool // a change was refused; only a list brings it again
	doubtful atomic.Bool // an Apply may have taken effect, so it cannot be refused any more
	digests  atomic.Bool // Transform no longer fails

	mu    sync.Mutex         // protects the rest
	kept  map[types.UID]bool // tombstones that some watcher may not have handled
	alive map[types.UID]bool // objects that were in the store at some time
}

// crash ends the process. Events that its watchers get from now on do not count.
func (l *life) crash() {
	l.store.Crash()
	l.crashed.Store(true)
}

// ensure makes sure that a process runs, and applies f to its store.
func (h *history) ensure(r *rand.Rand, f *storeFault) {
	switch {
	case h.life == nil:
		h.start(r, f)
	case f != nil:
		h.say("%s", f)
		f.arm(h.life)
	}
}

func (h *history) start(r *rand.Rand, f *storeFault) {
	h.bound()
	l := &life{store: h.store, before: h.look(h.store), done: make(chan error, 1)}
	h.life, h.store = l, nil
	l.kept, l.alive = maps.Clone(l.before.tombstones), maps.Clone(l.before.objects)
	if r.IntN(3) == 0 {
		l.lose = 1 + r.IntN(3)
		l.store.LoseOnCrash(l.lose)
	}
	opts := options{
		Durable: modest{l.store, 1 + r.IntN(4), r.IntN(2) == 0, l}, WatchList: h.mode, Intake: h.intake,
		ErrorHandler: l.errs.Handle, Transform: l.digest,
		DrainTimeout: []time.Duration{0, time.Second, time.Minute}[r.IntN(3)],
	}
	if h.shared {
		opts.Share = table
	}
	if l.indexed = r.IntN(2) == 0; l.indexed {
		opts.Indexers = informer.Indexers[configMap]{"name": func(obj configMap) ([]string, error) { return []string{obj.Name}, nil }}
	}
	h.say("start, with bookmark %q, %d tombstones, DrainTimeout %v; a crash takes %d writes along",
		l.before.bookmark, len(l.before.tombstones), opts.DrainTimeout, l.lose)
	var err error
	if h.split {
		l.informer, err = informer.NewInNamespaces(h.server.client, h.in, opts)
	} else {
		l.informer, err = informer.NewFrom(h.server, opts)
	}
	if err != nil {
		panic(err)
	}
	for _, k := range h.kinds {
		if r.IntN(8) > 0 {
			l.add(h, k).founder = true
		}
	}
	faultless := f == nil && r.IntN(2) == 0
	h.server.refuses.Store(0)
	if faultless {
		h.src.Heal()
	} else if f != nil {
		h.say("%s", f)
		f.arm(l)
	}
	before := len(h.src.Requests())
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	go func() { l.done <- l.informer.Run(ctx) }()
	if faultless {
		h.checkStart(before)
	}
}

// digest is a Transform that fails for some objects.
func (l *life) digest(obj configMap) (configMap, error) {
	if strings.HasSuffix(obj.Data["value"], "indigestible") && !l.digests.Load() {
		l.refused.Store(true)
		return nil, errInjected
	}
	return obj, nil
}

// checkStart checks the requests to the source after a start without faults.
func (h *history) checkStart(requests int) {
	l := h.life
	sleepBubble(20 * time.Second)
	if !l.informer.HasSynced() {
		h.problem("after a faultless start it has not synced")
	}
	if h.split {
		return
	}
	now, bookmark := h.src.ResourceVersion(), l.before.bookmark
	want := "stream"
	if h.mode == informer.WatchListOff {
		want = "list, watch from " + now
	}
	switch {
	case bookmark == "":
	case !l.before.current:
		want = "probe, list, watch from " + now
	case versionNumber(bookmark) < h.since:
		want = "probe, watch from " + bookmark + " gone, " + want
	default:
		want = "probe, watch from " + bookmark
	}
	if got := asked(h.src, requests); got != want {
		h.problem("after a start with the bookmark %q the source was asked for: %s\n  want: %s", bookmark, got, want)
	}
}

func (h *history) reap() {
	if h.life != nil && h.life.crashed.Load() {
		h.say("it has crashed")
		h.end()
	}
}

// end stops the process and checks the state it leaves.
func (h *history) end() {
	l := h.life
	h.last = l.keepers
	l.cancel()
	if err := <-l.done; err != nil {
		h.problem("Run: %v", err)
	}
	if !l.crashed.Load() {
		l.store.LoseOnCrash(0)
		l.lose = 0
	}
	h.life, h.store = nil, l.store.Reopen()
	if err := h.store.Err(); err != nil {
		h.problem("the store was used wrongly: %v", err)
	}
	for _, err := range l.errs.Take() {
		h.checkError(l, err)
	}
	left := h.look(h.store)
	h.say("it leaves the bookmark %q, %d tombstones, and %s", left.bookmark, len(left.tombstones), left.state)
	h.checkDeletes(l, left)
	h.bound()
}

func (h *history) checkError(l *life, err error) {
	var werr *informer.WatchError
	switch {
	case strings.Contains(err.Error(), errInjected.Error()), errors.As(err, &werr):
	case l.crashed.Load() && errors.Is(err, fs.ErrClosed):
	default:
		h.problem("reported: %v", err)
	}
}

// checkDeletes looks for objects that are gone without a trace. The store had such an object at
// the start, or a watcher got an event of it, and now the store has neither the object nor a
// tombstone. Every watcher that may have known the object must have got its delete.
func (h *history) checkDeletes(l *life, left standing) {
	gone := map[types.UID]bool{}
	note := func(uids map[types.UID]bool) {
		for uid := range uids {
			if !left.objects[uid] && !left.tombstones[uid] {
				gone[uid] = true
			}
		}
	}
	note(l.before.objects)
	note(l.before.tombstones)
	for _, k := range l.keepers {
		k.mu.Lock()
		note(k.told)
		k.mu.Unlock()
	}
	for uid := range gone {
		for _, k := range l.keepers {
			k.mu.Lock()
			if !k.removed && k.owedLocked(uid) && !k.ended[uid] {
				h.problem("%s did not get the delete of %s, but the store has no tombstone of it", k.name, idOf(uid))
			}
			k.mu.Unlock()
		}
	}
}

// settle heals everything, and checks that the watchers and the store then match the source.
func (h *history) settle(r *rand.Rand) {
	h.ensure(r, nil)
	l := h.life
	h.say("all is well again")
	l.store.Heal()
	h.src.Heal()
	l.digests.Store(true)
	for _, k := range l.keepers {
		k.relieve()
	}
	sleepBubble(5 * time.Minute)
	h.most = 0
	l.lenient = l.lenient || h.split && l.refused.Load()
	if l.refused.Swap(false) {
		h.src.Expire()
		h.since = h.version()
		h.moved("expire, because something was refused")
		sleepBubble(5 * time.Minute)
	}
	if l.crashed.Load() {
		return
	}
	h.settled = true
	want := words(within(h.src.Objects(), h.in...))
	for _, k := range l.keepers {
		if !k.removed {
			k.check(want)
		}
	}
	h.checkSettled(want)
}

func (h *history) checkSettled(want string) {
	l := h.life
	objs, err := l.informer.List("", nil)
	if l.lenient {
		objs = within(objs, h.in...)
	}
	if got := words(objs); got != want || err != nil {
		h.problem("the store (%v) has\n    %s\n  but the source has\n    %s", err, got, want)
	}
	for _, obj := range within(h.src.Objects(), h.in...) {
		found, err := l.informer.ByIndex("name", obj.Name)
		if l.indexed && (err != nil || len(found) != 1) {
			h.problem("%s is found by index %d times (%v)", obj.Name, len(found), err)
		}
	}
	s := h.look(l.store)
	if (s.bookmark == "" || !s.current) && len(h.in) > 0 && !l.lenient {
		h.problem("the store has the bookmark %q, which is missing or not a current state of the source; undone: %v", s.bookmark, s.undone)
	}
	if n := l.informer.Health().Tombstones; l.listened() && (n > 0 || len(s.tombstones) > 0) {
		h.problem("%d tombstones are left; the informer counts %d", len(s.tombstones), n)
	}
}

// finish settles and ends the history, unless something is wrong already.
func (h *history) finish() {
	h.reap()
	if h.broken() {
		if h.life != nil {
			h.end()
		}
		return
	}
	r := rand.New(rand.NewPCG(h.seed, 4))
	for h.settled = false; !h.settled; h.reap() { // a crash may be under way
		h.settle(r)
	}
	h.end()
}
