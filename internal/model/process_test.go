package model_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
)

// The processes of TestModel. Each has one informer.

type incarnation struct {
	t       *torture
	inf     *ci
	store   cache.Store    // nil for the default store and for a Durable
	durable *takingDurable // nil for another store
	faults  modelFaults
	tap     *tap
	cancel  context.CancelFunc // nil until Run is called
	done    chan error
	began   time.Time
	pupils  []*pupil
	readers sync.WaitGroup
	tombs   map[types.UID]string // the tombstones in the store at the start, each with its key

	crashed  atomic.Bool
	stopping atomic.Bool
	digests  atomic.Bool // Transform no longer fails

	mu      sync.Mutex // protects the rest; never held while waiting
	ledger  ledger
	writes  int                 // events that the ledger's changes make
	applied int                 // events that the Observer's Apply counted
	figures map[string]figures  // by watcher
	left    map[string]bool     // namespaces that were not read at some time since the last settling
	refused int                 // refused changes that were reported
	found   map[presence]string // versions that WaitFor has found since the last audit, with the object's name
}

// figures count the calls of the Observer and the ErrorHandler about one watcher.
type figures struct {
	merged, undelivered, handled, failed, gaveUp int
	lagging                                      bool
}

// begin starts a process with the store that the process before it left. It does not call Run.
func (w *torture) begin() {
	l := &incarnation{t: w, ledger: ledger{}, figures: map[string]figures{}, found: map[presence]string{}, left: map[string]bool{}, done: make(chan error, 1), tombs: map[types.UID]string{}}
	l.faults.refusals, l.faults.refused = map[string]bool{}, map[string]bool{}
	w.life, w.early = l, w.setting.early
	w.lives++
	l.tap = &tap{source: w.src, synced: func() bool { return l.inf.HasSynced() }, begun: map[string]int{}, lists: map[string]int{}, first: map[string]uint64{}, offered: map[presence]bool{}, taken: map[presence]string{}, gone: map[types.UID]bool{}}
	w.shelf.open(l)
	for _, obj := range w.shelf.contents() {
		if w.store != defaultStore {
			l.ledger[keyNamed(obj.Name)] = []presence{presenceOf(obj)}
		}
	}
	if w.shelf.durable != nil {
		tombs, _ := w.shelf.durable.Tombstones(context.Background())
		for _, tomb := range tombs {
			l.tombs[tomb.Object.GetUID()] = keyNamed(tomb.Object.GetName())
		}
	}
	if l.faults.trouble != nil {
		l.faults.trouble.Fail(func(op, key string) error { return l.faults.ask(op, key, false) })
		l.faults.trouble.FailAfter(l.failAfter)
	}
	l.make()
	w.say("process %d, with %d objects and %d tombstones", w.lives, len(l.ledger), len(l.tombs))
	if w.store == defaultStore {
		l.add(pupilKind{name: "witness", witness: true, opts: informer.WatcherOptions{MaxBacklog: -1}}, true)
	}
	for _, kind := range w.pupils {
		p := l.add(newKind(kind), true)
		w.say("%s is there: %v", p.name, p.pupilKind)
	}
}

// failAfter is called when an operation of a store has taken effect.
func (l *incarnation) failAfter(op, key string) error {
	switch op {
	case "apply":
		l.durable.took()
	case "add", "update":
		obj, _, _ := l.t.shelf.indexer.GetByKey(key)
		l.take(key, presenceOf(obj.(configMap)))
	case "delete":
		l.take(key, nothing)
	}
	return l.faults.ask(op, key, true)
}

func (l *incarnation) make() {
	w := l.t
	opts := options{Store: l.store, Queue: w.queue, Intake: w.intake, WatchList: informer.WatchListOn, DrainTimeout: w.drain, ErrorHandler: l.report}
	if l.durable != nil {
		opts.Durable = l.durable
	}
	if w.source == listed || w.source == paged {
		opts.WatchList = informer.WatchListOff
	}
	if w.source == paged {
		opts.PageSize = 2
	}
	if w.transform != noTransform {
		opts.Transform = l.digest
	}
	if w.shared {
		opts.Share = table
	}
	if w.indexed {
		opts.Indexers = informer.Indexers[configMap]{"last": func(obj configMap) ([]string, error) { return []string{lastDigit(obj)}, nil }}
	}
	if w.observed {
		opts.Observer = l.observer()
	}
	var err error
	if w.split {
		l.leave(w.in)
		l.inf, err = informer.NewInNamespaces(l.tap.client, w.in, opts)
	} else {
		l.inf, err = informer.NewFrom(l.tap, opts)
	}
	if err != nil {
		panic(err)
	}
}

func lastDigit(obj configMap) string {
	value := strings.TrimSuffix(obj.Data["value"], " bad")
	return value[len(value)-1:]
}

// digest is a Transform that marks each object and fails for bad ones.
func (l *incarnation) digest(obj configMap) (configMap, error) {
	if obj.Annotations["mark"] != "" {
		l.t.problem("Transform was called twice for %v", presenceOf(obj)) // Options.Transform: once for every object
	}
	if strings.HasSuffix(obj.Data["value"], " bad") && !l.digests.Load() {
		l.faults.doubt(keyNamed(obj.Name))
		return nil, errInjected
	}
	obj.Annotations = map[string]string{"mark": "seen"}
	return obj, nil
}

// run calls the informer's Run.
func (l *incarnation) run() {
	l.t.say("Run")
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel, l.began = cancel, time.Now()
	go func() { l.done <- l.inf.Run(ctx) }()
}

// take records a change that the store has taken.
func (l *incarnation) take(key string, now presence) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := max(len(l.ledger[key]), 1)
	l.ledger.take(key, now)
	l.writes += len(l.ledger[key]) - before
}

func (l *incarnation) entries(key string) []presence {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ledger[key]
}

func (l *incarnation) keys() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.ledger))
}

func (l *incarnation) figuresOf(name string) figures {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.figures[name]
}

func (l *incarnation) note(watcher string, note func(*figures)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.figures[watcher]
	note(&f)
	l.figures[watcher] = f
}

func (l *incarnation) observer() *informer.Observer {
	return &informer.Observer{
		Apply: func(informer.ApplyInfo) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.applied++
		},
		Merged: func(i informer.BacklogInfo) { l.note(i.Watcher, func(f *figures) { f.merged += i.Events }) },
		Undelivered: func(i informer.BacklogInfo) {
			l.note(i.Watcher, func(f *figures) { f.undelivered += i.Events })
		},
		Handled: func(i informer.HandledInfo) {
			l.note(i.Watcher, func(f *figures) {
				switch {
				case i.Err == nil:
					f.handled++
				case i.GaveUp:
					f.failed++
				}
			})
		},
		Lagging: func(i informer.BacklogInfo) {
			l.note(i.Watcher, func(f *figures) {
				if f.lagging == i.Lagging {
					l.t.problem("%s: Lagging was called twice with %v", i.Watcher, i.Lagging)
				}
				f.lagging = i.Lagging
			})
		},
	}
}

// report is the ErrorHandler. Promise 11: errors are typed, and are reported when something
// begins to fail and when it is given up.
func (l *incarnation) report(_ context.Context, err error) {
	var (
		store  *informer.StoreError
		watch  *informer.WatchError
		told   *informer.EventError
		object *informer.ObjectError
	)
	// errors.Is may not find an injected error, so its text decides.
	injected := strings.Contains(err.Error(), errInjected.Error())
	switch {
	case l.crashed.Load():
	case errors.As(err, &store):
		if !injected || store.Failures != 1 && !store.GaveUp {
			l.t.problem("reported: %v", err)
		}
		if store.GaveUp && store.Key != "" && errors.Is(err, informer.ErrPermanent) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.refused++
		}
	case errors.As(err, &watch):
		if !l.t.troubled.Load() {
			l.t.problem("a source error was reported, but the source is well: %v", err)
		}
	case errors.As(err, &told):
		if !injected || told.Failures != 1 && !told.GaveUp {
			l.t.problem("reported: %v", err)
		}
		if told.GaveUp {
			l.note(told.Watcher, func(f *figures) { f.gaveUp++ })
		}
	case errors.As(err, &object):
		if !injected || object.Op != "transform" {
			l.t.problem("reported: %v", err)
		}
	default:
		l.t.problem("reported an error without a type: %v", err)
	}
}

// well reports whether the source and the store are in order, so that healthy watchers get
// each change at once.
func (l *incarnation) well() bool {
	return l.cancel != nil && !l.faults.active() && l.inf.HasSynced()
}

// stop ends the process in the normal way: the ctx of Run ends.
func (w *torture) stop(deed) {
	w.say("stop, quiet %v", w.quiet)
	w.quit(w.quiet && !w.life.faults.active())
}

// quit ends Run and leaves the process. exact says that nothing happens at the same time.
func (w *torture) quit(exact bool) {
	l := w.life
	l.release()
	if l.cancel != nil {
		l.cancel()
		if !l.wait() {
			return
		}
		if !l.crashed.Load() {
			l.checkStopped(exact)
		}
	}
	l.readers.Wait()
	w.leave()
}

// wait waits for the end of Run. Promise 9: Run returns nil after all its work has ended.
func (l *incarnation) wait() bool {
	select {
	case err := <-l.done:
		if err != nil {
			l.t.problem("Run returned %v", err)
		}
		return true
	case <-time.After(3 * hour):
		l.t.problem("Run has not returned for three hours")
		l.t.life = nil
		return false // the panic of the bubble will show which goroutines hang
	}
}

// release ends the waits that would hold up a stop: those of a store that hangs, and those of
// client-go handlers, whose calls have no ctx.
func (l *incarnation) release() {
	l.faults.unhang()
	l.stopping.Store(true)
	for _, p := range l.pupils {
		p.mu.Lock()
		if p.handler {
			p.trouble.relieve()
		}
		p.mu.Unlock()
	}
}

// crash ends the process at once. Events that its watchers get from now on do not count.
func (w *torture) crash(deed) {
	l := w.life
	w.say("crash")
	l.crashed.Store(true)
	l.faults.mu.Lock()
	l.faults.cut = true
	l.faults.mu.Unlock()
	if w.shelf.durable != nil {
		w.shelf.durable.Crash()
	}
	w.quit(false)
}

// leave ends the process in the test and checks the state of its store.
func (w *torture) leave() {
	l := w.life
	if l.faults.trouble != nil {
		if err := l.faults.trouble.Err(); err != nil {
			w.problem("the store was used wrongly: %v", err) // Options.Store, promise 6: never a tombstone
		}
		l.faults.trouble.Delay(0)
	}
	w.life = nil
	if w.shelf.durable == nil {
		return
	}
	w.shelf.durable = w.shelf.durable.Reopen()
	w.checkBookmark()
	left := map[types.UID]bool{}
	tombs, _ := w.shelf.durable.Tombstones(context.Background())
	for _, tomb := range tombs {
		left[tomb.Object.GetUID()] = true
	}
	for _, obj := range w.shelf.contents() {
		left[obj.UID] = true
	}
	for _, p := range l.pupils {
		p.checkLeft(left)
	}
	if l.cancel == nil {
		return
	}
	for uid := range l.tombs {
		for _, p := range l.pupils {
			p.checkTombstone(uid, left[uid])
		}
	}
}

// checkBookmark checks that a durable store equals the state of the source at the store's
// bookmark. See Durable.
func (w *torture) checkBookmark() {
	bookmark, _ := w.shelf.durable.Resume(context.Background())
	if bookmark == "" {
		return
	}
	versions := map[string]string{}
	if !w.split {
		for _, namespace := range namespaces {
			versions[namespace] = bookmark
		}
	} else if err := json.Unmarshal([]byte(bookmark), &versions); err != nil {
		w.problem("the bookmark is %s: %v", bookmark, err)
	}
	for _, namespace := range namespaces {
		if versions[namespace] == "" {
			continue // its objects are not the state at any version
		}
		then := w.at(versionNumber(versions[namespace]))
		maps.DeleteFunc(then, func(key string, _ presence) bool { return !strings.HasPrefix(key, namespace+"/") })
		for _, obj := range within(w.shelf.contents(), namespace) {
			key := keyNamed(obj.Name)
			if now := presenceOf(obj); then[key] != now {
				w.problem("the bookmark is %s: in the store %s is %v, but in the source it was %v", bookmark, key, now, then[key])
			}
			delete(then, key)
		}
		if len(then) > 0 {
			w.problem("the bookmark is %s, but the store lacks these objects: %v", bookmark, then)
		}
	}
}
