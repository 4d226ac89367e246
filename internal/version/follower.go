package version

import "context"

// Exact is a version of a source at which a watcher has the exact state, or "" for none.
type Exact string

// Follower is a watcher that follows the versions of the source, to serve them to others. Module relay has
// one. An informer calls OnVersion in the watcher's goroutine, in order with the events: all events up to the
// call make up exactly the state that the source had at that version. That is so after the initial state,
// after each list, and at each bookmark of the API server, about once a minute. Until OnVersion is called
// with "", each event with OriginWatch also leads to the exact state at the resourceVersion of its object,
// and these versions rise. A delete that the watch has shown comes with the final state of the object in
// Old, which has the version of the delete.
//
// The version is "" when the state ceases to be exact: a list begins, or an object cannot be stored. After
// the next list, it is exact again. OnVersion may be called twice for one version.
//
// A Follower needs Options.Queue QueueRealFIFO, a negative MaxBacklog, neither Workers nor Retry, and an
// informer with one source that always delivers the same objects: otherwise AddWatcher returns an error.
type Follower interface {
	OnVersion(ctx context.Context, v Exact)
}
