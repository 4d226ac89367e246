package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
)

// follower is an informer with its watchers, in all its lives.
type follower interface {
	about() scope
	start()
	stop()
	visit()
	durable() bool
	crash() // like stop, but without closing the store, if the store can be cut off
	health() informer.Health
	differs(want map[string]string, uids map[types.UID]bool) string
	problem() error
	counts() *counts
}

// scope describes the objects that a follower follows.
type scope struct {
	name                string
	resource            schema.GroupVersionResource
	namespace, selector string
}

// counts holds the figures of a follower over all its lives.
type counts struct{ lists, watches, reported, returned atomic.Int64 }

type following[T informer.Object] struct {
	*world
	scope
	source  cache.ListerWatcher
	options informer.Options[T]
	open    func() informer.Durable // opens the store before each life; nil unless the store is a Durable
	kill    func()                  // cuts a life off from its store; nil if that is impossible
	ended   func()                  // called after each life
	figures counts

	mu    sync.Mutex // protects the rest
	now   *life[T]
	alive map[types.UID]bool // UIDs of the objects in events of watchers of any life
	gone  map[types.UID]bool // UIDs of the objects whose delete they got
	wrong error              // violations of what is promised
}

// life is an informer from its start to its stop.
type life[T informer.Object] struct {
	inf   *informer.CustomCacheInformer[T]
	stop  func()
	views map[string]view // of the watchers that stay, by name
}

// view is the state that a watcher has from its events.
type view interface {
	believes() map[string]string
	Err() error
}

func (f *following[T]) about() scope { return f.scope }

func (f *following[T]) durable() bool { return f.open != nil }

func (f *following[T]) counts() *counts { return &f.figures }

// start begins a life.
func (f *following[T]) start() {
	opts := f.options
	opts.Name = f.name
	opts.Backoff = &wait.Backoff{Duration: 100 * time.Millisecond, Cap: 2 * time.Second, Steps: 20, Factor: 2, Jitter: 0.5}
	opts.ErrorHandler = f.reported
	opts.Observer = &informer.Observer{
		List:  func(informer.ListInfo) { f.figures.lists.Add(1) },
		Watch: func(informer.WatchInfo) { f.figures.watches.Add(1) },
	}
	if f.open != nil {
		opts.Durable = f.open()
	}
	inf, err := informer.NewFrom(f.source, opts)
	f.OK(err)
	l := &life[T]{inf: inf, views: map[string]view{}}
	f.addStaying(l)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := inf.Run(ctx); err != nil {
			f.fail(err)
		}
	})
	l.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		for name, v := range l.views {
			if err := v.Err(); err != nil {
				f.fail(fmt.Errorf("watcher %s: %w", name, err))
			}
		}
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = l
}

func (f *following[T]) life() *life[T] {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now
}

// stop ends a life and waits until it is over.
func (f *following[T]) stop() {
	l := f.life()
	if l == nil {
		return
	}
	l.stop()
	if f.ended != nil {
		f.ended()
	}
}

func (f *following[T]) crash() {
	if f.kill != nil {
		f.kill()
	}
	f.stop()
}

func (f *following[T]) health() informer.Health { return f.life().inf.Health() }

func (f *following[T]) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wrong = errors.Join(f.wrong, err)
}

// problem returns the violations since the last call.
func (f *following[T]) problem() error {
	for name, v := range f.life().views {
		if err := v.Err(); err != nil {
			f.fail(fmt.Errorf("watcher %s: %w", name, err))
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	err := f.wrong
	f.wrong = nil
	return err
}

// reported is the ErrorHandler.
func (f *following[T]) reported(_ context.Context, err error) {
	var event *informer.EventError
	var store *informer.StoreError
	switch {
	case errors.As(err, &event): // one watcher fails on purpose
		if !errors.Is(err, errOnPurpose) {
			f.fail(err)
		}
	case errors.As(err, &store):
		if !errors.Is(err, fs.ErrClosed) {
			f.fail(err)
		}
	default:
		f.figures.reported.Add(1)
		if testing.Verbose() {
			f.Logf("  %s reports: %.200s", f.name, err.Error())
		}
	}
}

// tell records the events of a watcher that stays, over all lives.
func (f *following[T]) tell(_ context.Context, e informer.Event[T]) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch uid := e.Object().GetUID(); {
	case e.Type == informer.EventDeleted:
		delete(f.alive, uid)
		f.gone[uid] = true
	case e.Type == informer.EventUpdated && e.Old.GetUID() != uid:
		f.wrong = errors.Join(f.wrong, fmt.Errorf("%s: an update from UID %s to %s", e.Key(), e.Old.GetUID(), uid))
	default:
		if f.gone[uid] && f.selector == "" { // with a selector, objects come and go
			f.figures.returned.Add(1)
		}
		delete(f.gone, uid)
		f.alive[uid] = true
	}
	return nil
}

// differs describes a difference between the server and the store or a watcher, or another
// reason why the follower is not done; "" if there is none.
func (f *following[T]) differs(want map[string]string, uids map[types.UID]bool) string {
	l := f.life()
	objs, err := l.inf.List("", labels.Everything())
	if err != nil {
		return err.Error()
	}
	if !l.inf.HasSynced() {
		return "has not synced"
	}
	have := make(map[string]string, len(objs))
	for _, obj := range objs {
		have[keyOf(obj)] = versionOf(obj)
	}
	if diff := difference(want, have); diff != "" {
		return "the store " + diff
	}
	for name, v := range l.views {
		if diff := difference(want, v.believes()); diff != "" {
			return fmt.Sprintf("watcher %s %s", name, diff)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for uid := range f.alive {
		if !uids[uid] {
			return fmt.Sprintf("no watcher got the delete of %s", uid)
		}
	}
	return ""
}

// difference describes how one state differs from another; "" if it does not.
func difference(want, have map[string]string) string {
	for key, version := range want {
		if have[key] != version {
			return fmt.Sprintf("has %d objects, the server %d: %s is %q, not %q", len(have), len(want), key, have[key], version)
		}
	}
	for key, version := range have {
		if want[key] == "" {
			return fmt.Sprintf("has %d objects, the server %d: %s is %q, which is gone", len(have), len(want), key, version)
		}
	}
	return ""
}
