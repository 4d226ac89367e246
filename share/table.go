package share

import (
	"hash/maphash"
	"reflect"
	"sync/atomic"

	"github.com/customcacheinformer/informer/internal/size"
)

// Table lets equal parts of objects share memory. [New] makes one. It holds only weak pointers to the parts,
// so a part is collected when no object uses it any more. Its methods may be called from any goroutine, and
// any number of informers may use one Table. It must not be copied.
type Table struct {
	common
	objects, refused, hits, saved atomic.Int64
}

// New returns an empty table.
func New() *Table {
	t := &Table{common: common{seed: maphash.MakeSeed()}}
	t.salt = maphash.String(t.seed, "")
	t.known.sweepAfterCollections()
	return t
}

// Share replaces parts of an object by equal parts of objects that the table has seen before. obj is a
// pointer to a struct, such as a *corev1.Pod or an *unstructured.Unstructured. Share changes the object in
// place, so no other code may use the object, or anything that it refers to, before Share has returned. The
// content of the object stays the same. If the object was shared before, Share does nothing.
//
// Share does nothing for nil or a value of any other type. The parts of an object are the strings, slices,
// maps, pointers and values of interfaces in it. If an object is nested more than 1,000 parts deep, for
// example because it has a cycle, or has more than half a million parts, Share leaves it or some of its
// parts unshared, see [Stats.Refused]. Each level of an unstructured object is two parts deep.
func (t *Table) Share(obj any) { t.walk(nil, obj) }

// Measure calls Share, and returns how many bytes of memory the object then takes, including everything that
// it refers to. added is how many of these bytes the object does not have from other objects that were
// shared before. Both are estimates. Measure takes several times as long as Share.
func (t *Table) Measure(obj any) (bytes, added int) {
	before := size.NewPieces(obj)
	added = t.walk(nil, obj)
	after := size.NewPieces(obj)
	for piece, n := range after {
		bytes += n
		if before[piece] > 0 {
			added += n
		}
	}
	before.Free()
	after.Free()
	return bytes, added
}

// ShareUpdate is like Share, for a new state of an object. old is an earlier state, which must have been
// shared. ShareUpdate first takes equal parts from old, which is cheaper than looking for them in the
// table. If old is nil or of another type, ShareUpdate does the same as Share. Other goroutines may read
// old during the call.
func (t *Table) ShareUpdate(old, obj any) { t.walk(old, obj) }

// Transform calls Share and returns the object. It never returns an error. It is a cache.TransformFunc, for
// client-go's informers and for a controller-runtime cache. A program that removes fields needs a function of
// its own that first removes them and then calls Transform. When client-go gets its first objects from a
// watch, it calls the transform twice for each, but the second call does nothing.
func (t *Table) Transform(obj any) (any, error) {
	t.Share(obj)
	return obj, nil
}

// walk shares obj, with old as an earlier state or nil. It returns how many bytes it has copied, because these
// no longer belong to obj alone.
func (t *Table) walk(old, obj any) (copied int) {
	v := reflect.ValueOf(obj)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Type().Elem().Kind() != reflect.Struct {
		return 0
	}
	p, from, to := t.root(v.Type().Elem()), address(nil), v.UnsafePointer()
	if reflect.TypeOf(old) == v.Type() {
		from = pointerIn(old)
	}
	// The parts of an object that has been shared are those of others as well, so none of them may
	// be changed.
	hash, id := mix(number(to), t.salt), identity{typ: p.number, count: 1}
	if from == to || t.known.get(hash, id) == to {
		return 0
	}
	w := t.borrow()
	if from != nil {
		w.update(p, from, to)
	} else {
		w.share(p, to)
	}
	t.objects.Add(1)
	t.hits.Add(w.hits)
	t.saved.Add(w.saved)
	if w.refused {
		t.refused.Add(1)
	}
	copied = w.copied
	t.giveBack(w)
	t.known.put(hash, id, to)
	return copied
}

// Stats describes what a [Table] has done and what it holds. Objects, Refused, Hits and SavedBytes count from
// the creation of the table; the other fields are its present state.
type Stats struct {
	Objects    int64 // how many objects have been shared
	Refused    int64 // how many of these were too deep or too large
	Hits       int64 // how often a part was replaced by an equal one, of the table or of an earlier state
	SavedBytes int64 // the bytes of these parts, without nested parts; memory that would have been freed by now counts, too

	// Parts is how many parts and shared objects the table knows. Collected parts count until the
	// table drops them, some time after the garbage collection.
	Parts      int
	TableBytes int // the memory of the table, in bytes

	Places     int64 // the number of paths in objects, such as the image of a container, for which the table counts what sharing saves and costs
	ColdPlaces int64 // the number of these paths where sharing costs more than it saves, so that only a sample is looked at
}

// Stats returns what the table has done and what it holds. It may be called at any time, and waits only for
// locks that are held briefly.
func (t *Table) Stats() Stats {
	s := Stats{
		Objects: t.objects.Load(), Refused: t.refused.Load(), Hits: t.hits.Load(), SavedBytes: t.saved.Load(),
		Places: t.made.Load(), ColdPlaces: t.cold.Load(),
	}
	s.Parts, s.TableBytes = t.known.size()
	return s
}
