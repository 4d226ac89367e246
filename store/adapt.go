package store

import (
	"context"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
)

// Legacy is cache.Store as it was before client-go 0.36: without Bookmark and
// LastStoreSyncResourceVersion.
type Legacy interface {
	Add(obj any) error
	Update(obj any) error
	Delete(obj any) error
	List() []any
	ListKeys() []string
	Get(obj any) (item any, exists bool, err error)
	GetByKey(key string) (item any, exists bool, err error)
	Replace(objs []any, resourceVersion string) error
	Resync() error
}

// Adapt returns a store that was written for client-go before 0.36 as a cache.Store. Bookmark
// does nothing, and LastStoreSyncResourceVersion returns "": an informer needs neither.
//
// The result is a cache.Indexer if old has the methods of one, an [informer.Scanner] if old is
// one, and an [informer.Durable] if old has the methods of one; other methods of old cannot be
// reached through it. If old is a cache.Store already, it is returned unchanged. All calls go
// to old, and may be made from the goroutines that old allows. Adapt does not block. It panics
// if old is nil: that is a mistake in the program, and an informer would take nil for the wish
// to have its own store.
func Adapt(old Legacy) cache.Store {
	if v := reflect.ValueOf(old); old == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		panic(fmt.Sprintf("store: Adapt of a nil store (%T)", old))
	}
	if s, ok := old.(cache.Store); ok {
		return s
	}
	s := adapted{old}
	index, indexes := old.(indexing)
	scan, scans := old.(informer.Scanner)
	last, lasts := old.(lasting)
	switch { // A value's methods depend on its type, so each combination needs a type of its own.
	case indexes && scans && lasts:
		return struct {
			adapted
			indexing
			informer.Scanner
			lasting
		}{s, index, scan, last}
	case scans && lasts:
		return struct {
			adapted
			informer.Scanner
			lasting
		}{s, scan, last}
	case indexes && scans:
		return struct {
			adapted
			indexing
			informer.Scanner
		}{s, index, scan}
	case scans:
		return struct {
			adapted
			informer.Scanner
		}{s, scan}
	case indexes:
		return struct {
			adapted
			indexing
		}{s, index}
	}
	return s
}

// adapted adds the methods that a Legacy lacks.
type adapted struct{ Legacy }

func (adapted) Bookmark(string) {}

func (adapted) LastStoreSyncResourceVersion() string { return "" }

// indexing has the methods that a cache.Indexer has in addition to a cache.Store.
type indexing interface {
	Index(indexName string, obj any) ([]any, error)
	IndexKeys(indexName, indexedValue string) ([]string, error)
	ListIndexFuncValues(indexName string) []string
	ByIndex(indexName, indexedValue string) ([]any, error)
	GetIndexers() cache.Indexers
	AddIndexers(newIndexers cache.Indexers) error
}

// lasting has the methods that an informer.Durable has in addition to a cache.Store and a
// Scanner.
type lasting interface {
	Resume(ctx context.Context) (resourceVersion string, err error)
	Apply(ctx context.Context, changes []cache.Transaction, bookmark string) error
	Tombstones(ctx context.Context) ([]any, error)
	Forget(ctx context.Context, tombstones map[string][]types.UID) error
}
