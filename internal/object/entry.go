package object

import "k8s.io/client-go/tools/cache"

// Entry is an object with its key in a store.
type Entry struct {
	key    string // "" if the store returns only objects: then Key computes it
	Object any
}

// Keyed returns the entry of an object whose key is known.
func Keyed(key string, obj any) Entry { return Entry{key, obj} }

// Key returns the key. It returns "" if the key is not known and Object is not an API object.
func (e Entry) Key() string {
	if e.key != "" {
		return e.key
	}
	key, _ := CacheKey(e.Object) // "" with an error
	return key
}

// AppendKey appends the key to b and returns the result. A lookup in a map with the result,
// converted to a string, does not allocate.
func (e Entry) AppendKey(b []byte) []byte {
	m, err := Meta(e.Object)
	if e.key != "" || err != nil {
		return append(b, e.key...)
	}
	if ns := m.GetNamespace(); ns != "" {
		b = append(append(b, ns...), '/')
	}
	return append(b, m.GetName()...)
}

// Entries are some objects with their keys, such as a page of a store. The zero value is empty. A
// copy shares the objects.
type Entries struct {
	objs []any
	keys []string // of the objects; nil if the store returns only objects
}

// Unkeyed returns Entries with objs, from a store that returns only objects. The keys are computed
// when they are needed: a watcher that joins needs hardly any. The slice is not changed.
func Unkeyed(objs []any) Entries { return Entries{objs: objs} }

// Append adds an entry whose key is known. It must not be called for Entries of Unkeyed.
func (es *Entries) Append(key string, obj any) {
	es.objs, es.keys = append(es.objs, obj), append(es.keys, key)
}

// Len returns the number of entries.
func (es Entries) Len() int { return len(es.objs) }

// At returns entry n, from 0.
func (es Entries) At(n int) Entry {
	if es.keys == nil {
		return Entry{Object: es.objs[n]}
	}
	return Entry{es.keys[n], es.objs[n]}
}

// From returns the entries without the first n.
func (es Entries) From(n int) Entries {
	es.objs = es.objs[n:]
	if es.keys != nil {
		es.keys = es.keys[n:]
	}
	return es
}

// CacheKey returns the key under which a store of client-go keeps obj, which may be a tombstone.
// It is the key function for stores and programs that compute keys from objects. It returns the
// same as cache.DeletionHandlingMetaNamespaceKeyFunc, but is faster, and returns an error for a
// nil pointer.
func CacheKey(obj any) (string, error) {
	m, err := Meta(obj)
	switch {
	case err == nil:
		return Key(m), nil
	case IsNil(obj):
		return "", err // client-go's function panics for a nil pointer
	}
	return cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
}
