package shards_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/customcacheinformer/informer/informertest"
)

// errCut is the error of requests of a replica that is cut off from the API server.
var errCut = errors.New("cut off")

// link is a replica's connection to the API server.
type link struct {
	coordinationclient.LeaseInterface
	objects *informertest.Source[*corev1.ConfigMap]
	world   *world
	writes  atomic.Int64

	lag   atomic.Int64 // how long each write of a Lease takes: half of it passes before it is done
	loses atomic.Bool  // the answers of writes of Leases of buckets

	mu      sync.Mutex
	isCut   bool // from everything
	stale   bool // from the ConfigMaps
	watches []watch.Interface
}

// cut ends the watches, and has all requests fail until heal or healLeases.
func (l *link) cut() { l.lose(&l.isCut) }

// cutObjects is like cut for the ConfigMaps, until heal or healObjects. The watch of the Leases is opened again.
func (l *link) cutObjects() { l.lose(&l.stale) }

// heal ends cut and cutObjects, healLeases only cut, and healObjects only cutObjects.
func (l *link) heal()        { l.regain(&l.isCut, &l.stale) }
func (l *link) healLeases()  { l.regain(&l.isCut) }
func (l *link) healObjects() { l.regain(&l.stale) }

func (l *link) lose(connection *bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	*connection = true
	for _, w := range l.watches {
		w.Stop()
	}
	l.watches = nil
}

func (l *link) regain(connections ...*bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, lost := range connections {
		*lost = false
	}
}

func (l *link) broken() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isCut {
		return errCut
	}
	return nil
}

func (l *link) opened(w watch.Interface, err error) (watch.Interface, error) {
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isCut {
		w.Stop()
		return nil, errCut
	}
	l.watches = append(l.watches, w)
	return w, nil
}

// pass returns an error if ctx ends within d, or if the replica is cut off then.
func (l *link) pass(ctx context.Context, d time.Duration) error {
	if err := sleep(ctx, d); err != nil {
		return err
	}
	return l.broken()
}

// sleep waits for d, or until ctx ends, and then returns its error. It makes no timer for 0, because
// the race detector crashes if two goroutines of a bubble come upon channels of timers that have
// fired before (golang/go#78156).
func sleep(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return ctx.Err()
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *link) write(ctx context.Context, request func() (*coordinationv1.Lease, error)) (*coordinationv1.Lease, error) {
	if err := l.pass(ctx, time.Duration(l.lag.Load())/2); err != nil {
		return nil, err
	}
	lease, err := request()
	if err == nil {
		l.writes.Add(1)
		l.world.mu.Lock()
		l.world.traceLocked(lease.Name, "%s, %v", *lease.Spec.HolderIdentity, lease.Annotations)
		l.world.mu.Unlock()
	}
	if err == nil && l.loses.Load() && strings.Contains(lease.Name, "-bucket-") {
		return nil, errCut
	}
	if late := l.pass(ctx, time.Duration(l.lag.Load())/2); late != nil {
		return nil, late
	}
	return lease, err
}

func (l *link) Get(ctx context.Context, name string, opts metav1.GetOptions) (*coordinationv1.Lease, error) {
	if err := l.broken(); err != nil {
		return nil, err
	}
	return l.LeaseInterface.Get(ctx, name, opts)
}

func (l *link) List(ctx context.Context, opts metav1.ListOptions) (*coordinationv1.LeaseList, error) {
	if err := l.broken(); err != nil {
		return nil, err
	}
	return l.LeaseInterface.List(ctx, opts)
}

func (l *link) Create(ctx context.Context, lease *coordinationv1.Lease, opts metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return l.write(ctx, func() (*coordinationv1.Lease, error) { return l.LeaseInterface.Create(ctx, lease, opts) })
}

func (l *link) Update(ctx context.Context, lease *coordinationv1.Lease, opts metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return l.write(ctx, func() (*coordinationv1.Lease, error) { return l.LeaseInterface.Update(ctx, lease, opts) })
}

func (l *link) Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error {
	if err := l.broken(); err != nil {
		return err
	}
	return l.LeaseInterface.Delete(ctx, name, opts)
}

func (l *link) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	if err := l.broken(); err != nil {
		return nil, err
	}
	return l.opened(l.LeaseInterface.Watch(ctx, opts))
}

// configMaps is a replica's connection to the ConfigMaps.
type configMaps struct{ *link }

func (c configMaps) broken() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isCut || c.stale {
		return errCut
	}
	return nil
}

func (c configMaps) List(opts metav1.ListOptions) (runtime.Object, error) {
	if err := c.broken(); err != nil {
		return nil, err
	}
	return c.objects.List(opts)
}

func (c configMaps) Watch(opts metav1.ListOptions) (watch.Interface, error) {
	if err := c.broken(); err != nil {
		return nil, err
	}
	return c.opened(c.objects.Watch(opts))
}
