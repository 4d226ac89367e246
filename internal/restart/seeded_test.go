package restart_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

// Tests with stores of unexpected contents or behaviour.

func TestAnIndexOverAPlainStoreWorksBeforeRun(t *testing.T) {
	inf := newInformer(t, informertest.NewSource[configMap](), options{
		Store:    newPlainStore(object("a", "x"), object("b", "y")),
		Indexers: indexers,
	})
	checkNames(t, "namespace", "a b")(inf.List("default", nil))
	checkNames(t, "index", "b")(inf.ByIndex("value", "y"))
}

func TestEachObjectThatCannotBeIndexedIsReportedOnce(t *testing.T) {
	for name, store := range map[string]cache.Store{
		"indexer": cache.NewStore(cache.MetaNamespaceKeyFunc),
		"plain":   newPlainStore(),
	} {
		inBubble(t, name, func(t *testing.T) {
			src := informertest.NewSource(object("good", "1"), object("bad1", "bad"), object("bad2", "bad"))
			for _, obj := range src.Objects() {
				_ = store.Add(obj)
			}
			var errs errorLog
			running(t, src, options{Store: store, ErrorHandler: errs.Handle, Indexers: indexers})
			equal(t, "reports", len(errs.Take()), 2)
			_, _ = src.Delete(keyOf("bad1"))
			synctest.Wait()
			equal(t, "reports of a delete", errs.Take(), "[]")
		})
	}
}

func TestSomethingOfAnotherTypeInTheStoreIsReported(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		store := cache.NewStore(cache.MetaNamespaceKeyFunc)
		for _, name := range []string{"a", "s"} {
			_ = store.Add(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}})
		}
		var errs errorLog
		src := informertest.NewSource(object("a", "1"))
		inf, r := watched(t, src, options{Queue: queue, Store: store, ErrorHandler: errs.Handle})
		r.Expect(t, "added default/a") // in the place of the secret a
		reported := errs.Take()
		equal(t, "reports", len(reported), 2)
		for _, err := range reported {
			errorSays(t, err, "Secret")
		}
		_, _, err := inf.Get(keyOf("s"))
		errorSays(t, err, "Secret")
		_, err = inf.List("", nil)
		errorSays(t, err, "Secret")
		_ = store.Delete(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s"}})
		checkStore(t, inf, src)
	})
}

func TestAListingBelongsToTheStore(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		store := &cachingStore{Store: cache.NewStore(cache.MetaNamespaceKeyFunc)}
		src := informertest.NewSource(objects("a", "b")...)
		inf := running(t, src, options{Queue: queue, Store: store})
		for range 3 {
			joined(t, inf).Expect(t, "added default/a", "added default/b")
		}
		if store.listed == nil || slices.Contains(store.listed, nil) {
			t.Errorf("the store's own list was changed to %v", store.listed)
		}
	})
}

// cachingStore returns the same slice from each List once it has two objects.
type cachingStore struct {
	cache.Store
	listed []any
}

func (s *cachingStore) List() []any {
	if s.listed == nil {
		all := s.Store.List()
		if len(all) < 2 {
			return all
		}
		s.listed = all
	}
	return s.listed
}

func TestAnObjectIsFoundOnlyByTheValueItHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newPlainStore()
		src := informertest.NewSource(object("a", "x"))
		inf := running(t, src, options{Store: store, ErrorHandler: ignore, Indexers: indexers})
		checkNames(t, "before", "a")(inf.ByIndex("value", "x"))
		written := false
		store.Mu.Lock()
		store.After = func(op, _ string) error {
			if op == "get" || written {
				return nil
			}
			written = true
			return errDown // although the object was written
		}
		store.Mu.Unlock()
		src.Apply(object("a", "y"))
		synctest.Wait()
		checkNames(t, "while the write is in doubt", "")(inf.ByIndex("value", "x"))
		sleepBubble(time.Minute)
		checkNames(t, "after", "a")(inf.ByIndex("value", "y"))
	})
}
