package storetest_test

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
)

// plain is a store that is correct except for the functions that are set.
type plain struct {
	cache.Store
	add, update, delete func(cache.Store, any) error
	get                 func(cache.Store, any) (any, bool, error)
	getByKey            func(cache.Store, string) (any, bool, error)
	list                func(cache.Store) []any
	listKeys            func(cache.Store) []string
	replace             func(cache.Store, []any, string) error
	bookmark            func(cache.Store)
}

func (p *plain) Add(obj any) error { return either(p.add, cache.Store.Add)(p.Store, obj) }

func (p *plain) Update(obj any) error { return either(p.update, cache.Store.Update)(p.Store, obj) }

func (p *plain) Delete(obj any) error { return either(p.delete, cache.Store.Delete)(p.Store, obj) }

func (p *plain) Get(obj any) (any, bool, error) { return either(p.get, cache.Store.Get)(p.Store, obj) }

func (p *plain) GetByKey(key string) (any, bool, error) {
	return either(p.getByKey, cache.Store.GetByKey)(p.Store, key)
}

func (p *plain) List() []any { return either(p.list, cache.Store.List)(p.Store) }

func (p *plain) ListKeys() []string { return either(p.listKeys, cache.Store.ListKeys)(p.Store) }

func (p *plain) Replace(objs []any, rv string) error {
	return either(p.replace, cache.Store.Replace)(p.Store, objs, rv)
}

func (p *plain) Bookmark(rv string) {
	if p.bookmark != nil {
		p.bookmark(p.Store)
	}
	p.Store.Bookmark(rv)
}

// either returns f, or otherwise if f is nil.
func either[F any](f, otherwise F) F {
	if reflect.ValueOf(f).IsNil() {
		return otherwise
	}
	return f
}

// with returns a function that makes a store like p.
func with(p plain) func() cache.Store {
	return func() cache.Store {
		p := p
		p.Store = cache.NewStore(cache.MetaNamespaceKeyFunc)
		return &p
	}
}

// keyedBy returns a function that makes a store with other keys.
func keyedBy(key cache.KeyFunc) func() cache.Store {
	return func() cache.Store { return cache.NewStore(key) }
}

// live is a store that returns its own slice of objects.
type live struct {
	cache.Store
	mu  sync.Mutex
	all []any
}

func (l *live) Add(obj any) error { return l.wrote(l.Store.Add(obj)) }

func (l *live) Update(obj any) error { return l.wrote(l.Store.Update(obj)) }

func (l *live) Delete(obj any) error { return l.wrote(l.Store.Delete(obj)) }

func (l *live) Replace(objs []any, rv string) error { return l.wrote(l.Store.Replace(objs, rv)) }

func (l *live) wrote(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all[:0], l.Store.List()...)
	return err
}

func (l *live) List() []any {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all
}

var brokenPlain = []broken{
	{
		fault: "a new one holds something",
		make: func() cache.Store {
			s := cache.NewStore(cache.MetaNamespaceKeyFunc)
			_ = s.Add(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "left"}})
			return s
		},
		found: []string{"Store/lists everything"},
		says:  "newStore returned a store that is not empty: it holds left",
	}, {
		fault: "ListKeys returns nothing",
		make:  with(plain{listKeys: func(cache.Store) []string { return nil }}),
		found: []string{"Store/lists everything", "Store/may be read while it is written"},
	}, {
		fault: "an absence is an error",
		make: with(plain{getByKey: func(s cache.Store, key string) (any, bool, error) {
			obj, exists, err := s.GetByKey(key)
			if !exists {
				err = errors.New("not found")
			}
			return obj, exists, err
		}}),
		found: []string{"Store/reports an object that it does not have as absent"},
	}, {
		fault: "the namespace is no part of the key",
		make: keyedBy(func(obj any) (string, error) {
			object, err := meta.Accessor(obj)
			if err != nil {
				return "", err
			}
			return object.GetName(), nil
		}),
		found: []string{"Store/finds what was added under its key"},
	}, {
		fault: "the key of what is cluster-scoped begins with a slash",
		make: keyedBy(func(obj any) (string, error) {
			key, err := cache.MetaNamespaceKeyFunc(obj)
			if !strings.Contains(key, "/") {
				key = "/" + key
			}
			return key, err
		}),
		found: []string{"Store/finds what was added under its key"},
	}, {
		fault: "colons are replaced in keys",
		make: keyedBy(func(obj any) (string, error) {
			key, err := cache.MetaNamespaceKeyFunc(obj)
			return strings.ReplaceAll(key, ":", "_"), err
		}),
		found: []string{"Store/finds what was added under its key"},
	}, {
		fault: "long keys are cut",
		make: keyedBy(func(obj any) (string, error) {
			key, err := cache.MetaNamespaceKeyFunc(obj)
			return key[:min(len(key), 255)], err
		}),
		found: []string{"Store/finds what was added under its key"},
	}, {
		fault: "Update does nothing",
		make:  with(plain{update: func(cache.Store, any) error { return nil }}),
		found: []string{"Store/keeps the last state of an object", "Store/is right after any history"},
	}, {
		fault: "Update does not take another UID",
		make: with(plain{update: func(s cache.Store, obj any) error {
			if old, exists, _ := s.Get(obj); exists && old.(informer.AnyObject).GetUID() != obj.(informer.AnyObject).GetUID() {
				return errors.New("conflict")
			}
			return s.Update(obj)
		}}),
		found: []string{"Store/keeps the last state of an object"},
	}, {
		fault: "Delete does nothing",
		make:  with(plain{delete: func(cache.Store, any) error { return nil }}),
		found: []string{"Store/does not find what was deleted"},
	}, {
		fault: "Delete wants the version that is stored",
		make: with(plain{delete: func(s cache.Store, obj any) error {
			if old, exists, _ := s.Get(obj); exists && old.(informer.AnyObject).GetResourceVersion() != obj.(informer.AnyObject).GetResourceVersion() {
				return errors.New("conflict")
			}
			return s.Delete(obj)
		}}),
		found: []string{"Store/does not find what was deleted"},
	}, {
		fault: "managedFields are dropped",
		make: with(plain{add: func(s cache.Store, obj any) error {
			kept := obj.(informer.AnyObject).DeepCopyObject().(informer.AnyObject)
			kept.SetManagedFields(nil)
			return s.Add(kept)
		}}),
		found: []string{"Store/returns what it was given"},
	}, {
		fault: "what is given is marked",
		make: with(plain{add: func(s cache.Store, obj any) error {
			obj.(informer.AnyObject).SetAnnotations(map[string]string{"stored": "yes"})
			return s.Add(obj)
		}}),
		found: []string{"Store/does not change what it is given"},
	}, {
		fault: "Get by an object finds only that one",
		make: with(plain{get: func(s cache.Store, obj any) (any, bool, error) {
			old, exists, err := s.Get(obj)
			if old != obj {
				return nil, false, err
			}
			return old, exists, err
		}}),
		found: []string{"Store/finds an object by an object of its key"},
	}, {
		fault: "List is cut after a hundred",
		make: with(plain{list: func(s cache.Store) []any {
			all := s.List()
			return all[:min(len(all), 100)]
		}}),
		found: []string{"Store/lists everything"},
	}, {
		fault: "List returns the slice of the store",
		make:  func() cache.Store { return &live{Store: cache.NewStore(cache.MetaNamespaceKeyFunc)} },
		found: []string{"Store/lists what does not change any more"},
	}, {
		fault: "Replace leaves the others",
		make: with(plain{replace: func(s cache.Store, objs []any, _ string) error {
			for _, obj := range objs {
				_ = s.Add(obj)
			}
			return nil
		}}),
		found: []string{"Store/replaces everything"},
	}, {
		fault: "Replace removes no more than a hundred others",
		make: with(plain{replace: func(s cache.Store, objs []any, _ string) error {
			if all := s.List(); len(all) > 100 && len(objs) < 100 {
				for _, obj := range all[:100] {
					_ = s.Delete(obj)
				}
				return nil
			}
			return s.Replace(objs, "")
		}}),
		found: []string{"Store/replaces everything"},
	}, {
		fault: "a bookmark empties it",
		make:  with(plain{bookmark: func(s cache.Store) { _ = s.Replace(nil, "") }}),
		found: []string{"Store/keeps its objects when it gets a bookmark"},
	}, {
		fault: "Update deletes and adds",
		make: with(plain{update: func(s cache.Store, obj any) error {
			_ = s.Delete(obj)
			time.Sleep(time.Millisecond) // the fault itself: readers must have time to see it
			return s.Add(obj)
		}}),
		found: []string{"Store/may be read while it is written"},
	},
}

// indexer is an indexer that is correct except for the functions that are set.
type indexer struct {
	cache.Indexer
	byIndex     func(cache.Indexer, string, string) ([]any, error)
	addIndexers func(cache.Indexer, cache.Indexers) error
	getIndexers func(cache.Indexer) cache.Indexers
}

func (i *indexer) ByIndex(name, value string) ([]any, error) {
	return either(i.byIndex, cache.Indexer.ByIndex)(i.Indexer, name, value)
}

func (i *indexer) AddIndexers(indexers cache.Indexers) error {
	return either(i.addIndexers, cache.Indexer.AddIndexers)(i.Indexer, indexers)
}

func (i *indexer) GetIndexers() cache.Indexers {
	return either(i.getIndexers, cache.Indexer.GetIndexers)(i.Indexer)
}

// indexedBy returns a function that makes an indexer like i.
func indexedBy(i indexer) func() cache.Store {
	return func() cache.Store {
		i := i
		i.Indexer = cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
		return &i
	}
}

// wrapping returns an AddIndexers that adds wrapped versions of the given indexers.
func wrapping(wrap func(s cache.Indexer, f cache.IndexFunc) cache.IndexFunc) func(cache.Indexer, cache.Indexers) error {
	return func(s cache.Indexer, indexers cache.Indexers) error {
		others := cache.Indexers{}
		for name, f := range indexers {
			others[name] = wrap(s, f)
		}
		return s.AddIndexers(others)
	}
}

var brokenIndexers = []broken{
	{
		fault: "indexes keep the first state",
		make: indexedBy(indexer{addIndexers: wrapping(func(_ cache.Indexer, f cache.IndexFunc) cache.IndexFunc {
			first := map[string][]string{}
			return func(obj any) ([]string, error) {
				key, _ := cache.MetaNamespaceKeyFunc(obj)
				if vals, ok := first[key]; ok {
					return vals, nil
				}
				vals, err := f(obj)
				first[key] = vals
				return vals, err
			}
		})}),
		found: []string{"Indexer/indexes the last state of an object"},
	}, {
		fault: "an index has only the first value",
		make: indexedBy(indexer{addIndexers: wrapping(func(_ cache.Indexer, f cache.IndexFunc) cache.IndexFunc {
			return func(obj any) ([]string, error) {
				vals, err := f(obj)
				return vals[:min(len(vals), 1)], err
			}
		})}),
		found: []string{"Indexer/finds an object under all of its values"},
	}, {
		fault: "an index leaves out what is there already",
		make: indexedBy(indexer{addIndexers: wrapping(func(s cache.Indexer, f cache.IndexFunc) cache.IndexFunc {
			there := s.ListKeys()
			return func(obj any) ([]string, error) {
				if key, _ := cache.MetaNamespaceKeyFunc(obj); slices.Contains(there, key) {
					return nil, nil
				}
				return f(obj)
			}
		})}),
		found: []string{"Indexer/finds by the indexes that it got when it was filled"},
	}, {
		fault: "an index that there is not is empty",
		make: indexedBy(indexer{byIndex: func(s cache.Indexer, name, value string) ([]any, error) {
			found, _ := s.ByIndex(name, value)
			return found, nil
		}}),
		found: []string{"Indexer/reports an index that it does not have"},
	}, {
		fault: "an index that is there is passed over",
		make: indexedBy(indexer{addIndexers: func(s cache.Indexer, indexers cache.Indexers) error {
			indexers = maps.Clone(indexers)
			maps.DeleteFunc(indexers, func(name string, _ cache.IndexFunc) bool { return s.GetIndexers()[name] != nil })
			return s.AddIndexers(indexers)
		}}),
		found: []string{"Indexer/does not take a second index of one name"},
	}, {
		fault: "GetIndexers returns nothing",
		make:  indexedBy(indexer{getIndexers: func(cache.Indexer) cache.Indexers { return nil }}),
		found: []string{"Indexer/finds by the indexes that it had while it was empty"},
	}, {
		fault: "it was made without a map of indexers",
		make:  func() cache.Store { return cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil) },
		found: []string{"Indexer/finds by the indexes that it had while it was empty"},
		says:  "client-go's NewIndexer must be given a map",
	},
}
