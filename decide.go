package informer

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer/internal/eventlog"
	"github.com/customcacheinformer/informer/internal/object"
)

// ownPrefix is the prefix of the keys of items without an object.
const ownPrefix = "\x00"

// itemKind shows what the applier must do for an item of the queue.
type itemKind uint8

const (
	itemUpsert   itemKind = iota // an object was added or updated
	itemDelete                   // an object was deleted
	itemGone                     // a list lacks a known key; there is no object
	itemLeft                     // like itemGone, but the object belongs to a part that the source no longer delivers
	itemUnread                   // like itemGone, but the informer no longer reads the source
	itemLeave                    // nothing of a source that is gone comes behind it
	itemList                     // a list begins
	itemLack                     // the objects of a list that came in parts are applied; its deletes are not
	itemListed                   // a list ends; all of its objects come before
	itemBookmark                 // nothing else has changed up to rv
	itemResumed                  // the source resumes at the version of a durable store
	itemWake                     // nothing: the applier has other work than items
	itemCleaned                  // the store has no objects of other namespaces
)

// item is one piece of work for the applier, on its way through the queue. It has the object and its
// key, so that the key is computed only once. It has a link to the item that entered next, so that the
// version that is reached is known although items are applied in any order.
type item[T Object] struct {
	kind      itemKind
	broken    bool  // the object is unusable because Transform or the store refused it; the key is valid
	listed    bool  // the item comes from a list
	own       bool  // the applier has made the item
	done      bool  // the item is applied; protected by gate.mu
	followers uint8 // of a head: how many items its entry stands for besides it; protected by gate.mu
	restored  bool  // the server has gone back in time: a version may stand for another state than before; also of itemList
	key       string
	entry     uint64        // the number of a head, 0 for other items
	obj       T             // if it could not be decoded, it has only a UID
	listing   *contents     // of itemList or itemLack: what the list has; nil if no deletes follow from it
	rv        string        // the version reached when this item and all before it are applied
	arrived   time.Duration // when the item was made; 0 unless an observer needs it
	applied   func()        // of itemListed: called when it is applied; may be nil
	scope     *scope        // the scope of the source that the item came from, or gate.own
	next      *item[T]      // the item that entered next; protected by gate.mu
}

// asks reports whether the item may change an object in the store. An object that could not be decoded,
// or for which Transform has failed, does not.
func (it *item[T]) asks() bool {
	switch it.kind {
	case itemUpsert:
		return !it.broken
	case itemDelete, itemGone, itemLeft, itemUnread:
		return true
	}
	return false
}

// looks reports whether the stored object of the item's key must be looked up: if asks is true, or if the item has an object
// that cannot be used, but shows its UID.
func (it *item[T]) looks() bool {
	var none T
	return it.asks() || it.kind == itemUpsert && it.obj != none
}

// after returns the item to apply to the stored object. Usually that is the item itself. But an object that cannot be used only
// shows that a stored object with another UID is gone: then after returns a delete of that, and otherwise nil.
func (it *item[T]) after(stored found[T]) *item[T] {
	if it.asks() {
		return it
	}
	if !stored.exists || !recreated(stored.obj, it.obj) {
		return nil
	}
	return &item[T]{kind: itemGone, listed: it.listed, restored: it.restored, key: it.key, scope: it.scope}
}

// changedKey returns the key of the object that the item may change, or "" if asks is false.
func (it *item[T]) changedKey() string {
	if !it.asks() {
		return ""
	}
	return it.key
}

// version returns the version of the state that the item brings, or "" if it is not known.
func (it *item[T]) version() string {
	var none T
	if it.rv != "" || it.obj == none { // no watcher has the object
		return it.rv
	}
	return it.obj.GetResourceVersion()
}

// contents describes a complete list. A delete that follows from the list happened at its version or
// before.
type contents struct {
	*object.Keys
	version string
	has     func(key string) bool // whether the list would have a key; nil if it would have all
	left    bool                  // there is no list: the source is gone
}

// unread returns the contents of a list without objects, for a source that is gone.
func unread(s *scope) *contents {
	if s.leave == LeaveSilently {
		return &contents{has: func(string) bool { return false }}
	}
	return &contents{left: true}
}

func (c *contents) lacks(key string) itemKind {
	if c.left {
		return itemUnread
	}
	if c.has != nil && !c.has(key) {
		return itemLeft
	}
	return itemGone
}

// itemKey returns the key under which client-go's queue keeps an item.
func itemKey[T Object](obj any) (string, error) {
	it, ok := obj.(*item[T])
	switch {
	case !ok:
	case it.entry > 0:
		return ownPrefix + strconv.FormatUint(it.entry, 10), nil
	default:
		return it.key, nil
	}
	return "", fmt.Errorf("%T is not an item of the queue", obj)
}

// change is an item with the state before it and the decision about it.
type change[T Object] struct {
	*item[T]
	stored found[T] // the state of the store before the change

	write write
	after T    // the object that write puts into the store, or removes from it
	ends  bool // the stored object no longer exists: it was deleted, and perhaps created again
}

// found is the result of a lookup of a key in a store.
type found[T Object] struct {
	obj    T
	exists bool
	// known is true if watchers may know an object with the key. uid is the UID of that object.
	known bool
	uid   types.UID
	// doubtful is true if the version of obj may belong to a state that the server has lost.
	doubtful bool
}

// write is the kind of a change to the store.
type write uint8

const (
	writeNothing write = iota
	writeAdd
	writeUpdate
	writeDelete
)

func (w write) String() string {
	return [...]string{writeNothing: "nothing", writeAdd: "add", writeUpdate: "update", writeDelete: "delete"}[w]
}

// decider decides which write and which events a change leads to. It does not use the store, and owns
// no goroutine.
type decider[T Object] struct {
	// bareObject makes an object that has only a key and a UID.
	bareObject func(key string, uid types.UID) T
	// handlers is true if the log must also have the objects that a list finds unchanged. Only
	// client-go's handlers get these.
	handlers atomic.Bool
	// finals is true if the log must have the final state of each deleted object.
	finals atomic.Bool
}

// decide sets write, after and ends of a change, and appends the events of the change to records. Their Origin is
// OriginLeft if the informer no longer reads the source, otherwise OriginInitial until the first list of the source is
// applied, and after that OriginRelist for an item of a list.
func (d *decider[T]) decide(c *change[T], records []record[T]) []record[T] {
	from := len(records)
	switch c.kind {
	case itemUpsert:
		records = d.upsert(c, records)
	case itemLeft:
		if c.stored.exists {
			c.write, c.after = writeDelete, c.stored.obj
		}
	default:
		records = d.delete(c, records)
	}
	for i := from; i < len(records); i++ {
		r := &records[i]
		r.key, r.event.From = c.key, c.scope.cluster
		switch {
		case c.kind == itemUnread:
			r.event.Origin = OriginLeft
		case !c.scope.listed.Load():
			r.event.Origin = OriginInitial
		case c.listed:
			r.event.Origin = OriginRelist
		}
	}
	return records
}

// delete decides about an object that is gone. It makes an event only if the store has the object or watchers may know
// it. FinalStateUnknown is true if the source sent no delete of that object, or if only its key and its UID are known.
func (d *decider[T]) delete(c *change[T], records []record[T]) []record[T] {
	var none T
	seen := c.kind == itemDelete && !c.broken // c.obj is the final state of an object
	old, unknown := c.stored.obj, c.kind == itemGone || c.kind == itemUnread
	switch {
	case c.stored.exists:
		c.write, c.after, c.ends = writeDelete, old, true
		if seen {
			c.after = c.obj // with the version of the delete
		}
		// If the deleted object is a re-creation that the store never got, its final
		// state is not the final state of the stored object.
		unknown = unknown || c.obj != none && recreated(old, c.obj)
	case !c.stored.known:
		return records
	case seen: // the store has lost an object that watchers know
		old = c.obj
	default:
		old, unknown = d.bareObject(strings.TrimPrefix(c.key, c.scope.cluster.prefix()), c.stored.uid), true
	}
	if seen && !unknown && d.finals.Load() {
		records = append(records, record[T]{kind: recordFinal, event: Event[T]{New: c.obj}})
	}
	return append(records, record[T]{event: Event[T]{Old: old, Type: EventDeleted, FinalStateUnknown: unknown}})
}

// upsert decides about an object that exists. A listed object that is unchanged makes no event, except for handlers of
// client-go. An object with another UID than the stored one is a delete and an add.
func (d *decider[T]) upsert(c *change[T], records []record[T]) []record[T] {
	var none T
	old := c.stored.obj
	switch {
	case !c.stored.exists:
		c.write, c.after = writeAdd, c.obj
	case c.listed && c.unchanged():
		if !d.handlers.Load() {
			return records
		}
		return append(records, record[T]{event: Event[T]{Old: old, New: old, Type: EventUpdated}, unchanged: true})
	default:
		c.write, c.after = writeUpdate, c.obj
		if recreated(old, c.obj) {
			// The delete and the creation happened while the watch was cut.
			c.ends = true
			records = append(records, record[T]{event: Event[T]{Old: old, Type: EventDeleted, FinalStateUnknown: true}})
			old = none
		}
	}
	if old == none {
		return append(records, record[T]{event: Event[T]{New: c.obj, Type: EventAdded}})
	}
	return append(records, record[T]{event: Event[T]{Old: old, New: c.obj, Type: EventUpdated}})
}

// unchanged reports whether a listed object is equal to the stored one. If both have the same version,
// they are equal, unless the server was restored from a backup and has lost the state of that version.
// If that is possible, unchanged compares the contents.
func (c *change[T]) unchanged() bool {
	old := c.stored.obj
	return sameVersion(old, c.obj) && (!c.restored && !c.stored.doubtful || equal(old, c.obj))
}

// equal reports whether two objects are equal. It returns false if they cannot be compared: DeepEqual
// panics for types with fields that are not exported, such as protobuf messages.
func equal(a, b any) (is bool) {
	defer func() { _ = recover() }()
	return equality.Semantic.DeepEqual(a, b)
}

// recreated reports whether a was deleted and b was created under the same name.
func recreated[T Object](a, b T) bool {
	return a.GetUID() != "" && b.GetUID() != "" && a.GetUID() != b.GetUID()
}

func sameVersion[T Object](a, b T) bool {
	return a.GetUID() != "" && a.GetUID() == b.GetUID() &&
		a.GetResourceVersion() != "" && a.GetResourceVersion() == b.GetResourceVersion()
}

// These are the types of package eventlog for the records of an informer.
type (
	segment[T Object] = eventlog.Segment[record[T]]
	cursor[T Object]  = eventlog.Cursor[record[T]]
)

const maxChunk = eventlog.MaxChunk

type recordKind uint8

const (
	recordEvent   recordKind = iota
	recordMarker             // the informer has synced
	recordVoid               // the store has refused the change, after begun had counted its record
	recordLeft               // the object has left the store without a delete
	recordFinal              // New is the final state of the object that the next record deletes
	recordTold               // ends an initial state; never in the log
	recordVersion            // key is the version up to which the source is delivered, "" for none; see version.Follower
)

// record is an entry of the event log. It is written once, and all listeners read it.
type record[T Object] struct {
	key       string // of the object in the store
	event     Event[T]
	kind      recordKind
	unchanged bool          // a relist found the object unchanged: no event for native watchers
	since     time.Duration // when the record was appended, by the processor's stopwatch
}

func (r *record[T]) isEvent() bool { return r.kind == recordEvent && !r.unchanged }

func countEvents[T Object](records []record[T]) int {
	n := 0
	for i := range records {
		if records[i].isEvent() {
			n++
		}
	}
	return n
}

// bareObject returns an object with only a namespace, a name and a UID.
func bareObject[T Object](key string, uid types.UID) T {
	var obj AnyObject = &metav1.PartialObjectMetadata{}
	if t := reflect.TypeFor[T](); t.Kind() == reflect.Pointer {
		obj = reflect.New(t.Elem()).Interface().(AnyObject)
	}
	identify(obj, key, uid)
	return obj.(T)
}

func identify(obj AnyObject, key string, uid types.UID) {
	namespace, name, _ := cache.SplitMetaNamespaceKey(key)
	obj.SetNamespace(namespace)
	obj.SetName(name)
	obj.SetUID(uid)
}

// newer reports whether version is higher than stored. It returns true if they cannot be compared.
func newer(version, stored string) bool {
	order, err := resourceversion.CompareResourceVersion(version, stored)
	return err != nil || order > 0
}

// precedes reports whether an item of a watch is not newer than an object of the store with this version. A delete with just this
// version is newer: some servers send it with the last version of the object.
func (it *item[T]) precedes(stored string) bool {
	return !newer(it.rv, stored) && (it.kind != itemDelete || it.rv != stored)
}

// reached reports whether now is at least want. It returns an error if they cannot be compared.
func reached(now, want string) (bool, error) {
	if now == "" {
		return false, nil
	}
	order, err := resourceversion.CompareResourceVersion(now, want)
	return order >= 0, err
}

// void replaces all records except markers by void records. The records cannot be removed, because the
// processor's position begun already includes them.
func void[T Object](records []record[T]) {
	for i := range records {
		if records[i].kind != recordMarker {
			records[i] = record[T]{kind: recordVoid}
		}
	}
}

// voidLast makes the last counts[key] events of each key void. Earlier events of the key stay: in a batch, the first insert
// of a key may have worked.
func voidLast[T Object](records []record[T], counts map[string]int) {
	for n := len(records) - 1; n >= 0; n-- {
		if r := &records[n]; r.isEvent() && counts[r.key] > 0 {
			counts[r.key]--
			void(records[n : n+1])
		}
	}
}

// takeLast removes the last counts[key] elements of each key from s. It returns the other elements, and
// those that it has removed, both in their order.
func takeLast[E any](s []E, counts map[string]int, key func(E) string) (rest, taken []E) {
	rest = s
	for n, e := range slices.Backward(s) {
		if counts[key(e)] > 0 {
			counts[key(e)]--
			taken = append(taken, e)
			rest = slices.Delete(rest, n, n+1)
		}
	}
	slices.Reverse(taken)
	return rest, taken
}
