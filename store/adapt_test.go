package store_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/store"
	"github.com/customcacheinformer/informer/store/storetest"
)

// The tests build stores of the old kind from these parts.
type (
	indexing interface {
		Index(indexName string, obj any) ([]any, error)
		IndexKeys(indexName, indexedValue string) ([]string, error)
		ListIndexFuncValues(indexName string) []string
		ByIndex(indexName, indexedValue string) ([]any, error)
		GetIndexers() cache.Indexers
		AddIndexers(newIndexers cache.Indexers) error
	}
	lasting interface {
		Resume(ctx context.Context) (resourceVersion string, err error)
		Apply(ctx context.Context, changes []cache.Transaction, bookmark string) error
		Tombstones(ctx context.Context) ([]any, error)
		Forget(ctx context.Context, tombstones map[string][]types.UID) error
	}
	oldStore   struct{ store.Legacy }
	oldIndexer struct {
		store.Legacy
		indexing
	}
	oldScanner struct {
		store.Legacy
		informer.Scanner
	}
	oldDurable struct {
		store.Legacy
		informer.Scanner
		lasting
	}
	oldScanningIndexer struct {
		store.Legacy
		indexing
		informer.Scanner
	}
	oldEverything struct {
		store.Legacy
		indexing
		informer.Scanner
		lasting
	}
)

// parts returns the stores behind the parts.
func parts() (cache.Indexer, *informertest.Durable) {
	return cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}), informertest.NewDurable()
}

func TestAnAdaptedStoreIsWhatTheOldOneWas(t *testing.T) {
	index, last := parts()
	for name, c := range map[string]struct {
		old                     store.Legacy
		indexes, scans, endures bool
	}{
		"store":               {oldStore{index}, false, false, false},
		"indexer":             {oldIndexer{index, index}, true, false, false},
		"scanner":             {oldScanner{last, last}, false, true, false},
		"durable":             {oldDurable{last, last, last}, false, true, true},
		"indexer and scanner": {oldScanningIndexer{index, index, last}, true, true, false},
		"everything":          {oldEverything{last, index, last, last}, true, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			if _, is := c.old.(cache.Store); is {
				t.Fatal("it is no old store")
			}
			s := store.Adapt(c.old)
			_, indexes := s.(cache.Indexer)
			_, scans := s.(informer.Scanner)
			_, endures := s.(informer.Durable)
			if indexes != c.indexes || scans != c.scans || endures != c.endures {
				t.Errorf("Indexer: %v, Scanner: %v, Durable: %v", indexes, scans, endures)
			}
		})
	}
}

func TestAdaptedStoresPass(t *testing.T) {
	t.Run("store", func(t *testing.T) {
		storetest.Run(t, func(*testing.T) cache.Store {
			index, _ := parts()
			return store.Adapt(oldStore{index})
		}, storetest.Options{})
	})
	t.Run("indexer", func(t *testing.T) {
		storetest.Run(t, func(*testing.T) cache.Store {
			index, _ := parts()
			return store.Adapt(oldIndexer{index, index})
		}, storetest.Options{})
	})
	t.Run("durable", func(t *testing.T) {
		current := map[cache.Store]*informertest.Durable{}
		adapt := func(d *informertest.Durable) cache.Store {
			s := store.Adapt(&oldDurable{d, d, d})
			current[s] = d
			return s
		}
		reopen := func(_ *testing.T, s cache.Store) cache.Store { return adapt(current[s].Reopen()) }
		storetest.Run(t, func(*testing.T) cache.Store { return adapt(informertest.NewDurable()) },
			storetest.Options{Reopen: reopen, Crash: reopen})
	})
}

func TestAStoreThatNeedsNoAdapterIsReturnedAsItIs(t *testing.T) {
	index, _ := parts()
	if got := store.Adapt(index); got != index {
		t.Errorf("got %T", got)
	}
}

func TestAnAdaptedStoreIgnoresBookmarks(t *testing.T) {
	index, _ := parts()
	s := store.Adapt(oldStore{index})
	s.Bookmark("7")
	if got := s.LastStoreSyncResourceVersion(); got != "" {
		t.Errorf("its version is %q", got)
	}
}

func TestAdaptOfNilPanics(t *testing.T) {
	for _, old := range []store.Legacy{nil, (*oldStore)(nil), (*informertest.Store)(nil)} {
		wantPanic(t, "nil store", func() { store.Adapt(old) })
	}
}

func TestAnInformerRunsOverAnAdaptedStore(t *testing.T) {
	index, _ := parts()
	s := store.Adapt(oldStore{index})
	src := informertest.NewSource(configMap("a", "1"), configMap("b", "1"))
	inf := must(informer.NewFrom(src, informer.Options[*object]{Store: s}))
	informertest.Run(t, inf)
	keys := s.ListKeys()
	if slices.Sort(keys); !slices.Equal(keys, []string{"default/a", "default/b"}) {
		t.Errorf("the store has %q", keys)
	}
}

// wantPanic fails the test unless f panics with a message that contains text.
func wantPanic(t *testing.T, text string, f func()) {
	t.Helper()
	defer func() {
		if got, _ := recover().(string); !strings.Contains(got, text) {
			t.Errorf("it panicked with %q, want %q in it", got, text)
		}
	}()
	f()
}
