package storetest

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
)

// target is a store of either kind, for the checks that both kinds must pass.
type target interface {
	add(obj informer.AnyObject) error
	update(obj informer.AnyObject) error
	delete(obj informer.AnyObject) error
	get(key string) (obj any, exists bool, err error)
	all() ([]informer.Entry, error)
	// indexes returns the indexes of the store, or nil if it has none.
	indexes() indexes
}

type indexes interface {
	GetIndexers() cache.Indexers
	AddIndexers(indexers cache.Indexers) error
	ByIndex(ctx context.Context, name, value string) ([]informer.Entry, error)
}

type plain struct{ cache.Store }

func (p plain) add(obj informer.AnyObject) error    { return p.Add(obj) }
func (p plain) update(obj informer.AnyObject) error { return p.Update(obj) }
func (p plain) delete(obj informer.AnyObject) error { return p.Delete(obj) }

func (p plain) get(key string) (obj any, exists bool, err error) { return p.GetByKey(key) }
func (p plain) all() ([]informer.Entry, error)                   { return entriesOf(p.List()), nil }

func (p plain) indexes() indexes {
	if indexer, ok := p.Store.(cache.Indexer); ok {
		return plainIndexes{indexer}
	}
	return nil
}

type plainIndexes struct{ cache.Indexer }

func (p plainIndexes) ByIndex(_ context.Context, name, value string) ([]informer.Entry, error) {
	objs, err := p.Indexer.ByIndex(name, value)
	return entriesOf(objs), err
}

// entriesOf returns objects with the keys that client-go makes of them. A value that is not
// an API object becomes an empty Entry.
func entriesOf(objs []any) []informer.Entry {
	entries := make([]informer.Entry, 0, len(objs))
	for _, raw := range objs {
		e := informer.Entry{}
		if obj, ok := raw.(informer.AnyObject); ok {
			e = under(keyOf(obj), obj)
		}
		entries = append(entries, e)
	}
	return entries
}

// lasting is an informer.Durable as a target. Its writes call Apply and Forget.
type lasting struct {
	informer.Durable
	ctx context.Context
}

func (l lasting) add(obj informer.AnyObject) error {
	return l.Apply(l.ctx, []informer.Change{putting(obj)}, "")
}

func (l lasting) update(obj informer.AnyObject) error { return l.add(obj) }

func (l lasting) delete(obj informer.AnyObject) error {
	key, stored := keyOf(obj), obj
	if obj, exists, err := l.Get(l.ctx, key); err == nil && exists { // an informer buries what Get returns
		stored = obj
	}
	if err := l.Apply(l.ctx, []informer.Change{{Entry: informer.Entry{Key: key, Object: stored}, Delete: true}}, ""); err != nil {
		return err
	}
	return l.Forget(l.ctx, map[string][]types.UID{key: {stored.GetUID()}})
}

func (l lasting) get(key string) (any, bool, error) {
	obj, exists, err := l.Get(l.ctx, key)
	if obj == nil {
		return nil, exists, err
	}
	return obj, exists, err
}

func (l lasting) all() (all []informer.Entry, err error) {
	for after := ""; ; {
		page, err := l.Scan(l.ctx, after, 500)
		if err != nil || len(page) == 0 {
			return all, err
		}
		last := page[len(page)-1].Key
		if last <= after {
			return nil, fmt.Errorf("the page after %q ends with %q", after, last)
		}
		all, after = append(all, page...), last
	}
}

func (l lasting) indexes() indexes {
	indexer, _ := l.Durable.(informer.DurableIndexer)
	if indexer == nil {
		return nil
	}
	return indexer
}

func keyOf(obj metav1.Object) string { return cache.MetaObjectToName(obj).String() }

func under(key string, obj informer.AnyObject) informer.Entry {
	return informer.Entry{Key: key, Object: obj}
}

func putting(obj informer.AnyObject) informer.Change {
	return informer.Change{Entry: under(keyOf(obj), obj)}
}

func deleting(obj informer.AnyObject) informer.Change {
	return informer.Change{Entry: under(keyOf(obj), obj), Delete: true}
}
