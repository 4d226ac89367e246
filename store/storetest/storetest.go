package storetest

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
)

// Run checks the stores that newStore returns, in subtests of t. Run calls newStore at least once for
// each subtest. newStore must return an empty store each time. To clean up, use t.Cleanup of the t that
// newStore gets. Run blocks until all checks are done. Without -short it takes some seconds, or longer
// if a write is slow, because there are some ten thousand writes. With -race it takes several times as
// long.
func Run(t *testing.T, newStore func(t *testing.T) cache.Store, opts Options) {
	t.Helper()
	if opts.Kept == nil {
		opts.Kept = func(obj informer.AnyObject) informer.AnyObject { return obj }
	}
	s := &suite{Options: opts, newTarget: func(t *testing.T) target { return plain{newStore(t)} }}
	s.Object = orMetadata(t, s.Object)
	s.group(t, "Store", "", storeChecks)
	s.group(t, "Indexer", notIndexer, indexerChecks)
}

// RunDurable checks the stores that newStore returns, as [Run] does. opts.Reopen must be set, and
// opts.Crash should be:
//
//	func TestStore(t *testing.T) {
//		storetest.RunDurable(t, func(t *testing.T) informer.Durable { return mystore.New(t.TempDir()) }, storetest.DurableOptions{
//			Reopen: func(t *testing.T, s informer.Durable) informer.Durable {
//				old := s.(*mystore.Store)
//				old.Close()
//				return mystore.New(old.Dir())
//			},
//		})
//	}
func RunDurable(t *testing.T, newStore func(t *testing.T) informer.Durable, opts DurableOptions) {
	t.Helper()
	if opts.Reopen == nil {
		t.Fatal("DurableOptions.Reopen is nil: without it the main purpose of a Durable cannot be checked")
	}
	s := &suite{
		Options:   Options{Object: orMetadata(t, opts.Object), Kept: func(obj informer.AnyObject) informer.AnyObject { return obj }, Seed: opts.Seed},
		durable:   opts,
		newTarget: func(t *testing.T) target { return lasting{newStore(t), t.Context()} },
	}
	s.group(t, "Objects", "", objectChecks)
	s.group(t, "Scan", "", scanChecks)
	s.group(t, "Durable", "", durableChecks)
	s.group(t, "Indexer", notDurableIndexer, indexerChecks)
}

// orMetadata returns object, or if it is nil, a function that returns objects with metadata only.
func orMetadata(t *testing.T, object func(namespace, name string) informer.AnyObject) func(namespace, name string) informer.AnyObject {
	if object != nil {
		return object
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log("The option Object is nil: if the store takes only objects of one type, set it")
		}
	})
	return func(namespace, name string) informer.AnyObject {
		return &metav1.PartialObjectMetadata{
			TypeMeta:   metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"},
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		}
	}
}

const (
	notIndexer        = "The store is not a cache.Indexer: the informer keeps indexes of its own in memory, of keys and values only, and fills them at the start."
	notDurableIndexer = "The store is not an informer.DurableIndexer: at the start the informer reads all of its objects, to keep indexes of its own in memory."
)

// group runs the checks of one interface. If without is not empty, it skips them for a store
// without indexes, and without is what such a store lacks. If without is empty, all stores must
// pass.
func (s *suite) group(t *testing.T, name, without string, checks []check) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		if without != "" && s.newTarget(t).indexes() == nil {
			t.Skip(without)
		}
		for _, check := range checks {
			t.Run(check.name, func(t *testing.T) {
				defer func() {
					if t.Failed() {
						t.Log("Why: " + check.why)
					}
				}()
				check.run(newChecker(t, s))
			})
		}
	})
}
