package informertest

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// contents is the stored state of a [Durable].
type contents struct {
	keys       []string // the keys of objects, sorted
	objects    map[string]any
	tombstones map[identity]any
	bookmark   string
}

// identity identifies a tombstone.
type identity struct {
	key string
	uid types.UID
}

// attempt holds the arguments of an Apply.
type attempt struct {
	changes  []cache.Transaction
	bookmark string
}

// allows reports whether next may come after a, an Apply that has failed. After nil any Apply
// may come.
func (a *attempt) allows(next *attempt) bool {
	return a == nil || a.bookmark == next.bookmark && slices.Equal(a.changes, next.changes)
}

func (c *contents) set(key string, obj any) {
	if i, exists := slices.BinarySearch(c.keys, key); !exists {
		c.keys = slices.Insert(c.keys, i, key)
	}
	c.objects[key] = obj
}

func (c *contents) remove(key string) {
	if i, exists := slices.BinarySearch(c.keys, key); exists {
		c.keys = slices.Delete(c.keys, i, i+1)
	}
	delete(c.objects, key)
}

func (c *contents) scan(after string, limit int) []any {
	from, exists := slices.BinarySearch(c.keys, after)
	if exists {
		from++
	}
	objs := make([]any, 0, min(limit, len(c.keys)-from))
	for _, key := range c.keys[from : from+cap(objs)] {
		objs = append(objs, c.objects[key])
	}
	return objs
}

// check returns an error if an informer must not ask for changes.
func (c *contents) check(changes []cache.Transaction) error {
	uids, kept := map[string]*types.UID{}, map[identity]bool{} // the effect of the changes checked so far
	for i, change := range changes {
		key, err := storable(change.Object)
		if err != nil {
			return fmt.Errorf("change %d, %s of %q: %w", i, change.Type, key, err)
		}
		uid := uidOf(change.Object)
		switch change.Type {
		case cache.TransactionTypeAdd, cache.TransactionTypeUpdate:
			uids[key] = &uid
		case cache.TransactionTypeDelete:
			id := identity{key, uid}
			stored, changed := uids[key]
			if obj, exists := c.objects[key]; exists && !changed {
				is := uidOf(obj)
				stored = &is
			}
			// A change that is repeated, because it failed after its effect, may find an
			// object that was added after it.
			if stored != nil && *stored != uid && !kept[id] && c.tombstones[id] == nil {
				return fmt.Errorf("change %d, %s of %q: its UID is %q, but the UID of the stored object is %q", i, change.Type, key, uid, *stored)
			}
			uids[key], kept[id] = nil, true
		default:
			return fmt.Errorf("change %d of %q: there is no type %q", i, key, change.Type)
		}
	}
	return nil
}

func (c *contents) apply(changes []cache.Transaction, bookmark string) {
	for _, change := range changes {
		key, _ := storable(change.Object)
		if change.Type == cache.TransactionTypeDelete {
			c.remove(key)
			c.tombstones[identity{key, uidOf(change.Object)}] = change.Object
		} else {
			c.set(key, change.Object)
		}
	}
	c.bookmark = bookmark
}

// clone returns a copy of c that can be changed on its own, with the same objects.
func (c *contents) clone() contents {
	return contents{
		keys:       slices.Clone(c.keys),
		objects:    maps.Clone(c.objects),
		tombstones: maps.Clone(c.tombstones),
		bookmark:   c.bookmark,
	}
}

// copied returns a copy of c with copies of the objects.
func (c *contents) copied() contents {
	all := c.clone()
	for key, obj := range all.objects {
		all.objects[key] = obj.(runtime.Object).DeepCopyObject()
	}
	for id, obj := range all.tombstones {
		all.tombstones[id] = obj.(runtime.Object).DeepCopyObject()
	}
	return all
}

// storable returns the key of an object, and an error if it cannot be stored.
func storable(obj any) (key string, err error) {
	if v := reflect.ValueOf(obj); obj == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		return "", errors.New("it was given nil")
	}
	key, err = keyOfAny(obj)
	if err != nil {
		return key, err
	}
	if _, ok := obj.(runtime.Object); !ok {
		return key, fmt.Errorf("it was given a %T, which is not a runtime.Object", obj)
	}
	if object, err := meta.Accessor(obj); err != nil || object.GetName() == "" {
		return key, errors.New("the object has no name")
	}
	return key, nil
}

func uidOf(obj any) types.UID {
	object, err := meta.Accessor(obj)
	if err != nil {
		return ""
	}
	return object.GetUID()
}
