package informer

import (
	"k8s.io/apimachinery/pkg/api/equality"
)

// change is the change that an item stands for, and what the applier decided about it.
type change[T Object] struct {
	*item[T]
	stored found[T] // what the store had before

	write write
	after T    // the object that write puts into the store, or removes from it
	ends  bool // the stored object is no more: it is deleted, or was and is created again
}

// decide turns a change into a write and the records of what will have happened.
func (a *applier[T]) decide(c *change[T]) {
	if c.kind == itemUpsert {
		a.decideUpsert(c)
	} else {
		a.decideDelete(c)
	}
}

func (a *applier[T]) decideDelete(c *change[T]) {
	var none T
	seen := c.kind == itemDelete && !c.broken // c.obj is the final state of an object
	old, unknown := c.stored.obj, c.kind == itemGone
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
		return
	case seen: // the store has lost an object that watchers know
		old = c.obj
	default:
		old, unknown = a.bareObject(c.key, c.stored.uid), true
	}
	if seen && !unknown && a.finalState.Load() {
		a.records = append(a.records, record[T]{kind: recordFinal, event: Event[T]{New: c.obj}})
	}
	a.record(c, Event[T]{Old: old, Type: EventDeleted, FinalStateUnknown: unknown})
}

func (a *applier[T]) decideUpsert(c *change[T]) {
	var none T
	old := c.stored.obj
	switch {
	case !c.stored.exists:
		c.write, c.after = writeAdd, c.obj
	case c.listed && a.unchanged(c, old):
		a.record(c, Event[T]{Old: old, New: old, Type: EventUpdated})
		a.records[len(a.records)-1].unchanged = true
		return
	default:
		c.write, c.after = writeUpdate, c.obj
		if recreated(old, c.obj) {
			// The delete and the creation happened while the watch was cut.
			c.ends = true
			a.record(c, Event[T]{Old: old, Type: EventDeleted, FinalStateUnknown: true})
			old = none
		}
	}
	if old == none {
		a.record(c, Event[T]{New: c.obj, Type: EventAdded})
		return
	}
	a.record(c, Event[T]{Old: old, New: c.obj, Type: EventUpdated})
}

// record appends the record of an event.
func (a *applier[T]) record(c *change[T], e Event[T]) {
	switch {
	case !a.processor.hasSynced():
		e.Origin = OriginInitial
	case c.listed:
		e.Origin = OriginRelist
	}
	a.records = append(a.records, record[T]{key: c.key, event: e})
}

// unchanged reports whether a list has brought the state that is stored already. The same
// version proves that, unless the version may belong to states that the server has lost
// because it was restored from a backup.
func (a *applier[T]) unchanged(c *change[T], old T) bool {
	return sameVersion(old, c.obj) && (!c.restored && !c.stored.doubtful || equality.Semantic.DeepEqual(old, c.obj))
}

// recreated reports whether two objects of one key are different objects: the first was
// deleted, and the second created under the same name.
func recreated[T Object](a, b T) bool {
	return a.GetUID() != "" && b.GetUID() != "" && a.GetUID() != b.GetUID()
}

// sameVersion reports whether two objects are the same object in the same state.
func sameVersion[T Object](a, b T) bool {
	return a.GetUID() != "" && a.GetUID() == b.GetUID() &&
		a.GetResourceVersion() != "" && a.GetResourceVersion() == b.GetResourceVersion()
}

// asks reports whether the item asks for a change. An object for which Transform has
// failed does not.
func (it *item[T]) asks() bool {
	switch it.kind {
	case itemUpsert:
		return !it.broken
	case itemDelete, itemGone:
		return true
	}
	return false
}
