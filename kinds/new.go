package kinds

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/channel"
	"github.com/customcacheinformer/informer/internal/object"
)

// Clients are the clients of a [Set]. Add [informer.Transport] to the rest.Config before you make them: the set then needs
// less memory.
type Clients struct {
	// Dynamic reads CRDs and APIServices, and the objects of a set that [New] has made. It is required.
	Dynamic dynamic.Interface
	// Discovery is a client such as clientset.Discovery(). It shows the kinds that have no CRD, and all kinds if the CRDs cannot be
	// listed. It is required.
	Discovery Discovery
	// Metadata reads the objects of [NewMetadata], which requires it. [New] ignores it.
	Metadata metadata.Interface
}

// Options are the options of [New] and [NewMetadata]. The zero value is ready to use.
type Options[T informer.Object] struct {
	// Name is the name of the set in a group, in errors and in Health. Defaults to "kinds".
	Name string
	// Wanted reports whether the set reads all objects of a kind that the server offers, even if no [Set.Acquire] asks for the kind. It is
	// called again when the kind changes, and after each discovery. If Wanted then returns false and no [Lease] keeps the kind in use, its
	// objects are dropped without events. Wanted is called from several goroutines, one at a time. It must not block or call methods of the
	// set. A panic ends the process. Defaults to nil: the set reads only the kinds that are acquired.
	Wanted func(Offer) bool
	// Informer configures the informer over all kinds. Informer.Name defaults to Options.Name followed by " objects".
	Informer informer.Options[T]
	// ErrorHandler is called when the CRDs or the APIServices cannot be read, as often as [informer.WatchError] describes, and once for
	// each outage of discovery. Several goroutines may call it at once. Errors of the kinds' objects go to Informer.ErrorHandler instead.
	// Defaults to [informer.Report].
	ErrorHandler func(ctx context.Context, err error)
}

// New returns a set that reads whole objects. It makes no request; Run does. It returns an error if Clients.Dynamic or Clients.Discovery is
// nil, or if [informer.NewOverClusters] refuses opts.Informer.
func New(clients Clients, opts Options[*unstructured.Unstructured]) (*Set[*unstructured.Unstructured], error) {
	return newSet("New", clients, opts, func(p place, namespace string) cache.ListerWatcher {
		if all := clients.Dynamic.Resource(p.resource); namespace == "" {
			return informer.ListWatch(all)
		} else {
			return informer.ListWatch(all.Namespace(namespace))
		}
	})
}

// NewMetadata returns a set that reads only the metadata of objects. It makes no request; Run does. It returns an error if a client is nil,
// or if [informer.NewOverClusters] refuses opts.Informer.
func NewMetadata(clients Clients, opts Options[*metav1.PartialObjectMetadata]) (*Set[*metav1.PartialObjectMetadata], error) {
	if object.IsNil(clients.Metadata) {
		return nil, errors.New("kinds: NewMetadata: Clients.Metadata is nil")
	}
	return newSet("NewMetadata", clients, opts, func(p place, namespace string) cache.ListerWatcher {
		if all := clients.Metadata.Resource(p.resource); namespace == "" {
			return informer.ListWatch(all)
		} else {
			return informer.ListWatch(all.Namespace(namespace))
		}
	})
}

func newSet[T informer.Object](op string, clients Clients, opts Options[T], source func(p place, namespace string) cache.ListerWatcher) (*Set[T], error) {
	switch {
	case object.IsNil(clients.Dynamic):
		return nil, fmt.Errorf("kinds: %s: Clients.Dynamic is nil", op)
	case object.IsNil(clients.Discovery):
		return nil, fmt.Errorf("kinds: %s: Clients.Discovery is nil", op)
	}
	s := &Set[T]{
		name: cmp.Or(opts.Name, "kinds"), wanted: opts.Wanted, discovery: clients.Discovery, report: opts.ErrorHandler, source: source,
		started: make(chan struct{}), stopped: make(chan struct{}), known: make(chan struct{}), synced: make(chan struct{}), wake: make(chan struct{}, 1),
		catalog: newCatalog(), members: map[string]*member{}, byKind: map[schema.GroupKind][]*member{},
	}
	if s.report == nil {
		s.report = informer.Report
	}
	s.durable = !object.IsNil(opts.Informer.Durable)
	of := opts.Informer
	of.Name = cmp.Or(of.Name, s.name+" objects")
	handler := of.ErrorHandler
	if handler == nil {
		handler = informer.Report
	}
	of.ErrorHandler = func(ctx context.Context, err error) {
		s.notice(err)
		handler(ctx, err)
	}
	var err error
	if s.objects, err = informer.NewOverClusters(of, informer.ClusterOptions{}); err != nil {
		return nil, fmt.Errorf("kinds: %s: %w", op, err)
	}
	follow := func(what string, from schema.GroupVersionResource, sink sinkFuncs) *informer.SinkInformer[*unstructured.Unstructured] {
		inf, failed := informer.NewSink(informer.ListWatch(clients.Dynamic.Resource(from)), sink, informer.Options[*unstructured.Unstructured]{
			Name: s.name + " " + what, WatchList: cmp.Or(opts.Informer.WatchList, informer.WatchListOn), ErrorHandler: func(ctx context.Context, err error) {
				if apierrors.IsForbidden(err) {
					err = fmt.Errorf("kinds %s: discovery, every %v, takes the place of the %s: %w", s.name, pollPause, what, err)
				}
				s.report(ctx, err)
				s.ask()
			},
		})
		err = errors.Join(err, failed)
		return inf
	}
	s.crds = follow("CRDs", crdResource, sinkFuncs{s.putCRD, s.removeCRD})
	s.services = follow("APIServices", serviceResource, sinkFuncs{s.putService, s.removeService})
	if err != nil {
		return nil, fmt.Errorf("kinds: %s: %w", op, err)
	}
	return s, nil
}

// Run learns which kinds the server offers, and starts and stops the sources of the wanted and acquired kinds, until ctx ends. Then it
// returns nil. It does not stop the remaining sources: they stop when Run of [Set.Informer] ends. A second Run returns at once an error
// that wraps [informer.ErrAlreadyRun].
func (s *Set[T]) Run(ctx context.Context) error {
	if !s.hasRun.CompareAndSwap(false, true) {
		return fmt.Errorf("kinds %s: %w", s.name, informer.ErrAlreadyRun)
	}
	defer close(s.stopped)
	close(s.started)
	var running sync.WaitGroup
	for _, inf := range []*informer.SinkInformer[*unstructured.Unstructured]{s.crds, s.services} {
		running.Go(func() {
			if err := inf.Run(ctx); err != nil {
				s.report(ctx, fmt.Errorf("kinds %s: %w", s.name, err))
			}
		})
	}
	running.Go(func() { s.discover(ctx) })
	running.Go(func() { s.awaitFirst(ctx) })
	running.Wait()
	return nil
}

// awaitFirst waits for the lists of the first kinds, for at most firstWait, and then closes synced.
func (s *Set[T]) awaitFirst(ctx context.Context) {
	select {
	case <-s.known:
	case <-ctx.Done():
		return
	}
	patience, cancel := context.WithTimeout(ctx, firstWait)
	defer cancel()
	s.mu.Lock()
	var names []string
	for name, m := range s.members {
		if m.at != nil {
			names = append(names, name)
		}
	}
	s.mu.Unlock()
	for _, name := range names {
		_ = s.objects.WaitForSyncIn(patience, name) // one that has left, or takes too long, is not waited for
	}
	if ctx.Err() == nil {
		close(s.synced)
	}
}

// WaitForSync blocks until the set knows which kinds the server offers, and has listed those of them that are wanted or acquired. It
// waits for the lists for at most 30 s. Then it returns nil, even if some lists are not complete. If ctx or Run ends first, it returns an
// [*informer.SyncError] that wraps the error of ctx or [informer.ErrStopped]. It may be called before Run, but not in a watcher's callback.
func (s *Set[T]) WaitForSync(ctx context.Context) error {
	err := informer.ErrStopped
	select {
	case <-s.synced:
	case <-s.stopped:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if channel.Closed(s.synced) {
		return nil
	}
	late := []string{"the lists of the first kinds"}
	if !channel.Closed(s.known) {
		late = []string{"the kinds of the server"}
	}
	if !channel.Closed(s.started) {
		late = append(late, "Run")
	}
	return &informer.SyncError{Informer: s.name, Late: late, Reason: s.trouble(), Err: err}
}
