package informer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/customcacheinformer/informer/internal/channel"
	"github.com/customcacheinformer/informer/internal/object"
)

// Group has informers, controllers and sets of package shards that live together. It runs them, waits
// for them and reports their health. Members may be added and removed before and while it runs. A member that
// cannot sync, because its CRD is missing or the API server forbids it, goes on trying and delays
// no other member, except the controllers that read it. [GetOrAdd] makes and adds the informers
// that several parts of a program use in common.
//
// The zero value is ready to use. A Group must not be copied. Its methods may be called from
// any goroutine and in any order.
type Group struct {
	// ErrorHandler is Options.ErrorHandler for the members that have none of their own. It is
	// also called when the Run of a member has failed. Nil, the default, is LogError.
	//
	// ErrorHandler and Observer must be set before the first member is added, and before a
	// [ClientGo] with this group makes its first informer. No lock protects
	// them. A later change has no effect, except that Add, GetOrAdd, Run and a WaitForSync before
	// Run return an error that names the field. It goes unnoticed only if an ErrorHandler is
	// replaced by another function from the same place in the source.
	ErrorHandler func(ctx context.Context, err error)

	// Observer is Options.Observer for the members that have none of their own. It must be set
	// as early as ErrorHandler. Defaults to none.
	Observer *Observer

	// MayBeEmpty makes [Group.Ready] return nil while the group shows no member and no informer. Set it if that is
	// no fault of the program, such as in a controller-runtime manager that makes its informers
	// only when it is elected. Then Ready does not notice if they are missing because they could
	// not be made. It must be set before the group is used. Defaults to false.
	MayBeEmpty bool

	// mu protects the rest. Of a member's methods only adopt, which does not block, is called
	// while mu is held.
	mu      sync.Mutex
	given   *given            // nil before the first member or guest
	ctx     context.Context   // the ctx of Run; nil before Run
	later   context.Context   // the ctx of the informers, which stop after the controllers; nil before Run
	members []*member         // in the order in which they were added
	guests  []Member          // informers that others run, in the order in which they were made
	shared  map[slotKey]*slot // the informers that GetOrAdd has made or is making
	changed chan struct{}     // closed at the next change; nil if nothing waits for a change
	running sync.WaitGroup    // the goroutines of the members
	working sync.WaitGroup    // those that are controllers
}

// given is what the members and guests of a group are given: its fields ErrorHandler and Observer
// when the first of them came.
type given struct {
	handler  func(context.Context, error)
	observer *Observer
}

// giveLocked returns the handler and the observer for another member or guest, and an error if
// the fields were changed since the first one.
func (g *Group) giveLocked() (given, error) {
	if g.given == nil {
		g.given = &given{g.ErrorHandler, g.Observer}
	}
	return *g.given, g.lateLocked()
}

// lateLocked returns an error if ErrorHandler or Observer was changed too late.
func (g *Group) lateLocked() error {
	if g.given == nil {
		return nil
	}
	var late []string
	if funcPointer(g.ErrorHandler) != funcPointer(g.given.handler) {
		late = append(late, "Group.ErrorHandler")
	}
	if g.Observer != g.given.observer {
		late = append(late, "Group.Observer")
	}
	if late == nil {
		return nil
	}
	return fmt.Errorf("%s changed too late (to be set before the first member is added)", strings.Join(late, " and "))
}

// late returns the error of lateLocked.
func (g *Group) late() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.lateLocked()
}

// funcPointer returns a pointer that is always the same for the same f, and 0 for nil. Functions
// cannot be compared otherwise.
func funcPointer(f func(context.Context, error)) uintptr { return reflect.ValueOf(f).Pointer() }

// Member can be run by a [Group]. A [CustomCacheInformer] is a Member, a controller of package
// enqueue is one, a set of package shards is one, and so is any other type that has these three methods and keeps their rules.
//
// A Member may have two more methods, which do not block. If it has the method
// Adopt(func(ctx context.Context, err error), *Observer), the group calls it with its
// ErrorHandler and its Observer when the member is added. If it has the method Remove(), the
// group calls it when the member was removed and its Run has returned.
type Member interface {
	// Run blocks until ctx has ended, and then returns nil.
	Run(ctx context.Context) error
	// WaitForSync blocks until the member has synced. It returns when ctx has ended, at the
	// latest. It may be called several times at once.
	WaitForSync(ctx context.Context) error
	// Health returns how the member is doing. It does not block. A member is a controller if
	// Health.Controller is not nil, and a set of package shards if Health.Shards is not nil. A
	// member that is no informer sets at least Name, Started,
	// Stopped and Synced.
	Health() Health
}

// member is a Member from the time when it is added until it is removed and has stopped.
type member struct {
	Member
	name       string             // Health.Name, when it was added
	controller bool               // Health says so
	stop       context.CancelFunc // ends the ctx of its Run; nil before Run is called
	leaving    bool               // Remove was called, so the member is no longer shown
	stopped    chan struct{}      // closed when its Run has returned
	failed     error              // the error of Run; read it only after stopped is closed
}

// Add adds m. If the group runs, it also starts m. It does not block. It returns an error if m
// is nil or already a member, ErrAlreadyRun if m's Health says that m has been run, by this
// group or elsewhere, and ErrStopped once the ctx of the group's Run has ended. It also returns
// an error if another member has the same Health.Name, unless that member is being removed: set
// Options.Name, because errors, metrics and the page tell members apart by their names.
func (g *Group) Add(m Member) error {
	if err := g.addMember(m, nil); err != nil {
		return fmt.Errorf("informer: Group: Add: %w", err)
	}
	return nil
}

// addMember adds m. s is the share for which GetOrAdd has made m, or nil.
func (g *Group) addMember(m Member, s *slot) error {
	if err := checkMember(m); err != nil {
		return err
	}
	h := m.Health()
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case slices.ContainsFunc(g.members, isMember(m)):
		return fmt.Errorf("%s is already a member", h.Name)
	case g.ctx != nil && g.ctx.Err() != nil:
		return fmt.Errorf("%s: %w", h.Name, ErrStopped)
	case h.Started || h.Stopped:
		return fmt.Errorf("%s: %w", h.Name, ErrAlreadyRun)
	case slices.ContainsFunc(g.members, func(other *member) bool { return other.name == h.Name && !other.leaving }):
		return fmt.Errorf("another member has the name %q: set Options.Name", h.Name)
	}
	common, err := g.giveLocked()
	if err != nil {
		return fmt.Errorf("%s: %w", h.Name, err)
	}
	switch a := m.(type) {
	case interface {
		adopt(func(context.Context, error), *Observer)
	}:
		a.adopt(common.handler, common.observer)
	case interface {
		Adopt(func(context.Context, error), *Observer)
	}:
		a.Adopt(common.handler, common.observer)
	}
	if s != nil {
		s.member = m
	}
	added := &member{Member: m, name: h.Name, controller: h.Controller != nil, stopped: make(chan struct{})}
	g.members = append(g.members, added)
	if g.ctx != nil {
		g.startLocked(added)
	}
	g.notifyLocked()
	return nil
}

// checkMember returns an error if m is nil or cannot be compared with other members.
func checkMember(m Member) error {
	switch {
	case m == nil:
		return errors.New("the member is nil")
	case object.IsNil(m):
		return fmt.Errorf("the member is a nil %T", m)
	case !reflect.ValueOf(m).Comparable():
		return fmt.Errorf("the member is a %T, which cannot be compared: use a pointer", m)
	}
	return nil
}

// isMember returns a function that reports whether a member holds m.
func isMember(m Member) func(*member) bool {
	return func(other *member) bool { return other.Member == m }
}

// Remove stops m and blocks until its Run has returned. So it must not be called in a callback
// of m's own, such as a watcher's or reconcile. Before Run it only takes m out, and does not
// block. A controller that was removed cannot be run or added again: its watchers are gone.
//
// The other members go on. WaitForSync no longer waits for m, and the next call of GetOrAdd
// makes a new informer. A reader of m still gets its last state, without an error. Remove
// returns an error if m is not a member. If several calls remove m at the same time, all of
// them return nil when m has stopped.
func (g *Group) Remove(m Member) error {
	if err := checkMember(m); err != nil {
		return fmt.Errorf("informer: Group: Remove: %w", err)
	}
	name := m.Health().Name
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.IndexFunc(g.members, isMember(m))
	if i < 0 {
		return fmt.Errorf("informer: Group: Remove: %s is not a member", name)
	}
	leaver := g.members[i]
	leaver.leaving = true
	maps.DeleteFunc(g.shared, func(_ slotKey, s *slot) bool { return s.member == m })
	g.notifyLocked()
	if leaver.stop != nil {
		leaver.stop()
		g.mu.Unlock()
		<-leaver.stopped
		g.mu.Lock()
	}
	if r, ok := m.(interface{ Remove() }); ok {
		r.Remove()
	}
	g.members = slices.DeleteFunc(g.members, func(other *member) bool { return other == leaver })
	return nil
}

// Run runs the members until ctx ends, also those that are added while it runs. It returns when
// the Run of each member has returned, also of those that are being removed. If ctx has already
// ended, Run still runs the members: an informer then makes no request and is stopped. The
// controllers stop first. When their calls have returned, all other members stop at the same
// time. Each member drains for its own DrainTimeout. A second Run returns ErrAlreadyRun at once.
//
// A member does not stop the others if its Run returns an error, or returns before its ctx has
// ended. ErrorHandler is called once for it, WaitForSync returns an error from then on, and
// Run returns the errors of all such members that were not removed. Do not wait for Run to
// return in a watcher's callback.
func (g *Group) Run(ctx context.Context) error {
	g.mu.Lock()
	if g.ctx != nil {
		g.mu.Unlock()
		return fmt.Errorf("informer: Group: %w", ErrAlreadyRun)
	}
	if err := g.lateLocked(); err != nil {
		g.notifyLocked()
		g.mu.Unlock()
		return fmt.Errorf("informer: Group: Run: %w", err)
	}
	later, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	if ctx.Err() != nil {
		stop(context.Cause(ctx))
	}
	g.ctx, g.later = ctx, later
	for _, m := range g.members {
		g.startLocked(m)
	}
	g.notifyLocked()
	g.mu.Unlock()

	<-ctx.Done()
	g.notify() // it takes the lock: a later Add sees that ctx has ended and starts nothing
	g.working.Wait()
	stop(context.Cause(ctx))
	g.running.Wait()

	var failed []error
	_, members, _ := g.current()
	for _, m := range members {
		failed = append(failed, m.failed)
	}
	return errors.Join(failed...)
}

// startLocked calls m's Run on a goroutine that Run waits for.
func (g *Group) startLocked(m *member) {
	parent, running := g.later, &g.running
	if m.controller {
		parent, running = g.ctx, &g.working
	}
	ctx, cancel := context.WithCancel(parent)
	m.stop = cancel
	report := g.given.handler
	if report == nil {
		report = LogError
	}
	running.Go(func() {
		defer cancel()
		err := m.Run(ctx)
		if err == nil && ctx.Err() == nil {
			err = errors.New("it returned before its ctx had ended")
		}
		if err != nil {
			err = fmt.Errorf("informer: Group: Run of %s: %w", m.Health().Name, err)
		}

		m.failed = err
		close(m.stopped)
		g.notify()
		// The handler comes last, so that it may remove the member.
		if err != nil {
			report(ctx, err)
		}
	})
}

// notify makes all calls of WaitForSync check the members again.
func (g *Group) notify() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.notifyLocked()
}

func (g *Group) notifyLocked() {
	if g.changed != nil {
		close(g.changed)
		g.changed = nil
	}
}

// current returns Run's ctx, the members that are not being removed, and a channel that is
// closed when one of these or the condition of a member may have changed.
func (g *Group) current() (run context.Context, members []*member, changed <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.changed == nil {
		g.changed = make(chan struct{})
	}
	return g.ctx, g.stayingLocked(), g.changed
}

// stayingLocked returns the members that are not being removed.
func (g *Group) stayingLocked() []*member {
	var members []*member
	for _, m := range g.members {
		if !m.leaving {
			members = append(members, m)
		}
	}
	return members
}

// shown returns the members and guests that Health shows.
func (g *Group) shown() (members []*member, guests []Member) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.stayingLocked(), slices.Clone(g.guests)
}

// Health returns the health of each member, and of each informer that a [ClientGo] with this group
// has made and that has not stopped. The keys of the map are
// Health.Name. An informer that a ClientGo has made may have the name of another one: the
// second has the key "Name#2", and so on, members first. Health does not block, and may be
// called at any time.
func (g *Group) Health() map[string]Health {
	shown := g.healths()
	all := map[string]Health{}
	for i, name := range names(shown) {
		all[name] = shown[i].health
	}
	return all
}

// Ready returns nil if everything that Health shows is ready, see [Health.Ready].
// Otherwise it returns an error that wraps theirs. A group that shows nothing is not ready
// unless MayBeEmpty is set: perhaps the informers could not be made. A group that has only
// controllers, or sets of package shards, can be ready: each of these waits for the informers that
// it reads. If one of the informers may be missing, use the Health of the others instead. Ready
// does not block. It can be given to [ProbeHandler].
func (g *Group) Ready() error {
	all := g.healths()
	if len(all) == 0 && !g.MayBeEmpty {
		return g.errEmpty()
	}
	return probe(all, Health.Ready)
}

// errEmpty returns an error that says that the group has no informer.
func (g *Group) errEmpty() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.given != nil {
		return errors.New("informer: Group: no informers any more, all have stopped or were removed (see Group.MayBeEmpty)")
	}
	return errors.New("informer: Group: no informers yet (see Group.MayBeEmpty)")
}

// Live returns an error if something that Health shows can only be helped by a restart, see
// [Health.Live]. It does not block. It can be given to [ProbeHandler].
func (g *Group) Live() error { return probe(g.healths(), Health.Live) }

// probe returns the errors that check returns for all, joined.
func probe(all []memberHealth, check func(Health) error) error {
	var failed []error
	for _, m := range all {
		failed = append(failed, check(m.health))
	}
	return errors.Join(failed...)
}

// memberHealth is a member or a guest with its health at one moment.
type memberHealth struct {
	Member
	health Health
}

// healths returns the members and the guests with their health, and forgets stopped guests.
func (g *Group) healths() []memberHealth {
	members, guests := g.shown()
	all := healthsOf(members)
	var gone []Member
	for _, m := range guests {
		if h := m.Health(); !h.Stopped {
			all = append(all, memberHealth{m, h})
		} else {
			gone = append(gone, m)
		}
	}
	if len(gone) > 0 {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.guests = slices.DeleteFunc(g.guests, func(m Member) bool { return slices.Contains(gone, m) })
	}
	return all
}

func healthsOf(members []*member) []memberHealth {
	var all []memberHealth
	for _, m := range members {
		all = append(all, memberHealth{m.Member, m.Health()})
	}
	return all
}

// names returns a unique name for each of members.
func names(members []memberHealth) []string {
	taken := map[string]bool{}
	var all []string
	for _, m := range members {
		unique := m.health.Name
		for n := 2; taken[unique]; n++ {
			unique = fmt.Sprintf("%s#%d", m.health.Name, n)
		}
		taken[unique] = true
		all = append(all, unique)
	}
	return all
}

// failure returns the error of m's Run, or nil if Run has not returned.
func (m *member) failure() error {
	if !channel.Closed(m.stopped) {
		return nil
	}
	return m.failed
}

// adopt sets the handler and the observer of a Group, unless the user has set others. A nil
// handler or observer stands for the default.
func (i *CustomCacheInformer[T]) adopt(handler func(context.Context, error), observer *Observer) {
	_ = i.set(func() {
		if !i.ownHandler {
			if i.opts.ErrorHandler = handler; handler == nil {
				i.opts.ErrorHandler = LogError
			}
		}
		if !i.ownObserver {
			*i.opts.Observer = *cmp.Or(observer, &Observer{})
		}
	})
}
