// Package feed makes a storage.Interface of an informer, to fill the watch cache of k8s.io/apiserver.
// The storage is read-only.
//
// The watch cache needs the state of the source at one version, and all changes after it in the order
// of their versions. An informer has neither while it lists. So a watch of the storage begins with an
// exact state, and ends when the informer lists again. Then the watch cache also begins again.
package feed

import (
	"context"
	"errors"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"

	"github.com/customcacheinformer/informer"
)

// Informer is the set of methods of an informer that a Feed needs.
type Informer interface {
	AddWatcher(informer.ResourceWatcher[informer.AnyObject], informer.WatcherOptions) (*informer.Registration, error)
	Synced() <-chan struct{}
	ResourceVersion() string
	Versions() []informer.SourceVersions
	Health() informer.Health
}

// Feed is a storage.Interface over an informer. Its methods may be called from any goroutine.
type Feed struct {
	inf       Informer
	newObject func() runtime.Object
	versioner storage.Versioner
	closed    context.Context
	close     context.CancelFunc

	mu        sync.Mutex
	open      context.Context // of the watches that are open; ends with closed
	interrupt context.CancelFunc
	first     *session // begins with the first state of the informer; nil after the first watch
	ending    sync.WaitGroup
}

// New returns a Feed over inf. inf must not run yet, and must have the queue informer.QueueRealFIFO
// or a Durable. newObject must return an empty object of the informer's type. The caller must call
// Close.
func New(inf Informer, newObject func() runtime.Object) (*Feed, error) {
	f := &Feed{inf: inf, newObject: newObject, versioner: storage.APIObjectVersioner{}}
	f.closed, f.close = context.WithCancel(context.Background())
	f.open, f.interrupt = context.WithCancel(f.closed)
	first, err := f.begin(true)
	if err != nil {
		f.close()
		return nil, err
	}
	f.first = first
	return f, nil
}

// Close ends all watches, makes later watches fail, and blocks until the Feed's watchers of the
// informer have stopped.
func (f *Feed) Close() {
	f.mu.Lock() // no session begins after this
	f.close()
	f.mu.Unlock()
	f.ending.Wait()
}

// Interrupt ends the open watches. The next watch begins with a new state. Interrupt does not block.
func (f *Feed) Interrupt() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.interrupt()
	f.open, f.interrupt = context.WithCancel(f.closed)
	f.first = nil
}

// begin starts a session. inherited is true if the informer does not run yet.
func (f *Feed) begin(inherited bool) (*session, error) {
	s := newSession(f, inherited)
	reg, err := f.inf.AddWatcher(follower{s.take, s}, informer.WatcherOptions{Name: "relay", MaxBacklog: -1})
	if err != nil {
		s.stop()
		return nil, err
	}
	f.ending.Go(func() { s.follow(reg) })
	return s, nil
}

// Watch opens a watch that sends the state of the source as added objects, a bookmark with the
// annotation for its end, and then all changes. It blocks until the informer has synced. It returns
// the error of ctx if ctx ends first, and ServiceUnavailable if the Feed is closed. opts must ask for
// initial events: a watch that begins at a version gets 410 Expired.
func (f *Feed) Watch(ctx context.Context, _ string, opts storage.ListOptions) (watch.Interface, error) {
	if opts.SendInitialEvents == nil || !*opts.SendInitialEvents {
		return nil, expired("the relay has no changes after version " + opts.ResourceVersion)
	}
	select {
	case <-f.inf.Synced():
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-f.closed.Done():
		return nil, errClosed
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed.Err() != nil {
		return nil, errClosed
	}
	if s := f.first; s != nil {
		f.first = nil
		return s, nil
	}
	return f.begin(false)
}

var errClosed = apierrors.NewServiceUnavailable("the relay stops")

func expired(message string) error { return apierrors.NewResourceExpired(message) }

// GetList returns an error, because the watch cache has everything that can be listed. The watch
// cache calls GetList only for a version whose snapshot it no longer has, and while it is not
// filled.
func (f *Feed) GetList(_ context.Context, _ string, opts storage.ListOptions, _ runtime.Object) error {
	if opts.Predicate.Continue != "" || opts.ResourceVersionMatch == metav1.ResourceVersionMatchExact {
		return expired("the relay no longer has the state of that version")
	}
	return errNotFilled
}

// Get returns an error, because the watch cache has all objects.
func (f *Feed) Get(context.Context, string, storage.GetOptions, runtime.Object) error {
	return errNotFilled
}

// errNotFilled asks the client to try again after a second, as the watch cache itself does.
var errNotFilled = apierrors.NewTooManyRequests("the relay has not read its objects yet", 1)

// GetCurrentResourceVersion returns the version up to which the informer has every change, which may
// be older than the API server's. It returns an error before the informer has a version.
func (f *Feed) GetCurrentResourceVersion(context.Context) (uint64, error) {
	version := f.inf.ResourceVersion()
	if version == "" {
		return 0, errNotFilled
	}
	n, err := f.versioner.ParseResourceVersion(version)
	if err != nil {
		return 0, fmt.Errorf("the version of the informer: %w", err)
	}
	return n, nil
}

// Versioner returns the Versioner that all API servers use.
func (f *Feed) Versioner() storage.Versioner { return f.versioner }

// ReadinessCheck returns nil if the informer has synced, and an error otherwise.
func (f *Feed) ReadinessCheck() error {
	select {
	case <-f.inf.Synced():
		return nil
	default:
		return errors.New("the informer has not synced")
	}
}

// Stats returns the number of objects.
func (f *Feed) Stats(context.Context) (storage.Stats, error) {
	return storage.Stats{ObjectCount: int64(max(0, f.inf.Health().Objects))}, nil
}

// RequestWatchProgress does nothing and returns nil: an API server cannot be asked for a bookmark.
func (f *Feed) RequestWatchProgress(context.Context) error { return nil }

// EnableResourceSizeEstimation does nothing and returns nil. The watch cache estimates the cost of
// lists without it.
func (f *Feed) EnableResourceSizeEstimation(storage.KeysFunc) error { return nil }

// CompactRevision returns 0, because no version is ever compacted away.
func (f *Feed) CompactRevision() int64 { return 0 }

// Create returns an error, as do all writes.
func (f *Feed) Create(context.Context, string, runtime.Object, runtime.Object, uint64) error {
	return errReadOnly
}

// Delete returns an error, as do all writes.
func (f *Feed) Delete(context.Context, string, runtime.Object, *storage.Preconditions, storage.ValidateObjectFunc, runtime.Object, storage.DeleteOptions) error {
	return errReadOnly
}

// GuaranteedUpdate returns an error, as do all writes.
func (f *Feed) GuaranteedUpdate(context.Context, string, runtime.Object, bool, *storage.Preconditions, storage.UpdateFunc, runtime.Object) error {
	return errReadOnly
}

var errReadOnly = errors.New("the relay is read-only")
