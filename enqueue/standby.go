package enqueue

import (
	"context"
	"errors"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer"
)

// replay registers a watcher that queues the keys of all objects, as they are now, and then
// removes itself.
func (f *feed[T, K]) replay() (*informer.Registration, error) {
	r := &replayer[T, K]{feed: f, failed: set[types.NamespacedName]{}, registered: make(chan struct{})}
	defer close(r.registered)
	var err error
	r.reg, err = f.informer.AddWatcher(informer.WatcherFunc[T](r.tell), informer.WatcherOptions{
		Name: f.opts.Name + " (all objects)", Retry: mapRetry, RecoverPanics: f.opts.RecoverPanics, OnSynced: r.synced,
	})
	return r.reg, err
}

// replayer is told all objects once.
type replayer[T informer.Object, K comparable] struct {
	feed       *feed[T, K]
	reg        *informer.Registration // set when registered is closed
	registered chan struct{}

	mu     sync.Mutex                // protects the rest
	told   bool                      // every object was told at least once
	failed set[types.NamespacedName] // the objects for which the mapper has failed
}

// tell queues the keys of an object that is told for the first time, or whose first attempts
// have failed. The feed itself is told everything else.
func (r *replayer[T, K]) tell(ctx context.Context, e informer.Event[T]) error {
	key := e.Key()
	r.mu.Lock()
	_, failed := r.failed[key]
	needed := failed || !r.told
	r.mu.Unlock()
	if !needed {
		return nil
	}
	var err error
	if e.Type != informer.EventDeleted {
		err = r.feed.put(ctx, e.New)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil && !errors.Is(err, informer.ErrPermanent) {
		r.failed[key] = struct{}{}
	} else {
		delete(r.failed, key)
	}
	r.checkLocked()
	return err
}

func (r *replayer[T, K]) synced(context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told = true
	r.checkLocked()
}

// checkLocked removes the watcher if no object is left.
func (r *replayer[T, K]) checkLocked() {
	if r.told && len(r.failed) == 0 {
		<-r.registered
		r.reg.Remove()
	}
}
