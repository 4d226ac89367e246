package source

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer/internal/framing"
	"github.com/customcacheinformer/informer/internal/turns"
)

// Options configures a Source.
type Options struct {
	Name     string
	ListOnly bool // never stream the first state
	PageSize int64
	Early    bool // gives lists to the sink in parts, while they come in
	Backoff  wait.Backoff
	Tweak    func(*metav1.ListOptions) // changes the options of each request; nil changes nothing
	// Framing is the type of the objects that are taken off the bodies of the answers. The zero
	// value leaves the bodies to client-go.
	Framing framing.Type
	// Lists returns the limit of lists, or nil. It is called before each list. If it is nil, there is no limit.
	Lists func() *turns.Limit
}

// Callbacks are called when something happens at a Source. Listed, Watched and WatchFailed
// may be nil. They are called from the goroutines of Run and must not wait for it to return.
type Callbacks struct {
	// Failed is called once for each kind of failure, until the operation has worked again.
	Failed func(ctx context.Context, f *Failure)
	// Unusable is called for an event of a watch that cannot be used and was dropped.
	Unusable func(ctx context.Context, err error)
	// Listed is called after each LIST request, Watched after each watch.
	Listed  func(List)
	Watched func(Watch)
	// WatchFailed is called wherever client-go calls a WatchErrorHandler.
	WatchFailed cache.WatchErrorHandlerWithContext
}

// Sink receives everything that a Source reads. All methods but Resumed are called one at a time.
// A method that blocks holds up the watch or the list, and so the API server.
type Sink interface {
	// Example returns an object that the sink has before a source delivers any, and nil if it has none.
	Example() any
	// CheckType returns an error if obj is an API object of another type than the sink's.
	// Then the whole list that contains obj fails. For an empty list, obj is an object without
	// a name, of the type of the list's items.
	CheckType(obj any) error
	// Upsert receives an object that the watch added or updated, and Delete the last state
	// of a deleted one. version is the resourceVersion that the sink has reached with it. It
	// is "" if obj has none, and while a watch sends its first objects, which come in no order
	// of versions.
	Upsert(obj any, version string)
	Delete(obj any, version string)
	// Bookmark notes that there are no changes up to version except those received.
	Bookmark(version string)
	// Replace receives a complete list. doubtful is true if versions may mean something else than they did: the server has
	// lost changes that it has shown before, or the objects come in another form.
	Replace(list []any, version string, doubtful bool)
	// Begin announces a list that comes in parts. Each later call of Upsert and Delete, with
	// version "", is about an object of this list, until End, which says that the list is
	// complete, or until the next Begin or Replace: then the list was given up. doubtful is
	// that of Replace.
	Begin(doubtful bool)
	End(version string)
	// Resumed notes that the watch continues from the version given to Run. Nothing was received
	// before. It is called from the watch's goroutine.
	Resumed(version string)
}

// Failure is a request that has failed. Op is "list" or "watch".
type Failure struct {
	Op  string
	Err error
}

// List describes one LIST request.
type List struct {
	Objects int
	Took    time.Duration
	Err     error
}

// Watch describes one watch.
type Watch struct {
	Streaming bool
	Events    int
	Took      time.Duration
	Err       error
}
