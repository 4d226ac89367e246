package kinds

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
)

// Set reads kinds that come and go while a program runs. [New] and [NewMetadata] make one. It is an
// [informer.Member]: add it and [Set.Informer] to an [informer.Group]. Its methods may be called from any goroutine
// and do not block, except Run and WaitForSync. It must not be copied.
type Set[T informer.Object] struct {
	name           string
	wanted         func(Offer) bool
	discovery      Discovery
	report         func(ctx context.Context, err error)
	objects        *informer.Clusters[T]
	durable        bool // the objects outlive the process
	source         func(p place, namespace string) cache.ListerWatcher
	crds, services *informer.SinkInformer[*unstructured.Unstructured]

	hasRun           atomic.Bool
	started, stopped chan struct{}
	known, synced    chan struct{} // closed when the first kinds are known, and when their first lists are complete
	wake             chan struct{} // has an element if discovery must be asked
	failed           sync.Map      // the last *failure of each kind, by name, until Find sees that it has ended
	mu               sync.Mutex    // protects the rest; the only function of the user that is called with it is Wanted
	catalog          catalog
	members          map[string]*member // by name
	byKind           map[schema.GroupKind][]*member
	servicesChanged  time.Time // when the last APIService has changed
}

// Informer returns the informer over all kinds that the set reads. [informer.Event.Cluster] returns the name of the
// kind, [Kind.String]. Add the informer to the same group as the set: until it runs, nothing is read. Only the set
// may engage and disengage its clusters.
func (s *Set[T]) Informer() *informer.Clusters[T] { return s.objects }

// Name returns Options.Name, or "kinds" if that is empty.
func (s *Set[T]) Name() string { return s.name }

// StopsFirst returns true, so that an [informer.Group] stops the set before the informer over its kinds.
func (s *Set[T]) StopsFirst() bool { return true }

// failure is a failure of a source. Each failure has its own address, so that two failures are never equal.
type failure struct{ error }

// notice notes the failure of a kind. If the server does not find the kind, discovery must show whether the kind
// is still there.
func (s *Set[T]) notice(err error) {
	var of *informer.WatchError
	if !errors.As(err, &of) || of.Cluster == "" {
		return
	}
	s.failed.Store(of.Cluster, &failure{err})
	if apierrors.IsNotFound(err) || apierrors.IsGone(err) && !apierrors.IsResourceExpired(err) {
		s.ask()
	}
}

// ask makes the set ask discovery soon. It does not block.
func (s *Set[T]) ask() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// State is the state of a kind that a [Set] reads or waits for.
type State string

// The states of a kind.
const (
	Waiting State = "waiting" // the kind is not served, and the set has no objects of it
	Reading State = "reading" // the kind is served, and its objects are read
	Parked  State = "parked"  // the kind cannot be read now, or soon may not be; its objects stay, and the set tries again
)

// member is a kind that something wants.
type member struct {
	kind    Kind
	name    string
	users   int
	wanted  bool          // Options.Wanted wants the kind
	at      *place        // where the kind is read; nil if it is not read
	uid     types.UID     // of the source
	away    absence       // how long discovery has not shown the kind
	state   State         // without the failures of the source
	reason  string        // why the state is not Reading
	since   time.Time     // when the state began
	halted  bool          // the kind is read, but the server did not serve it at the last look
	woken   any           // the last *failure after which the source was made to try again at once, or nil
	changed chan struct{} // closed when the state changes or the source leaves
}

func (m *member) become(state State, reason string) {
	if m.reason = reason; m.state == state {
		return
	}
	m.state, m.since = state, time.Now()
	m.signal()
}

// signal wakes the goroutines that wait for a change.
func (m *member) signal() {
	close(m.changed)
	m.changed = make(chan struct{})
}
