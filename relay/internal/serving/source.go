package serving

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

// source is the caller's storage as one cacher sees it. The cacher lists and watches with a ctx that
// never ends, and waits for both when it stops. So source replaces that ctx by one that ends with the
// cacher.
//
// A source never shows a cacher a state that is older than an earlier one. Instead it closes the
// channel back.
type source struct {
	storage.Interface
	ctx     context.Context
	stop    context.CancelFunc
	back    chan struct{}
	watches sync.WaitGroup
	last    watch.Interface // belongs to the cacher's reflector
	newest  uint64          // that was shown; belongs to the last watch
}

func newSource(s storage.Interface) *source {
	ctx, stop := context.WithCancel(context.Background())
	return &source{Interface: s, ctx: ctx, stop: stop, back: make(chan struct{})}
}

func (s *source) GetList(_ context.Context, key string, opts storage.ListOptions, out runtime.Object) error {
	return s.Interface.GetList(s.ctx, key, opts, out)
}

func (s *source) Watch(_ context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	if s.last != nil {
		s.last.Stop() // the reflector may have forgotten it
		s.watches.Wait()
	}
	if err := s.ctx.Err(); err != nil {
		return nil, err // the cacher asks again until it is stopped
	}
	inner, err := s.Interface.Watch(s.ctx, key, opts)
	if err != nil {
		return nil, err
	}
	events := make(chan watch.Event)
	outer := watch.NewProxyWatcher(events)
	s.watches.Go(func() {
		defer close(events)
		defer inner.Stop()
		s.pass(inner, outer, events)
	})
	s.last = outer
	return outer, nil
}

// pass passes events on until one of the watches ends, or the storage has gone back.
func (s *source) pass(inner watch.Interface, outer *watch.ProxyWatcher, events chan<- watch.Event) {
	complete := false
	for {
		select {
		case e, open := <-inner.ResultChan():
			if !open {
				return
			}
			if complete = complete || endsState(e); complete && s.wentBack(e) {
				close(s.back)
				<-s.ctx.Done() // a cacher whose watch ends would ask again
				return
			}
			select {
			case events <- e:
			case <-outer.StopChan():
				return
			case <-s.ctx.Done():
				return
			}
		case <-outer.StopChan():
			return
		case <-s.ctx.Done():
			return
		}
	}
}

// endsState reports whether an event is the bookmark at the end of a state.
func endsState(e watch.Event) bool {
	if e.Type != watch.Bookmark {
		return false
	}
	object, err := meta.Accessor(e.Object)
	return err == nil && object.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true"
}

// wentBack reports whether an event is older than an event that was shown. It must be called only for
// events after the objects of a state, which are in the order of their versions.
func (s *source) wentBack(e watch.Event) bool {
	version, err := s.Versioner().ObjectResourceVersion(e.Object)
	if err != nil || version >= s.newest {
		s.newest = max(s.newest, version)
		return false
	}
	return true
}
