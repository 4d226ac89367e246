package shards

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/channel"
	"github.com/customcacheinformer/informer/internal/object"
	"github.com/customcacheinformer/informer/shards/internal/leases"
	"github.com/customcacheinformer/informer/shards/internal/plan"
)

// Set divides keys over the replicas of a program. [New] makes one. It is a member of an
// [informer.Group], which runs it and shows its Health. Its methods may be called from any
// goroutine. It must not be copied.
type Set struct {
	opts    Options
	leases  Leases
	view    view
	watched *informer.CustomCacheInformer[*coordinationv1.Lease]
	started chan struct{} // closed when Run is called
	synced  chan struct{} // closed when the replica has joined for the first time
	stopped chan struct{} // closed when Run has returned
	wake    chan struct{} // gets a token when step has something to do
	filling chan struct{} // gets a token when a bucket is open whose keys are not queued

	handling sync.Mutex // protects handler
	handler  func(context.Context, error)

	sources []*source                   // of Source; fixed once Run was called
	ranges  atomic.Pointer[plan.Ranges] // with Options.ByNamespace; nil before they are known

	mu       sync.Mutex // protects the rest, and view
	ctx      context.Context
	workers  []worker
	session  *session          // nil if there is none
	old      map[*session]bool // lost sessions with calls under way
	reports  []error           // errors that step has not reported yet
	deletes  []leases.Deletes  // keys of deletes that step has not given to the workers yet
	counts   counts
	missed   time.Time // when reportMissing last reported
	lag      lag       // of the last session
	refused  error     // why this replica does not join; nil if it may
	unserved unserved
	running  sync.WaitGroup // requests that are under way
}

// counts count since the start.
type counts struct {
	taken, released, lost int
}

// New returns a set. It makes no request; Run does. It returns an error that names the argument or
// the option if one cannot be used.
func New(leases Leases, opts Options) (*Set, error) {
	if object.IsNil(leases) {
		return nil, fmt.Errorf("shards: New: %w", errNoLeases)
	}
	if err := opts.check(); err != nil {
		return nil, fmt.Errorf("shards: New: %w", err)
	}
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("shards: New: %w", err)
	}
	s := &Set{
		opts: opts, leases: leases, started: make(chan struct{}), synced: make(chan struct{}), stopped: make(chan struct{}),
		wake: make(chan struct{}, 1), filling: make(chan struct{}, 1), old: map[*session]bool{},
	}
	s.view = newView(&s.opts)
	s.Adopt(nil, nil)
	s.watched, err = informer.NewFrom(informer.ListWatch(s.labelled()), informer.Options[*coordinationv1.Lease]{
		Name: opts.Name + " (Leases)", WatchList: informer.WatchListOff, // they are few
		Backoff:      opts.backoff(),
		ErrorHandler: func(ctx context.Context, err error) { s.handle(ctx, err) },
	})
	if err != nil {
		return nil, fmt.Errorf("shards: New: %w", err)
	}
	_, err = s.watched.AddWatcher(informer.WatcherFunc[*coordinationv1.Lease](s.note), informer.WatcherOptions{Name: opts.Name, MaxBacklog: -1})
	if err != nil {
		return nil, fmt.Errorf("shards: New: %w", err)
	}
	return s, nil
}

// mark returns the mark of the set's Leases.
func (s *Set) mark() leases.Mark {
	return leases.Mark{Set: s.opts.Name, Buckets: s.opts.Buckets, ByNamespace: s.opts.ByNamespace, Cut: s.rangesKey()}
}

// labelled returns a client that lists and watches the Leases of the set alone.
func (s *Set) labelled() labelled { return labelled{s.leases, leases.Selector(s.opts.Name)} }

type labelled struct {
	Leases
	selector string
}

func (l labelled) List(ctx context.Context, opts metav1.ListOptions) (*coordinationv1.LeaseList, error) {
	opts.LabelSelector = l.selector
	return l.Leases.List(ctx, opts)
}

func (l labelled) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	opts.LabelSelector = l.selector
	return l.Leases.Watch(ctx, opts)
}

// Join adds a worker. Its name is the same in all replicas. Join must be called before Run, and does
// not block. It returns an error if another worker has the name, or if Run was called.
func (s *Set) Join(name string, w Worker) error {
	if object.IsNil(w) {
		return fmt.Errorf("shards: set %s: the worker %q is nil", s.opts.Name, name)
	}
	keys := w.Keys()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case name == "":
		return fmt.Errorf("shards: set %s: the name of the worker is empty", s.opts.Name)
	case slices.ContainsFunc(s.workers, func(other worker) bool { return other.name == name }):
		return fmt.Errorf("shards: set %s: another worker has the name %q", s.opts.Name, name)
	case s.ctx != nil:
		return fmt.Errorf("shards: set %s: the worker %q is too late: %w", s.opts.Name, name, informer.ErrAlreadyRun)
	}
	s.workers = append(s.workers, worker{w, name, keys})
	return nil
}

// joined returns the workers.
func (s *Set) joined() []worker {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.workers
}

// Adopt sets the ErrorHandler of a group, unless the options have one. A nil handler stands for the
// default. It does not block. [informer.Group.Add] calls it.
func (s *Set) Adopt(handler func(context.Context, error), _ *informer.Observer) {
	s.handling.Lock()
	defer s.handling.Unlock()
	if s.opts.ErrorHandler != nil {
		handler = s.opts.ErrorHandler
	}
	if handler == nil {
		handler = informer.LogError
	}
	s.handler = handler
}

func (s *Set) handle(ctx context.Context, err error) {
	s.handling.Lock()
	handler := s.handler
	s.handling.Unlock()
	handler(ctx, err)
}

// report gives an error to the ErrorHandler, with the name of the set. The caller holds no lock.
func (s *Set) report(err error) {
	s.mu.Lock()
	ctx := s.ctx
	s.mu.Unlock()
	s.handle(ctx, fmt.Errorf("shards: set %s: %w", s.opts.Name, err))
}

// later has step report an error. The caller holds mu.
func (s *Set) later(err error) {
	s.reports = append(s.reports, err)
	s.poke()
}

// poke has step look again.
func (s *Set) poke() { token(s.wake) }

func token(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// Run waits until all workers could begin, joins the set, and takes and lets go of buckets until ctx
// ends or a worker stops, as the controllers of a group do before the set. Then it lets go of all
// buckets, each when its calls have returned. While a call does not return, Run renews the session,
// so that no other replica works on the same key. Run returns nil when ctx has ended and no bucket is
// left, or when the session could not be renewed any more.
//
// A session that is lost is followed by a new one. Run returns an error if there is no worker, if one
// cannot begin, if a source of Source is not read by one informer, or if the Leases are
// those of replicas with another number of buckets or another ByNamespace. It returns an error that
// wraps informer.ErrAlreadyRun at once if it was called before.
func (s *Set) Run(ctx context.Context) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer close(s.stopped)
	ctx = klog.NewContext(ctx, klog.LoggerWithValues(klog.FromContext(ctx), "set", s.opts.Name))
	watching, end := context.WithCancel(context.WithoutCancel(ctx))
	defer s.running.Wait()
	var all sync.WaitGroup
	defer all.Wait()
	defer end()
	all.Go(func() { _ = s.watched.Run(watching) })
	working, leave := context.WithCancel(ctx)
	defer leave()
	for _, w := range s.joined() {
		all.Go(func() {
			select {
			case <-w.Stopped():
				leave()
			case <-watching.Done():
			}
		})
	}
	// A worker that has stopped says itself why, and so does one whose informer has stopped. A group
	// stops these before its sets.
	if err := s.participate(working); err != nil && working.Err() == nil && !errors.Is(err, informer.ErrStopped) {
		return err
	}
	<-ctx.Done()
	return nil
}

func (s *Set) begin(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ctx != nil:
		return fmt.Errorf("shards: set %s: %w", s.opts.Name, informer.ErrAlreadyRun)
	case len(s.workers) == 0:
		return fmt.Errorf("shards: set %s: no worker has joined, such as a controller with enqueue.Options.Shards", s.opts.Name)
	}
	s.ctx = ctx
	close(s.started)
	return nil
}

// Name returns Options.Name. It does not block.
func (s *Set) Name() string { return s.opts.Name }

// Started returns a channel that is closed when Run is called. It does not block.
func (s *Set) Started() <-chan struct{} { return s.started }

// participate has one session after another until ctx ends.
func (s *Set) participate(ctx context.Context) error {
	if err := s.await(ctx); err != nil {
		return fmt.Errorf("shards: set %s: %w", s.opts.Name, err)
	}
	for s.agree(ctx) == nil && ctx.Err() == nil {
		n, err := s.newSession(ctx)
		if err == nil {
			s.refuse(nil)
			s.hold(ctx, n)
			continue
		}
		pause := retryAfter
		if first := s.refuse(err); ctx.Err() == nil && first {
			s.report(fmt.Errorf("joining: %w", err))
		}
		if errors.Is(err, errOtherProgram) {
			pause = wait.Jitter(s.opts.RenewEvery, 1) // two programs that find each other do not do so again
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	return nil
}

// refuse notes why this replica cannot join. It reports whether that is to be reported: a replica that
// waits for the end of another program reports it once.
func (s *Set) refuse(err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.refused
	s.refused = err
	return !errors.Is(err, errOtherProgram) || !errors.Is(last, errOtherProgram)
}

// await waits until this replica could begin.
func (s *Set) await(ctx context.Context) error {
	if err := s.watched.WaitForSync(ctx); err != nil {
		return err
	}
	for _, lease := range s.watched.All() {
		if err := s.mark().Refuses(lease); err != nil {
			return err
		}
	}
	for _, w := range s.joined() {
		if err := w.WaitForSync(ctx); err != nil {
			return fmt.Errorf("worker %s: %w", w.name, err)
		}
	}
	for n, src := range s.sources {
		if err := src.isRead(); err != nil {
			return fmt.Errorf("source %d of Source: %w", n+1, err)
		}
	}
	return nil
}

// hold takes and lets go of buckets until the session is over. When ctx ends, it lets go of all.
func (s *Set) hold(ctx context.Context, n *session) {
	if !channel.Closed(s.synced) {
		close(s.synced)
	}
	klog.FromContext(ctx).V(2).Info("The replica has joined", "session", n.id)
	leave := make(chan struct{})
	var parts sync.WaitGroup
	parts.Go(func() { n.renew(leave) })
	parts.Go(n.claim)
	parts.Go(func() { n.fill(s.filling) })
	done := ctx.Done()
	for {
		next, left := s.step(n)
		if left {
			s.tellAll(n)
			s.mu.Lock()
			n.endLocked(nil)
			s.mu.Unlock()
			parts.Wait()
			s.leave(n)
			return
		}
		select {
		case <-n.ended:
			parts.Wait()
			s.step(n) // reports why
			return
		case <-done:
			done = nil
			s.mu.Lock()
			n.leaving = true
			s.mu.Unlock()
			close(leave)
		case <-s.wake:
		case <-time.After(next):
		}
	}
}

// leave deletes the Lease of a session that has no buckets any more.
func (s *Set) leave(n *session) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(n.ctx), s.opts.RenewEvery)
	defer cancel()
	uid := n.lease.UID
	if err := s.leases.Delete(ctx, n.lease.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}); err != nil {
		s.report(fmt.Errorf("leaving: %w", err))
	}
}

// WaitForSync blocks until the replica has joined the set for the first time. It returns an error if
// ctx or the set ends first. It may be called before Run.
func (s *Set) WaitForSync(ctx context.Context) error {
	select {
	case <-s.synced:
		return nil
	default:
	}
	select {
	case <-s.synced:
		return nil
	case <-s.stopped:
		return &informer.SyncError{Informer: s.opts.Name, Late: []string{"the session"}, Err: informer.ErrStopped}
	case <-ctx.Done():
		return &informer.SyncError{Informer: s.opts.Name, Late: []string{"the session"}, Err: ctx.Err()}
	}
}

// note takes an event of a Lease.
func (s *Set) note(_ context.Context, e informer.Event[*coordinationv1.Lease]) error {
	deleted := e.Type == informer.EventDeleted
	s.mu.Lock()
	if e.Type == informer.EventUpdated && !leases.IsNewer(e.New, e.Old) { // the server was restored from a backup
		s.view.restored(e.New)
	}
	seen := s.view.note(e.Object(), deleted, time.Now())
	ours := seen != nil && s.session != nil && seen.ID == s.session.id
	if ours {
		s.session.heedLocked(e.Object(), deleted)
	}
	s.poke()
	s.mu.Unlock()
	if !ours && !deleted && (!s.opts.ByNamespace || s.ranges.Load() != nil) {
		s.learn(leases.ReadClaims(e.New))
	}
	return nil
}
