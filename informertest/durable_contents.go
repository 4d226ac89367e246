package informertest

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/object"
)

// contents is the stored state of a [Durable].
type contents struct {
	keys       []string // the keys of objects, sorted
	objects    map[string]informer.AnyObject
	tombstones map[identity]informer.AnyObject
	bookmark   string
}

type identity struct {
	key string
	uid types.UID
}

type attempt struct {
	changes  []informer.Change
	bookmark string
}

// allows reports whether next may be the Apply after a, which has failed. It returns true if a is
// nil.
func (a *attempt) allows(next *attempt) bool {
	return a == nil || a.bookmark == next.bookmark && slices.Equal(a.changes, next.changes)
}

func (c *contents) set(key string, obj informer.AnyObject) {
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

func (c *contents) scan(after string, limit int) []informer.Entry {
	from, exists := slices.BinarySearch(c.keys, after)
	if exists {
		from++
	}
	entries := make([]informer.Entry, 0, min(limit, len(c.keys)-from))
	for _, key := range c.keys[from : from+cap(entries)] {
		entries = append(entries, informer.Entry{Key: key, Object: c.objects[key]})
	}
	return entries
}

func (c *contents) check(changes []informer.Change) error {
	uids, kept := map[string]*types.UID{}, map[identity]bool{} // the effect of the changes checked so far
	for i, change := range changes {
		if err := checkEntry(change.Entry); err != nil {
			return fmt.Errorf("change %d, %s: %w", i, describe(change), err)
		}
		key, uid := change.Key, change.Object.GetUID()
		if !change.Delete {
			uids[key] = &uid
			continue
		}
		id := identity{key, uid}
		stored, changed := uids[key]
		if obj, exists := c.objects[key]; exists && !changed {
			is := obj.GetUID()
			stored = &is
		}
		// A change that is repeated, because it failed after its effect, may find an
		// object that was added after it.
		if stored != nil && *stored != uid && !kept[id] && c.tombstones[id] == nil {
			return fmt.Errorf("change %d, %s: its UID is %q, but the UID of the stored object is %q", i, describe(change), uid, *stored)
		}
		uids[key], kept[id] = nil, true
	}
	return nil
}

func describe(change informer.Change) string {
	if change.Delete {
		return fmt.Sprintf("delete of %q", change.Key)
	}
	return fmt.Sprintf("put of %q", change.Key)
}

func (c *contents) apply(changes []informer.Change, bookmark string) {
	for _, change := range changes {
		if change.Delete {
			c.remove(change.Key)
			if !change.NoTombstone {
				c.tombstones[identity{change.Key, change.Object.GetUID()}] = change.Object
			}
		} else {
			c.set(change.Key, change.Object)
		}
	}
	c.bookmark = bookmark
}

// clone returns a copy of c with maps of its own. The objects are shared.
func (c *contents) clone() contents {
	return contents{
		keys:       slices.Clone(c.keys),
		objects:    maps.Clone(c.objects),
		tombstones: maps.Clone(c.tombstones),
		bookmark:   c.bookmark,
	}
}

func (c *contents) copied() contents {
	all := c.clone()
	for key, obj := range all.objects {
		all.objects[key] = obj.DeepCopyObject().(informer.AnyObject)
	}
	for id, obj := range all.tombstones {
		all.tombstones[id] = obj.DeepCopyObject().(informer.AnyObject)
	}
	return all
}

func checkEntry(e informer.Entry) error {
	switch {
	case e.Key == "":
		return errors.New("it has no key")
	case object.IsNil(e.Object):
		return errors.New("its object is nil")
	case e.Object.GetName() == "":
		return errors.New("its object has no name")
	}
	return nil
}
