package informertest

import (
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// Heal ends the effects of Down, Fail, also of a NamespaceClient, Mute, SlowList, HoldList,
// InjectListItem and OmitListVersion. It does not block.
func (s *Source[T]) Heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults.down = false
	clear(s.faults.failures)
	s.setMute(false)
	s.faults.lists.heal()
	s.faults.listItems = nil
	s.faults.omitVersion = false
}

// Down takes the server away, until Up or Heal. All open watches end at once, as by Disconnect. A
// LIST, a WATCH, and each request through a clientset that the source serves, fail with the error
// that client-go returns when nothing listens: it wraps [syscall.ECONNREFUSED]. Requests still
// returns them. They use up no failures of Fail. A LIST that is slow or held meanwhile fails only
// if the server is still down at the end of that time.
//
// Create, Update, Apply, Delete and the other methods of the source itself work as before. So a
// test can make the changes that a program finds when the server is back. Down does not block.
func (s *Source[T]) Down() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults.down = true
	s.endWatches(nil)
}

// Up ends the effect of Down. The history is still there, so that a watch may go on where it was
// cut; to have it lost, call Compact before Up. Up does nothing if the server is not down. It does
// not block.
func (s *Source[T]) Up() { set(&s.mu, &s.faults.down, false) }

// Fail makes the next times requests of that verb, "list" or "watch", return err, or all until
// Heal if times is negative. Failures queue up: those of a further call come after those of this one. It does
// not block. It panics if err is nil, or for another verb.
//
// Fail is for the requests of every namespace, and NamespaceClient.Fail for those of one. If both
// have a failure for a request, the request returns that of its namespace, and uses up none of the
// other.
//
// Any error will do. Readers of an API server distinguish [apierrors.StatusError] and
// [syscall.ECONNREFUSED].
func (s *Source[T]) Fail(verb string, err error, times int) {
	s.fail(target{verb: verb, every: true}, err, times)
}

func (s *Source[T]) fail(which target, err error, times int) {
	switch {
	case err == nil:
		panic("informertest: Fail without an error")
	case which.verb != verbList && which.verb != verbWatch:
		panic(fmt.Sprintf("informertest: Fail of the verb %q, want list or watch", which.verb))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if times != 0 {
		s.faults.failures[which] = append(s.faults.failures[which], failure{err, times})
	}
}

// Disconnect ends all open watches at once, without an error. They lose the events that have
// not been taken from their channels. When it returns, no watch is open, as Watches counts
// them. It does not block.
func (s *Source[T]) Disconnect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endWatches(nil)
}

// Compact forgets all changes so far and increases the resourceVersion. All earlier
// resourceVersions are then too old for a watch or for the next page of a LIST: the answer is
// 410 Expired. Open watches go on and miss nothing. It does not block.
func (s *Source[T]) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compact()
}

// Expire does the same as Compact, and ends all open watches at once with a 410 Expired in the
// stream. They lose the events that have not been taken from their channels. So Mute, then
// changes, then Expire make a reader miss the changes. When it returns, no watch is open, as
// Watches counts them. It does not block.
func (s *Source[T]) Expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compact()
	s.endWatches(apierrors.NewResourceExpired("The resourceVersion for the provided watch is too old."))
}

// Mute holds back, while on, all events of all watches, like a broken connection that nobody
// has noticed. It applies to open watches and to those that are opened later. When it is
// turned off they catch up. Down, Disconnect, Expire, the timeout and the reader end a muted watch
// like any other, and a 410 Expired is not held back. It does not block; an event on its way
// to the reader may still arrive.
func (s *Source[T]) Mute(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setMute(on)
}

func (s *Source[T]) setMute(on bool) {
	close(s.faults.mute.over)
	s.faults.mute = mute{on: on, over: make(chan struct{})}
}

// SlowList makes each LIST take d, or no time if d is 0. The LIST is answered, or fails, from
// the state at the end of that time. It does not block.
func (s *Source[T]) SlowList(d time.Duration) { set(&s.faults.lists.mu, &s.faults.lists.each, d) }

// HoldList makes each LIST wait until release is called, which may be called more than once.
// The LIST is answered, or fails, according to the state at that time. If there are several holds, it
// waits until all are released. Neither HoldList nor release blocks.
func (s *Source[T]) HoldList() (release func()) {
	return s.faults.lists.hold()
}

// InjectListItem adds obj, unchanged, to each answer to a LIST: for example an object of
// another type, one without a name, or nil. Each reader gets the same obj, not a copy. It does
// not block.
func (s *Source[T]) InjectListItem(obj runtime.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults.listItems = append(s.faults.listItems, obj)
}

// OmitListVersion makes LIST answer, while on, without a resourceVersion. It does not block.
func (s *Source[T]) OmitListVersion(on bool) { set(&s.mu, &s.faults.omitVersion, on) }

// Inject sends event, unchanged, to all watches that are open now, in order with the changes.
// The event may have an object of another type, a nil object, an error or an unknown type of
// event. Each reader gets the same object, not a copy, and the watch stays open. It does not
// block.
func (s *Source[T]) Inject(event watch.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history.add(&entry[T]{kind: entryRaw, version: s.version, event: event})
}

// Bookmark sends the current resourceVersion to all watches that are open now and
// allow bookmarks, in order with the changes. It does not block.
func (s *Source[T]) Bookmark() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history.add(&entry[T]{kind: entryBookmark, version: s.version})
}

// SetWatchList sets how watches that ask for the initial events are answered from now on. It
// does not block.
func (s *Source[T]) SetWatchList(mode WatchListMode) { set(&s.mu, &s.faults.watchList, mode) }

// RefuseExpired makes the call that opens a watch fail, while on, if the resourceVersion is no
// longer known. Otherwise, as with the API server, the call succeeds and the error is the only
// event. It does not block.
func (s *Source[T]) RefuseExpired(on bool) { set(&s.mu, &s.faults.refuseExpired, on) }
