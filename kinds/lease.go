package kinds

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/channel"
	"github.com/customcacheinformer/informer/internal/object"
)

// Lease keeps a kind in use, from [Set.Acquire] until Release. Its methods may be called from any goroutine.
//
// It is also an [informer.Reader] of the objects of the kind, see [informer.Clusters.In]. Until the set reads the kind, Get, List and
// ByIndex return an error that wraps [informer.ErrNotEngaged], and All yields nothing, unless a Durable already has objects of the kind:
// then they read these. The same is true once the kind is gone, or nothing uses it any more. If a kind is [Parked] after it was read, its
// objects can still be read.
type Lease[T informer.Object] struct {
	informer.Reader[T]
	set *Set[T]
	of  *member

	mu       sync.Mutex // protects the rest
	released bool
	watchers []*informer.Registration
}

// Acquire makes the set read a kind, at least until all leases of an equal Kind are released. It makes no request and does not block. It may
// be called at any time, also before Run and in a watcher's callback. The kind need not exist: its objects come when it is served. Acquire
// returns an error that names the field if a field of kind is wrong, and an error that wraps [informer.ErrStopped] once Run of the set has
// ended.
func (s *Set[T]) Acquire(kind Kind) (*Lease[T], error) {
	kind, err := kind.checked()
	if err == nil && channel.Closed(s.stopped) {
		err = informer.ErrStopped
	}
	if err != nil {
		return nil, fmt.Errorf("kinds %s: Acquire of %s: %w", s.name, kind, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.memberLocked(kind)
	if m.users++; m.users == 1 && !m.wanted {
		s.settleMemberLocked(m)
	}
	if m.at == nil && (s.durable || s.catalog.mayShow(kind.Group)) {
		// The kind may have been removed while the program was down, or discovery may have been behind when it was asked.
		s.ask()
	}
	return &Lease[T]{Reader: s.objects.In(m.name), set: s, of: m}, nil
}

// Kind returns the kind that was acquired, with its selector in canonical form.
func (l *Lease[T]) Kind() Kind { return l.of.kind }

// Health returns the state of the kind. It does not block. It returns the zero value if nothing uses the kind any more.
func (l *Lease[T]) Health() KindHealth {
	h, _ := l.set.Find(l.of.name)
	return h
}

// WaitForSync blocks until the kind is served and its first list is complete. If ctx ends or the set stops first, it returns an
// [*informer.SyncError] that wraps the error of ctx or [informer.ErrStopped], and contains the reason for the delay, if one is known.
// It returns an error that wraps [ErrReleased] once the lease is released. It may be called before Run, but not in a watcher's callback.
func (l *Lease[T]) WaitForSync(ctx context.Context) error {
	for {
		l.set.mu.Lock()
		read, text, changed := l.of.at != nil, l.of.reason, l.of.changed
		l.set.mu.Unlock()
		if l.isReleased() {
			return fmt.Errorf("kinds %s: WaitForSync of %s: %w", l.set.name, l.of.name, ErrReleased)
		}
		var reason error
		if text != "" {
			reason = errors.New(text)
		}
		if read {
			waiting, end := l.until(ctx, changed)
			err := l.set.objects.WaitForSyncIn(waiting, l.of.name)
			end()
			if err == nil || ctx.Err() != nil || !errors.Is(err, context.Canceled) && !errors.Is(err, informer.ErrNotEngaged) {
				return err
			}
			if late := new(informer.SyncError); errors.As(err, &late) {
				reason = late.Reason
			}
		}
		err := informer.ErrStopped
		select {
		case <-changed:
			continue
		case <-l.set.stopped:
		case <-ctx.Done():
			err = ctx.Err()
		}
		return &informer.SyncError{Informer: l.set.name, Late: []string{"the kind " + l.of.name}, Reason: reason, Err: err}
	}
}

// until returns a ctx that also ends when changed is closed or Run of the set ends. The caller must call end.
func (l *Lease[T]) until(ctx context.Context, changed <-chan struct{}) (waiting context.Context, end func()) {
	waiting, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		defer cancel()
		select {
		case <-changed:
		case <-l.set.stopped:
		case <-waiting.Done():
		}
	})
	return waiting, func() { cancel(); watching.Wait() }
}

// AddWatcher registers a watcher for the objects of this kind only. It does not block. The watcher belongs to the informer over all
// kinds: it has two goroutines, and looks at the events of every kind. For more than a few kinds, use one watcher of [Set.Informer], and
// [informer.Event.Cluster]. Synced of the registration does not wait until the kind is served; WaitForSync of the lease does. Release
// removes the watcher. AddWatcher returns an error for the same reasons as AddWatcher of the informer, and an error that wraps
// [ErrReleased] once the lease is released.
func (l *Lease[T]) AddWatcher(w informer.ResourceWatcher[T], opts informer.WatcherOptions) (*informer.Registration, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.released {
		return nil, fmt.Errorf("kinds %s: AddWatcher of %s: %w", l.set.name, l.of.name, ErrReleased)
	}
	if object.IsNil(w) {
		return nil, fmt.Errorf("kinds %s: AddWatcher of %s: the watcher is nil", l.set.name, l.of.name)
	}
	r, err := l.set.objects.AddWatcher(only[T]{l.of.name, w}, opts)
	if err == nil { // a removed one would keep its watcher in memory
		l.watchers = slices.DeleteFunc(l.watchers, func(r *informer.Registration) bool { return channel.Closed(r.Stopped()) })
		l.watchers = append(l.watchers, r)
	}
	return r, err
}

// Release ends the lease and removes its watchers. When nothing uses the kind any more, its source stops and its objects are dropped, without
// events. Release does not block, and may be called at any time, also in a watcher's callback. Later calls do nothing.
func (l *Lease[T]) Release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.released {
		return
	}
	l.released = true
	for _, r := range l.watchers {
		r.Remove()
	}
	l.watchers = nil
	l.set.mu.Lock()
	defer l.set.mu.Unlock()
	l.of.users--
	l.of.signal()
	l.set.dropLocked(l.of)
}

func (l *Lease[T]) isReleased() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.released
}

// ErrReleased indicates that a method cannot do its work because its [Lease] was released.
var ErrReleased = errors.New("the lease was released")

// only is a watcher that passes on the events of one kind.
type only[T informer.Object] struct {
	name string
	informer.ResourceWatcher[T]
}

// Unwrap lets the informer find a watcher of informer.Select.
func (o only[T]) Unwrap() informer.ResourceWatcher[T] { return o.ResourceWatcher }

func (o only[T]) Add(ctx context.Context, e informer.Event[T]) error {
	if e.Cluster() != o.name {
		return nil
	}
	return o.ResourceWatcher.Add(ctx, e)
}

func (o only[T]) Update(ctx context.Context, e informer.Event[T]) error {
	if e.Cluster() != o.name {
		return nil
	}
	return o.ResourceWatcher.Update(ctx, e)
}

func (o only[T]) Delete(ctx context.Context, e informer.Event[T]) error {
	if e.Cluster() != o.name {
		return nil
	}
	return o.ResourceWatcher.Delete(ctx, e)
}
