package informertest

import (
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// WatchListMode says what a source makes of a watch that asks for the initial
// events; see [Source.SetWatchList].
type WatchListMode uint8

const (
	// WatchListSupported is a server that sends the initial events and the
	// bookmark at their end. It is the default.
	WatchListSupported WatchListMode = iota
	// WatchListRejected is an API server that has the feature switched off: it
	// answers 422 Invalid.
	WatchListRejected
	// WatchListSilent is a server that does not know what it is asked for, as are
	// many fakes: it opens the watch and never sends anything.
	WatchListSilent
)

// faults is all that is not as it should be.
type faults struct {
	failures    map[Verb][]failure
	mute        mute
	listDelay   time.Duration
	listHolds   map[chan struct{}]bool // closed when released
	listItems   []runtime.Object
	omitVersion bool

	watchList     WatchListMode
	refuseExpired bool
}

type failure struct {
	err   error
	times int // < 0 for ever
}

// mute says whether watches are muted, and when that is no longer so.
type mute struct {
	on   bool
	over chan struct{} // closed when Mute is called again
}

func newFaults() faults {
	return faults{
		failures:  map[Verb][]failure{},
		listHolds: map[chan struct{}]bool{},
		mute:      mute{over: make(chan struct{})},
	}
}

// Heal ends all that Fail, Mute, SlowList, HoldList, InjectListItem and
// OmitListVersion have begun. It does not block.
func (s *Source[T]) Heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.faults.failures)
	s.setMute(false)
	s.faults.listDelay = 0
	for hold := range s.faults.listHolds {
		close(hold)
	}
	clear(s.faults.listHolds)
	s.faults.listItems = nil
	s.faults.omitVersion = false
}

// Fail lets the next times requests of that verb answer err, or all until Heal
// if times is negative. Failures queue up: those of a further call come after
// those of this one. It does not block. It panics if err is nil.
//
// Any error will do. What the readers of an API server know to tell apart are
// [apierrors.StatusError] and [syscall.ECONNREFUSED].
func (s *Source[T]) Fail(verb Verb, err error, times int) {
	if err == nil {
		panic("informertest: Fail without an error")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if times != 0 {
		s.faults.failures[verb] = append(s.faults.failures[verb], failure{err, times})
	}
}

// failure returns what Fail wants a request to answer, and counts that.
func (f *faults) failure(verb Verb) error {
	queue := f.failures[verb]
	if len(queue) == 0 {
		return nil
	}
	err := queue[0].err
	queue[0].times--
	if queue[0].times == 0 {
		f.failures[verb] = queue[1:]
	}
	return err
}

// Disconnect ends all open watches at once, without an error. Events that have
// not been taken from their channels are lost to them. When it returns no watch
// is open, as Watches counts them. It does not block.
func (s *Source[T]) Disconnect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endWatches(nil)
}

// Compact forgets all changes so far and moves on the resourceVersion, so that
// all that have been seen so far are too old to watch or to read the next page
// at: that is answered 410 Expired. Open watches go on and miss nothing. It does
// not block.
func (s *Source[T]) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compact()
}

// Expire does what Compact does, and ends all open watches at once with a 410
// Expired in the stream. Events that have not been taken from their channels are
// lost to them, so that Mute, changes and Expire make a reader miss the changes.
// When it returns no watch is open, as Watches counts them. It does not block.
func (s *Source[T]) Expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compact()
	s.endWatches(apierrors.NewResourceExpired("The resourceVersion for the provided watch is too old."))
}

func (s *Source[T]) compact() {
	s.version++
	s.history.forget(s.version)
}

// Mute holds back, while on, everything that a watch would deliver, as a broken
// connection does that nobody has noticed. It applies to the watches that are
// open and to those that are opened. When it is turned off they catch up.
// Disconnect, Expire, the timeout and the reader end a muted watch like any
// other, and a 410 Expired is not held back. It does not block; an event on its
// way to the reader may still arrive.
func (s *Source[T]) Mute(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setMute(on)
}

func (s *Source[T]) setMute(on bool) {
	close(s.faults.mute.over)
	s.faults.mute = mute{on: on, over: make(chan struct{})}
}

func (s *Source[T]) muting() mute {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.faults.mute
}

// SlowList lets each LIST take d, or no time if d is 0. It is answered, or fails,
// with what is true at the end of that. It does not block.
func (s *Source[T]) SlowList(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults.listDelay = d
}

// HoldList lets each LIST wait until release is called, which may be done more
// than once. It is answered, or fails, with what is true by then. If there are
// several holds, it waits until all are released. Neither HoldList nor release
// blocks.
func (s *Source[T]) HoldList() (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	hold := make(chan struct{})
	s.faults.listHolds[hold] = true
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.faults.listHolds[hold] {
			delete(s.faults.listHolds, hold)
			close(hold)
		}
	}
}

// listHold returns one of the holds, or nil.
func (s *Source[T]) listHold() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	for hold := range s.faults.listHolds {
		return hold
	}
	return nil
}

// InjectListItem adds obj as it is to each answer to a LIST: an object of
// another type, without a name, or nil. Each reader gets the same obj, not a
// copy. It does not block.
func (s *Source[T]) InjectListItem(obj runtime.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults.listItems = append(s.faults.listItems, obj)
}

// OmitListVersion lets LIST answer, while on, without a resourceVersion. It does
// not block.
func (s *Source[T]) OmitListVersion(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults.omitVersion = on
}

// Inject sends event as it is to all watches that are open now, in order with the
// changes: with an object of another type, a nil one, an error or an unknown type
// of event. Each reader gets the same object, not a copy, and the watch stays
// open. It does not block.
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

// SetWatchList says what becomes of watches that ask for the initial events, from
// now on. It does not block.
func (s *Source[T]) SetWatchList(mode WatchListMode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults.watchList = mode
}

// RefuseExpired lets the call that opens a watch fail, while on, if the
// resourceVersion is no longer known. Otherwise, as with the API server, the call
// succeeds and the error is the only event. It does not block.
func (s *Source[T]) RefuseExpired(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults.refuseExpired = on
}
