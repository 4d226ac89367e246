package informer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"reflect"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer/internal/object"
	"github.com/customcacheinformer/informer/internal/stopwatch"
	"github.com/customcacheinformer/informer/internal/tombstone"
)

// durablePace limits a batch to 1,000 records, the number of items that RealFIFO returns at once. There
// is not a limit in time: a durable store commits slowly, and the items that arrive during a commit form
// the next batch.
var durablePace = pace{records: 1000, time: math.MaxInt64}

// durableStore is the storage over a Durable. It collects changes in a batch, and calls Apply once with
// all of them and the bookmark that is correct after them.
type durableStore[T Object] struct {
	*access[T]
	durable    Durable
	begun      func() int64 // the log position after the last batch, also while that is committed
	tombstones *tombstone.Set

	batch []change[T]
	next  map[string]T // what the store will have after the batch, by key; the zero T for a deleted object

	several  bool                        // see gate
	recalled func(marks map[string]mark) // makes sources of the clusters that the store knows; nil unless the regions are clusters
	scopes   func() []*scope
	before   map[*scope]place // the places before the batch
	bookmark string           // the bookmark that the store has now
	kept     map[string]mark  // regions that have left, whose objects the store may still have because it has refused something
	foreign  bool             // the store may hold objects of regions that the informer does not read
	over     bool             // ctx is done before a decided change was committed
}

func newDurableStore[T Object](a *access[T], durable Durable, begun func() int64, several bool, scopes func() []*scope, tombstones *tombstone.Set) *durableStore[T] {
	return &durableStore[T]{
		access: a, durable: durable, begun: begun, several: several, scopes: scopes, before: map[*scope]place{},
		tombstones: tombstones, next: map[string]T{}, kept: map[string]mark{},
	}
}

// claimed maps each Durable over which an informer runs to the name of that informer.
var claimed sync.Map

// claim returns an error if another informer runs over d. Otherwise no other informer can run over d
// until release is called.
func claim(d Durable, informer string) (release func(), err error) {
	if d == nil || !reflect.ValueOf(d).Comparable() {
		return func() {}, nil
	}
	if other, taken := claimed.LoadOrStore(d, informer); taken {
		return func() {}, fmt.Errorf("informer %s: informer %s runs over the same Options.Durable", informer, other)
	}
	return func() { claimed.Delete(d) }, nil
}

// open reads the bookmark and the tombstones. It also reads all objects to index them, or only the
// first page if the store has indexes of its own.
func (d *durableStore[T]) open(ctx context.Context) (versions map[string]string, ok bool) {
	if !d.recall(ctx) || !d.load(ctx, d.index.Native(), func(string, T) {}) {
		return nil, false
	}
	return d.versions(), true
}

func (d *durableStore[T]) hasForeign() bool { return d.foreign }

// recall reads the bookmark and the tombstones. It returns false if ctx ended first.
func (d *durableStore[T]) recall(ctx context.Context) bool {
	var tombs object.Entries
	if !d.insistOnReading(ctx, "resume", func() (err error) { d.bookmark, err = d.durable.Resume(ctx); return err }) ||
		!d.insistOnReading(ctx, "tombstones", func() (err error) { tombs, err = keyed{d.durable}.Tombstones(ctx); return err }) {
		return false
	}
	d.foreign = d.readBookmark()
	var ids []tombstone.ID
	for n := range tombs.Len() {
		e := tombs.At(n)
		obj, err := object.As[T](e.Object)
		if err != nil {
			d.reports.unusable(ctx, &ObjectError{Op: "store", Err: fmt.Errorf("a tombstone: %w", err)})
			continue
		}
		ids = append(ids, tombstone.ID{Key: e.Key(), UID: obj.GetUID()})
	}
	d.tombstones.Add(ids, 0)
	return true
}

func (d *durableStore[T]) find(ctx context.Context, it *item[T], now time.Duration) (stored found[T], err error) {
	stored.doubtful = d.places.of(it.scope).doubtful
	if obj, changed := d.next[it.key]; changed {
		var none T
		stored.obj, stored.exists = obj, obj != none
		return stored, nil
	}
	stored.obj, stored.exists, err = d.get(ctx, it.key, now)
	return stored, err
}

// write adds the change to the batch.
func (d *durableStore[T]) write(_ context.Context, c *change[T], _ time.Duration) outcome {
	if c.restored {
		d.places.of(c.scope).doubtful = true
	}
	if c.write == writeNothing {
		return written
	}
	d.batch = append(d.batch, *c)
	var next T
	if c.write != writeDelete {
		next = c.after
	}
	d.next[c.key] = next
	return written
}

func (d *durableStore[T]) pass(it *item[T]) {
	if it.kind == itemCleaned {
		d.foreign = d.places.of(it.scope).spoiled // the next start tries again what the store has refused to delete
	}
	d.access.pass(it)
}

// commit gives the batch to the store, and retries if that fails. Once it has returned stopped, it
// never calls Apply again, because a later bookmark would cover the lost changes of this batch.
func (d *durableStore[T]) commit(ctx context.Context) outcome {
	if d.over {
		return stopped
	}
	defer d.clear()
	bookmark := d.nextBookmark()
	if len(d.batch) == 0 && bookmark == d.bookmark {
		return written
	}
	if d.over = ctx.Err() != nil; d.over {
		return stopped
	}
	key := ""
	if len(d.batch) > 0 {
		key = d.batch[0].key
	}
	changes, deleted := d.changes()
	mustSplit := false
	err := d.insist(ctx, "apply", key, func() error {
		err := d.durable.Apply(ctx, changes, bookmark)
		if mustSplit = errors.Is(err, ErrPermanent) && len(d.batch) > 1; mustSplit {
			return nil // it is not known yet which change the store refuses
		}
		return err
	})
	switch {
	case mustSplit:
		d.rewind()
		return split
	case errors.Is(err, ErrPermanent):
		d.refused.Add(int64(len(d.batch)))
		for i := range d.batch {
			d.spoil(d.batch[i].scope)
		}
		return refused
	case err != nil:
		d.over = true
		return stopped
	}
	d.bookmark = bookmark
	for _, p := range d.places {
		p.doubtful = p.doubtful && (bookmark == "" || p.bookmark() == "")
	}
	// A watcher that is added when the log has the deletes must find the tombstones.
	d.tombstones.Add(deleted, d.begun())
	var none T
	for i := range d.batch {
		c := &d.batch[i]
		d.wrote(ctx, c, d.next[c.key] == none)
	}
	if d.over = d.lost != nil; d.over {
		return stopped
	}
	return written
}

// clear begins a new batch.
func (d *durableStore[T]) clear() {
	for s, p := range d.places {
		d.before[s] = *p
	}
	clear(d.batch)
	d.batch = d.batch[:0]
	clear(d.next)
}

// rewind sets places to what they were before the batch. The batch is then applied again in halves. One
// half may have no item of some source, and its bookmark must not claim that the store has the items of
// the other half.
func (d *durableStore[T]) rewind() {
	for s, p := range d.places {
		if before, known := d.before[s]; known {
			*p = before
		} else {
			delete(d.places, s)
		}
	}
}

// changes returns the batch as arguments for Apply, and the tombstones that it creates.
func (d *durableStore[T]) changes() (all []Change, deleted []tombstone.ID) {
	for i := range d.batch {
		c := &d.batch[i]
		switch {
		case c.ends:
			all = append(all, Change{Entry: Entry{c.key, c.stored.obj}, Delete: true})
			deleted = append(deleted, tombstone.ID{Key: c.key, UID: c.stored.obj.GetUID()})
		case c.write == writeDelete:
			all = append(all, Change{Entry: Entry{c.key, c.stored.obj}, Delete: true, NoTombstone: true})
		}
		if c.write != writeDelete {
			all = append(all, Change{Entry: Entry{c.key, c.after}})
		}
	}
	return all, deleted
}

func (d *durableStore[T]) published(string) {}

// keys reads the store page by page, with retry. The store is in the order of its keys, so keys reads
// only the part with the prefix.
func (d *durableStore[T]) keys(ctx context.Context, prefix string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for after, more := prefix, true; more; {
			page, last, ok := d.page(ctx, after)
			if !ok {
				return
			}
			for n := range page.Len() {
				if key := page.At(n).Key(); !strings.HasPrefix(key, prefix) || !yield(key) {
					return
				}
			}
			after, more = last, last != ""
		}
	}
}

func (d *durableStore[T]) forget(ctx context.Context) {
	ripe := d.tombstones.TakeRipe()
	if len(ripe) > 0 && d.insist(ctx, "forget", "", func() error { return d.durable.Forget(ctx, ripe) }) == nil {
		d.tombstones.Remove(ripe)
	}
}

// close makes one attempt to forget the tombstones that are no longer needed. The next start delivers
// the deletes of all tombstones that are left.
func (d *durableStore[T]) close(ctx context.Context) {
	due := d.tombstones.Due()
	if len(due) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopwatch.HungCall)
	defer cancel()
	err := d.attempt("forget", "", d.clock.Now(), 1, func() error { return d.durable.Forget(ctx, due) })
	if err != nil {
		d.report(ctx, &StoreError{Op: "forget", Failures: 1, GaveUp: true, Err: err})
	}
}

// mark is the entry of a bookmark for one region.
type mark struct {
	Version string    `json:"version,omitempty"` // at which the source continues, "" if it must list
	UID     types.UID `json:"uid,omitempty"`     // of the cluster
	Leaves  Leave     `json:"leaves,omitempty"`  // how the cluster leaves, 0 if it does not
}

// anyRegion is the name in a bookmark of clusters which shows that the store may have objects of other regions. No cluster
// has this name.
const anyRegion = ""

// readBookmark sets the places of all sources from the bookmark of the store. It reports whether the
// store may have objects of regions that the informer does not read.
//
// The bookmark of an informer over all namespaces is a resourceVersion. For some namespaces it is a JSON object
// with the version of each, or "" for a namespace that must be listed. For clusters it is a JSON object with the
// mark of each. A JSON object names all namespaces or clusters that may have objects in the store.
func (d *durableStore[T]) readBookmark() (foreign bool) {
	marks := map[string]mark{}
	switch {
	case d.recalled != nil:
		marks = decode[mark](d.bookmark)
		_, more := marks[anyRegion]
		foreign = more || len(marks) == 0
		delete(marks, anyRegion)
		d.recalled(marks)
	case d.several:
		versions := decode[string](d.bookmark)
		foreign = len(versions) == 0
		for namespace, version := range versions {
			marks[namespace] = mark{Version: version}
		}
	case !strings.HasPrefix(d.bookmark, "{"):
		marks[""] = mark{Version: d.bookmark}
	}
	others := maps.Clone(marks)
	for _, s := range d.scopes() {
		version := marks[s.name()].Version
		delete(others, s.name())
		if s.lists {
			version = ""
		}
		d.places[s] = &place{version: version, exact: version != "", doubtful: version == ""}
		d.before[s] = *d.places[s]
	}
	return foreign || len(others) > 0
}

// nextBookmark returns the bookmark that is correct after the batch. While the store may have objects of other namespaces, it
// returns "", so that the next start lists. For clusters, the bookmark notes this instead.
func (d *durableStore[T]) nextBookmark() string {
	marks := d.marks()
	if d.recalled != nil {
		if d.foreign {
			marks[anyRegion] = mark{}
		}
		return encode(marks)
	}
	switch {
	case d.foreign:
		return ""
	case !d.several:
		return marks[""].Version
	}
	versions, known := map[string]string{}, false
	for namespace, m := range marks {
		versions[namespace] = m.Version
		known = known || m.Version != ""
	}
	if !known {
		return ""
	}
	return encode(versions)
}

// decode returns the values of the regions in a bookmark, or nil if it is not a JSON object with such
// values.
func decode[V any](bookmark string) (marks map[string]V) {
	if json.Unmarshal([]byte(bookmark), &marks) != nil {
		return nil
	}
	return marks
}

func encode(marks any) string {
	encoded, err := json.Marshal(marks)
	if err != nil {
		panic(err) // it encodes every map of strings and marks
	}
	return string(encoded)
}

func (d *durableStore[T]) drop(of *scope) {
	delete(d.kept, of.name())
	if d.places.of(of).spoiled {
		d.kept[of.name()] = mark{UID: of.uid, Leaves: of.leave}
	}
	d.access.drop(of)
	delete(d.before, of)
}

// marks returns the mark of each region that may have objects in the store.
func (d *durableStore[T]) marks() map[string]mark {
	marks := map[string]mark{}
	maps.Copy(marks, d.kept)
	here, leaving := map[string]bool{}, map[string]bool{}
	for _, s := range d.scopes() { // those that are leaving come last: the objects are those of the first of them
		if leaving[s.name()] {
			continue
		}
		leaving[s.name()] = s.gone.Load()
		m := mark{Version: d.places.of(s).bookmark(), UID: s.uid}
		if here[s.name()] = here[s.name()] || !s.gone.Load(); !here[s.name()] {
			m.Leaves = s.leave
		}
		marks[s.name()] = m
	}
	return marks
}

// versions returns, by region, the version at which each source can continue, or "" if it must list.
func (d *durableStore[T]) versions() map[string]string {
	versions := map[string]string{}
	for name, m := range d.marks() {
		versions[name] = m.Version
	}
	return versions
}
