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
	"k8s.io/apimachinery/pkg/watch"

	"github.com/customcacheinformer/informer"
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
	watched *informer.CustomCacheInformer[*coordinationv1.Lease]
	started chan struct{} // closed when Run is called
	synced  chan struct{} // closed when the replica has joined for the first time
	stopped chan struct{} // closed when Run has returned
	wake    chan struct{} // gets a token when step has something to do
	filling chan struct{} // gets a token when a bucket is open whose keys are not queued

	sources []*source                   // of Source; fixed once Run was called
	ranges  atomic.Pointer[plan.Ranges] // with Options.ByNamespace; nil before they are known

	// mu protects the rest. A step compares the view with the holdings of the session, and Health shows both as
	// they are at one moment, so they change together only while mu is held. The lock of a session is taken after mu.
	mu       sync.Mutex
	view     view
	ctx      context.Context   // of Run; does not change from then on
	workers  []worker          // do not change from then on
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

// unserved is what this replica knows of buckets whose holders do not have all of its workers.
type unserved struct {
	buckets int
	workers []string  // that one of the holders does not have, sorted
	since   time.Time // zero if buckets is 0
}

// New returns a set. It makes no request; Run does. It returns an error that names the argument or
// the option if one cannot be used.
func New(leases Leases, opts Options) (*Set, error) {
	if object.IsNil(leases) {
		return nil, errors.New("shards: New: leases is nil")
	}
	opts, err := opts.complete()
	if err != nil {
		return nil, fmt.Errorf("shards: New: %w", err)
	}
	s := &Set{
		opts: opts, leases: leases, started: make(chan struct{}), synced: make(chan struct{}), stopped: make(chan struct{}),
		wake: make(chan struct{}, 1), filling: make(chan struct{}, 1), old: map[*session]bool{},
	}
	s.view = newView(&s.opts)
	s.watched, err = informer.NewFrom(informer.ListWatch(s.labelled()), informer.Options[*coordinationv1.Lease]{
		Name: opts.Name + " (Leases)", WatchList: informer.WatchListOff, // they are few
		Backoff:      opts.backoff(),
		ErrorHandler: opts.ErrorHandler,
	})
	if err != nil {
		return nil, fmt.Errorf("shards: New: %w", err)
	}
	return s, nil
}

// mark returns the mark of the set's Leases.
func (s *Set) mark() leases.Mark {
	return leases.Mark{Set: s.opts.Name, Buckets: s.opts.Buckets, ByNamespace: s.opts.ByNamespace, Cut: s.rangesKey()}
}

// rangesKey returns the key of this replica's ranges, "" if there are none.
func (s *Set) rangesKey() string {
	if r := s.ranges.Load(); r != nil {
		return r.Key()
	}
	return ""
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

// report gives an error to the ErrorHandler, with the name of the set. The caller holds no lock.
func (s *Set) report(err error) {
	s.opts.ErrorHandler(s.ctx, fmt.Errorf("shards: set %s: %w", s.opts.Name, err))
}

// later has step report an error. The caller holds mu.
func (s *Set) later(err error) {
	s.reports = append(s.reports, err)
	s.poke()
}

// poke has step look again.
func (s *Set) poke() { token(s.wake) }

// Name returns Options.Name. It does not block.
func (s *Set) Name() string { return s.opts.Name }

// Started returns a channel that is closed when Run is called. It does not block.
func (s *Set) Started() <-chan struct{} { return s.started }

// WaitForSync blocks until the replica has joined the set for the first time. It returns an error if
// ctx or the set ends first. It may be called before Run.
func (s *Set) WaitForSync(ctx context.Context) error {
	select {
	case <-s.synced:
		return nil
	default:
	}
	err := informer.ErrStopped
	select {
	case <-s.synced:
		return nil
	case <-s.stopped:
	case <-ctx.Done():
		err = ctx.Err()
	}
	return &informer.SyncError{Informer: s.opts.Name, Late: []string{"the session"}, Err: err}
}
