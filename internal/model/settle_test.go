package model_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/channel"
	"github.com/customcacheinformer/informer/internal/testkit"
)

// The checks that TestModel makes when all is well and quiet, when readers have read, and when
// an informer has stopped.

// settle heals everything, and checks that the informer, its store and its watchers then match
// the source.
func (w *torture) settle(deed) {
	if w.life == nil {
		w.begin()
	}
	l := w.life
	if l.cancel == nil {
		l.run()
	}
	w.say("all is well again")
	w.src.Heal()
	l.faults.heal()
	l.digests.Store(true)
	for _, p := range l.pupils {
		p.mu.Lock()
		p.trouble.relieve()
		p.mu.Unlock()
	}
	const enough = 4 * time.Minute // more than any pause of a source, a store or a watcher
	sleepBubble(enough)
	if l.unhappy() {
		w.say("410, because something was refused")
		w.troubled.Store(true)
		w.src.Expire()
		sleepBubble(enough)
	}
	// Twice: a watch may have ended because its version was too old, and a silent stream delays
	// the next watch.
	for range 2 {
		w.src.Bookmark()
		sleepBubble(2 * time.Second) // a Durable forgets once a second
		if l.inf.ResourceVersion() == w.src.ResourceVersion() {
			break
		}
		sleepBubble(enough)
	}
	w.quiet = true
	l.audit()
	l.checkSettled()
}

// unhappy reports whether a change may be missing until the next list. Every other change that
// a watch has delivered must be in the ledger. Promises 1 and 6.
func (l *incarnation) unhappy() bool {
	missing := l.tap.missing(l)
	l.mu.Lock()
	for _, namespace := range namespaces {
		l.left[namespace] = !slices.Contains(l.t.in, namespace)
	}
	l.mu.Unlock()
	if len(missing) > 0 && !l.crashed.Load() {
		l.t.problem("a watch delivered these versions, but the store was not given them: %s", strings.Join(testkit.Sorted(missing), ", "))
	}
	l.faults.mu.Lock()
	defer l.faults.mu.Unlock()
	refused := len(l.faults.refusals) > 0
	clear(l.faults.refusals)
	return refused
}

// excused reports whether the store may lack the latest version of a key.
func (l *incarnation) excused(key string) bool {
	l.faults.mu.Lock()
	defer l.faults.mu.Unlock()
	return l.faults.refusals[key]
}

// everExcused reports whether the store was allowed at any time to lack a version of a key.
func (l *incarnation) everExcused(key string) bool {
	l.faults.mu.Lock()
	defer l.faults.mu.Unlock()
	return l.faults.refused[key]
}

func (l *incarnation) checkSettled() {
	w, h := l.t, l.inf.Health()
	if l.crashed.Load() {
		return
	}
	objs, err := l.inf.List("", nil)
	all := len(objs)
	objs = slices.DeleteFunc(objs, func(obj configMap) bool { // the store has refused to delete it
		return !slices.Contains(w.in, obj.Namespace) && l.everExcused(keyNamed(obj.Name))
	})
	if len(w.in) == 0 {
		l.checkEmpty(h, objs)
		return
	}
	if got := words(objs); got != w.wanted() || err != nil {
		w.problem("the store (%v) has\n    %s\n  but the source has\n    %s", err, got, w.wanted()) // promises 5 and 6
	}
	if !h.Started || h.Stopped || !h.Synced || !h.Watching || h.SourceError != nil || h.SourceFailures != 0 || h.StoreError != nil ||
		h.StoreBusy != 0 || h.Queued != 0 || h.Ready() != nil || h.Live() != nil {
		w.problem("all is well, but Health is %+v", h) // Health
	}
	if h.Objects != all && h.Objects != -1 || h.ResourceVersion != w.src.ResourceVersion() {
		w.problem("there are %d objects at version %s, but Health is %+v", len(objs), w.src.ResourceVersion(), h)
	}
	l.checkCounts(h)
	if len(objs) == all {
		l.checkIndex()
	}
	for _, p := range l.pupils {
		p.mu.Lock()
		removed, synced := p.removed, p.isSynced()
		p.mu.Unlock()
		switch {
		case removed:
		case !synced:
			w.problem("%s (%v) has not synced", p.name, p.pupilKind) // promise 4
		default:
			p.checkCaughtUp()
			p.checkQuiet()
		}
	}
	l.checkTombstones(h)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := l.inf.WaitForSync(ctx); err != nil {
		w.problem("%v", err)
	}
	if w.split { // a namespace in which nothing has happened has an older version
		w.src.Bookmark()
	}
	if err := l.inf.WaitForVersion(ctx, "", w.src.ResourceVersion()); err != nil {
		w.problem("%v", err)
	}
}

// checkEmpty checks an informer that reads no namespace.
func (l *incarnation) checkEmpty(h informer.Health, objs []configMap) {
	if len(objs) > 0 || !h.Synced || h.Queued != 0 || len(h.Namespaces) > 0 || h.Ready() != nil {
		l.t.problem("without namespaces the store has\n    %s\n  and Health is %+v", words(objs), h)
	}
	for _, p := range l.pupils {
		if p.isWell() {
			p.checkCaughtUp()
			p.checkQuiet()
		}
	}
}

// checkCounts compares the informer's counts with those of the test.
func (l *incarnation) checkCounts(h informer.Health) {
	l.mu.Lock()
	refused, applied, writes := l.refused, l.applied, l.writes
	l.mu.Unlock()
	if h.Refused != refused {
		l.t.problem("%d changes were refused, but Health says %d", refused, h.Refused) // promise 11, Health.Refused
	}
	if l.t.observed && applied != writes {
		l.t.problem("the store has taken changes that make %d events, but the Observer got %d", writes, applied) // Observer.Apply
	}
}

// checkIndex checks that each object is found under its index values and under no other.
func (l *incarnation) checkIndex() {
	all := map[string][]configMap{}
	for _, obj := range l.t.present() {
		all[lastDigit(obj)] = append(all[lastDigit(obj)], obj)
	}
	for digit := range strings.SplitSeq("0123456789", "") {
		if !l.t.indexed {
			break
		}
		found, err := l.inf.ByIndex("last", digit)
		if words(found) != words(all[digit]) || err != nil {
			l.t.problem("the index has under %s (%v)\n    %s\n  want\n    %s", digit, err, words(found), words(all[digit])) // Options.Indexers
		}
	}
	var found []configMap
	for _, namespace := range namespaces {
		objs, err := l.inf.List(namespace, nil)
		if err != nil {
			l.t.problem("List of %s: %v", namespace, err)
		}
		found = append(found, objs...)
	}
	if words(found) != l.t.wanted() {
		l.t.problem("by namespace there is\n    %s", words(found)) // Reader.List
	}
}

// checkTombstones checks that the watchers got the deletes of all tombstones that the store
// had at the start, and that the tombstones are gone. Promise 5.
func (l *incarnation) checkTombstones(h informer.Health) {
	listened := false
	for _, p := range l.pupils {
		p.mu.Lock()
		listened = listened || !p.removed
		for uid, key := range l.tombs {
			if p.early && !p.removed && !p.handler && !p.chooses && !p.ends[uid] && p.opts.Retry == nil {
				l.t.problem("%s did not get the delete of %s, %s", p.name, idOf(uid), key)
			}
		}
		p.mu.Unlock()
	}
	if durable := l.t.shelf.durable; listened && durable != nil {
		if tombs, err := durable.Tombstones(context.Background()); len(tombs) > 0 || h.Tombstones > 0 || err != nil {
			l.t.problem("%d tombstones are left (%v); Health says %d", len(tombs), err, h.Tombstones)
		}
	}
}

// checkQuiet checks that no event waits for the watcher.
func (p *pupil) checkQuiet() {
	if p.reg == nil {
		return
	}
	s := p.reg.Stats()
	if s.Pending != 0 || s.Lagging || s.OldestWaiting != 0 || !s.Synced {
		p.t.problem("%s is well, but its Stats are %+v", p.name, s) // WatcherStats
	}
	if p.life.figuresOf(p.name).lagging {
		p.t.problem("%s is well, but the Observer was told that it lags", p.name)
	}
	if p.synced != 1 {
		p.t.problem("%s: OnSynced was called %d times", p.name, p.synced)
	}
	if p.opts.ResyncPeriod > 0 {
		for _, key := range p.life.keys() {
			entries := p.life.entries(key)
			if entries[len(entries)-1] != nothing && p.resynced[key] == 0 && time.Since(p.joined) > 5*time.Minute && p.t.lives == 1 && len(entries) < 3 {
				p.t.problem("%s was not resynced: %s", p.name, key) // ResyncPeriod
			}
		}
	}
}

// checkResyncs checks that no watcher is resynced too often.
func (l *incarnation) checkResyncs() {
	for _, p := range l.pupils {
		p.mu.Lock()
		for key, n := range p.resynced {
			if most := int(time.Since(p.joined)/p.opts.ResyncPeriod) + 1; n > most {
				l.t.problem("%s was resynced %d times: %s", p.name, n, key)
			}
		}
		p.mu.Unlock()
	}
}

// checkStopped checks the events that the watchers did not get before the stop. exact says
// that nothing was happening when ctx ended. Promise 9.
func (l *incarnation) checkStopped(exact bool) {
	w := l.t
	synctest.Wait()
	for _, p := range l.pupils {
		p.audit()
		p.mu.Lock()
		p.checkLast(exact)
		p.mu.Unlock()
	}
	if h := l.inf.Health(); !h.Stopped || h.Ready() == nil {
		w.problem("after the stop Health is %+v", h)
	}
	if _, err := l.inf.AddWatcher(informer.WatcherFuncs[configMap]{}, informer.WatcherOptions{}); !errors.Is(err, informer.ErrStopped) {
		w.problem("after the stop AddWatcher returns %v", err)
	}
	if n := w.src.Watches(); n > 0 {
		w.problem("after the stop %d watches are open", n)
	}
}

func (p *pupil) checkLast(exact bool) {
	w := p.t
	if len(p.open) > 0 {
		w.problem("after the stop %s is being called", p.name)
	}
	if p.reg == nil {
		return
	}
	if !channel.Closed(p.reg.Stopped()) {
		w.problem("after the stop %s has not stopped", p.name)
	}
	s, f := p.reg.Stats(), p.life.figuresOf(p.name)
	if p.removed {
		return
	}
	if w.observed && f.undelivered != s.Pending {
		w.problem("%s did not get %d events, but the Observer counted %d", p.name, s.Pending, f.undelivered)
	}
	if due, known := p.due(); exact && known && s.Pending != due-p.delivered-p.gaveUp-s.Merged && !p.chooses {
		w.problem("%s (%v) was owed %d events, has handled %d and given up %d: %+v", p.name, p.pupilKind, due, p.delivered, p.gaveUp, s)
	}
	if w.drain > 0 && p.isSynced() && p.isWilling() && s.Pending > 0 {
		w.problem("%s (%v) did not get %d events, although DrainTimeout left time: %+v", p.name, p.pupilKind, s.Pending, s) // Options.DrainTimeout
	}
}

// isWilling reports whether the watcher can take all waiting events within DrainTimeout.
func (p *pupil) isWilling() bool {
	quick := p.trouble
	if quick.slow = 0; p.t.drain < time.Minute {
		quick.slow = p.trouble.slow
	}
	quick.brings = false
	return quick == (trouble{}) && (p.opts.Retry == nil || p.t.drain == time.Minute) && !p.hasFailing()
}

func (p *pupil) hasFailing() bool {
	for _, b := range p.beliefs {
		if b.failing != nil && p.most == 0 {
			return true
		}
	}
	return false
}

// The readers.

// reader runs read in its own goroutine, with a time limit.
func (l *incarnation) reader(read func(context.Context)) {
	l.readers.Go(func() {
		// The limit is an odd time, at which nothing else happens. Otherwise the order of the
		// two would be left to chance.
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second-7)
		defer cancel()
		read(ctx)
	})
}

// waitForVersion writes, waits for that version, and reads the object. Promise of
// WaitForVersion: Get then includes the write.
func (w *torture) waitForVersion(d deed) {
	w.write(int(d.a), false)
	l, name, p := w.life, nameOf(int(d.a)), w.now(int(d.a))
	w.say("write %s, %v, and wait for that version", name, p)
	version := w.src.ResourceVersion()
	l.reader(func(ctx context.Context) {
		namespace := placeOf(name).Namespace
		err := l.inf.WaitForVersion(ctx, namespace, version)
		if l.crashed.Load() {
			return
		}
		if err != nil {
			at := l.inf.ResourceVersion()
			if w.split {
				at = ""
				for _, n := range l.inf.Health().Namespaces {
					if n.Namespace == namespace {
						at = n.ResourceVersion
					}
				}
			}
			if past, none := resourceversion.CompareResourceVersion(at, version); errors.Is(err, context.DeadlineExceeded) && none == nil && past >= 0 {
				w.problem("WaitForVersion(%s) still waits at version %s", version, at)
			}
			return
		}
		obj, exists, err := l.inf.Get(placeOf(name))
		_, ended := w.end(p.uid)
		switch got := presenceOf(obj); {
		case err != nil || l.excused(keyNamed(name)) || l.crashed.Load() || w.isAbsent(keyNamed(name)):
		case !exists && !ended, exists && got.uid == p.uid && got.version < p.version, exists && got.uid != p.uid && !ended:
			w.problem("after WaitForVersion(%s), %s is %v, want %v", version, name, got, p)
		}
	})
}

// waitForObject writes an object and waits for it. Promise of WaitFor: its condition sees the
// state that the store has now, and every state that a later change brings.
func (w *torture) waitForObject(d deed) {
	l, name := w.life, nameOf(int(d.a))
	w.write(int(d.a), false)
	p := w.now(int(d.a))
	w.say("write %s, %v, and wait for it", name, p)
	looks := make(chan struct{})
	begun := sync.OnceFunc(func() { close(looks) })
	l.reader(func(ctx context.Context) {
		err := l.inf.WaitFor(ctx, placeOf(name), func(obj configMap, exists bool) bool {
			begun()
			got := presenceOf(obj)
			if _, known := w.fact(got); exists != (obj != nil) || exists && !known {
				w.problem("WaitFor %s saw %v, which the source never had", name, got)
			}
			return got == p || got.version > p.version
		})
		taken := find(l.entries(keyNamed(name)), -1, p) >= 0
		switch {
		case l.crashed.Load() || l.stopping.Load():
		case err == nil:
			l.mu.Lock()
			defer l.mu.Unlock()
			l.found[p] = name
		case errors.Is(err, context.DeadlineExceeded) && taken && !l.faults.active():
			w.problem("WaitFor %s has not found %v, although the store has taken it: %v", name, p, l.entries(keyNamed(name)))
		}
	})
	select { // WaitFor cannot find a state that is gone before its first look
	case <-looks:
	case <-time.After(1): // the store hangs or is slow
	}
}

// checkFound checks that the store has taken each version that WaitFor has found, or a newer
// version. The ledger may not have the found version itself yet.
func (l *incarnation) checkFound() {
	l.mu.Lock()
	found := l.found
	l.found = map[presence]string{}
	l.mu.Unlock()
	for p, name := range found {
		entries := l.entries(keyNamed(name))
		if !slices.ContainsFunc(entries, func(other presence) bool { return other.version >= p.version }) && !l.stopping.Load() {
			l.t.problem("WaitFor %s has found %v, which the store does not have: %v", name, p, entries)
		}
	}
}

// look reads in every way and checks that the source had each object that was read.
func (w *torture) look(d deed) {
	l, name := w.life, nameOf(int(d.a))
	w.say("look at %s", name)
	l.reader(func(context.Context) {
		all, err := l.inf.List("", nil)
		if one, exists, wrong := l.inf.Get(placeOf(name)); exists && wrong == nil {
			all = append(all, one)
		}
		for _, obj := range l.inf.All() {
			all = append(all, obj)
		}
		if found, wrong := l.inf.ByIndex("namespace", placeOf(name).Namespace); wrong == nil {
			all = append(all, found...)
		}
		for _, obj := range all {
			if _, known := w.fact(presenceOf(obj)); !known {
				w.problem("%v was read, but the source never had it (%v)", presenceOf(obj), err)
			}
		}
	})
}

// at returns the state of the source at a version.
func (w *torture) at(version uint64) map[string]presence {
	w.mu.Lock()
	defer w.mu.Unlock()
	then := map[string]presence{}
	for p, f := range w.facts {
		if end, ended := w.ended[p.uid]; p.version > version || ended && end <= version {
			continue
		}
		if key := keyNamed(f.name); then[key].version < p.version {
			then[key] = p
		}
	}
	return then
}
