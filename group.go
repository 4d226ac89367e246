package informer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"

	"github.com/customcacheinformer/informer/internal/channel"
	"github.com/customcacheinformer/informer/internal/membership"
	"github.com/customcacheinformer/informer/internal/object"
)

// Group has informers, and other members such as controllers of package enqueue, that live together. It
// runs them, waits for them and reports their health. Members may be added and removed before and while it runs. A member that
// cannot sync, because its CRD is missing or the API server forbids it, keeps trying and delays
// no other member, except those that read it, and for 5 s those that wait for their turn to list, see [ListLimit]. [GetOrAdd] makes and adds the informers
// that several parts of a program use in common.
//
// The zero value is ready to use. A Group must not be copied. Its methods may be called from
// any goroutine and in any order.
type Group struct {
	// ErrorHandler is called with the errors of the members that have no ErrorHandler of their own,
	// see [Report]. It is also called when the Run of a member has failed. Nil, the default, logs
	// them.
	//
	// ErrorHandler, Observer and Lists must be set before the first member is added, and before a
	// [ClientGo] with this group makes its first informer. No lock protects
	// them. A later change has no effect.
	ErrorHandler func(ctx context.Context, err error)

	// Observer is Options.Observer for the informers that have none of their own. It must be set
	// as early as ErrorHandler. Defaults to none.
	Observer *Observer

	// Lists is Options.Lists for the informers that have none of their own. Defaults to 4 lists at a time.
	// NewListLimit(0) turns that off.
	Lists *ListLimit

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
	later   context.Context   // the ctx of the members that do not stop first; nil before Run
	members []*member         // in the order in which they were added
	guests  []guest           // informers that others run, in the order in which they were made
	shared  map[slotKey]*slot // the informers that GetOrAdd has made or is making
	changed chan struct{}     // closed at the next change; nil if nothing waits for a change
	running sync.WaitGroup    // the goroutines of the members
	working sync.WaitGroup    // those of the members that stop first
}

type guest = *CustomCacheInformer[AnyObject]

// groupLists is the limit of a [Group] that sets none.
const groupLists = 4

// given is what the members and guests of a group are given: its fields ErrorHandler, Observer and Lists
// when the first of them came.
type given struct {
	report   func(context.Context, error) // ErrorHandler, which is called once if it calls Report; or nil
	observer *Observer
	lists    *ListLimit
}

// giveLocked returns the handler, the observer and the limit for another member or guest.
func (g *Group) giveLocked() given {
	if g.given == nil {
		g.given = &given{observer: g.Observer, lists: cmp.Or(g.Lists, NewListLimit(groupLists))}
		if g.ErrorHandler != nil {
			g.given.report = membership.Once(g.ErrorHandler)
		}
	}
	return *g.given
}

// Member can be run by a [Group]. A [CustomCacheInformer] is a Member, a controller of package
// enqueue is one, a set of package shards is one, and so is any other type that has these methods and
// keeps their rules.
//
// A Member may have two more methods, which do not block. If it has the method StopsFirst() bool, which
// returns true, the group stops it before the members that have none: such a member works with what
// the others deliver, like a controller. If it has the method Removed(), the group calls it when the
// member was removed and its Run has returned.
type Member interface {
	// Name returns the name of the member, always the same. It does not block.
	Name() string
	// Run blocks until ctx has ended, and then returns nil. [Report] gives an error to the
	// ErrorHandler of the group, if it gets this ctx or one that comes from it.
	Run(ctx context.Context) error
	// WaitForSync blocks until the member has synced. It returns when ctx has ended, at the
	// latest. It may be called several times at once.
	WaitForSync(ctx context.Context) error
	// MemberHealth returns how the member is doing, as a value of the member's own type. It does
	// not block.
	MemberHealth() MemberHealth
}

// member is a Member from the time when it is added until it is removed and has stopped.
type member struct {
	Member
	name    string             // its Name
	first   bool               // it stops first
	stop    context.CancelFunc // ends the ctx of its Run; nil before Run is called
	leaving bool               // Remove was called, so the member is no longer shown
	stopped chan struct{}      // closed when its Run has returned
	failed  error              // the error of Run; read it only after stopped is closed
}

// Add adds m. If the group runs, it also starts m. It does not block. It returns an error if m
// is nil or already a member, ErrAlreadyRun if m has been run, by this
// group or elsewhere, and ErrStopped once the ctx of the group's Run has ended. It also returns
// an error if another member has the same Name, unless that member is being removed: set
// Options.Name, because errors, metrics and the page distinguish members by their names.
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
	name, hasRun := m.Name(), m.MemberHealth().HasRun()
	first, _ := m.(interface{ StopsFirst() bool })
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case slices.ContainsFunc(g.members, isMember(m)):
		return fmt.Errorf("%s is already a member", name)
	case g.ctx != nil && g.ctx.Err() != nil:
		return fmt.Errorf("%s: %w", name, ErrStopped)
	case hasRun:
		return fmt.Errorf("%s: %w", name, ErrAlreadyRun)
	case slices.ContainsFunc(g.members, func(other *member) bool { return other.name == name && !other.leaving }):
		return fmt.Errorf("another member has the name %q: set Options.Name", name)
	}
	common := g.giveLocked()
	if i, ok := m.(interface{ adopt(given) }); ok {
		i.adopt(common)
	}
	if s != nil {
		s.member = m
	}
	added := &member{Member: m, name: name, first: first != nil && first.StopsFirst(), stopped: make(chan struct{})}
	g.members = append(g.members, added)
	if g.ctx != nil {
		g.startLocked(added)
	}
	g.notifyLocked()
	return nil
}

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

func isMember(m Member) func(*member) bool {
	return func(other *member) bool { return other.Member == m }
}

// Remove stops m and blocks until its Run has returned. So it must not be called in a callback
// of m's own, such as a watcher's or reconcile. Before Run it only takes m out, and does not
// block. A controller that was removed cannot be run or added again: its watchers are gone, and
// deletes that it has not reconciled count as handled. So also remove a controller that will never be run.
//
// The other members continue. WaitForSync no longer waits for m, and the next call of GetOrAdd
// makes a new informer. A reader of m still gets its last state, without an error. Remove
// returns an error if m is not a member. If several calls remove m at the same time, all of
// them return nil when m has stopped.
func (g *Group) Remove(m Member) error {
	if err := checkMember(m); err != nil {
		return fmt.Errorf("informer: Group: Remove: %w", err)
	}
	name := m.Name()
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
	if r, ok := m.(interface{ Removed() }); ok {
		r.Removed()
	}
	g.members = slices.DeleteFunc(g.members, func(other *member) bool { return other == leaver })
	return nil
}

// Run runs the members until ctx ends, also those that are added while it runs. It returns when
// the Run of each member has returned, also of those that are being removed. If ctx has already
// ended, Run still runs the members: an informer then makes no request and is stopped. The
// controllers stop first, and other members that ask for it, see [Member]. When their Run has returned, all
// others stop at the same time. Each member drains for its own DrainTimeout. A second Run returns ErrAlreadyRun at once.
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

func (g *Group) startLocked(m *member) {
	parent, running := g.later, &g.running
	if m.first {
		parent, running = g.ctx, &g.working
	}
	ctx, cancel := context.WithCancel(parent)
	m.stop = cancel
	if g.given.report != nil {
		ctx = membership.WithHandler(ctx, g.given.report)
	}
	running.Go(func() {
		defer cancel()
		err := m.Run(ctx)
		if err == nil && ctx.Err() == nil {
			err = errors.New("it returned before its ctx had ended")
		}
		if err != nil {
			err = fmt.Errorf("informer: Group: Run of %s: %w", m.name, err)
		}

		m.failed = err
		close(m.stopped)
		g.notify()
		// The handler comes last, so that it may remove the member.
		if err != nil {
			Report(ctx, err)
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

func (g *Group) shown() (members []*member, guests []guest) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.stayingLocked(), slices.Clone(g.guests)
}

// Health returns the MemberHealth of each member, and the Health of each informer that a [ClientGo] with
// this group has made and that has not stopped. The keys of the map are
// their names. An informer that a ClientGo has made may have the name of another one: the
// second has the key "Name#2", and so on, members first. Health does not block, and may be
// called at any time.
func (g *Group) Health() map[string]MemberHealth {
	all := map[string]MemberHealth{}
	show := func(name string, h MemberHealth) {
		unique := name
		for n := 2; all[unique] != nil; n++ {
			unique = fmt.Sprintf("%s#%d", name, n)
		}
		all[unique] = h
	}
	members, guests := g.shown()
	for _, m := range members {
		show(m.name, m.MemberHealth())
	}
	var gone []guest
	for _, m := range guests {
		if h := m.Health(); !h.Stopped {
			show(h.Name, h)
		} else {
			gone = append(gone, m)
		}
	}
	if len(gone) > 0 {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.guests = slices.DeleteFunc(g.guests, func(m guest) bool { return slices.Contains(gone, m) })
	}
	return all
}

// Ready returns nil if everything that Health shows is ready, see [Health.Ready] for informers.
// Otherwise it returns an error that wraps theirs. A group that shows nothing is not ready
// unless MayBeEmpty is set: perhaps the informers could not be made. A group that has only
// controllers, or sets of package shards, can be ready: each of these waits for the informers that
// it reads. If one of the informers may be missing, use the Health of the others instead. Ready
// does not block. It can be given to [ProbeHandler].
func (g *Group) Ready() error {
	all := g.Health()
	if len(all) == 0 && !g.MayBeEmpty {
		return g.errEmpty()
	}
	return probe(all, MemberHealth.Ready)
}

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
func (g *Group) Live() error { return probe(g.Health(), MemberHealth.Live) }

// probe returns the errors that check returns for all, joined in the order of the names.
func probe(all map[string]MemberHealth, check func(MemberHealth) error) error {
	var failed []error
	for _, name := range slices.Sorted(maps.Keys(all)) {
		failed = append(failed, check(all[name]))
	}
	return errors.Join(failed...)
}

func (m *member) failure() error {
	if !channel.Closed(m.stopped) {
		return nil
	}
	return m.failed
}

// adopt sets the handler, the observer and the limit of a Group, unless the user has set others. A nil
// one stands for the default.
func (i *CustomCacheInformer[T]) adopt(common given) {
	_ = i.set(func() {
		if !i.ownHandler {
			if i.opts.ErrorHandler = common.report; common.report == nil {
				i.opts.ErrorHandler = Report
			}
		}
		if !i.ownObserver {
			*i.opts.Observer = *cmp.Or(common.observer, &Observer{})
		}
		if !i.ownLists {
			*i.opts.Lists = *cmp.Or(common.lists, &ListLimit{})
		}
	})
}
