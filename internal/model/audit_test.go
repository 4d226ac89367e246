package model_test

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/channel"
)

// The checks that TestModel makes between operations. Each check names the promise of doc.go,
// or the documented name, that it comes from.

// audit checks all events that the watchers got since the last audit.
func (l *incarnation) audit() {
	if l.crashed.Load() {
		return
	}
	l.checkFound()
	for _, p := range l.pupils {
		p.audit()
	}
	if l.well() && !l.stopping.Load() {
		for _, p := range l.pupils {
			if p.isWell() {
				p.checkCaughtUp() // promise 7: no watcher waits for another
			}
		}
	}
}

func (p *pupil) audit() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.over {
		if c.marker {
			p.marked = true
			p.checkSyncedLocked()
			continue
		}
		if c.wellFormed() {
			p.judgeLocked(c)
		}
	}
	p.over, p.removed = nil, p.leaving
	if p.handle != nil || p.reg == nil || p.life.crashed.Load() {
		return
	}
	p.checkFigures()
	if p.removed && len(p.open) == 0 && !p.life.faults.active() && !channel.Closed(p.reg.Stopped()) {
		p.t.problem("%s is removed, but not stopped", p.name) // Registration.Stopped
	}
	if channel.Closed(p.reg.Synced()) && !p.marked {
		p.t.problem("%s has synced before OnSynced was called", p.name) // WatcherOptions.OnSynced
	}
	if p.never && channel.Closed(p.reg.Synced()) {
		p.t.problem("%s has synced after Remove", p.name) // promise 4
	}
	if p.synced > 0 && !p.removed && !p.life.stopping.Load() && !channel.Closed(p.reg.Synced()) {
		p.t.problem("%s has not synced although OnSynced was called", p.name) // promise 4
	}
}

// judgeLocked compares a call with the ledger.
func (p *pupil) judgeLocked(c *call) {
	p.heard = append(p.heard, fmt.Sprintf("%v %v %v (%v)", c.Origin, c.Type, presenceOf(c.Object()), c.err))
	if c.cut { // an interrupted call does not count as a delivery
		if before := p.last[c.key]; before != nil && before.retried {
			p.again++
		}
		return
	}
	if p.inheritsLocked(c) {
		b := p.ghosts[c.Old.UID]
		if b == nil {
			b = &belief{}
			p.ghosts[c.Old.UID] = b
		}
		p.settleLocked(c, b)
		return
	}
	entries := p.entries(c.key)
	b := p.beliefs[c.key]
	if b == nil {
		b = p.newBelief(entries, c)
		p.beliefs[c.key] = b
	}
	if b.failing != nil {
		// If an object leaves the selection, its delete fails and the object comes back, the
		// watcher gets an update.
		left := p.chooses && b.failing.Type == informer.EventDeleted
		if err := supersedes(&c.event, b.failing); err != nil && !left {
			p.wrong(&c.event, "%v", err) // WatcherOptions.Retry
		}
	}
	to, merged, hidden, err := b.follow(entries, p.asTold(c, b))
	if err != nil {
		p.wrong(&c.event, "%v", err) // promises 2, 3 and 5
		return
	}
	p.checkMerging(c, b, merged, hidden)
	p.checkOrigin(c)
	p.checkSame(c, b)
	p.settleLocked(c, b)
	if b.failing == nil {
		b.at, b.knows = to, presenceOf(c.New)
	}
}

// entries returns the ledger of a key as this watcher sees it.
func (p *pupil) entries(key string) []presence {
	all := p.life.entries(key)
	if p.chooses {
		return narrowed(all, p.t.chosen)
	}
	return all
}

// newBelief returns the watcher's belief about a key before the first event.
func (p *pupil) newBelief(entries []presence, c *call) *belief {
	joined := p.born[c.key]
	if p.chooses {
		joined = len(narrowed(p.life.entries(c.key)[:joined], p.t.chosen))
	}
	if !p.exact { // the watcher may have joined at any entry
		at := find(entries, max(joined, 1)-2, presenceOf(c.New)) - 1
		if at < -1 {
			at = find(entries, -1, presenceOf(c.New)) - 1
		}
		return &belief{at: at, from: at}
	}
	return newBelief(entries, joined)
}

// asTold returns the event as the ledger has it. A client-go handler gets the final state as
// Old, not the last state that the handler knew.
func (p *pupil) asTold(c *call, b *belief) *event {
	e := c.event
	if p.handler && e.Type == informer.EventDeleted && e.Old.UID == b.knows.uid {
		e.Old = e.Old.DeepCopy()
		e.Old.UID, e.Old.ResourceVersion = b.knows.uid, fmt.Sprint(b.knows.version)
	}
	return &e
}

// inheritsLocked reports whether c is the delete of an object that was deleted before the
// process began. Promise 5: such deletes come before all other events.
func (p *pupil) inheritsLocked(c *call) bool {
	if c.Type != informer.EventDeleted || !c.FinalStateUnknown || p.t.store != durableStore ||
		c.Origin != informer.OriginInitial && !p.handler {
		return false
	}
	if b := p.beliefs[c.key]; b != nil && (b.knows.uid == c.Old.UID || b.tried.uid == c.Old.UID) {
		return false
	}
	p.inherited++
	return true
}

// settleLocked records the result of a call. Promise: WatcherOptions.Retry.
func (p *pupil) settleLocked(c *call, b *belief) {
	p.checkAttempt(c, b)
	p.last[c.key] = c
	b.failing = nil
	if !c.retried {
		b.tried = nothing
	}
	switch {
	case c.err == nil:
		p.delivered++
		if c.Origin == informer.OriginResync {
			p.resynced[c.key]++
		}
	case c.retried:
		b.failing = &c.event
		if c.New != nil {
			b.tried = presenceOf(c.New)
		}
	default:
		p.gaveUp++
		if c.Type == informer.EventDeleted {
			p.ends[c.Old.UID] = true
		}
	}
}

// checkAttempt checks that Retry was called for a failure, with the right number of failures.
func (p *pupil) checkAttempt(c *call, b *belief) {
	permanent := errors.Is(c.err, informer.ErrPermanent)
	switch {
	case c.err != nil && p.opts.Retry != nil && !permanent && !c.judged && !p.life.stopping.Load():
		p.wrong(&c.event, "the call failed, but Retry was not called")
	case b.failing == nil:
		if c.judged && c.failures != 1 {
			p.wrong(&c.event, "the call failed once, but Retry got %d failures", c.failures)
		}
		return
	}
	same := b.failing.Type == c.Type && b.failing.New == c.New && b.failing.Old == c.Old
	p.again++
	strictly := p.opts.ResyncPeriod == 0 && !p.chooses
	if same && strictly {
		p.same++
	}
	if before := p.last[c.key].failures; c.judged && c.failures != 1 && (!same || c.failures != before+1) ||
		c.judged && c.failures == 1 && same && strictly {
		p.wrong(&c.event, "the same event again: %v; Retry got %d failures, and %d the time before", same, c.failures, before)
	}
}

// checkMerging checks that states are left out only by merging, and that Merged is then set.
// Promise 8, Event.Merged.
func (p *pupil) checkMerging(c *call, b *belief, merged, hidden int) {
	switch {
	case p.strict() && (merged > 0 || hidden > 0 && !p.unsure(b) || c.Merged):
		p.wrong(&c.event, "%d states of the object, and %d before it, were left out", merged, hidden)
	case p.chooses || p.opts.ResyncPeriod > 0 || p.strict() || p.unsure(b):
	case p.t.isAbsent(c.key): // the ledger may have one version twice, and it is not clear which one the event is
	case b.failing != nil && c.Merged: // Merged may come from an earlier attempt
	case c.Merged != (merged > 0):
		p.wrong(&c.event, "Merged is wrong: %d states were merged into the event", merged)
	}
}

// unsure reports whether the watcher's starting point in the ledger is unknown.
func (p *pupil) unsure(b *belief) bool { return !p.exact && b.at == b.from }

// checkOrigin checks the Origin of an event.
func (p *pupil) checkOrigin(c *call) {
	if p.handler || c.Merged && c.Origin != informer.OriginInitial {
		return
	}
	l := p.life
	switch c.Origin {
	case informer.OriginInitial:
		if p.marked && !p.crew() && !p.t.isAbsent(c.key) {
			p.wrong(&c.event, "the watcher has synced already") // promises 3 and 4
		}
	case informer.OriginWatch:
		if !p.marked && p.strict() && !p.t.split {
			p.wrong(&c.event, "the watcher has not synced yet")
		}
		if c.New != nil && !p.chooses && !l.tap.watched(presenceOf(c.New)) {
			p.wrong(&c.event, "no watch delivered the object")
		}
		p.checkOrder(c)
	case informer.OriginRelist:
		if l.tap.count(c.key) < 2 && p.t.store != durableStore {
			p.wrong(&c.event, "there was no relist")
		}
	case informer.OriginLeft:
		if c.New != nil || !c.FinalStateUnknown || !p.t.isAbsent(c.key) {
			p.wrong(&c.event, "its namespace has never left") // SetNamespaces
		}
	case informer.OriginResync:
		if !p.marked || c.Old != c.New && p.t.store.same() {
			p.wrong(&c.event, "the watcher has not synced, or Old is not New") // ResyncPeriod, Event.Old
		}
	}
}

// checkOrder checks that live events come in the order of their versions: RealFIFO.
func (p *pupil) checkOrder(c *call) {
	if p.t.queue != informer.QueueRealFIFO || !p.strict() {
		return
	}
	version := presenceOf(c.New).version
	if c.New == nil {
		version, _ = p.t.end(c.Old.UID)
		if c.FinalStateUnknown || p.chooses {
			return
		}
	}
	scope := ""
	if p.t.split {
		scope = c.Key().Namespace
	}
	if version <= p.newest[scope] {
		p.wrong(&c.event, "version %d comes after version %d", version, p.newest[scope])
	}
	p.newest[scope] = version
}

// checkSame checks that Old is the same pointer as the New before, if the store returns the
// objects it was given. Promise 3, Options.Store.
func (p *pupil) checkSame(c *call, b *belief) {
	if before := p.last[c.key]; before != nil && b.failing == nil && c.Old != nil && before.New != nil && !p.handler && !p.chooses &&
		p.t.store.same() && presenceOf(before.New) == presenceOf(c.Old) && before.New != c.Old {
		p.wrong(&c.event, "Old equals the New before, but is another object")
	}
}

// checkSyncedLocked checks, when OnSynced is called, that the watcher got all of its initial
// state. Promise 4.
func (p *pupil) checkSyncedLocked() {
	if !p.strict() || p.handler || !p.exact {
		return
	}
	wants := func(key string, what presence) {
		if _, ended := p.t.end(what.uid); ended {
			return
		}
		if b := p.beliefs[key]; b == nil && !p.life.everExcused(key) && !p.t.isAbsent(key) && (!p.chooses || p.t.chosen(what)) {
			p.t.problem("%s has synced without an event for %s\n    heard: %v", p.name, key, p.heard)
		}
	}
	for key, n := range p.born {
		if n > 0 && p.life.entries(key)[n-1] != nothing {
			wants(key, p.life.entries(key)[n-1])
		}
	}
	if !p.early {
		return
	}
	for namespace, first := range p.life.tap.firstLists() {
		for key, what := range p.t.at(first) {
			if namespace == "" || strings.HasPrefix(key, namespace+"/") {
				wants(key, what)
			}
		}
	}
}

// checkFigures compares Stats with the calls. Each event for the watcher counts in exactly one
// of Pending, Delivered, Failed and Merged. See WatcherStats.
func (p *pupil) checkFigures() {
	s, f := p.reg.Stats(), p.life.figuresOf(p.name)
	if !p.chooses && (s.Delivered != p.delivered || s.Failed != p.gaveUp) && len(p.open) == 0 || s.Pending < 0 {
		p.t.problem("%s has handled %d events and given up %d, but its Stats are %+v", p.name, p.delivered, p.gaveUp, s)
	}
	if s.Retried < p.same || !p.chooses && s.Retried > p.again+len(p.open) {
		p.t.problem("%s had %d calls after failures, %d of them for the same event, but its Stats are %+v\n    heard: %v", p.name, p.again, p.same, s, p.heard)
	}
	if f.gaveUp != s.Failed && !p.life.stopping.Load() {
		p.t.problem("%s has given up %d events, but %d were reported", p.name, s.Failed, f.gaveUp) // promise 11
	}
	if p.t.observed && (f.merged != s.Merged || f.handled != s.Delivered || f.failed != s.Failed && !p.life.stopping.Load()) {
		p.t.problem("%s: its Stats are %+v, but the Observer got %+v", p.name, s, f) // Observer
	}
	if due, known := p.due(); known && !p.removed && due != s.Pending+s.Delivered+s.Failed+s.Merged {
		p.t.problem("%s (%v) is owed %d events in all, but its Stats are %+v", p.name, p.pupilKind, due, s)
	}
	if n := s.Pending; p.opts.MaxBacklog > 0 && !p.removed && channel.Closed(p.reg.Synced()) && n > 2*p.opts.MaxBacklog+3*6+len(p.life.tombs) && !p.crew() {
		p.t.problem("%d events wait for %s (%v)", n, p.name, p.pupilKind) // promise 8
	}
	if p.strict() && s.Merged > 0 {
		p.t.problem("%s (%v) merges events", p.name, p.pupilKind) // MaxBacklog
	}
	if (len(p.open) > 0) != (s.OldestWaiting > 0) && len(p.open) > 0 && !channel.Closed(p.reg.Stopped()) && time.Since(p.calm) > hour {
		p.t.problem("%s: its Stats are %+v", p.name, s)
	}
}

// due returns how many events the watcher is owed since it joined, if that is known.
func (p *pupil) due() (n int, known bool) {
	l := p.life
	if !p.exact || p.opts.ResyncPeriod > 0 || l.faults.active() || l.cancel == nil || !l.inf.HasSynced() || !channel.Closed(p.reg.Synced()) && !p.removed {
		return 0, false
	}
	if p.t.store == durableStore && (len(l.tombs) > 0 || p.inherited > 0 || p.chooses) {
		return 0, false // which tombstones are delivered twice is not promised
	}
	if p.t.store == defaultStore && l.pupils[0].reg.Stats().Pending > 0 {
		return 0, false // a stop came before the witness, which keeps the ledger, had everything
	}
	for _, key := range l.keys() {
		entries := l.entries(key)
		n += len(entries) - 1 - newBelief(entries, p.born[key]).from
	}
	return n, true
}

// isWell reports whether the watcher has been free of trouble for long enough.
func (p *pupil) isWell() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.trouble
	calm := !p.crew() || time.Since(p.calm) > time.Minute || p.opts.Retry == nil
	return !p.removed && t.blocked == nil && t.slow == 0 && len(p.open) == 0 && calm && p.isSynced()
}

func (p *pupil) isSynced() bool {
	if p.handle != nil {
		return p.handle.HasSynced()
	}
	return p.reg != nil && channel.Closed(p.reg.Synced())
}

// checkCaughtUp checks that the watcher got every change. Promises 1 and 7.
func (p *pupil) checkCaughtUp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, key := range p.life.keys() {
		entries, b := p.entries(key), p.beliefs[key]
		known := nothing
		if b != nil {
			known = b.knows
		}
		now := entries[len(entries)-1]
		switch {
		case b != nil && b.failing != nil:
			p.t.problem("%s was not called again for %s, whose states in the store were %v\n    heard: %v", p.name, key, entries, p.heard) // Retry
		case known != now:
			p.t.problem("%s (%v) believes that %s is %v, but the store has %v\n    heard: %v", p.name, p.pupilKind, key, known, now, p.heard)
		case p.strict() && b != nil && b.at != len(entries)-1:
			p.t.problem("%s got events only up to entry %d of %v", p.name, b.at, entries)
		}
	}
}

// checkLeft checks that each object the watcher knows is still in the store, or has a
// tombstone there. Promise 5, for a Durable.
func (p *pupil) checkLeft(left map[types.UID]bool) {
	p.audit()
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, b := range p.beliefs {
		if b.knows != nothing && !left[b.knows.uid] && !p.removed && !p.chooses && !p.handler {
			p.t.problem("%s knows %s as %v, but the store has neither the object nor a tombstone: %v", p.name, key, b.knows, p.heard)
		}
	}
}

// checkTombstone checks that a tombstone is kept until the watcher got the delete.
func (p *pupil) checkTombstone(uid types.UID, kept bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !kept && !p.ends[uid] && p.early && !p.removed && !p.handler && !p.chooses {
		p.t.problem("%s did not get the delete of %s, but the tombstone is gone", p.name, idOf(uid))
	}
}
