package shards

import (
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer/internal/channel"
	"github.com/customcacheinformer/informer/internal/sharding"
	parts "github.com/customcacheinformer/informer/internal/source"
	"github.com/customcacheinformer/informer/shards/internal/plan"
)

const (
	// gather is how long a source waits for more buckets before it lists. A replica that joins gets
	// its buckets one after the other.
	gather = 100 * time.Millisecond
	// linger is how long the objects of a lost bucket stay in the caches. In a rolling restart,
	// some buckets come back soon.
	linger = 10 * time.Second
	// slack is how long a source may be older than the source of the last holder of a bucket before
	// it lists again. An API server that selects does not send changes of objects in other buckets,
	// so the next change or bookmark may come late.
	slack = 500 * time.Millisecond
	// noObject is a field selector for no object, because no name is "-".
	noObject = "metadata.name=-"
)

// source delivers the objects in the buckets of a replica. Each set of buckets is one part. It
// implements [parts.Divided].
type source struct {
	all          cache.ListerWatcherWithContext
	total        int                          // how many buckets there are
	ranges       *atomic.Pointer[plan.Ranges] // of the set
	unstreamable bool                         // all cannot stream its first state

	mu       sync.Mutex       // protects the rest
	wanted   sharding.Buckets // those that the replica has
	current  *part            // nil before the first
	shared   bool             // more than one informer reads the source
	applied  sharding.Buckets // those whose objects the informer has
	moved    chan struct{}    // closed when applied has changed
	selector string           // one of the values of Health.Selector
	failing  bool             // the last list has failed, and no watch was opened since
}

// These are the values of Health.Selector.
const (
	selectorServed  = "served"
	selectorIgnored = "ignored"
)

// errNotDivided is the error of each request of a reader that is not an informer. Such a reader
// would get the objects of all replicas, or keep the objects of buckets that this replica has lost.
var errNotDivided = errors.New("a source of Set.Source can only be read by an informer of informer.NewFrom, and must not be wrapped")

func (*source) List(metav1.ListOptions) (runtime.Object, error) { return nil, errNotDivided }

func (*source) Watch(metav1.ListOptions) (watch.Interface, error) { return nil, errNotDivided }

// Part returns a source of the objects in the buckets that the replica has now. The informer calls it.
func (s *source) Part() parts.Part {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &part{source: s, buckets: maps.Clone(s.wanted), begun: time.Now(), changed: make(chan struct{})}
	if last := s.current; last != nil {
		s.shared = s.shared || !channel.Closed(last.changed)
		if last.turning != nil {
			last.turning.Stop()
		}
	}
	s.current = p
	s.applied = s.applied.Intersection(p.buckets)
	if p.ranges = s.ranges.Load(); len(p.buckets) > 0 {
		p.selector = p.ranges.Selector(p.buckets)
	}
	return parts.Part{Lister: p, Has: p.has, Changed: p.changed, Applied: func() { s.arrived(p) }}
}

// arrived records that the informer has the objects of a part.
func (s *source) arrived(p *part) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p != s.current {
		return
	}
	s.applied = p.buckets
	close(s.moved)
	s.moved = make(chan struct{})
}

func (s *source) isRead() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.current == nil:
		return errors.New("no informer that has started reads it")
	case s.shared:
		return errors.New("two informers read it")
	}
	return nil
}

// await blocks until the informer has the objects of a bucket. If ctx ends first, it returns the
// cause of ctx.
func (s *source) await(ctx context.Context, bucket int) error {
	for {
		s.mu.Lock()
		has, moved := s.applied.Has(bucket), s.moved
		s.mu.Unlock()
		if has {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// want sets the buckets that the replica has. If it has a new bucket, the informer lists again after gather. If it has only
// lost buckets, the informer does so after linger.
func (s *source) want(buckets sharding.Buckets) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wanted = buckets
	p := s.current
	switch {
	case p == nil: // the informer has not started
	case !p.buckets.IsSuperset(buckets):
		p.turn(gather)
	case len(p.buckets) > len(buckets):
		p.turn(linger)
	case p.turning != nil:
		p.turning.Stop() // the buckets are back
		p.turning = nil
	}
}

// turn ends the part after a time, unless it ends sooner. The caller must hold the lock of the
// source.
func (p *part) turn(after time.Duration) {
	at := time.Now().Add(after)
	if p.turning != nil {
		if !at.Before(p.due) {
			return
		}
		p.turning.Stop()
	}
	p.due = at
	p.turning = time.AfterFunc(after, func() { p.source.over(p) })
}

func (s *source) over(p *part) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.turning = nil
	if p == s.current && !p.buckets.Equal(s.wanted) && !channel.Closed(p.changed) {
		close(p.changed)
	}
}

// recut makes the informer list again, because the buckets have other namespaces.
func (s *source) recut() {
	s.mu.Lock()
	s.applied = nil
	s.mu.Unlock()
	s.renew(time.Now())
}

// renew ends the part, unless it has begun after the time after.
func (s *source) renew(after time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.current; p != nil && !p.begun.After(after) && !channel.Closed(p.changed) {
		close(p.changed)
	}
}

// answered records the outcome of a list, or that a watch was opened.
func (s *source) answered(ctx context.Context, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failing = err != nil && ctx.Err() == nil
}

// stuck reports whether the last list has failed, and no watch was opened since.
func (s *source) stuck() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failing
}

func (s *source) found(selector string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.selector = selector
}

func (s *source) served() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.selector
}
