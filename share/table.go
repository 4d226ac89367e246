package share

import (
	"hash/maphash"
	"reflect"
	"sync/atomic"

	"github.com/customcacheinformer/informer/internal/size"
)

// Table makes equal parts of objects the same memory. It keeps track of the parts with weak pointers: a
// part is collected when no object has it any more. Make one with [New]. It may be used by any number
// of informers and goroutines.
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
// pointer to a struct, such as a *corev1.Pod or an *unstructured.Unstructured. Share changes the object
// in place, so nobody else may have it, or anything that it refers to, before Share has returned. Its
// content stays the same. An object that has been shared is left alone.
//
// Share does nothing for a value of any other type. It leaves an object as it is that is nested more
// than 1,000 parts deep, or has more than half a million parts, as one with a cycle has. A level of an
// unstructured object is two parts deep. See [Stats.Refused].
func (t *Table) Share(obj any) { t.walk(nil, obj) }

// Measure calls Share, and returns the memory of the object in bytes, with all that it refers to. added is how much of it is
// not the memory of an object that was shared before. Both are estimates. Measure takes several times as long as Share.
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

// ShareUpdate shares obj. old is an earlier state of the same object, and has been shared. ShareUpdate
// takes equal parts from old first, which costs less than to look for them in the table. old may be nil, or of
// another type: then ShareUpdate is Share. Others may read old meanwhile.
func (t *Table) ShareUpdate(old, obj any) { t.walk(old, obj) }

// Transform calls Share and returns the object. It is a cache.TransformFunc, for client-go's informers
// and for a controller-runtime cache. It never returns an error. A program that removes fields does that
// first, and then calls Transform, in one function of its own. client-go calls the transform twice for each object of a streamed first state, and
// the second call finds the object shared.
func (t *Table) Transform(obj any) (any, error) {
	t.Share(obj)
	return obj, nil
}

// walk returns the bytes that it has copied, because they are not part of obj alone any more.
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

// Stats is what a table has done. All figures but Parts and TableBytes count from the beginning.
type Stats struct {
	Objects    int64 // the objects that have been shared
	Refused    int64 // those among them that were too deep or too large
	Hits       int64 // how often a part was replaced by an equal one, of the table or of an earlier state
	SavedBytes int64 // the memory of these parts, nested parts not counted, also if it is long free

	// Parts is the number of parts that the table knows, and of objects that have been shared.
	// Collected ones are counted until the next sweep, which follows a garbage collection.
	Parts      int
	TableBytes int // the memory of the table

	Places     int64 // the paths of which the table keeps an account, such as the image of a container of a Pod
	ColdPlaces int64 // those at which sharing does not pay, so that only a sample is looked at
}

// Stats returns the figures of the table. It does not block for long, and may be called at any time.
func (t *Table) Stats() Stats {
	s := Stats{
		Objects: t.objects.Load(), Refused: t.refused.Load(), Hits: t.hits.Load(), SavedBytes: t.saved.Load(),
		Places: t.made.Load(), ColdPlaces: t.cold.Load(),
	}
	s.Parts, s.TableBytes = t.known.size()
	return s
}
