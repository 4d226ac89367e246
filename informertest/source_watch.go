package informertest

import (
	"context"
	"errors"

	"github.com/customcacheinformer/informer"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// Watch calls WatchWithContext with a ctx that never ends, as [cache.ListerWatcher] requires.
func (s *Source[T]) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return s.WatchWithContext(context.Background(), options)
}

// WatchWithContext opens a watch. It does not block. The watch ends, and its channel is closed,
// when it is stopped, when ctx ends, after TimeoutSeconds, and on Faults.Down, Disconnect or Restore. A
// watch that gets 410 Expired, such as on Expire, ends once its reader has received that event. Stop each
// watch or end its ctx, or the goroutine of the watch may leak.
//
// The objects of the events have the type T. Only watches that allow bookmarks get bookmarks: one
// after the initial events if SendInitialEvents is true, and one for each call of Bookmark. A watch
// at a resourceVersion that is no longer known gets 410 Expired, in a *metav1.Status, as its only
// event. With Faults.RefuseExpired, WatchWithContext returns that error instead. A watch without
// initial events may begin at a resourceVersion that is in the future. It then delivers no change
// and no bookmark up to and including that version.
//
// WatchWithContext returns the error of ctx if ctx is done, and the errors of Faults.Down, Fail
// and FailIn. It returns Invalid or BadRequest if the options are wrong. It returns Timeout with
// the cause ResourceVersionTooLarge if the watch asks for the initial events at a resourceVersion
// that is in the future.
func (s *Source[T]) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	return s.watch(ctx, "", options)
}

func (s *Source[T]) watch(ctx context.Context, namespace string, options metav1.ListOptions) (watch.Interface, error) {
	options = within(namespace, options)
	request := s.record(verbWatch, options)

	s.mu.Lock()
	defer s.mu.Unlock()
	err := ctx.Err()
	if err == nil {
		err = s.faults.failure(verbWatch, namespace)
	}
	var q query
	if err == nil {
		options.Watch = true
		q, err = s.newQuery(options, !s.faults.RejectWatchList)
	}
	if err == nil && q.wantsInitial() && q.version > s.version {
		err = tooLarge(q.version, s.version)
	}
	if err != nil {
		request.Err = err
		return nil, err
	}
	if !q.wantsInitial() && q.version != 0 && q.version < s.history.since {
		expired := tooOld(q.version, s.history.since)
		request.Err = expired
		if s.faults.RefuseExpired {
			return nil, expired
		}
		st := s.newStream(ctx, q)
		st.end(expired)
		go st.run(nil, nil)
		return st, nil
	}
	return s.openWatch(ctx, q), nil
}

type stream[T informer.Object] struct {
	source   *Source[T]
	query    query
	position uint64 // position in the history when the watch was opened
	silent   uint64 // no events up to this resourceVersion; 0 unless it was in the future at the start
	result   chan watch.Event
	*lifetime
}

func (s *Source[T]) newStream(ctx context.Context, q query) *stream[T] {
	return &stream[T]{
		source: s, query: q, position: s.history.newest.position, result: make(chan watch.Event),
		lifetime: newLifetime(ctx, q.TimeoutSeconds),
	}
}

// openWatch opens a watch that begins with the existing objects or at a version.
func (s *Source[T]) openWatch(ctx context.Context, q query) watch.Interface {
	st := s.newStream(ctx, q)
	var initial []watch.Event
	start := s.history.newest
	switch {
	case q.wantsInitial():
		initial = st.initialEvents()
	case q.version > s.version:
		st.silent = q.version
	case q.version != 0:
		start = s.history.after(q.version)
	}
	s.open[st.lifetime] = true
	s.openChanged()
	if q.isWatchList() && s.faults.IgnoreWatchList {
		go st.run(nil, nil)
	} else {
		go st.run(initial, start)
	}
	return st
}

func (st *stream[T]) ResultChan() <-chan watch.Event { return st.result }

// Stop ends the watch. It does not wait for the channel to be closed.
func (st *stream[T]) Stop() {
	st.cancel()
	st.source.mu.Lock()
	defer st.source.mu.Unlock()
	st.source.closed(st.lifetime)
}

// initialEvents returns an event for each existing object, and a bookmark if the watch wants one.
// The events hold the objects of the source itself. replay copies them on delivery, because the
// reader may be slow, and may stop halfway.
func (st *stream[T]) initialEvents() []watch.Event {
	s := st.source
	var events []watch.Event
	for _, key := range sortedKeys(s.objects) {
		if obj := s.objects[key]; st.query.selects(obj) {
			events = append(events, watch.Event{Type: watch.Added, Object: obj})
		}
	}
	if st.query.isWatchList() && st.query.AllowWatchBookmarks {
		end := s.newBookmark(s.version)
		end.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
		events = append(events, watch.Event{Type: watch.Bookmark, Object: end})
	}
	return events
}

// run delivers the initial events and then the entries after start, until the watch ends. If
// start is nil, it delivers no events.
func (st *stream[T]) run(initial []watch.Event, start *entry[T]) {
	defer close(st.result)
	defer st.Stop()
	if start != nil && st.replay(initial) {
		st.follow(start)
	}
	<-st.live.Done()
	var expired apierrors.APIStatus
	if st.request.Err() != nil || !errors.As(context.Cause(st.live), &expired) {
		return
	}
	status := expired.Status()
	select {
	case st.result <- watch.Event{Type: watch.Error, Object: &status}:
	case <-st.request.Done():
	}
}

// replay delivers the initial events. It returns false if the watch ends before the reader has
// taken them all.
func (st *stream[T]) replay(initial []watch.Event) bool {
	for _, event := range initial {
		event.Object = event.Object.DeepCopyObject()
		if !st.deliver(event) {
			return false
		}
	}
	return true
}

// follow delivers the entries after e until the watch ends.
func (st *stream[T]) follow(e *entry[T]) {
	for {
		select {
		case <-e.linked:
		case <-st.live.Done():
			return
		}
		e = e.next
		if event, ok := st.event(e); ok && !st.deliver(event) {
			return
		}
	}
}

// deliver passes event to the reader. It returns false if the watch ends first.
func (st *stream[T]) deliver(event watch.Event) bool {
	for {
		// Read mute before checking live: a test that mutes, ends the watch and unmutes must
		// be able to rely on no event having passed.
		muted, over := st.source.muted()
		if st.live.Err() != nil {
			return false
		}
		result := st.result
		if muted {
			result = nil
		}
		select {
		case result <- event:
			return true
		case <-over:
		case <-st.live.Done():
		}
	}
}

// muted reports whether watches are muted. The channel is closed at the next call of SetFaults or
// Heal.
func (s *Source[T]) muted() (bool, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.faults.Mute, s.faults.over
}

// event returns the event that the reader gets for e, or false if the reader gets none.
func (st *stream[T]) event(e *entry[T]) (watch.Event, bool) {
	switch {
	case e.kind == entryRaw:
		return e.event, st.position < e.position
	case e.version <= st.silent:
		return watch.Event{}, false
	case e.kind == entryBookmark:
		if st.position >= e.position || !st.query.AllowWatchBookmarks {
			return watch.Event{}, false
		}
		st.source.mu.Lock()
		defer st.source.mu.Unlock()
		return watch.Event{Type: watch.Bookmark, Object: st.source.newBookmark(e.version)}, true
	}
	return st.changeEvent(e)
}

func (st *stream[T]) changeEvent(e *entry[T]) (watch.Event, bool) {
	var none T
	before := e.before != none && st.query.selects(e.before)
	after := e.after != none && st.query.selects(e.after)
	switch {
	case before && after:
		return watch.Event{Type: watch.Modified, Object: copyOf(e.after)}, true
	case after:
		return watch.Event{Type: watch.Added, Object: copyOf(e.after)}, true
	case before:
		return watch.Event{Type: watch.Deleted, Object: withVersion(e.before, e.version)}, true
	}
	return watch.Event{}, false
}

// newBookmark returns the object of a bookmark. It has only a resourceVersion, and the kind if it
// is known.
func (s *Source[T]) newBookmark(version uint64) T {
	obj := s.newObject()
	obj.SetResourceVersion(formatVersion(version))
	return obj
}
