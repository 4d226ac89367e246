package restart_test

import (
	"errors"
	"slices"
	"strings"
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
		Store: newPlainStore(object("a", "x"), object("b", "y")),
		Indexers: informer.Indexers[configMap]{"value": func(obj configMap) ([]string, error) {
			return []string{obj.Data["value"]}, nil
		}},
	})
	checkNames(t, "namespace", "a b")(inf.List("default", nil))
	checkNames(t, "index", "b")(inf.ByIndex("value", "y"))
	if _, err := inf.ByIndex("unknown", "y"); err == nil {
		t.Error("reading by an unknown index returns no error")
	}
}

func TestEachObjectThatCannotBeIndexedIsReportedOnce(t *testing.T) {
	for name, store := range map[string]cache.Store{
		"indexer": cache.NewStore(cache.MetaNamespaceKeyFunc),
		"plain":   newPlainStore(),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := informertest.NewSource(object("good", "1"), object("bad1", "bad"), object("bad2", "bad"))
				for _, obj := range src.Objects() {
					_ = store.Add(obj)
				}
				var errs errorLog
				inf := newInformer(t, src, options{Store: store, ErrorHandler: errs.Handle, Indexers: informer.Indexers[configMap]{
					"value": func(obj configMap) ([]string, error) {
						if obj.Data["value"] == "bad" {
							return nil, errors.New("cannot be indexed")
						}
						return nil, nil
					},
				}})
				informertest.Run(t, inf)
				if got := errs.Take(); len(got) != 2 {
					t.Errorf("reported %v", got)
				}
				_, _ = src.Delete(keyOf("bad1"))
				synctest.Wait()
				if got := errs.Take(); len(got) != 0 {
					t.Errorf("a delete reported %v", got)
				}
			})
		})
	}
}

func TestSomethingOfAnotherTypeInTheStoreIsWrittenOver(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		store := cache.NewStore(cache.MetaNamespaceKeyFunc)
		_ = store.Add(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}})
		src := informertest.NewSource(object("a", "1"))
		var errs errorLog
		inf := newInformer(t, src, options{Queue: queue, Store: store, ErrorHandler: errs.Handle})
		var r recorder
		addWatcher(t, inf, &r, informer.WatcherOptions{})
		informertest.Run(t, inf)
		r.Expect(t, "added default/a")
		checkStore(t, inf, src)
		if got := errs.Take(); len(got) != 1 || !strings.Contains(got[0].Error(), "Secret") {
			t.Errorf("reported %v", got)
		}
	})
}

func TestAListingBelongsToTheStore(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		store := &cachingStore{Store: cache.NewStore(cache.MetaNamespaceKeyFunc)}
		src := informertest.NewSource(object("a", "1"), object("b", "1"))
		inf := newInformer(t, src, options{Queue: queue, Store: store})
		informertest.Run(t, inf)
		for range 3 {
			var r recorder
			addWatcher(t, inf, &r, informer.WatcherOptions{})
			r.Expect(t, "added default/a", "added default/b")
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
		inf := newInformer(t, src, options{Store: store, ErrorHandler: (&errorLog{}).Handle, Indexers: informer.Indexers[configMap]{
			"value": func(obj configMap) ([]string, error) { return []string{obj.Data["value"]}, nil },
		}})
		informertest.Run(t, inf)
		checkNames(t, "before", "a")(inf.ByIndex("value", "x"))
		store.Mu.Lock()
		store.After = func(op, _ string) error {
			if op == "get" {
				return nil
			}
			return errors.New("the object was written, but an error is returned")
		}
		store.Mu.Unlock()
		src.Apply(object("a", "y"))
		synctest.Wait()
		store.Mu.Lock()
		store.After = nil
		store.Mu.Unlock()
		checkNames(t, "while the write is in doubt", "")(inf.ByIndex("value", "x"))
		sleepBubble(time.Minute)
		checkNames(t, "after", "a")(inf.ByIndex("value", "y"))
	})
}
