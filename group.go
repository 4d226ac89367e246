package informer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"

	"github.com/customcacheinformer/informer/internal/channel"
	"github.com/customcacheinformer/informer/internal/object"
)

// Group is a set of informers that live together: it runs them, waits for them
// and says how they are. Members may be added and removed before and while it
// runs. One that cannot sync, because its CRD is missing or the API server forbids
// it, goes on trying and holds up no other. [Shared] makes and adds the informers
// that several parts of a program want to have in common.
//
// The zero value is ready to use. It must not be copied. Its methods may be called
// from any goroutine and in any order.
type Group struct {
	// ErrorHandler is Options.ErrorHandler for the members that have none of their
	// own, and is told, too, of a member whose Run has failed. It must be set before
	// the first member is added. Nil, the default, is LogError.
	ErrorHandler func(ctx context.Context, err error)

	// Observer is Options.Observer for the members that have none of their own. It
	// must be set before the first member is added. Defaults to none.
	Observer *Observer

	mu      sync.Mutex          // protects the rest; a member is called with it in adopt only, which does not block
	ctx     context.Context     // Run's; nil before it
	members []*member           // in the order in which they were added
	guests  []Member            // that others run, in the order in which they came
	hosting bool                // guests may come at any time
	shared  map[shareKey]*share // what Shared has made or is making
	changed chan struct{}       // closed at the next change; nil if nobody waits for one
	running sync.WaitGroup      // the members' goroutines
}

// Member is what a [Group] runs: a [CustomCacheInformer], or whatever has the same
// three methods and keeps the same rules. Run blocks until its ctx has ended, and
// then returns nil. WaitForSync returns, at the latest, when its ctx has ended.
// Health does not block.
type Member interface {
	Run(ctx context.Context) error
	WaitForSync(ctx context.Context) error
	Health() Health
}

// member is a Member from when it is added until it is removed and has stopped.
type member struct {
	Member
	stop    context.CancelFunc // ends its Run's ctx; nil before it is run
	leaving bool               // it is being removed, and no longer seen
	stopped chan struct{}      // closed when its Run has returned
	failed  error              // what Run has failed with, once stopped is closed
}

// Add adds m, and has it run at once if the group runs. It does not block. It
// returns an error if m is nil or a member already, ErrAlreadyRun if its Health says
// that it has been run, by this group or elsewhere, and ErrStopped once the ctx of
// the group's Run has ended.
func (g *Group) Add(m Member) error {
	if err := g.add(m, nil); err != nil {
		return fmt.Errorf("informer: Group: Add: %w", err)
	}
	return nil
}

// add adds m, which Shared has made for s unless that is nil.
func (g *Group) add(m Member, s *share) error {
	if err := checkMember(m); err != nil {
		return err
	}
	h := m.Health()
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case slices.ContainsFunc(g.members, is(m)):
		return fmt.Errorf("%s is a member already", h.Name)
	case g.ctx != nil && g.ctx.Err() != nil:
		return fmt.Errorf("%s: %w", h.Name, ErrStopped)
	case h.Started || h.Stopped:
		return fmt.Errorf("%s: %w", h.Name, ErrAlreadyRun)
	}
	if a, ok := m.(interface {
		adopt(func(context.Context, error), *Observer)
	}); ok {
		a.adopt(g.ErrorHandler, g.Observer)
	}
	if s != nil {
		s.member = m
	}
	added := &member{Member: m, stopped: make(chan struct{})}
	g.members = append(g.members, added)
	if g.ctx != nil {
		g.startLocked(added)
	}
	g.changeLocked()
	return nil
}

// checkMember returns an error if m cannot be called, or not be told from others.
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

func is(m Member) func(*member) bool {
	return func(other *member) bool { return other.Member == m }
}

// Remove stops m and waits until its Run has returned, so it must not be called in
// a callback of m's own, such as a watcher's. The other members go on. Nobody waits
// for m any more, and Shared makes a new one when it is next asked; who still reads m
// finds its last state, without an error. Before Run, m is only taken out, and Remove
// does not block. It returns an error if m is not a member; several calls at a time all
// return nil when m has stopped.
func (g *Group) Remove(m Member) error {
	if err := checkMember(m); err != nil {
		return fmt.Errorf("informer: Group: Remove: %w", err)
	}
	name := m.Health().Name
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.IndexFunc(g.members, is(m))
	if i < 0 {
		return fmt.Errorf("informer: Group: Remove: %s is not a member", name)
	}
	leaver := g.members[i]
	leaver.leaving = true
	maps.DeleteFunc(g.shared, func(_ shareKey, s *share) bool { return s.member == m })
	g.changeLocked()
	if leaver.stop != nil {
		leaver.stop()
		g.mu.Unlock()
		<-leaver.stopped
		g.mu.Lock()
	}
	g.members = slices.DeleteFunc(g.members, func(other *member) bool { return other == leaver })
	return nil
}

// Run runs the members, those that are added meanwhile too, until ctx ends, and
// returns when the Run of each has returned, also of those that are being removed.
// If ctx has ended already, the members are told so all the same: an informer then
// makes no request and is stopped. A second Run returns ErrAlreadyRun at once.
//
// A member whose Run returns an error, or returns before its ctx has ended, does
// not stop the others. ErrorHandler is told of it once, WaitForSync returns an
// error from then on, and Run, in the end, returns the errors of all of them that
// were not removed. Do not wait for Run to return in a watcher's callback.
func (g *Group) Run(ctx context.Context) error {
	g.mu.Lock()
	if g.ctx != nil {
		g.mu.Unlock()
		return fmt.Errorf("informer: Group: %w", ErrAlreadyRun)
	}
	g.ctx = ctx
	for _, m := range g.members {
		g.startLocked(m)
	}
	g.changeLocked()
	g.mu.Unlock()

	<-ctx.Done()
	g.change() // who adds a member after that has seen that ctx has ended
	g.running.Wait()

	var failed []error
	_, members, _ := g.now()
	for _, m := range members {
		failed = append(failed, m.failed)
	}
	return errors.Join(failed...)
}

// startLocked runs m on a goroutine that Run waits for.
func (g *Group) startLocked(m *member) {
	ctx, cancel := context.WithCancel(g.ctx)
	m.stop = cancel
	g.running.Go(func() {
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
		g.change()
		// After that, so that a handler may remove the member.
		switch {
		case err == nil:
		case g.ErrorHandler != nil:
			g.ErrorHandler(ctx, err)
		default:
			LogError(ctx, err)
		}
	})
}

// change has all calls of WaitForSync look again.
func (g *Group) change() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.changeLocked()
}

func (g *Group) changeLocked() {
	if g.changed != nil {
		close(g.changed)
		g.changed = nil
	}
}

// now returns Run's ctx, the members, and a channel that is closed when either may
// have changed, or how a member is doing.
func (g *Group) now() (run context.Context, members []*member, changed <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.changed == nil {
		g.changed = make(chan struct{})
	}
	return g.ctx, g.stayingLocked(), g.changed
}

func (g *Group) stayingLocked() []*member {
	var members []*member
	for _, m := range g.members {
		if !m.leaving {
			members = append(members, m)
		}
	}
	return members
}

// shown returns what Health shows, and whether there may be guests later.
func (g *Group) shown() (members []*member, guests []Member, hosting bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.stayingLocked(), slices.Clone(g.guests), g.hosting
}

// Health returns how each member is doing, by its Health.Name, and each informer that
// [Group.SharedIndexInformerFunc] has made and that has not stopped. If several have the
// same name, in the order in which they were added the second is found as "Name#2",
// and so on. It does not block, and may be called at any time.
func (g *Group) Health() map[string]Health {
	seen := g.look()
	all := map[string]Health{}
	for i, name := range names(seen) {
		all[name] = seen[i].health
	}
	return all
}

// Ready returns nil if all that Health shows are ready, see [Health.Ready], and else an
// error that wraps what the others say. A group that shows none is not ready, unless
// [Group.SharedIndexInformerFunc] was called: a manager that waits for its election makes
// no informers. Where one of them may be missing, ask the Health of the others instead. It
// does not block. [ProbeHandler] takes it.
func (g *Group) Ready() error {
	_, _, hosting := g.shown()
	all := g.look()
	if len(all) == 0 && !hosting {
		return errors.New("informer: Group: it has no members")
	}
	return probe(all, Health.Ready)
}

// Live returns an error if one that Health shows says that only a restart would help, see
// [Health.Live]. It does not block. [ProbeHandler] takes it.
func (g *Group) Live() error { return probe(g.look(), Health.Live) }

func probe(all []seen, check func(Health) error) error {
	var failed []error
	for _, s := range all {
		failed = append(failed, check(s.health))
	}
	return errors.Join(failed...)
}

// seen is a member, or a guest, at one moment.
type seen struct {
	Member
	health Health
}

// look returns the members and the guests. Those of them that have stopped are sent off.
func (g *Group) look() []seen {
	members, guests, _ := g.shown()
	all := observe(members)
	var gone []Member
	for _, m := range guests {
		if h := m.Health(); !h.Stopped {
			all = append(all, seen{m, h})
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

func observe(members []*member) []seen {
	var all []seen
	for _, m := range members {
		all = append(all, seen{m.Member, m.Health()})
	}
	return all
}

// names returns a name for each of members that no other has.
func names(members []seen) []string {
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

// failure returns what m's Run has failed with, if it has.
func (m *member) failure() error {
	if !channel.Closed(m.stopped) {
		return nil
	}
	return m.failed
}
