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
	// Framing is the type of the objects that this package decodes itself. With the zero value,
	// client-go decodes all objects.
	Framing framing.Type
	// Lists is called before each list, and returns the limit of lists, or nil for no limit. If
	// Lists is nil, there is no limit.
	Lists func() *turns.Limit
}

// Callbacks are functions that a Source calls. Listed, Watched and WatchFailed may be nil. The
// goroutines of Run call them, so they must not wait for Run to return.
type Callbacks struct {
	// Failed is called for the first failure of each kind, and again once the operation has
	// worked in between.
	Failed func(ctx context.Context, f *Failure)
	// Unusable is called for an event of a watch that was dropped because it cannot be used.
	Unusable func(ctx context.Context, err error)
	// Listed is called after each LIST request, Watched after each watch.
	Listed  func(List)
	Watched func(Watch)
	// WatchFailed is called where a client-go informer would call its WatchErrorHandler.
	WatchFailed cache.WatchErrorHandlerWithContext
}

// Sink receives everything that a Source reads. All methods except Resumed are called one at a
// time. A method that blocks holds up the watch or the list, and so the API server.
type Sink interface {
	// Example returns an object that the sink has before the source delivers any, or nil if it
	// has none.
	Example() any
	// CheckType returns an error if obj is an API object of another type than the sink's. The
	// whole list that contains obj then fails. For each list, CheckType also gets an object
	// without a name that has the type of the list's items.
	CheckType(obj any) error
	// Upsert receives an object that the watch added or updated, and Delete the last state of a
	// deleted object. version is the resourceVersion that the sink reaches with obj. It is "" if
	// obj has none, and while a watch sends its first objects, which are not in the order of
	// their versions.
	Upsert(obj any, version string)
	Delete(obj any, version string)
	// Bookmark reports that the sink has received all changes up to version.
	Bookmark(version string)
	// Replace receives a complete list. doubtful is true if the same version may stand for other
	// contents than before, because the server has lost changes that it has shown, or the objects
	// come in another form.
	Replace(list []any, version string, doubtful bool)
	// Begin announces a list that comes in parts. The following calls of Upsert and Delete have
	// version "" and are about objects of this list. End reports that the list is complete. If Begin
	// or Replace comes before End, the list was given up. doubtful is as for Replace.
	Begin(doubtful bool)
	End(version string)
	// Resumed reports that the watch continues from the version given to Run. The sink has received
	// nothing before. Resumed is called from the watch's goroutine.
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
