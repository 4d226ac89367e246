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
)

// The watchers of TestModel, and what is checked of each call.

// pupilKind is a kind of watcher.
type pupilKind struct {
	name    string
	opts    informer.WatcherOptions
	most    int  // attempts at an event; 0 for any number
	chooses bool // only what chosen says
	handler bool // client-go's
	witness bool // tells of the default store what it has taken
}

func newKind(b byte) pupilKind {
	k := pupilKind{opts: informer.WatcherOptions{MaxBacklog: []int{0, 2, -1, 1}[b%4], RecoverPanics: b/64%2 > 0}}
	if b/4%2 > 0 {
		k.opts.Workers = 4
	}
	if b/8%2 > 0 {
		k.opts.Retry = func(int, error) (time.Duration, bool) { return 0, false } // the pupil's own takes its place
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

// crew says whether it may be called for several objects at once, or again.
func (k pupilKind) crew() bool { return k.opts.Workers > 1 || k.opts.Retry != nil }

// strict says whether it is told everything.
func (k pupilKind) strict() bool { return !k.crew() && (k.opts.MaxBacklog <= 0) }

// pupil is a watcher.
type pupil struct {
	pupilKind
	t      *torture
	life   *incarnation
	exact  bool           // it is known what there was when it joined
	born   map[string]int // how many entries the ledger had then
	early  bool           // before Run
	joined time.Time
	handle cache.ResourceEventHandlerRegistration

	mu      sync.Mutex // protects the rest; nobody waits for anything while it is held
	reg     *informer.Registration
	leaving bool             // Remove is called
	removed bool             // and no call may begin
	never   bool             // Synced was not closed by then
	open    map[string]*call // under way, by key
	over    []*call
	trouble trouble
	calm    time.Time // when it was last in trouble
	synced  int

	// Of audit.
	beliefs   map[string]*belief
	ghosts    map[types.UID]*belief // of tombstones
	last      map[string]*call      // by key
	delivered int                   // as it has answered
	gaveUp    int
	again     int // calls that came after a failure,
	same      int // and those for the same event
	resynced  map[string]int
	inherited int // tombstones
	marked    bool
	newest    uint64
	ends      map[types.UID]bool // handled
	heard     []string
}

// trouble is what a watcher does with the next calls.
type trouble struct {
	blocked   chan struct{}
	slow      time.Duration
	fails     int
	permanent bool
	panics    int
	leaves    bool
	brings    bool // another watcher
}

// call is one call of a watcher.
type call struct {
	event
	key      string
	err      error
	cut      bool // its ctx has ended
	judged   bool // Retry was asked
	failures int
	retried  bool
	marker   bool // OnSynced
}

// wellFormed says whether Old and New are set as the type says.
func (c *call) wellFormed() bool {
	return (c.Type == informer.EventAdded) == (c.Old == nil) && (c.Type == informer.EventDeleted) == (c.New == nil)
}

// failure is what a watcher returns, or panics with.
type failure struct {
	call *call
	wrap error
}

func (f *failure) Error() string { return "failed on purpose: " + f.call.key }

func (f *failure) Unwrap() []error { return []error{errInjected, f.wrap} }

// add adds a watcher. exactly says that nothing happens meanwhile.
func (l *incarnation) add(kind pupilKind, exactly bool) *pupil {
	p := &pupil{
		pupilKind: kind, t: l.t, life: l, born: map[string]int{}, early: l.cancel == nil, joined: time.Now(),
		open: map[string]*call{}, beliefs: map[string]*belief{}, last: map[string]*call{}, ends: map[types.UID]bool{}, resynced: map[string]int{}, ghosts: map[types.UID]*belief{},
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

// tell is the watcher.
func (p *pupil) tell(ctx context.Context, called informer.EventType, e event) error {
	if p.life.crashed.Load() {
		return nil
	}
	if called != e.Type {
		p.wrong(&e, "it came to the method for %v", called)
	}
	c, does := p.begin(ctx, &e)
	if c.wellFormed() {
		p.checkStored(&e)
	}
	does.wait(ctx)
	if does.brings && !p.life.stopping.Load() {
		p.joinFromCall()
	}
	if does.leaves {
		p.leave()
	}
	return p.end(ctx, c, does)
}

// wait takes as long as the call is to take.
func (d *trouble) wait(ctx context.Context) {
	if d.slow > 0 {
		timer := time.NewTimer(d.slow)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	if d.blocked != nil {
		select {
		case <-d.blocked:
		case <-ctx.Done():
		}
	}
}

// begin notes that a call has begun.
func (p *pupil) begin(ctx context.Context, e *event) (*call, trouble) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := &call{event: *e, key: "default/" + e.Key().Name}
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

// end notes that it is over, and returns what the watcher returns.
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

// wrong notes that an event should not be as it is.
func (p *pupil) wrong(e *event, format string, args ...any) {
	p.t.problem("%s (%v) was told: %v %v %s, Old %v, New %v, FinalStateUnknown %v, Merged %v: %s\n    and before: %s", p.name, p.pupilKind, e.Origin, e.Type, e.Key().Name,
		presenceOf(e.Old), presenceOf(e.New), e.FinalStateUnknown, e.Merged, fmt.Sprintf(format, args...), strings.Join(p.heard, "; "))
}

// checkCallLocked checks what can be said of a call when it begins.
func (p *pupil) checkCallLocked(ctx context.Context, c *call) {
	if p.removed || p.reg != nil && isClosed(p.reg.Stopped()) {
		p.wrong(&c.event, "after Remove, or after Stopped") // Registration.Remove, Stopped
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
			p.wrong(&c.event, "the source never had that, but %v", f)
		}
		if marked := obj.Annotations["mark"] != ""; p.t.transform != noTransform && !marked {
			p.wrong(&c.event, "Transform was not called for it") // Options.Transform
		}
	}
	if !c.wellFormed() {
		p.wrong(&c.event, "it has what it should not, or has not what it should") // Event, promise 5
		return
	}
	if c.Type == informer.EventDeleted && !p.chooses {
		p.checkDeleted(c)
	}
	if c.Origin == informer.OriginResync && p.opts.ResyncPeriod == 0 {
		p.wrong(&c.event, "it has asked for no resync") // WatcherOptions.ResyncPeriod
	}
}

// checkDeleted checks that a delete is true, and whether it was seen happening.
func (p *pupil) checkDeleted(c *call) {
	if _, ended := p.t.end(c.Old.UID); !ended {
		p.wrong(&c.event, "the source still has it")
	}
	if !c.FinalStateUnknown && !p.life.tap.end(c.Old.UID) {
		p.wrong(&c.event, "no watch has said so") // promise 5
	}
}

// checkStored checks that the store had it first: promise 2.
func (p *pupil) checkStored(e *event) {
	l, key := p.life, "default/"+e.Key().Name
	switch {
	case p.witness:
		if stored, _, _ := l.inf.Get(e.Key()); e.Type == informer.EventAdded && stored == nil {
			if _, ended := p.t.end(e.New.UID); !ended {
				p.wrong(e, "the store does not have it")
			}
		}
		l.take(e.Object(), presenceOf(e.New))
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
			p.t.problem("%s: Retry is asked about %v", p.name, err)
		}
		return 0, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	c := f.call
	if c.judged || errors.Is(err, informer.ErrPermanent) {
		p.wrong(&c.event, "Retry is asked again, or about what is permanent") // WatcherOptions.Retry
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
	if p.isSyncing() {
		p.leave()
	}
}

// isSyncing notes that OnSynced is called, and says whether it is to leave in that.
func (p *pupil) isSyncing() (leaves bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.synced++; p.synced > 1 || p.removed || p.reg != nil && isClosed(p.reg.Synced()) {
		p.t.problem("%s: OnSynced was called twice, or too late", p.name) // promise 4
	}
	p.over = append(p.over, &call{marker: true})
	return p.trouble.leaves && p.reg != nil
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// leave removes it. From outside, that is done when nothing happens, so that no call can
// be about to begin; but another worker may be about to call when one leaves in its call.
func (p *pupil) leave() {
	p.mu.Lock()
	reg, others := p.reg, p.opts.Workers > 1 && len(p.open) > 0
	p.leaving, p.removed = true, !others
	p.never = reg != nil && !others && !isClosed(reg.Synced())
	p.mu.Unlock()
	if p.handle != nil {
		_ = p.life.inf.SharedIndexInformer().RemoveEventHandler(p.handle)
	} else if reg != nil {
		reg.Remove()
	}
}

// joinFromCall adds a watcher in a call of this one.
func (p *pupil) joinFromCall() { p.life.addLater() }

// adaptor makes it a handler of client-go.
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
		return // a relist has found it unchanged
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
