package informer

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/customcacheinformer/informer/internal/object"
	"github.com/customcacheinformer/informer/internal/version"
)

// ownPrefix begins the keys of items that stand for no object.
const ownPrefix = "\x00"

// itemKind is the kind of change that an item in the queue asks for.
type itemKind uint8

const (
	itemUpsert   itemKind = iota // an object was added or updated
	itemDelete                   // an object was deleted
	itemGone                     // a list lacks a known key; there is no object
	itemLeft                     // like itemGone, but the object belongs to a part that the source no longer delivers
	itemList                     // a list begins
	itemLack                     // the objects of a list that came in parts are applied; its deletes are not
	itemListed                   // a list ends; all of its objects come before
	itemBookmark                 // nothing else has changed up to rv
	itemResumed                  // the source resumes at the version of a durable store
	itemWake                     // nothing: the applier has other work than items
	itemCleaned                  // the store has no objects of other namespaces
)

// item is an entry of the queue. It carries the object with its key, so that the key is
// computed once, and a link to the next item, so that the version reached is known although
// items are applied in any order.
type item[T Object] struct {
	kind     itemKind
	broken   bool // the object is unusable because Transform or the store refused it; the key is valid
	listed   bool // the item comes from a list
	own      bool // the applier has made the item
	done     bool // the item is applied; protected by gate.mu
	restored bool // the server has gone back in time: a version may stand for another state than before; also of itemList
	key      string
	obj      T
	listing  *contents     // of itemList or itemLack: what the list has; nil if no deletes follow from it
	rv       string        // the version reached when this item and all before it are applied
	arrived  time.Duration // when the item was made; 0 unless an observer needs it
	applied  func()        // of itemListed: called when it is applied; may be nil
	scope    *scope        // the scope of the source that the item came from, or gate.own
	next     *item[T]      // the item that entered next; protected by gate.mu
}

// asks reports whether the item asks for a change. An object for which Transform has
// failed does not.
func (it *item[T]) asks() bool {
	switch it.kind {
	case itemUpsert:
		return !it.broken
	case itemDelete, itemGone, itemLeft:
		return true
	}
	return false
}

// version returns the version of the state that the item brings. It is "" if that is not known.
func (it *item[T]) version() string {
	if it.rv != "" || it.kind == itemGone || it.kind == itemLeft {
		return it.rv
	}
	return it.obj.GetResourceVersion()
}

// contents is what a complete list has. A delete that follows from the list happened at its version
// or before.
type contents struct {
	*object.Keys
	version string
	has     func(key string) bool // whether the list would have a key; nil if it would have all
}

func (c *contents) lacks(key string) itemKind {
	if c.has != nil && !c.has(key) {
		return itemLeft
	}
	return itemGone
}

func itemKey[T Object](obj any) (string, error) {
	if it, ok := obj.(*item[T]); ok {
		return it.key, nil
	}
	return "", fmt.Errorf("%T is no item of the queue", obj)
}

// scope is what one source reads: the objects of one namespace, or all. An informer over
// several namespaces has a scope for each. All share one order of versions, but each source has
// read up to a version of its own.
type scope struct {
	namespace string      // "" if the objects may be in any namespace
	listed    atomic.Bool // the first list is applied, or the source has resumed

	// changed is the highest version of an object or a delete that the store has, or is about to
	// get. The applier raises it before it touches the store.
	changed version.Highest

	// These are protected by gate.mu.
	waiting int    // items that have entered and are not applied
	rv      string // everything up to this version is applied
	base    string // the version of the last list, or at which the source has resumed

	watchOnly bool // every item since the start came from a watch; belongs to the applier
}

// isLate reports whether the first list is not applied.
func (s *scope) isLate() bool { return !s.listed.Load() }

func (s *scope) covers(key string) bool {
	return strings.HasPrefix(key, s.prefix())
}

// prefix returns how the keys of the scope's objects begin.
func (s *scope) prefix() string {
	if s.namespace == "" {
		return ""
	}
	return s.namespace + "/"
}
