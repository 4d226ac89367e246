package model_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/channel"
)

// The watchers of TestModel, and the checks of each call.

type pupilKind struct {
	name    string
	opts    informer.WatcherOptions
	most    int  // maximum number of attempts at an event; 0 for no limit
	chooses bool // it selects the versions that chosen selects
	handler bool // it is a handler of client-go
	witness bool // it records in the ledger the changes of the default store
}

func newKind(b byte) pupilKind {
	k := pupilKind{opts: informer.WatcherOptions{MaxBacklog: []int{0, 2, -1, 1}[b%4], RecoverPanics: b/64%2 > 0}}
	if b/4%2 > 0 {
		k.opts.Workers = 4
	}
	if b/8%2 > 0 {
		k.opts.Retry = func(int, error) (time.Duration, bool) { return 0, false } // register uses p.retry instead
		k.most = int(b/128) * 3
	}
	switch b / 16 % 4 {
	case 1:
		k.opts.ResyncPeriod = 5 * time.Second
	case 2:
		k.chooses = true
	case 3:
		k.handler = true
		k.opts = informer.WatcherOptions{}
	}
	return k
}

func (k pupilKind) String() string {
	if k.handler {
		return "a handler of client-go"
	}
	return fmt.Sprintf("MaxBacklog %d, Workers %d, Retry %v (at most %d), ResyncPeriod %v, RecoverPanics %v, Select %v",
		k.opts.MaxBacklog, k.opts.Workers, k.opts.Retry != nil, k.most, k.opts.ResyncPeriod, k.opts.RecoverPanics, k.chooses)
}

// crew reports whether the watcher may be called for several objects at once, or called again
// for one event.
func (k pupilKind) crew() bool { return k.opts.Workers > 1 || k.opts.Retry != nil }

// strict reports whether the watcher gets every event, without merging.
func (k pupilKind) strict() bool { return !k.crew() && (k.opts.MaxBacklog <= 0) }

// pupil is a watcher whose calls the test checks.
type pupil struct {
	pupilKind
	t      *torture
	life   *incarnation
	exact  bool           // the state at the time of the join is known
	born   map[string]int // number of ledger entries at the join, by key
	early  bool           // added before Run
	joined time.Time
	handle cache.ResourceEventHandlerRegistration

	mu      sync.Mutex // protects the rest; never held while waiting
	reg     *informer.Registration
	leaving bool             // Remove was called
	removed bool             // no new call may begin
	never   bool             // Synced was not closed before the removal
	open    map[string]*call // calls in progress, by key
	over    []*call          // finished calls that are not audited yet
	trouble trouble
	calm    time.Time // time of the last trouble
	synced  int       // number of calls of OnSynced

	// The fields below are used by audit.
	beliefs   map[string]*belief
	ghosts    map[types.UID]*belief // by UID of a tombstone
	last      map[string]*call      // by key
	delivered int                   // calls that succeeded
	gaveUp    int
	again     int // calls after a failure
	same      int // calls after a failure for the same event
	resynced  map[string]int
	inherited int // number of tombstones from before the process
	marked    bool
	newest    map[string]uint64  // by namespace, if the informer is one over several
	ends      map[types.UID]bool // objects whose delete was handled
	heard     []string
}

// trouble is how a watcher behaves in the next calls.
type trouble struct {
	blocked   chan struct{}
	slow      time.Duration
	fails     int
	permanent bool
	panics    int
	leaves    bool
	brings    bool // adds another watcher
}

type call struct {
	event
	key      string
	err      error
	cut      bool // its ctx is done
	judged   bool // Retry was called
	failures int
	retried  bool
	marker   bool // stands for the call of OnSynced, not for an event
}

// wellFormed reports whether Old and New are set as the event's type requires.
func (c *call) wellFormed() bool {
	return (c.Type == informer.EventAdded) == (c.Old == nil) && (c.Type == informer.EventDeleted) == (c.New == nil)
}

// failure is the error that a watcher returns, or the value it panics with.
type failure struct {
	call *call
	wrap error
}

func (f *failure) Error() string { return "failed on purpose: " + f.call.key }

func (f *failure) Unwrap() []error { return []error{errInjected, f.wrap} }

// add adds a watcher. exactly says that nothing happens at the same time.
func (l *incarnation) add(kind pupilKind, exactly bool) *pupil {
	p := &pupil{
		pupilKind: kind, t: l.t, life: l, born: map[string]int{}, early: l.cancel == nil, joined: time.Now(),
		open: map[string]*call{}, beliefs: map[string]*belief{}, last: map[string]*call{}, ends: map[types.UID]bool{}, resynced: map[string]int{}, newest: map[string]uint64{}, ghosts: map[types.UID]*belief{},
	}
	p.exact = p.early || exactly && !l.faults.active()
	if p.name == "" {
		p.name = fmt.Sprintf("pupil-%d", len(l.pupils))
	}
	for _, key := range l.keys() {
		p.born[key] = len(l.entries(key))
	}
	l.pupils = append(l.pupils, p)
	if kind.handler {
		var err error
		if p.handle, err = l.inf.SharedIndexInformer().AddEventHandler(adaptor{p}); err != nil {
			l.t.problem("AddEventHandler: %v", err)
		}
		return p
	}
	p.register()
	return p
}

func (p *pupil) register() {
	opts := p.opts
	opts.Name, opts.OnSynced = p.name, p.onSynced
	if opts.Retry != nil {
		opts.Retry = p.retry
	}
	w := informer.ResourceWatcher[configMap](informer.WatcherFuncs[configMap]{
		AddFunc:    func(ctx context.Context, e event) error { return p.tell(ctx, informer.EventAdded, e) },
		UpdateFunc: func(ctx context.Context, e event) error { return p.tell(ctx, informer.EventUpdated, e) },
		DeleteFunc: func(ctx context.Context, e event) error { return p.tell(ctx, informer.EventDeleted, e) },
	})
	if p.chooses {
		w = informer.Select(w, func(obj configMap) bool { return chosenValue(obj.Data["value"]) })
	}
	reg, err := p.life.inf.AddWatcher(w, opts)
	if err != nil {
		p.t.problem("AddWatcher: %v", err)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reg = reg
}

func (p *pupil) tell(ctx context.Context, called informer.EventType, e event) error {
	if p.life.crashed.Load() {
		return nil
	}
	if called != e.Type {
		p.wrong(&e, "it was delivered to the method for %v", called)
	}
	c, does := p.begin(ctx, &e)
	if c.wellFormed() {
		p.checkStored(&e)
	}
	linger(ctx, does.slow, does.blocked)
	if does.brings && !p.life.stopping.Load() {
		p.life.addLater()
	}
	if does.leaves {
		p.leave()
	}
	return p.end(ctx, c, does)
}

// begin records the start of a call.
func (p *pupil) begin(ctx context.Context, e *event) (*call, trouble) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := &call{event: *e, key: keyNamed(e.Key().Name)}
	p.checkCallLocked(ctx, c)
	p.open[c.key] = c
	does := p.trouble
	p.trouble.leaves, p.trouble.brings = false, false
	if p.trouble.fails > 0 {
		p.trouble.fails--
	}
	if does.fails == 0 && p.trouble.panics > 0 {
		p.trouble.panics--
	}
	return c, does
}

// end records the end of a call, and returns the error that the watcher returns.
func (p *pupil) end(ctx context.Context, c *call, does trouble) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, c.key)
	p.over = append(p.over, c)
	fails := does.fails > 0 || does.panics > 0
	if p.crew() || fails {
		p.calm = time.Now()
	}
	switch {
	case ctx.Err() != nil && !p.handler:
		c.cut, c.err = true, ctx.Err()
	case p.life.crashed.Load() || !fails:
	default:
		f := &failure{call: c, wrap: errInjected}
		if does.permanent && does.fails > 0 {
			f.wrap = informer.ErrPermanent
		}
		c.err = f
		if does.fails == 0 {
			panic(f)
		}
	}
	if c.Type == informer.EventDeleted && c.Old != nil && !c.cut && (c.err == nil || p.opts.Retry == nil) && !p.life.crashed.Load() {
		p.ends[c.Old.UID] = true
	}
	return c.err
}

func (p *pupil) wrong(e *event, format string, args ...any) {
	p.t.problem("%s (%v) got: %v %v %s, Old %v, New %v, FinalStateUnknown %v, Merged %v: %s\n    events before: %s", p.name, p.pupilKind, e.Origin, e.Type, e.Key().Name,
		presenceOf(e.Old), presenceOf(e.New), e.FinalStateUnknown, e.Merged, fmt.Sprintf(format, args...), strings.Join(p.heard, "; "))
}

// checkCallLocked makes the checks that are possible at the start of a call.
func (p *pupil) checkCallLocked(ctx context.Context, c *call) {
	if p.removed || p.reg != nil && channel.Closed(p.reg.Stopped()) {
		p.wrong(&c.event, "called after Remove, or after Stopped") // Registration.Remove, Stopped
	}
	if ctx.Err() != nil && !p.life.stopping.Load() && !p.leaving && !p.handler {
		p.wrong(&c.event, "its ctx has ended") // ResourceWatcher
	}
	if p.open[c.key] != nil || len(p.open) >= max(1, p.opts.Workers) {
		p.wrong(&c.event, "%d calls are under way", len(p.open)) // promise 2, Workers
	}
	if obj := c.New; obj != nil {
		f, known := p.t.fact(presenceOf(obj))
		if !known || f.name != obj.Name || f.value != obj.Data["value"] {
			p.wrong(&c.event, "the source never had this version; known there: %v", f)
		}
		if marked := obj.Annotations["mark"] != ""; p.t.transform != noTransform && !marked {
			p.wrong(&c.event, "Transform was not called for it") // Options.Transform
		}
	}
	if !c.wellFormed() {
		p.wrong(&c.event, "Old and New do not fit the type") // Event, promise 5
		return
	}
	if c.Type == informer.EventDeleted && !p.chooses {
		p.checkDeleted(c)
	}
	if c.Origin == informer.OriginResync && p.opts.ResyncPeriod == 0 {
		p.wrong(&c.event, "the watcher did not ask for resyncs") // WatcherOptions.ResyncPeriod
	}
}

// checkDeleted checks that the object is deleted, and that FinalStateUnknown is set if no
// watch has delivered that.
func (p *pupil) checkDeleted(c *call) {
	if _, ended := p.t.end(c.Old.UID); !ended && (!c.FinalStateUnknown || !p.t.isAbsent(c.key)) {
		p.wrong(&c.event, "the source still has it")
	}
	if !c.FinalStateUnknown && !p.life.tap.end(c.Old.UID) {
		p.wrong(&c.event, "no watch has delivered the delete") // promise 5
	}
}

// checkStored checks promise 2: the store has a change before any watcher gets the event.
func (p *pupil) checkStored(e *event) {
	l, key := p.life, keyNamed(e.Key().Name)
	switch {
	case p.witness:
		if stored, _, _ := l.inf.Get(e.Key()); e.Type == informer.EventAdded && stored == nil {
			if _, ended := p.t.end(e.New.UID); !ended && !p.t.isAbsent(key) {
				p.wrong(e, "the store does not have it")
			}
		}
		l.take(key, presenceOf(e.New))
	case p.t.store == defaultStore:
	case e.New != nil && find(l.entries(key), -1, presenceOf(e.New)) < 0:
		p.wrong(e, "the store has not taken it: %v", l.entries(key))
	case e.New == nil && e.Origin != informer.OriginInitial && !p.chooses && l.tombs[e.Old.UID] == "" && find(l.entries(key), -1, nothing) < 0:
		p.wrong(e, "the store still has it: %v", l.entries(key))
	}
}

// retry is WatcherOptions.Retry.
func (p *pupil) retry(failures int, err error) (time.Duration, bool) {
	var f *failure
	if !errors.As(err, &f) {
		if !p.life.stopping.Load() && !p.leaving {
			p.t.problem("%s: Retry was called with %v", p.name, err)
		}
		return 0, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	c := f.call
	if c.judged || errors.Is(err, informer.ErrPermanent) {
		p.wrong(&c.event, "Retry was called twice, or for a permanent error") // WatcherOptions.Retry
	}
	c.judged, c.failures = true, failures
	c.retried = p.most == 0 || failures < p.most
	return time.Duration(failures) * 20 * time.Millisecond, c.retried
}

// onSynced is WatcherOptions.OnSynced.
func (p *pupil) onSynced(context.Context) {
	if p.life.crashed.Load() {
		return
	}
	if !p.life.inf.HasSynced() {
		p.t.problem("%s: OnSynced was called before the informer has synced", p.name) // WatcherOptions.OnSynced
	}
	p.mu.Lock()
	if p.synced++; p.synced > 1 || p.removed || p.reg != nil && channel.Closed(p.reg.Synced()) {
		p.t.problem("%s: OnSynced was called twice, or too late", p.name) // promise 4
	}
	p.over = append(p.over, &call{marker: true})
	leaves := p.trouble.leaves && p.reg != nil
	p.mu.Unlock()
	if leaves {
		p.leave()
	}
}

// leave removes the watcher. A call from outside is made when nothing else happens, so no call
// can be about to begin. But if a watcher with several workers leaves in a call, another
// worker may be about to call.
func (p *pupil) leave() {
	p.mu.Lock()
	reg, others := p.reg, p.opts.Workers > 1 && len(p.open) > 0
	p.leaving, p.removed = true, !others
	p.never = reg != nil && !others && !channel.Closed(reg.Synced())
	p.mu.Unlock()
	if p.handle != nil {
		_ = p.life.inf.SharedIndexInformer().RemoveEventHandler(p.handle)
	} else if reg != nil {
		reg.Remove()
	}
}

// adaptor makes a pupil a handler of client-go.
type adaptor struct{ p *pupil }

func (a adaptor) OnAdd(obj any, initial bool) {
	e := event{Type: informer.EventAdded, New: obj.(configMap)}
	if initial {
		e.Origin = informer.OriginInitial
	}
	_ = a.p.tell(context.Background(), e.Type, e)
}

func (a adaptor) OnUpdate(before, now any) {
	if presenceOf(before.(configMap)) == presenceOf(now.(configMap)) {
		return // a relist found the object unchanged
	}
	_ = a.p.tell(context.Background(), informer.EventUpdated, event{Type: informer.EventUpdated, Old: before.(configMap), New: now.(configMap)})
}

func (a adaptor) OnDelete(obj any) {
	e := event{Type: informer.EventDeleted}
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		e.FinalStateUnknown, obj = true, gone.Obj
	}
	e.Old = obj.(configMap)
	_ = a.p.tell(context.Background(), e.Type, e)
}
