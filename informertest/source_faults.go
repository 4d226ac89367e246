package informertest

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
)

// SetFaults sets the faults that the source has from now on, in place of those of an earlier call. So
// SetFaults(Faults{}) ends them all. It does not block.
func (s *Source[T]) SetFaults(f Faults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.Down {
		s.endWatches(nil)
	}
	s.faults.set(f)
}

// Heal ends the faults that a server in use does not have: all except RejectWatchList, IgnoreWatchList
// and RefuseExpired. It also ends those of Fail and FailIn. It does not block.
func (s *Source[T]) Heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.faults.failures)
	f := s.faults.Faults
	s.faults.set(Faults{RejectWatchList: f.RejectWatchList, IgnoreWatchList: f.IgnoreWatchList, RefuseExpired: f.RefuseExpired})
}

// Fail makes the next times requests of that verb, "list" or "watch", return err, or all until
// Heal if times is negative. Failures queue up: those of a further call come after those of this one. It does
// not block. It panics if err is nil, or for another verb.
//
// Fail is for the requests of every namespace, and FailIn for those of one. If both have a failure for
// a request, the request returns that of its namespace, and uses up none of the other.
//
// Any error will do. Readers of an API server distinguish [apierrors.StatusError] and
// [syscall.ECONNREFUSED].
func (s *Source[T]) Fail(verb string, err error, times int) {
	s.fail(target{verb: verb, every: true}, err, times)
}

// FailIn does the same as Fail for the requests of one namespace: those through the client that
// Namespace returns for it, and those for it through a clientset that the source serves.
//
// For the namespace "", these are the requests for all namespaces at once, including those
// through the Source itself. So a test can refuse a program the rights for the whole cluster, and
// leave it those for a namespace. It does not block. It panics as Fail does.
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
// stream. They lose the events that have not been taken from their channels. So Faults.Mute, then
// changes, then Expire make a reader miss the changes. When it returns, no watch is open, as
// Watches counts them. It does not block.
func (s *Source[T]) Expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compact()
	s.endWatches(apierrors.NewResourceExpired("The resourceVersion for the provided watch is too old."))
}

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
