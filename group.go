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

// Group runs informers and other members, such as controllers of package enqueue, waits for them and reports their health.
// Members may be added and removed before and while it runs. A member that cannot sync, because its CRD is missing or its
// requests are forbidden, keeps trying. It delays only the members that read it. For 5 s it may also delay members that wait for
// their turn to list, see [ListLimit]. [GetOrAdd] makes and adds the informers that several parts of a program share.
//
// The zero value is ready to use. A Group must not be copied. Its methods may be called from
// any goroutine and in any order.
type Group struct {
	// ErrorHandler is called with the errors of members that have no ErrorHandler of their own, see
	// [Report]. It is also called with an error if the Run of a member fails. Several goroutines may call
	// it at once. Nil, the default, logs the errors.
	//
	// ErrorHandler, Observer and Lists must be set before the first member is added, and before a
	// [ClientGo] with this group makes its first informer. A later change has no effect, and is a data
	// race.
	ErrorHandler func(ctx context.Context, err error)

	// Observer is the Options.Observer of the informers that have none of their own. See ErrorHandler for
	// when it must be set. Defaults to none.
	Observer *Observer

	// Lists is the Options.Lists of the informers that have none of their own. See ErrorHandler for when it
	// must be set. Defaults to a limit of 4 lists at a time. Set NewListLimit(0) for no limit.
	Lists *ListLimit

	// MayBeEmpty makes [Group.Ready] return nil while the group has no members and shows no informers of a
	// ClientGo. Set it if an empty group is normal, such as in a controller-runtime manager that makes its
	// informers only when it is elected. Ready then does not notice informers that are missing because they could
	// not be made. MayBeEmpty must be set before the group is used. Defaults to false.
	MayBeEmpty bool

	// mu protects the rest. While mu is held, only those methods of a member are called that must not
	// block: adopt, StopsFirst and Removed.
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

// groupLists is the number of lists at a time in a [Group] whose Lists is nil.
const groupLists = 4

// given holds the values that a group gives its members and guests: its ErrorHandler, Observer and Lists as they were
// when the first member or guest was added.
type given struct {
	report   func(context.Context, error) // ErrorHandler, which is called once if it calls Report; or nil
	observer *Observer
	lists    *ListLimit
}

// giveLocked returns what g gives to another member or guest. The first call reads the fields of g.
func (g *Group) giveLocked() given {
	if g.given == nil {
		g.given = &given{observer: g.Observer, lists: cmp.Or(g.Lists, NewListLimit(groupLists))}
		if g.ErrorHandler != nil {
			g.given.report = membership.Once(g.ErrorHandler)
		}
	}
	return *g.given
}

// Member is what a [Group] runs: a [CustomCacheInformer], a controller of package enqueue, a set of
// package shards, or any other type that has these methods and follows their rules.
//
// A Member may have two more methods, which must not block and must not call the group. If StopsFirst()
// bool returns true, the group stops the member before all others. This is for a member that uses what
// others deliver, such as a controller. Removed() is called when [Group.Remove] removes the member. If
// the Run of the member was called, it has returned by then.
type Member interface {
	// Name returns the name of the member, always the same. It must not block.
	Name() string
	// Run must block until ctx is done, and then return nil. If it returns an error, or returns
	// earlier, the member has failed. The group calls Run at most once. [Report] with this ctx, or one
	// derived from it, reports to the ErrorHandler of the group.
	Run(ctx context.Context) error
	// WaitForSync must block until the member has synced, and then return nil. If ctx ends first, it
	// must return an error soon. Several goroutines may call it at once.
	WaitForSync(ctx context.Context) error
	// MemberHealth returns the state of the member. Each type of member has its own type of state, such
	// as [Health] for informers. MemberHealth must not block, and may be called from any goroutine.
	MemberHealth() MemberHealth
}

// member is a Member of a group, from Add until it was removed and has stopped.
type member struct {
	Member
	name    string             // its Name
	first   bool               // it stops first
	stop    context.CancelFunc // ends the ctx of its Run; nil before Run is called
	leaving bool               // Remove was called, so the member is no longer shown
	stopped chan struct{}      // closed when its Run has returned
	failed  error              // the error of Run; read it only after stopped is closed
}

// Add adds m, and starts it if the group runs. Add does not block. It returns an error if m is nil, cannot
// be compared, or is already a member. If m has been run, by this group or elsewhere, the error wraps
// [ErrAlreadyRun]. Once the ctx of the group's Run is done, the error wraps [ErrStopped]. Add also
// returns an error if another member has the same Name, unless that member is being removed: errors,
// metrics and the page of package debug distinguish members by their names, so set Options.Name.
func (g *Group) Add(m Member) error {
	if err := g.addMember(m, nil); err != nil {
		return fmt.Errorf("informer: Group: Add: %w", err)
	}
	return nil
}

// addMember adds m. s is the slot for which GetOrAdd has made m, or nil.
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

// Remove stops m and blocks until the Run of m has returned. So it must not be called in a callback of m's own, such as
// a watcher's or reconcile. Before the group runs, Remove only takes m out, and does not block. A controller that was
// removed cannot be run or added again: its watchers are gone, and deletes that it has not reconciled count as handled.
// So also remove a controller that you will never run.
//
// The other members continue. WaitForSync no longer waits for m. If GetOrAdd made m, the next call of GetOrAdd
// makes a new informer. Code that still reads m gets its last state, without an error. Remove returns
// an error if m is not a member. If several calls remove m at the same time, each returns nil when m
// has stopped.
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
	if r, ok := m.(interface{ Removed() }); ok && slices.Contains(g.members, leaver) { // not after another call of Remove
		r.Removed()
	}
	g.members = slices.DeleteFunc(g.members, func(other *member) bool { return other == leaver })
	return nil
}

// Run runs the members, including those that are added while it runs, and blocks until ctx is done and the Run of each
// member has returned. If ctx has already ended, Run still runs the members: an informer then makes no request and is
// stopped. Controllers, and other members that ask for it (see [Member]), stop first. When their Run has returned, all
// others stop at the same time. Each member has its own DrainTimeout. A second Run returns an error that wraps
// [ErrAlreadyRun] at once.
//
// If the Run of a member returns an error, or returns before its ctx is done, the others continue.
// ErrorHandler is called once for this failure, and WaitForSync returns an error from then on. In the end,
// Run returns the joined errors of all such members that were not removed, or nil if there are none. Do
// not wait for Run to return in a watcher's callback.
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
	g.notify() // it takes the lock: a later Add sees that ctx is done and starts nothing
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

// startLocked runs m. A member that stops first gets the ctx of Run. The ctx of any other ends when those have returned.
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

// notify makes all calls of WaitForSync that wait check the members again.
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

// current returns Run's ctx, the members that are not being removed, and a channel. The channel is
// closed when Run was called, or when the members or the state of one may have changed.
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

// Health returns the MemberHealth of each member. It also returns the Health of each informer that a
// [ClientGo] with this group has made and that has not stopped. The keys of the map are the names. A member
// always has its own name as the key. If an informer of a ClientGo has a name that is taken, its key is
// "Name#2", or "Name#3" if that is taken too, and so on. Health does not block.
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

// Ready returns nil if all members and informers that Health returns are ready, see [Health.Ready] for
// informers. Otherwise it returns an error that wraps the errors of those that are not ready. If Health
// returns nothing, Ready returns an error unless MayBeEmpty is set: perhaps the informers could not be made.
// A group that has only controllers or sets of package shards can be ready. A controller is not ready until
// the informers that it reads have synced. If the program can work without one of the informers, check the
// Health of the others instead. Ready does not block. It can be passed to [ProbeHandler].
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

// Live returns an error if only a restart of the process would help a member or informer that Health
// returns, see [Health.Live]. The error wraps those of all such members and informers. Otherwise Live
// returns nil. It does not block. It can be passed to [ProbeHandler].
func (g *Group) Live() error { return probe(g.Health(), MemberHealth.Live) }

// probe calls check for all, in the order of the names, and returns the joined errors.
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

// adopt sets the ErrorHandler, the Observer and the Lists of a Group, except those that Options had. A
// nil value means the default.
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
