package informer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/customcacheinformer/informer/internal/channel"
	"github.com/customcacheinformer/informer/internal/longwait"
	"github.com/customcacheinformer/informer/internal/object"
)

var errMemberFailed = errors.New("a member has failed")

// WaitForSync blocks until the informer and all watchers that are registered at the time of the call have synced, and then returns
// nil. See [CustomCacheInformer.Synced] and [Registration.Synced]. Watchers that are removed meanwhile do not count. An informer that
// has synced stays synced, even after it has stopped; see Health. If ctx or the informer ends first, WaitForSync returns a
// *SyncError, which names the late parts and, if known, the failure that keeps them from syncing. WaitForSync may be called before
// Run. Do not call it in the callback of a watcher that has not synced: there it returns an error if it is given the callback's ctx,
// and otherwise blocks.
//
// If WaitForSync lasts longer than 30 s, it logs with the logger of ctx which parts are late and why, and
// logs again when it returns.
func (i *CustomCacheInformer[T]) WaitForSync(ctx context.Context) error {
	listeners, shown := i.processor.all(), i.processor.shown() // all has none after a stop
	over := longwait.Announce(ctx, func() []any {
		return i.syncError(nil, i.lateForSync(shown)).values("informer", i.opts.Name)
	})
	err := i.waitForSync(ctx, listeners)
	if err != nil {
		err = i.syncError(err, i.lateForSync(shown))
	}
	over(err)
	return err
}

func (i *CustomCacheInformer[T]) waitForSync(ctx context.Context, listeners []*informerProcessorListener[T]) error {
	for _, l := range listeners { // before the first list is awaited, which may take long
		if ctx.Value(callOf{}) == l && !channel.Closed(l.synced) {
			return errOwnCall
		}
	}
	if err := i.wait(ctx, i.applier.synced, nil); err != nil {
		return err
	}
	for _, l := range listeners {
		if err := i.wait(ctx, l.synced, l.removed); err != nil {
			return err
		}
	}
	return nil
}

// WaitFor blocks until cond returns true for the object with that key, and then returns nil. It calls cond for the object
// that the store has now, and for the state after every later change. If changes arrive at the time of the first call, the
// next calls may get states that are older than that of the first. For a deleted or missing object cond gets the zero T and
// false. Before the informer has synced, an object that exists may be missing, so wait for the sync before you wait for a
// delete. An object of a namespace that the informer does not read is always missing.
//
// WaitFor returns a *SyncError if ctx or the informer ends first, and a *StoreError if the store cannot be read. It returns
// another error if cond is nil, or for an informer of [NewOverClusters]. It may be called before Run, but not in a watcher's
// callback. cond runs in the caller's goroutine and must not change obj.
func (i *CustomCacheInformer[T]) WaitFor(ctx context.Context, key types.NamespacedName, cond func(obj T, exists bool) bool) error {
	switch {
	case cond == nil:
		return fmt.Errorf("informer %s: WaitFor: cond is nil", i.opts.Name)
	case i.gate.clusters:
		return fmt.Errorf("informer %s: WaitFor: %w", i.opts.Name, errNoCluster)
	}
	at := i.processor.log.Cursor()
	defer at.Close()
	name := object.KeyOf(key)
	obj, exists, err := i.getUntil(ctx, name)
	switch {
	case err != nil && i.ended(ctx) != nil:
		return i.syncErrorIn(key.Namespace, i.ended(ctx), []string{key.String()})
	case err != nil:
		return err
	case cond(obj, exists):
		return nil
	}
	for {
		if s, ok := at.Next(maxChunk); ok {
			for _, r := range s.Records {
				if err := i.ended(ctx); err != nil {
					return i.syncErrorIn(key.Namespace, err, []string{key.String()})
				}
				if (r.kind == recordEvent || r.kind == recordLeft) && r.key == name && cond(r.event.New, r.kind == recordEvent && r.event.Type != EventDeleted) {
					return nil
				}
			}
			continue
		}
		if !at.Sleep() {
			continue
		}
		select {
		case <-at.Wake():
		case <-i.stopped:
			return i.syncErrorIn(key.Namespace, ErrStopped, []string{key.String()})
		case <-ctx.Done():
			return i.syncErrorIn(key.Namespace, ctx.Err(), []string{key.String()})
		}
	}
}

// WaitForVersion blocks until the store has every change up to version in a namespace, and then returns nil. After a
// write of yours, pass the namespace and the resourceVersion of the object that the write returned: Get and List then
// return the result of that write, or a later state. For an informer of [NewInNamespaces], namespace "" means all of
// its namespaces. A namespace in which nothing happens may then be behind for a minute. For other informers, the
// namespace makes no difference.
//
// WaitForVersion returns a *SyncError if ctx or the informer ends first. It returns another error if the informer does
// not read the namespace, or if version is "" or cannot be compared with the versions of the source. For an informer of
// [NewOverClusters], use WaitForVersionIn. WaitForVersion may be called before Run, but not in a watcher's callback.
//
// A change for which Transform has failed counts too, although it is not in the store. If a selector hides the write
// from this informer, only the next event or bookmark shows that its version has passed. That may take a minute, or
// forever if the server sends no bookmarks and no other object changes.
func (i *CustomCacheInformer[T]) WaitForVersion(ctx context.Context, namespace, version string) error {
	var only *scope // nil for all
	if i.gate.clusters {
		return fmt.Errorf("informer %s: WaitForVersion: each cluster has versions of its own: see WaitForVersionIn", i.opts.Name)
	}
	if namespace != "" {
		if only = i.gate.scopeOf(namespace); only == nil {
			return fmt.Errorf("informer %s: WaitForVersion: the informer does not read the namespace %q", i.opts.Name, namespace)
		}
	}
	return i.waitForVersion(ctx, only, version)
}

// waitForVersion waits until one source has reached version, or all sources if only is nil.
func (i *CustomCacheInformer[T]) waitForVersion(ctx context.Context, only *scope, version string) error {
	if version == "" {
		return fmt.Errorf("informer %s: WaitForVersion: the version is empty, like the versions of the objects of a fake clientset", i.opts.Name)
	}
	if _, err := resourceversion.CompareResourceVersion(version, version); err != nil {
		return fmt.Errorf("informer %s: WaitForVersion %q: %w", i.opts.Name, version, err)
	}
	for {
		now, moved := i.gate.resourceVersion(only)
		switch {
		case only != nil && only.gone.Load() && only.cluster != nil:
			return fmt.Errorf("informer %s: WaitForVersionIn: cluster %q: %w", i.opts.Name, only.name(), ErrNotEngaged)
		case only != nil && only.gone.Load():
			return fmt.Errorf("informer %s: WaitForVersion: the informer no longer reads the namespace %q", i.opts.Name, only.name())
		case only == nil && len(i.gate.scopes()) == 0: // only leaves the set before it is marked as gone
			return nil
		}
		ok, err := reached(now, version)
		if err != nil {
			return fmt.Errorf("informer %s: WaitForVersion: the source's versions cannot be compared: %w", i.opts.Name, err)
		}
		if ok {
			return nil
		}
		if err := i.wait(ctx, moved, nil); err != nil {
			if only != nil {
				return i.syncErrorIn(only.name(), err, []string{"resourceVersion " + version})
			}
			return i.syncError(err, []string{"resourceVersion " + version + i.gate.behind(version)})
		}
	}
}

// wait blocks until done or removed is closed. It returns ErrStopped or the error of ctx if the
// informer stops or ctx ends first.
func (i *CustomCacheInformer[T]) wait(ctx context.Context, done, removed <-chan struct{}) error {
	select {
	case <-done:
		return nil // even if ctx is done too
	default:
	}
	select {
	case <-done:
		return nil
	case <-i.stopped: // which removes the listeners
		return ErrStopped
	case <-removed:
		select {
		case <-i.stopped:
			return ErrStopped
		default:
			return nil
		}
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (i *CustomCacheInformer[T]) ended(ctx context.Context) error {
	select {
	case <-i.stopped:
		return ErrStopped
	default:
		return ctx.Err()
	}
}

func (i *CustomCacheInformer[T]) lateForSync(listeners []*informerProcessorListener[T]) []string {
	var late []string
	if !i.running.Load() {
		late = append(late, "Run")
	}
	if !i.HasSynced() {
		late = append(late, "the first list"+i.gate.late()+i.sourceHealth().turn())
	}
	return append(late, i.processor.late(listeners)...)
}

func (i *CustomCacheInformer[T]) syncError(err error, late []string) *SyncError {
	return i.syncErrorIn("", err, late)
}

// syncErrorIn returns the error of a caller that waits for one region, or for all if the name is "". If
// it waits for one region, failures in other regions are left out. An error of the store goes before those of sources.
func (i *CustomCacheInformer[T]) syncErrorIn(region string, err error, late []string) *SyncError {
	h := i.sourceHealth()
	reason := h.SourceError
	for _, n := range slices.Concat(h.Namespaces, h.Clusters) {
		if n.name() == region {
			reason = n.SourceError
		}
	}
	if failing := i.applier.access.trouble(); failing != nil {
		reason = failing
	}
	return &SyncError{Informer: i.opts.Name, Late: late, Reason: reason, Err: err}
}

// WaitForSync blocks until the group runs, has at least one member, and all its members have synced,
// and then returns nil. A member's watchers count if they were registered when WaitForSync began to
// wait for this member. WaitForSync may be called before Run, and before there is a member. It also
// waits for members that are added meanwhile. Members that are removed no longer count. A member that
// has synced stays synced, even after the group has stopped; see [Group.Ready].
//
// WaitForSync returns a *SyncError if ctx or the group ends first, or if the Run of a member fails.
// Late in the error names every late member and the parts that are late in it. Reason wraps all failures
// that prevent progress. In the callback of a watcher that has not synced, WaitForSync returns an error
// if it is given the ctx of the callback, and otherwise blocks.
//
// If WaitForSync lasts longer than 30 s, it logs with the logger of ctx which parts are late and why, and
// logs again when it returns. To learn which parts are late, it calls WaitForSync of each member once
// more, with a ctx that is done. Informers that are members do not log their own waiting.
func (g *Group) WaitForSync(ctx context.Context) error {
	quiet := longwait.Quiet(ctx)
	over := longwait.Announce(ctx, func() []any { return g.missing(quiet) })
	err := g.waitForSync(quiet)
	over(err)
	return err
}

// missing returns the keys and values of the log line for a WaitForSync that waits now, or nil if all
// members have synced.
func (g *Group) missing(ctx context.Context) []any {
	ended, cancel := context.WithCancel(ctx)
	cancel()
	late := (*SyncError)(nil)
	if !errors.As(g.waitForSync(ended), &late) {
		return nil
	}
	_, members, _ := g.current()
	names := []string{}
	for _, m := range members {
		names = append(names, m.name)
	}
	return late.values("group", names)
}

func (g *Group) waitForSync(ctx context.Context) error {
	waiting, giveUp := context.WithCancel(ctx)
	w := &groupWait{ctx: waiting, group: g, answers: map[*member]*answer{}}
	defer w.calls.Wait()
	defer giveUp()
	for {
		run, members, changed := g.current()
		late, cause := w.check(members)
		switch {
		case channel.Closed(changed): // a late member may have been removed
			continue
		case run != nil && run.Err() != nil:
			cause = ErrStopped
		case run != nil && len(members) > 0 && late == 0:
			return nil
		}
		if cause = cmp.Or(cause, ctx.Err()); cause != nil {
			giveUp()
			w.calls.Wait()
			return w.syncError(cause, run != nil, members)
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

type groupWait struct {
	ctx     context.Context
	group   *Group
	answers map[*member]*answer
	calls   sync.WaitGroup
}

type answer struct {
	stop    context.CancelFunc // ends the ctx of the call
	arrived chan struct{}      // closed when err is set
	err     error
}

// answerOf returns the answer of m. The first call for m calls m's WaitForSync in a new goroutine.
func (w *groupWait) answerOf(m *member) *answer {
	a := w.answers[m]
	if a == nil {
		ctx, stop := context.WithCancel(w.ctx)
		a = &answer{stop: stop, arrived: make(chan struct{})}
		w.answers[m] = a
		w.calls.Go(func() {
			defer stop()
			a.err = m.WaitForSync(ctx)
			close(a.arrived)
			w.group.notify()
		})
	}
	return a
}

// check returns how many members are late. cause is the reason to give up, or nil if the members may
// still sync.
func (w *groupWait) check(members []*member) (late int, cause error) {
	for m, a := range w.answers {
		if !slices.Contains(members, m) { // it was removed
			a.stop()
			delete(w.answers, m)
		}
	}
	for _, m := range members {
		a := w.answerOf(m)
		switch {
		case m.failure() != nil:
			cause = errMemberFailed
		case !channel.Closed(a.arrived):
		case a.err != nil:
			cause = a.err
			if own := (*SyncError)(nil); errors.As(a.err, &own) {
				cause = own.Err
			}
		default:
			continue
		}
		late++
	}
	return late, cause
}

// syncError returns the *SyncError of a wait that was given up because of cause, or nil if no member is
// late after all. It must not be called before all answers have arrived.
func (w *groupWait) syncError(cause error, running bool, members []*member) error {
	e := &SyncError{Informer: "Group", Err: cause}
	if !running {
		e.Late = append(e.Late, "Run")
	}
	if len(members) == 0 {
		e.Late = append(e.Late, "a member (it has none)")
	}
	for _, m := range members {
		name, failed, err := m.name, m.failure(), w.answers[m].err
		if failed == nil && err == nil {
			continue
		}
		if late := (*SyncError)(nil); errors.As(err, &late) {
			name += ": " + strings.Join(late.Late, ", ")
			err = late.Reason
		}
		e.Late = append(e.Late, name)
		reason := cmp.Or(failed, err)
		if e.Reason != nil && reason != nil {
			reason = fmt.Errorf("%w; %w", e.Reason, reason) // in one line, unlike errors.Join
		}
		e.Reason = cmp.Or(reason, e.Reason)
	}
	if len(e.Late) == 0 {
		return nil
	}
	return e
}
