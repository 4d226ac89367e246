package informertest

import (
	"context"
	"os"
	"sync"
	"testing"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/object"
)

// Start runs an informer over a new [Source] that holds objs, waits until the informer has synced,
// and returns both. Writes to the source reach the informer as they would from an API server. When
// the test ends, the informer is stopped, and the test waits for the end of Run. Start fails and
// ends the test if the informer does not sync within two minutes. To set options, or to add
// watchers before the informer runs, make the informer with [informer.NewFrom] over a source of
// [NewSource], and pass the informer to [Run].
func Start[T informer.Object](t testing.TB, objs ...T) (*informer.CustomCacheInformer[T], *Source[T]) {
	t.Helper()
	src := NewSource(objs...)
	inf, err := informer.NewFrom(src, informer.Options[T]{})
	if err != nil {
		t.Fatal(err)
	}
	Run(t, inf)
	return inf, src
}

// Run runs an informer that the test has made, or an *informer.Group with all of its members. Run
// blocks until the informer, or the group, and all watchers have synced. It fails and ends the test
// if that takes more than two minutes. In a synctest bubble, these take no real time. A controller
// of a group may sync before it has reconciled: call synctest.Wait after Run.
//
// The returned function stops inf and waits until inf.Run has returned. It fails the test if
// inf.Run returns an error. The test may call it more than once. It is also called when the test
// ends.
func Run(t testing.TB, inf interface {
	Run(ctx context.Context) error
	WaitForSync(ctx context.Context) error
}) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- inf.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(stop)
	wait, enough := context.WithTimeout(ctx, patience)
	defer enough()
	if err := inf.WaitForSync(wait); err != nil {
		t.Fatal(err)
	}
	return stop
}

// NewReader returns a Reader that holds objs, for the unit test of a function that only reads.
// NewReader uses only Indexers and Fields of opts, and runs no informer. It fails and ends the test
// if it cannot make the Reader.
func NewReader[T informer.Object](t testing.TB, opts informer.Options[T], objs ...T) informer.Reader[T] {
	t.Helper()
	opts = informer.Options[T]{Indexers: opts.Indexers, Fields: opts.Fields, Store: cache.NewStore(object.CacheKey)}
	inf, err := informer.NewFrom(NewSource[T](), opts)
	if err != nil {
		t.Fatal(err)
	}
	for _, obj := range objs {
		if err := opts.Store.Add(obj); err != nil {
			t.Fatal(err)
		}
	}
	return inf
}

// Main runs the tests of a package that uses testing/synctest, and ends the process. Call it from
// TestMain. Without Main, client-go sleeps for decades of fake time when it first reports an error
// in such a test. The reason is that client-go reports errors through apimachinery's HandleError,
// which waits until a millisecond has passed since the last error or the start of the program. But
// a synctest bubble begins in the year 2000. Main removes that wait; importing this package does
// not. The informers of this library do not report errors that way, but client-go's own informers
// and listers do.
func Main(m *testing.M) {
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
	os.Exit(m.Run())
}
