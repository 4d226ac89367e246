package enqueue

import (
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/customcacheinformer/informer/internal/tombstone"
)

type deletion struct {
	from any // the watcher: two informers may have objects of the same key and UID
	id   tombstone.ID
}

// deletes holds the deletes whose keys are not reconciled yet. A delete is done when, for each of
// its keys, a call that began after the key was queued has succeeded.
type deletes[K comparable] struct {
	waiting map[K]sets.Set[deletion] // by the key that must be reconciled; without the deletes of calls under way
	open    map[deletion]int         // how many keys each delete still waits for
	spans   map[deletion]span        // when each delete happened; only of a controller with Options.Shards
}

// span is the range of versions in which an object was deleted: after the version "after", up to
// and including "to", which is "" if it is not known.
type span struct{ source, after, to string }

// since returns s with the begin of an earlier span of the same source. If the versions cannot be compared, it takes the
// earlier span's. The zero span changes nothing.
func (s span) since(earlier span) span {
	if earlier.source == s.source && s.source != "" && !notAfter(s.after, earlier.after) {
		s.after = earlier.after
	}
	return s
}

// notAfter reports whether a is at most as late as b. It returns false for versions that cannot be compared.
func notAfter(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order <= 0
}

// add notes that d waits for keys. With Options.Shards, at is when d happened, and the delete then stands for earlier ones
// of its source that wait for the same key: otherwise children that are deleted again and again would pile up while the
// call for their owner fails.
func (ds *deletes[K]) add(d deletion, at span, keys []K) {
	at = at.since(ds.spans[d])
	for _, key := range keys {
		if at.source != "" {
			at = ds.supersede(key, d, at)
		}
		before := ds.waiting[key]
		if before == nil {
			before = sets.Set[deletion]{}
			ds.waiting[key] = before
		}
		if !before.Has(d) {
			before.Insert(d)
			ds.open[d]++
		}
	}
	if at != (span{}) && ds.open[d] > 0 {
		ds.spans[d] = at
	}
}

// supersede makes earlier deletes of the source of d no longer wait for key. It returns the span of d and those deletes.
func (ds *deletes[K]) supersede(key K, d deletion, at span) span {
	for earlier := range ds.waiting[key] {
		if was := ds.spans[earlier]; earlier != d && was.source == at.source {
			at = at.since(was)
			ds.waiting[key].Delete(earlier)
			ds.settle(sets.New(earlier))
		}
	}
	return at
}

// take removes and returns the deletes that wait for key. They belong to a call that begins now.
func (ds *deletes[K]) take(key K) sets.Set[deletion] {
	taken := ds.waiting[key]
	delete(ds.waiting, key)
	return taken
}

// putBack makes the deletes of a call wait for the next call.
func (ds *deletes[K]) putBack(key K, taken sets.Set[deletion]) {
	newer := ds.waiting[key]
	switch {
	case len(taken) == 0:
		return
	case newer == nil:
		ds.waiting[key] = taken
		return
	}
	for d := range taken {
		if newer.Has(d) {
			ds.settle(sets.New(d))
		}
		newer.Insert(d)
	}
}

// settle notes that the deletes of a call no longer wait for its key.
func (ds *deletes[K]) settle(taken sets.Set[deletion]) {
	for d := range taken {
		if ds.open[d]--; ds.open[d] == 0 {
			delete(ds.open, d)
			delete(ds.spans, d)
		}
	}
}
