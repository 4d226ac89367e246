package shards

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/sharding"
	"github.com/customcacheinformer/informer/shards/internal/leases"
	"github.com/customcacheinformer/informer/shards/internal/plan"
)

// Set divides the keys of controllers over the replicas of a program. [New] makes one. Pass it to the
// controllers as enqueue.Options.Shards, and add it to the same [informer.Group], which runs it and shows its
// Health. Its methods may be called from any goroutine. A Set must not be copied.
type Set struct {
	option
	opts    Options
	leases  coordinationclient.LeaseInterface
	watched *informer.CustomCacheInformer[*coordinationv1.Lease]
	started chan struct{} // closed when Run is called
	synced  chan struct{} // closed when the replica has joined for the first time
	stopped chan struct{} // closed when Run has returned
	wake    chan struct{} // gets a token when step has something to do
	filling chan struct{} // gets a token when a bucket is open whose keys are not queued

	sources []*source                   // of Source; fixed once Run was called
	ranges  atomic.Pointer[plan.Ranges] // with Options.ByNamespace; nil before they are known

	// mu protects the rest. A step compares the view with the holdings of the session, and Health shows both as
	// they are at one moment. So both change only while mu is held. The lock of a session is taken after mu.
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

type counts struct {
	taken, released, lost int
}

// unserved counts the buckets whose holders lack a worker of this replica.
type unserved struct {
	buckets int
	workers []string  // the names of the lacking workers, sorted
	since   time.Time // zero if buckets is 0
}

// option lets a *Set be an enqueue.Options.Shards.
type option = sharding.Handle

type worker struct {
	sharding.Worker
	name, keys string
}

func (s *Set) mark() leases.Mark {
	return leases.Mark{Set: s.opts.Name, Buckets: s.opts.Buckets, ByNamespace: s.opts.ByNamespace, Cut: s.rangesKey()}
}

func (s *Set) rangesKey() string {
	if r := s.ranges.Load(); r != nil {
		return r.Key()
	}
	return ""
}

func (s *Set) report(err error) {
	s.opts.ErrorHandler(s.ctx, fmt.Errorf("shards: set %s: %w", s.opts.Name, err))
}

// later makes step report an error. The caller must hold mu.
func (s *Set) later(err error) {
	s.reports = append(s.reports, err)
	s.poke()
}

// poke wakes the goroutine that calls step.
func (s *Set) poke() { token(s.wake) }

// Name returns Options.Name. It does not block.
func (s *Set) Name() string { return s.opts.Name }

// WaitForSync blocks until the replica has joined the set for the first time. If ctx or Run ends first, it
// returns an *informer.SyncError that wraps the error of ctx or informer.ErrStopped. It may be called before
// Run.
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
	s.mu.Lock()
	defer s.mu.Unlock()
	return &informer.SyncError{Informer: s.opts.Name, Late: []string{"the session"}, Reason: s.refused, Err: err}
}
