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

// Set reads kinds that come and go. It is an [informer.Member]. Its methods may be called from any goroutine and do not block,
// except Run and WaitForSync. It must not be copied.
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
	known, synced    chan struct{} // closed when the first kinds are known, and when they are listed
	wake             chan struct{} // has an element if discovery is to be asked
	failed           sync.Map      // the last *failure of each kind, by name, that Find has not seen end
	mu               sync.Mutex    // protects the rest; the set calls no function of the user with it but Wanted
	catalog          catalog
	members          map[string]*member // by name
	byKind           map[schema.GroupKind][]*member
	servicesChanged  time.Time // when the last APIService has changed
}

// Informer returns the informer over all kinds that the set reads. [informer.Event.Cluster] is the name of the kind, [Kind.String]. Add it to
// the group, too: without it, nothing is read. Only the set may engage its clusters.
func (s *Set[T]) Informer() *informer.Clusters[T] { return s.objects }

// Name returns Options.Name.
func (s *Set[T]) Name() string { return s.name }

// StopsFirst returns true: a group stops the informer over the kinds later.
func (s *Set[T]) StopsFirst() bool { return true }

// failure is a failure of a source. Each has an address of its own.
type failure struct{ error }

// notice notes the failure of a kind. Discovery shows whether a kind that the server does not find is still there.
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

// ask has discovery asked soon.
func (s *Set[T]) ask() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// State is the state of a kind that a [Set] is to read.
type State string

// The states of a kind.
const (
	Waiting State = "waiting" // the kind is not served, and nothing of it is known
	Reading State = "reading" // the kind is served, and its objects are read
	Parked  State = "parked"  // the objects that are known stay, and the set tries again
)

// member is a kind that something wants.
type member struct {
	kind    Kind
	name    string
	users   int
	wanted  bool          // by Options.Wanted
	at      *place        // where the kind is read, nil if it is not
	uid     types.UID     // of the source
	away    absence       // from discovery
	state   State         // without the failures of the source
	reason  string        // why the state is not Reading
	since   time.Time     // when the state began
	halted  bool          // the kind is read, and has not been served
	woken   any           // the last *failure after which the source was told to try again at once, or nil
	changed chan struct{} // closed when the state changes or the source leaves
}

func (m *member) become(state State, reason string) {
	if m.reason = reason; m.state == state {
		return
	}
	m.state, m.since = state, time.Now()
	m.signal()
}

// signal wakes those that wait for a change.
func (m *member) signal() {
	close(m.changed)
	m.changed = make(chan struct{})
}
