package informertest

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
)

// SetFaults sets the faults of the source. It replaces the faults of an earlier call, so
// SetFaults(Faults{}) ends them all. The failures of Fail and FailIn stay. SetFaults does not
// block.
func (s *Source[T]) SetFaults(f Faults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.Down {
		s.endWatches(nil)
	}
	s.faults.set(f)
}

// Heal ends all [Faults] except RejectWatchList, IgnoreWatchList and RefuseExpired, which a healthy
// server may have. It also ends the failures of Fail and FailIn. A LIST that already waits for
// ListDelay still waits for the rest of it. Heal does not block.
func (s *Source[T]) Heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.faults.failures)
	f := s.faults.Faults
	s.faults.set(Faults{RejectWatchList: f.RejectWatchList, IgnoreWatchList: f.IgnoreWatchList, RefuseExpired: f.RefuseExpired})
}

// Fail makes the next requests with the given verb, "list" or "watch", return err. times is the
// number of these requests. If times is negative, all requests fail until Heal. If it is 0, Fail
// does nothing. The failures of a later call come after the failures of this call. Fail does not
// block. It panics if err is nil or verb is neither "list" nor "watch".
//
// Fail applies to the requests for every namespace, FailIn to the requests for one. If both have a
// failure for a request, the request returns the failure of FailIn, and uses up none of Fail.
//
// err may be any error. Readers of an API server usually expect an [apierrors.StatusError] or an
// error that wraps [syscall.ECONNREFUSED].
func (s *Source[T]) Fail(verb string, err error, times int) {
	s.fail(target{verb: verb, every: true}, err, times)
}

// FailIn is like Fail, but only for the requests for one namespace. These come through the client
// that Namespace returns, or through a clientset that the source serves.
//
// The namespace "" stands for the requests for all namespaces at once, including those through the
// Source itself. So a test can deny a program access to all namespaces at once, but allow access
// to each of them. FailIn does not block. It panics as Fail does.
func (s *Source[T]) FailIn(namespace, verb string, err error, times int) {
	s.fail(target{verb: verb, namespace: namespace}, err, times)
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

// Disconnect ends all open watches at once, without an error. Events that their readers have not
// received yet are lost. When Disconnect returns, Watches returns 0. It does not block.
func (s *Source[T]) Disconnect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endWatches(nil)
}

// Compact forgets all changes so far and increases the resourceVersion. All earlier
// resourceVersions are then too old: a watch from such a version, the next page of a LIST and a
// LIST of exactly such a version get 410 Expired. Open watches continue and miss nothing. Compact
// does not block.
func (s *Source[T]) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compact()
}

// Expire does the same as Compact, and then ends all open watches at once, each with a 410 Expired
// as its last event. Events that their readers have not received yet are lost. To make a reader
// miss changes, set Faults.Mute, make the changes, and call Expire. When Expire returns, Watches
// returns 0. It does not block.
func (s *Source[T]) Expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compact()
	s.endWatches(apierrors.NewResourceExpired("The resourceVersion for the provided watch is too old."))
}

// Inject sends event, unchanged, to all watches that are open now, after the changes so far and
// before later ones. The event may have an object of another type, a nil object, an error or an
// unknown type of event. Each reader gets the same object, not a copy, and the watch stays open.
// Inject does not block.
func (s *Source[T]) Inject(event watch.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history.add(&entry[T]{kind: entryRaw, version: s.version, event: event})
}

// Bookmark sends a bookmark with the current resourceVersion to all watches that are open now and
// allow bookmarks, after the changes so far and before later ones. It does not block.
func (s *Source[T]) Bookmark() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history.add(&entry[T]{kind: entryBookmark, version: s.version})
}
