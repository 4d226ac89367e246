package version

import "context"

// Exact is a version of a source at which a watcher has the exact state, or "" if there is none.
type Exact string

// Follower is a watcher that follows the versions of the source, to serve them to others, as in module
// relay. An informer calls OnVersion on the watcher's goroutine, in order with the events. All events up
// to the call make up exactly the state that the source had at the version. The informer calls OnVersion
// after the initial state, after each list, and at each bookmark of the API server, about once a minute.
// Until OnVersion is called with "", each event with OriginWatch also leads to the exact state at the
// resourceVersion of its object, and these versions rise. A delete from the watch has the final state of
// the object in Old, with the version of the delete.
//
// The version is "" when the state is no longer exact, because a list begins or an object cannot be
// stored. After the next list, the state is exact again. If it was Transform that has failed, the next
// change of the object is enough. OnVersion may be called twice for one version.
//
// A Follower needs an informer with one source that always delivers the same objects and with the
// Options.Queue QueueRealFIFO. It also needs a negative MaxBacklog and no Workers or Retry. Otherwise
// AddWatcher returns an error.
type Follower interface {
	OnVersion(ctx context.Context, v Exact)
}
